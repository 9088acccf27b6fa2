//! Circuit breaker: a webhook that fails for several objects in a row is not asked for a while.
//! Pure: time comes in.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::error::Fault;

/// Objects that fail in a row until the breaker opens. One object alone opens nothing: its own
/// questions are asked more and more seldom.
const OPENING: usize = 3;
/// First and longest time for which it is open.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Circuit breaker of one webhook, kind and operation.
#[derive(Default)]
pub(super) struct Breaker {
    /// Objects that failed since the last success, each once; no more than open it.
    failed: Vec<String>,
    open: Option<Open>,
}

struct Open {
    until: Instant,
    pause: Duration,
    fault: Fault,
    /// Closes when the question ends that is sent to see whether the webhook answers again.
    probe: Option<watch::Receiver<()>>,
}

/// State of a breaker.
#[derive(Debug)]
pub(super) enum Circuit {
    /// Questions are sent.
    Closed,
    /// Nothing is sent for this time, because of the fault.
    Open(Fault, Duration),
    /// One question is on the way, and nothing else is sent before it ends.
    Probing(watch::Receiver<()>),
}

impl Breaker {
    /// Returns whether a question may be sent.
    pub(super) fn circuit(&self, now: Instant) -> Circuit {
        match &self.open {
            Some(open) if open.until > now => {
                Circuit::Open(open.fault.clone(), open.until.duration_since(now))
            }
            Some(Open {
                probe: Some(probe), ..
            }) => Circuit::Probing(probe.clone()),
            _ => Circuit::Closed,
        }
    }

    /// Records that a question is sent, which closes `ended` when it ends.
    pub(super) fn sent(&mut self, ended: &watch::Receiver<()>) {
        if let Some(open) = &mut self.open {
            open.probe = Some(ended.clone());
        }
    }

    /// Records the end of a question about an object.
    pub(super) fn ended(&mut self, object: &str, fault: Option<&Fault>, now: Instant) {
        let Some(fault) = fault.filter(|fault| !fault.is_of_the_object()) else {
            *self = Self::default();
            return;
        };
        if !self.failed.iter().any(|one| one == object) && self.failed.len() < OPENING {
            self.failed.push(object.to_owned());
        }
        let pause = match &self.open {
            // Others that were on the way when it opened say nothing new.
            Some(open) if open.until > now => return,
            Some(open) => (open.pause * 2).min(LONGEST_PAUSE),
            None if self.failed.len() < OPENING => return,
            None => FIRST_PAUSE,
        };
        self.open = Some(Open {
            until: now + pause,
            pause,
            fault: fault.clone(),
            probe: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: Fault = Fault::Timeout(10);

    fn is_open(breaker: &Breaker, now: Instant) -> Option<Duration> {
        match breaker.circuit(now) {
            Circuit::Open(_, left) => Some(left),
            Circuit::Closed | Circuit::Probing(_) => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn several_objects_that_fail_in_a_row_open_it_and_one_object_does_not() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..5 {
            breaker.ended("a", Some(&DOWN), now);
        }
        assert_eq!(is_open(&breaker, now), None, "one object");
        let refused = Fault::Refused {
            code: 400,
            message: String::new(),
        };
        breaker.ended("b", Some(&refused), now);
        assert!(breaker.failed.is_empty(), "it answers");
        for object in ["a", "b", "c"] {
            assert_eq!(is_open(&breaker, now), None);
            breaker.ended(object, Some(&DOWN), now);
        }
        assert_eq!(is_open(&breaker, now), Some(FIRST_PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_cannot_be_used_open_nothing_however_many_objects_get_them() {
        let status = |code| Fault::Status {
            code,
            text: String::new(),
        };
        for (fault, opens) in [
            (Fault::Malformed("no JSON".to_owned()), false),
            (Fault::Large(10), false),
            (status(500), false),
            (status(400), false),
            // Proxies say so where the webhook itself is not there, and servers that have too much.
            (status(429), true),
            (status(502), true),
            (status(503), true),
            (status(504), true),
            (Fault::Connection("reset".to_owned()), true),
            (DOWN, true),
        ] {
            let (mut breaker, now) = (Breaker::default(), Instant::now());
            for object in 0..9 {
                breaker.ended(&format!("o{object}"), Some(&fault), now);
            }
            assert_eq!(is_open(&breaker, now).is_some(), opens, "{fault}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_question_probes_after_longer_and_longer_pauses_until_it_is_answered() {
        let (mut breaker, mut now) = (Breaker::default(), Instant::now());
        for object in ["a", "b", "c"] {
            breaker.ended(object, Some(&DOWN), now);
        }
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let pause = is_open(&breaker, now).unwrap();
            pauses.push(pause.as_secs());
            now += pause;
            assert!(matches!(breaker.circuit(now), Circuit::Closed));
            let (_ended, receiver) = watch::channel(());
            breaker.sent(&receiver);
            assert!(matches!(breaker.circuit(now), Circuit::Probing(_)));
            breaker.ended("a", Some(&DOWN), now);
            breaker.ended("b", Some(&DOWN), now);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
        breaker.ended("a", None, now);
        assert!(matches!(breaker.circuit(now), Circuit::Closed));
        assert!(breaker.failed.is_empty());
    }
}
