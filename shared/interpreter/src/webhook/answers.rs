//! Answers that are remembered, so that an object that has not changed is not asked about again.
//! Pure: time comes in.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::context::{Answer, Key};
use super::error::Fault;

/// Answers and failures that are remembered at most.
const MOST: usize = 16_384;
/// Bytes of the answers that are remembered, as they are in memory.
const MOST_BYTES: usize = 64 << 20;
/// Time for which an answer counts: a webhook may say something else later about the same object.
pub(super) const VALID: Duration = Duration::from_mins(10);
/// First and longest time after which a question that failed is sent again.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// What is known of a question.
pub(super) enum Known {
    /// It is on the way, or waits. The receiver closes when it ends.
    Asked(watch::Receiver<()>),
    /// It was answered.
    Answered(Arc<Answer>),
    /// It failed, and is sent again after this time.
    Failed(Fault, Duration),
}

struct Entry {
    webhook: u64,
    state: State,
    /// Position in the order of use.
    tick: u64,
    bytes: usize,
}

enum State {
    Asked {
        ended: watch::Sender<()>,
        failures: u32,
    },
    Answered {
        answer: Arc<Answer>,
        until: Instant,
    },
    Failed {
        fault: Fault,
        until: Instant,
        failures: u32,
    },
}

/// Memory of questions.
#[derive(Default)]
pub(super) struct Answers {
    entries: HashMap<Key, Entry>,
    /// The entries that may be forgotten, by the time of their last use.
    order: BTreeMap<u64, Key>,
    bytes: usize,
    ticks: u64,
}

impl Answers {
    /// Returns what is known of a question; `None` if it has to be sent.
    pub(super) fn get(&mut self, key: &Key, now: Instant) -> Option<Known> {
        let entry = self.entries.get(key)?;
        let known = match &entry.state {
            State::Asked { ended, .. } => return Some(Known::Asked(ended.subscribe())),
            State::Answered { answer, until } if *until > now => {
                Known::Answered(Arc::clone(answer))
            }
            State::Failed { fault, until, .. } if *until > now => {
                Known::Failed(fault.clone(), until.duration_since(now))
            }
            State::Answered { .. } | State::Failed { .. } => return None,
        };
        self.touch(key);
        Some(known)
    }

    /// Records that a question to a webhook is on the way. Returns a receiver that closes when it
    /// ends.
    pub(super) fn ask(&mut self, key: Key, webhook: u64) -> watch::Receiver<()> {
        let failures = match self.take(&key).map(|entry| entry.state) {
            Some(State::Failed { failures, .. }) => failures,
            _ => 0,
        };
        let (ended, receiver) = watch::channel(());
        let entry = Entry {
            webhook,
            state: State::Asked { ended, failures },
            tick: 0,
            bytes: 0,
        };
        self.entries.insert(key, entry);
        receiver
    }

    /// Records the end of a question. One that was forgotten meanwhile stays so.
    pub(super) fn end(
        &mut self,
        key: Key,
        outcome: Result<Answer, Fault>,
        bytes: usize,
        now: Instant,
    ) {
        let Some(Entry { webhook, state, .. }) = self.take(&key) else {
            return;
        };
        let before = match &state {
            State::Asked { failures, .. } | State::Failed { failures, .. } => *failures,
            State::Answered { .. } => 0,
        };
        let (new, bytes) = match outcome {
            Ok(answer) => (
                State::Answered {
                    answer: Arc::new(answer),
                    until: now + VALID,
                },
                bytes,
            ),
            Err(fault) => {
                let pause = FIRST_RETRY * 2_u32.saturating_pow(before);
                (
                    State::Failed {
                        fault,
                        until: now + pause.min(LONGEST_RETRY),
                        failures: (before + 1).min(16),
                    },
                    0,
                )
            }
        };
        self.ticks += 1;
        self.bytes += bytes;
        self.order.insert(self.ticks, key);
        let entry = Entry {
            webhook,
            state: new,
            tick: self.ticks,
            bytes,
        };
        self.entries.insert(key, entry);
        while self.order.len() > MOST || self.bytes > MOST_BYTES {
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            self.take(&oldest);
        }
        // Whoever waits wakes up when the state before is dropped, and finds the new one.
        drop(state);
    }

    /// Forgets a question.
    pub(super) fn forget(&mut self, key: &Key) {
        self.take(key);
    }

    /// Forgets the questions to webhooks that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(u64) -> bool) {
        let gone: Vec<Key> = self
            .entries
            .iter()
            .filter(|(_, entry)| !is_there(entry.webhook))
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            self.take(&key);
        }
    }

    fn take(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.tick);
        self.bytes -= entry.bytes;
        Some(entry)
    }

    fn touch(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.order.remove(&entry.tick);
            self.ticks += 1;
            entry.tick = self.ticks;
            self.order.insert(entry.tick, *key);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Operation;
    use serde_json::json;

    use super::super::context::Question;
    use super::*;

    fn key(number: usize) -> Key {
        let object = json!({ "number": number });
        Question::new(Operation::InterpretHealth, &object)
            .digest(1, false)
            .0
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_a_while_and_wakes_who_waits_for_it() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        assert!(answers.get(&key(1), now).is_none());
        let mut waits = answers.ask(key(1), 1);
        assert!(matches!(answers.get(&key(1), now), Some(Known::Asked(_))));
        answers.end(key(1), Ok(Answer::Health(true)), 10, now);
        assert!(waits.changed().await.is_err(), "it ended");
        let found = answers.get(&key(1), now);
        assert!(matches!(found, Some(Known::Answered(it)) if *it == Answer::Health(true)));
        assert!(answers.get(&key(1), now + VALID).is_none());
        answers.retain(|webhook| webhook != 1);
        assert!(answers.get(&key(1), now).is_none());
        assert_eq!((answers.order.len(), answers.bytes), (0, 0));
        answers.end(key(1), Ok(Answer::Health(true)), 10, now);
        assert!(answers.get(&key(1), now).is_none(), "forgotten meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_fails_again_and_again_is_sent_more_and_more_seldom() {
        let (mut answers, mut now) = (Answers::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..8 {
            answers.ask(key(1), 1);
            answers.end(key(1), Err(Fault::Timeout(1)), 0, now);
            let Some(Known::Failed(Fault::Timeout(1), left)) = answers.get(&key(1), now) else {
                panic!("it failed");
            };
            pauses.push(left.as_secs());
            now += left;
            assert!(answers.get(&key(1), now).is_none());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300]);
        answers.ask(key(1), 1);
        answers.end(key(1), Ok(Answer::Health(true)), 0, now);
        answers.ask(key(1), 1);
        answers.end(key(1), Err(Fault::Timeout(1)), 0, now);
        let found = answers.get(&key(1), now);
        assert!(matches!(found, Some(Known::Failed(_, left)) if left == FIRST_RETRY));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_used_for_longest_is_forgotten_first_and_never_what_is_on_the_way() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        answers.ask(key(0), 1);
        for number in 1..=MOST + 1 {
            answers.ask(key(number), 1);
            answers.end(key(number), Ok(Answer::Health(true)), 1, now);
            answers.get(&key(1), now);
        }
        assert_eq!(answers.order.len(), MOST);
        assert!(matches!(answers.get(&key(0), now), Some(Known::Asked(_))));
        assert!(answers.get(&key(1), now).is_some());
        assert!(answers.get(&key(2), now).is_none());
        answers.ask(key(2), 1);
        answers.end(key(2), Ok(Answer::Health(true)), MOST_BYTES - 5, now);
        assert!(answers.bytes <= MOST_BYTES && answers.order.len() <= 7);
    }
}
