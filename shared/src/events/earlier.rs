//! Remembers events that were written, so that one that is repeated counts them up.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::EventType;

/// A repetition within this time counts up the earlier event instead of making a new one
/// (client-go's correlator: 10 min).
const REPEAT_WINDOW: Duration = Duration::from_mins(10);
/// Repetitions of a warning that are written as they come. Further ones are counted, and written
/// together: what fails all the time is tried all the time, and a fleet in which it does must not
/// write without end. (client-go lets 25 pass, and then one in five minutes.)
const MANY: i32 = 10;
/// Time after which such repetitions are written.
const SELDOM: Duration = Duration::from_mins(30);
/// The window of an event that has repeated so often: longer than they are kept back.
const LONG_WINDOW: Duration = Duration::from_mins(40);
/// How many earlier events are remembered for that. About 2 MB when full.
const REMEMBERED: usize = 8192;
/// An event that was written.
#[derive(Debug)]
pub(super) struct Earlier {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) count: i32,
    /// Repetitions that were not written.
    pub(super) unwritten: i32,
    /// Time of the last write of the event.
    pub(super) at: Instant,
}

impl Earlier {
    /// Returns whether a repetition makes a new event.
    fn is_over(&self) -> bool {
        let window = if self.count >= MANY {
            LONG_WINDOW
        } else {
            REPEAT_WINDOW
        };
        self.at.elapsed() >= window
    }

    /// Counts repetitions that are not to be written yet; `false` if they are. What happened and is
    /// no failure is always written.
    fn keeps_back(&mut self, kind: EventType, times: i32) -> bool {
        let is_often = self.count >= MANY && kind == EventType::Warning;
        let keeps = is_often && self.at.elapsed() < SELDOM;
        if keeps {
            self.unwritten = self.unwritten.saturating_add(times);
        }
        keeps
    }
}

/// Events that were written, each by the number of what it says.
#[derive(Debug, Default)]
pub(super) struct Memory(HashMap<u64, Earlier>);

impl Memory {
    /// Counts repetitions of what is not to be written yet; `false` if they are.
    pub(super) fn keeps_back(&mut self, sameness: u64, kind: EventType, times: i32) -> bool {
        let known = self.0.get_mut(&sameness);
        known.is_some_and(|known| !known.is_over() && known.keeps_back(kind, times))
    }

    /// Takes out what a repetition counts up.
    pub(super) fn take(&mut self, sameness: u64) -> Option<Earlier> {
        self.0.remove(&sameness).filter(|known| !known.is_over())
    }

    /// Keeps an event. Where there is no room, those that were repeated least are forgotten, and of
    /// those the oldest: of a failover's events most happen once.
    pub(super) fn keep(&mut self, sameness: u64, event: Earlier) {
        if self.0.len() >= REMEMBERED {
            self.make_room();
        }
        self.0.insert(sameness, event);
    }

    /// Forgets an eighth at a time: in a storm of events each would cost a pass over all of them.
    fn make_room(&mut self) {
        self.0.retain(|_, known| !known.is_over());
        let surplus = self.0.len().saturating_sub(REMEMBERED - REMEMBERED / 8);
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_unstable_by_key(|(_, it)| (it.count, it.at));
        let least: Vec<u64> = all.iter().take(surplus).map(|(of, _)| **of).collect();
        for sameness in least {
            self.0.remove(&sameness);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(count: i32) -> Earlier {
        Earlier {
            namespace: "default".to_owned(),
            name: "web.1f".to_owned(),
            count,
            unwritten: 0,
            at: Instant::now(),
        }
    }

    /// Minutes in which something that happens each minute is written, with its count.
    async fn written(kind: EventType) -> Vec<(i32, i32)> {
        let mut known = event(1);
        let mut writes = Vec::new();
        for minute in 0..120 {
            tokio::time::advance(Duration::from_mins(1)).await;
            assert!(!known.is_over());
            if known.keeps_back(kind, 1) {
                continue;
            }
            known.count += known.unwritten + 1;
            (known.unwritten, known.at) = (0, Instant::now());
            writes.push((minute, known.count));
        }
        writes
    }

    #[tokio::test(start_paused = true)]
    async fn a_warning_that_is_repeated_without_end_is_written_seldom() {
        let writes = written(EventType::Warning).await;
        let first: Vec<_> = (0..9).map(|minute| (minute, minute + 2)).collect();
        assert_eq!(writes[..9], first);
        assert_eq!(writes[9..], [(38, 40), (68, 70), (98, 100)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_and_is_no_failure_is_always_written() {
        assert_eq!(written(EventType::Normal).await.len(), 120);
    }

    #[tokio::test(start_paused = true)]
    async fn what_begins_to_fail_is_remembered_although_many_things_happened_once() {
        let mut memory = Memory::default();
        let (repeated, first) = (u64::MAX, 0);
        memory.keep(repeated, event(2));
        for sameness in first..REMEMBERED as u64 {
            memory.keep(sameness, event(1));
            tokio::time::advance(Duration::from_micros(1)).await;
        }
        assert_eq!(memory.0.len(), REMEMBERED - REMEMBERED / 8 + 1);
        let oldest = REMEMBERED as u64 / 8;
        for (sameness, is_known) in [
            (first, false),
            (oldest - 1, false),
            (oldest, true),
            (REMEMBERED as u64 - 1, true),
            (repeated, true),
        ] {
            assert_eq!(memory.take(sameness).is_some(), is_known, "{sameness}");
        }

        for (count, minutes, is_known) in [
            (1, 9, true),
            (1, 10, false),
            (10, 39, true),
            (10, 40, false),
        ] {
            memory.keep(repeated, event(count));
            tokio::time::advance(Duration::from_mins(minutes)).await;
            assert_eq!(
                memory.take(repeated).is_some(),
                is_known,
                "{count} {minutes}"
            );
        }
    }
}
