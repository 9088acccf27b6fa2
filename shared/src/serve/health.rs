//! State of the parts of a process, and the one warning that says why it is not ready.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::remind::Reminder;

/// State of a part that has not said anything yet.
const STARTING: &str = "starting";
/// Time for which the words of `/readyz` have to stay the same before they are reported in the log:
/// a program that starts says something else every moment.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Interval at which the words are checked.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// State of the parts of a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, Part>>>,
}

#[derive(Clone, Debug)]
struct Part {
    alive: Result<(), String>,
    ready: Result<(), String>,
    note: Option<String>,
}

impl Health {
    /// Reports whether a part does its work (`Err` says what it waits for). A part that is expected
    /// and has not reported is not ready.
    pub fn ready(&self, part: &'static str, state: Result<(), String>) {
        self.change(part, |entry| entry.ready = state);
    }

    /// Reports what people should know of a part that is as it should be, such as a replica that
    /// stands by: `/readyz` shows it, and the log says it once.
    pub fn note(&self, part: &'static str, words: Option<String>) {
        self.change(part, |entry| {
            entry.ready = Ok(());
            entry.note = words;
        });
    }

    /// Reports that a part needs a restart of the process.
    pub fn broken(&self, part: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        self.change(part, |entry| entry.alive = Err(reason));
    }

    /// Returns whether no part is broken, which is the answer of `/livez`.
    pub fn is_alive(&self) -> bool {
        self.liveness().0
    }

    /// Registers a part that is not ready yet, so that readiness waits for it.
    pub fn expect(&self, part: &'static str) {
        self.change(part, |_| {});
    }

    fn change(&self, part: &'static str, change: impl FnOnce(&mut Part)) {
        let mut parts = self.parts.lock();
        change(parts.entry(part).or_insert_with(|| Part {
            alive: Ok(()),
            ready: Err(STARTING.to_owned()),
            note: None,
        }));
    }

    /// Returns whether all parts are alive, and one line for each.
    pub(super) fn liveness(&self) -> (bool, String) {
        self.report(|part| (&part.alive, None))
    }

    /// Returns whether all parts are ready, and one line for each.
    pub(super) fn readiness(&self) -> (bool, String) {
        self.report(|part| (&part.ready, part.note.as_deref()))
    }

    fn report(&self, of: impl Fn(&Part) -> (&Result<(), String>, Option<&str>)) -> (bool, String) {
        let parts = self.parts.lock();
        let mut text = String::new();
        let mut well = true;
        for (name, part) in parts.iter() {
            match of(part) {
                (Ok(()), None) => _ = writeln!(text, "[+] {name} ok"),
                (Ok(()), Some(note)) => _ = writeln!(text, "[+] {name}: {note}"),
                (Err(reason), _) => {
                    well = false;
                    _ = writeln!(text, "[-] {name}: {reason}");
                }
            }
        }
        (well, text)
    }

    /// Returns what is to be reported: the parts that are not ready and say why, and the notes;
    /// whether something is not ready.
    fn said(&self) -> Option<(String, bool)> {
        let parts = self.parts.lock();
        let mut said = Vec::new();
        let (mut waits, mut starts) = (false, Vec::new());
        for (name, part) in parts.iter() {
            match (&part.ready, &part.note) {
                (Err(reason), _) if reason == STARTING => starts.push(format!("{name}: {reason}")),
                (Err(reason), _) => {
                    waits = true;
                    said.push(format!("{name}: {reason}"));
                }
                (Ok(()), Some(note)) => said.push(format!("{name}: {note}")),
                (Ok(()), None) => {}
            }
        }
        if said.is_empty() {
            waits = !starts.is_empty();
            said = starts;
        }
        (!said.is_empty()).then(|| (said.join("; "), waits))
    }

    /// Writes to the log what `/readyz` says, in the same words, until shutdown: once when they
    /// have been the same for [`PATIENCE`], and while the process is not ready once a minute.
    pub(super) async fn log_changes(self, shutdown: CancellationToken) {
        let mut reporter = Reporter::default();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
            if let Some(words) = reporter.due(self.said(), Instant::now()) {
                tracing::warn!("{words}");
            }
        }
    }
}

/// Decides when words are reported.
#[derive(Default)]
struct Reporter {
    /// The words, and since when they are the same.
    seen: Option<(String, Instant)>,
    /// The words that were reported last, and when.
    reported: Option<(String, Instant)>,
}

impl Reporter {
    /// Returns the words that are due now.
    fn due(&mut self, said: Option<(String, bool)>, now: Instant) -> Option<String> {
        let Some((words, waits)) = said else {
            *self = Self::default();
            return None;
        };
        let since = match &self.seen {
            Some((seen, since)) if *seen == words => *since,
            _ => now,
        };
        self.seen = Some((words.clone(), since));
        let due = match &self.reported {
            Some((reported, at)) if *reported == words => {
                waits && now.duration_since(*at) >= Reminder::PERIOD
            }
            // Words that never stay the same are reported as well, only less often.
            Some((_, at)) => {
                now.duration_since(since) >= PATIENCE || now.duration_since(*at) >= Reminder::PERIOD
            }
            None => now.duration_since(since) >= PATIENCE,
        };
        due.then(|| {
            self.reported = Some((words.clone(), now));
            words
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_reported_once_when_they_have_settled_and_again_each_minute_while_something_waits()
    {
        let waiting = |words: &str| Some((words.to_owned(), true));
        let noted = |words: &str| Some((words.to_owned(), false));
        let start = Instant::now();
        let reported =
            |course: &dyn Fn(u64) -> Option<(String, bool)>, end: u64| -> Vec<(u64, String)> {
                let mut it = Reporter::default();
                let times = (0..=end).filter_map(|second| {
                    let due = it.due(course(second), start + Duration::from_secs(second));
                    due.map(|words| (second, words))
                });
                times.collect()
            };
        let is = |second: u64, words: &str| (second, words.to_owned());
        assert_eq!(
            reported(&|_| waiting("a"), 125),
            [is(2, "a"), is(62, "a"), is(122, "a")]
        );
        assert_eq!(reported(&|_| noted("a"), 125), [is(2, "a")]);
        assert_eq!(
            reported(&|at| waiting(if at < 1 { "a" } else { "b" }), 30),
            [is(3, "b")]
        );
        assert_eq!(
            reported(&|at| waiting(if at < 10 { "a" } else { "b" }), 30),
            [is(2, "a"), is(12, "b")]
        );
        // What is over and comes back is new.
        let back = |at| {
            if (5..10).contains(&at) {
                None
            } else {
                waiting("a")
            }
        };
        assert_eq!(reported(&back, 30), [is(2, "a"), is(12, "a")]);
        assert_eq!(reported(&|_| None, 30), []);
    }

    #[test]
    fn the_words_of_readyz_are_those_that_are_reported() {
        let health = Health::default();
        health.expect("works");
        assert_eq!(health.said(), Some(("works: starting".to_owned(), true)));
        health.ready("caches", Err("no kinds".to_owned()));
        health.note("election", Some("stands by".to_owned()));
        let (words, waits) = health.said().unwrap();
        assert_eq!(
            (words.as_str(), waits),
            ("caches: no kinds; election: stands by", true)
        );
        let (ready, text) = health.readiness();
        assert!(!ready);
        for reported in words.split("; ") {
            assert!(text.contains(reported), "{text}");
        }
        health.ready("caches", Ok(()));
        health.ready("works", Ok(()));
        assert_eq!(
            health.said(),
            Some(("election: stands by".to_owned(), false))
        );
        assert!(health.readiness().0, "who stands by is ready");
        health.note("election", None);
        assert_eq!(health.said(), None);
    }
}
