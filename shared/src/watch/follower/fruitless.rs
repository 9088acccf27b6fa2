//! Watches of which nothing is heard, and what is done instead.
//!
//! Who asks for the changes since a version again and again never hears of one where something on
//! the way (a proxy, a load balancer) cuts each stream before it says anything. What is cut after a
//! while is asked for in shorter watches, which the server ends itself: until its end a watch tells
//! everything. Where that does not help, everything is listed.

use std::time::Duration;

use crate::watch::source::WatchError;

/// How often in a row a watch may break before it has said anything. Then everything is listed, and
/// again after each further break, until something is heard.
const BREAKS: u32 = 3;
/// How often in a row before the next watches are shorter: one cut is no rule.
const CUTS: u32 = 2;
/// The shortest watch that is asked for: each costs a request.
const SHORTEST: Duration = Duration::from_secs(5);
/// One part of so many by which a watch that ended as agreed makes the next one longer.
const GROWTH: u32 = 50;

/// How the watches of one collection fared of which nothing was heard.
#[derive(Debug)]
pub(super) struct Fruitless {
    /// Those that broke, one after the other.
    breaks: u32,
    /// For how long a watch is asked for while none is cut.
    agreed: Duration,
    /// For how long the next one is asked for.
    next: Duration,
}

impl Fruitless {
    /// None so far; watches are to last that long.
    pub(super) const fn new(agreed: Duration) -> Self {
        Self {
            breaks: 0,
            agreed,
            next: agreed,
        }
    }

    /// A watch said something.
    pub(super) const fn heard(&mut self) {
        self.breaks = 0;
    }

    /// A watch ended as agreed, so that there was nothing more to hear.
    pub(super) fn ended(&mut self) {
        self.breaks = 0;
        self.next = (self.next + self.next / GROWTH).min(self.agreed);
    }

    /// A watch broke after that time, in which it said nothing.
    pub(super) fn broke(&mut self, lasted: Duration) {
        self.breaks = self.breaks.saturating_add(1);
        if self.breaks >= CUTS && lasted >= SHORTEST {
            self.next = self.next.min(lasted * 2 / 3).max(SHORTEST.min(self.agreed));
        }
    }

    /// For how long the next watch is asked for.
    pub(super) const fn next(&self) -> Duration {
        self.next
    }

    /// Whether everything has to be listed, as nothing is heard of changes.
    pub(super) const fn is_list_due(&self) -> bool {
        self.breaks >= BREAKS
    }
}

/// Whether a watch that was not opened, or that ended so, may be one that never will be, although
/// lists may come through. What says that the server has too much to do asks for no list.
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
            (&[20, 0], 50),
        ] {
            let mut fruitless = Fruitless::new(AGREED);
            for seconds in broke {
                fruitless.broke(Duration::from_secs(*seconds));
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
    fn everything_is_listed_when_three_watches_in_a_row_were_cut() {
        let mut fruitless = Fruitless::new(AGREED);
        let broke = |fruitless: &mut Fruitless| {
            fruitless.broke(Duration::ZERO);
            fruitless.is_list_due()
        };
        assert_eq!(
            [(); 4].map(|()| broke(&mut fruitless)),
            [false, false, true, true]
        );
        fruitless.heard();
        assert!(!broke(&mut fruitless));
        fruitless.ended();
        assert_eq!(
            [(); 3].map(|()| broke(&mut fruitless)),
            [false, false, true]
        );
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
