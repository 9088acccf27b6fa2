//! A script, and how it fared.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use muster_shared::queue::doubled;
use parking_lot::Mutex;

use crate::lua::{error::Source, limits::Limit};

/// Calls in a row that run into a limit before a script is suspended.
const PATIENCE: u32 = 3;
/// First suspension of a script; each further one is twice as long.
const SUSPENSION: Duration = Duration::from_secs(10);
/// Longest suspension.
const MAX_SUSPENSION: Duration = Duration::from_mins(5);

/// Calls after one that was stopped for which a script counts as one that is stopped: it may be
/// stopped for some objects alone.
const SUSPECT: u8 = 16;

/// One script of a customization, or of the built-in rules. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Script(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u64,
    at: Arc<Source>,
    text: String,
    is_built_in: bool,
    record: Mutex<Record>,
}

/// Calls in a row that were stopped.
#[derive(Debug, Default)]
struct Record {
    stopped: u32,
    suspended: Option<(Instant, Limit)>,
    /// Calls until the script counts as one that is not stopped.
    suspect: u8,
}

/// A suspension that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspension {
    pub(crate) limit: Limit,
    pub(crate) times: u32,
    pub(crate) left: Duration,
}

impl Script {
    pub(crate) fn new(at: Source, text: impl Into<String>, is_built_in: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            at: Arc::new(at),
            text: text.into(),
            is_built_in,
            record: Mutex::default(),
        }))
    }

    /// Returns a number that no other script of the process has.
    pub(crate) fn id(&self) -> u64 {
        self.0.id
    }

    pub(crate) fn at(&self) -> &Arc<Source> {
        &self.0.at
    }

    pub(crate) fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns whether another script has the same origin and text.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.0.at == other.0.at && self.0.text == other.0.text
    }

    pub(crate) fn is_built_in(&self) -> bool {
        self.0.is_built_in
    }

    /// Returns the suspension that the script is under.
    pub(crate) fn suspension(&self, now: Instant) -> Option<Suspension> {
        let record = self.0.record.lock();
        let (until, limit) = record.suspended?;
        let left = until.checked_duration_since(now)?;
        Some(Suspension {
            limit,
            times: record.stopped,
            left,
        })
    }

    /// Returns whether one of the last calls was stopped.
    pub(crate) fn is_suspect(&self) -> bool {
        let record = self.0.record.lock();
        record.suspect > 0
    }

    /// Notes a call that ended by itself, or at a limit.
    pub(crate) fn note(&self, limit: Option<Limit>, now: Instant) {
        let mut record = self.0.record.lock();
        let Some(limit) = limit else {
            *record = Record {
                suspect: record.suspect.saturating_sub(1),
                ..Record::default()
            };
            return;
        };
        record.suspect = SUSPECT;
        record.stopped = record.stopped.saturating_add(1);
        if let Some(over) = record.stopped.checked_sub(PATIENCE) {
            let time = doubled((SUSPENSION, MAX_SUSPENSION), over);
            record.suspended = Some((now + time, limit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;

    #[test]
    fn a_script_that_is_stopped_again_and_again_is_suspended_for_longer_each_time() {
        let at = Source {
            customization: String::new(),
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            operation: Operation::Retain,
        };
        let script = Script::new(at, "", false);
        let limit = Limit::Instructions(1);
        let mut now = crate::lua::limits::moment();
        let mut suspensions = Vec::new();
        for _ in 0..10 {
            script.note(Some(limit), now);
            let suspension = script.suspension(now);
            let left = suspension.map_or(Duration::ZERO, |one| one.left);
            suspensions.push(left.as_secs());
            now += left + Duration::from_millis(1);
            assert_eq!(script.suspension(now), None);
        }
        assert_eq!(suspensions, [0, 0, 10, 20, 40, 80, 160, 300, 300, 300]);
        script.note(None, now);
        script.note(Some(limit), now);
        assert_eq!(script.suspension(now), None);
        for _ in 0..SUSPECT {
            assert!(script.is_suspect());
            script.note(None, now);
        }
        assert!(!script.is_suspect());
    }
}
