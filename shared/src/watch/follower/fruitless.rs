//! Watches that send nothing, and what is done instead.
//!
//! Who asks for the changes since a version again and again never gets one where something on
//! the way (a proxy, a load balancer) cuts each stream before it says anything. What is cut after a
//! while is asked for in shorter watches, which the server ends itself: until its end a watch sends
//! everything. Where that does not help, everything is listed.

use std::time::Duration;

use tokio::time::Instant;

use crate::watch::source::WatchError;

/// How often in a row, and since when at least, a watch has to break before it has said anything.
/// Then everything is listed, and again after each further break, until something comes. A
/// server that is away for some seconds makes nobody list everything.
const BREAKS: u32 = 3;
const LASTS: Duration = Duration::from_secs(10);
/// How often in a row before the next watches are shorter: one cut is no rule.
const CUTS: u32 = 2;
/// The shortest watch that is asked for: each costs a request.
const SHORTEST: Duration = Duration::from_secs(5);
/// One part of so many by which a watch that ended as agreed makes the next one longer.
const GROWTH: u32 = 50;

/// How the watches of one collection fared that sent nothing.
#[derive(Debug)]
pub(super) struct Fruitless {
    /// Those that broke, one after the other.
    breaks: u32,
    /// Time at which the first of them broke.
    since: Option<Instant>,
    /// Whether everything has to be listed.
    is_list_due: bool,
    /// For how long a watch is asked for while none is cut.
    agreed: Duration,
    /// For how long the next one is asked for.
    next: Duration,
}

impl Fruitless {
    /// Makes the count of fruitless watches, of which there are none so far; watches are to last
    /// that long.
    pub(super) const fn new(agreed: Duration) -> Self {
        Self {
            breaks: 0,
            since: None,
            is_list_due: false,
            agreed,
            next: agreed,
        }
    }

    /// Notes that a watch said something.
    pub(super) const fn received(&mut self) {
        (self.breaks, self.since, self.is_list_due) = (0, None, false);
    }

    /// Notes that a watch ended as agreed, so that there was nothing more to come.
    pub(super) fn ended(&mut self) {
        self.received();
        self.next = (self.next + self.next / GROWTH).min(self.agreed);
    }

    /// Notes that a watch broke after that time, in which it said nothing.
    pub(super) fn broke(&mut self, lasted: Duration, now: Instant) {
        self.breaks = self.breaks.saturating_add(1);
        let since = *self.since.get_or_insert(now);
        self.is_list_due |= self.breaks >= BREAKS && now.duration_since(since) >= LASTS;
        if self.breaks >= CUTS && lasted >= SHORTEST {
            let shorter = lasted.min(self.next) * 2 / 3;
            self.next = shorter.max(SHORTEST.min(self.agreed));
        }
    }

    /// Returns for how long the next watch is asked for.
    pub(super) const fn next(&self) -> Duration {
        self.next
    }

    /// Returns whether everything has to be listed, as no changes are seen.
    pub(super) const fn is_list_due(&self) -> bool {
        self.is_list_due
    }
}

/// Returns whether a watch that was not opened, or that ended so, may be one that never will be,
/// although lists may come through. What says that the server has too much to do asks for no list.
pub(super) fn is_in_the_way(stumble: &WatchError) -> bool {
    match stumble {
        WatchError::Deadline(_) => true,
        WatchError::Refused { code, .. } => matches!(code, 502 | 504),
        WatchError::Ended { code, .. } => !matches!(code, 410 | 429 | 503),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGREED: Duration = Duration::from_secs(50);

    #[test]
    fn what_is_cut_after_a_while_is_asked_for_in_watches_that_end_before() {
        // After how many seconds each watch broke, and for how long the next one is asked for.
        for (broke, expected) in [
            (&[35][..], 50),
            (&[35, 35], 23),
            (&[35, 35, 23], 15),
            (&[6, 6, 6], 5),
            (&[0, 0, 0, 0], 50),
            (&[0, 20], 13),
            (&[60, 60, 60, 60], 14), // nothing said that it had been cut
            (&[20, 0], 50),
        ] {
            let mut fruitless = Fruitless::new(AGREED);
            for seconds in broke {
                fruitless.broke(Duration::from_secs(*seconds), Instant::now());
            }
            assert_eq!(fruitless.next().as_secs(), expected, "{broke:?}");
            fruitless.ended();
            assert!(!fruitless.is_list_due());
            let ends = (0..200).find(|_| {
                fruitless.ended();
                fruitless.next() == AGREED
            });
            assert!(ends.is_some(), "{broke:?}: it grows again");
        }
    }

    #[test]
    fn everything_is_listed_when_three_watches_in_a_row_were_cut_and_that_lasts() {
        let start = Instant::now();
        // Seconds at which watches broke.
        for (broke, expected) in [
            (&[0][..], false),
            (&[0, 1, 2, 5], false),
            (&[0, 1, 2, 5, 11], true),
            (&[0, 30], false),
            (&[0, 30, 31], true),
        ] {
            let mut fruitless = Fruitless::new(AGREED);
            for again in [false, true] {
                for second in broke {
                    let now = start + Duration::from_secs(*second);
                    fruitless.broke(Duration::ZERO, now);
                }
                assert_eq!(fruitless.is_list_due(), expected, "{broke:?}");
                if again {
                    fruitless.ended();
                } else {
                    fruitless.received();
                }
                assert!(!fruitless.is_list_due());
            }
        }
    }

    #[test]
    fn a_busy_server_is_not_asked_for_lists() {
        let refused = |code| WatchError::Refused {
            code,
            message: String::new(),
            retry_after: None,
        };
        let ended = |code| WatchError::Ended {
            code,
            message: String::new(),
        };
        for (stumble, expected) in [
            (refused(504), true),
            (refused(502), true),
            (refused(503), false),
            (refused(429), false),
            (refused(403), false),
            (WatchError::Deadline(AGREED), true),
            (ended(500), true),
            (ended(429), false),
            (ended(410), false),
        ] {
            assert_eq!(is_in_the_way(&stumble), expected, "{stumble:?}");
        }
    }
}
