//! Statuses that were written last, until the informer shows them.
//!
//! A new status is compared with the one in the informer. For a moment after a write the informer
//! is outdated, so the written status counts instead. It does not count for longer: a status that
//! was cleared or restored from a backup has to be written again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::work::CachedWork;

/// Time for which the informer may take to show a write.
const LAG: Duration = Duration::from_secs(10);
/// Longest pause between two writes of one report that never shows as it was written.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);

/// Decision about a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The Work's status is as reported.
    Said,
    /// The report was written and is not in the cache yet: check again after this time.
    Wait(Duration),
    /// Write the report.
    Write,
}

/// Reports by name of their Work.
#[derive(Debug, Default)]
pub(super) struct Sent {
    entries: Mutex<HashMap<String, Entry>>,
}

#[derive(Debug)]
struct Entry {
    uid: Option<String>,
    fingerprint: u64,
    at: Instant,
    /// Number of writes of this same report.
    times: u32,
}

impl Entry {
    fn patience(&self) -> Duration {
        let times = self.times.saturating_sub(1).min(16);
        LAG.saturating_mul(1 << times).min(LONGEST_PAUSE)
    }
}

impl Sent {
    /// Compares a report, by its fingerprint, with the status of the cached Work.
    pub(super) fn judge(&self, name: &str, cached: &CachedWork, fingerprint: u64) -> Verdict {
        let mut entries = self.lock();
        let entry = entries.get(name).filter(|it| it.uid == cached.metadata.uid);
        let Some(entry) = entry else {
            entries.remove(name);
            return if cached.reports(fingerprint) {
                Verdict::Said
            } else {
                Verdict::Write
            };
        };
        if cached.reports(entry.fingerprint) {
            let same = entry.fingerprint == fingerprint;
            entries.remove(name);
            return if same { Verdict::Said } else { Verdict::Write };
        }
        let left = entry.patience().checked_sub(entry.at.elapsed());
        // The cache may still show the Work as it was before the write, however long ago that was:
        // a watch that lags or begins anew shows the write later.
        match left.filter(|left| !left.is_zero()) {
            Some(left) if entry.fingerprint == fingerprint => Verdict::Wait(left),
            _ => Verdict::Write,
        }
    }

    /// Records a write of a report; `shown` is the present Work in the cache.
    pub(super) fn wrote(
        &self,
        name: &str,
        shown: Option<&CachedWork>,
        uid: Option<&str>,
        fingerprint: u64,
    ) {
        let mut entries = self.lock();
        if shown.is_some_and(|shown| shown.reports(fingerprint)) {
            entries.remove(name);
            return;
        }
        let again = entries
            .get(name)
            .filter(|known| known.uid.as_deref() == uid && known.fingerprint == fingerprint);
        let entry = Entry {
            uid: uid.map(str::to_owned),
            fingerprint,
            at: Instant::now(),
            times: again.map_or(1, |known| known.times.saturating_add(1)),
        };
        entries.insert(name.to_owned(), entry);
    }

    /// Returns whether a new status in the informer is another writer's, so that the report has to
    /// be compared again.
    pub(super) fn is_foreign(&self, name: &str, shown: &CachedWork) -> bool {
        let mut entries = self.lock();
        let ours = entries
            .get(name)
            .is_some_and(|entry| shown.reports(entry.fingerprint));
        if ours {
            entries.remove(name);
        }
        !ours
    }

    /// Forgets a Work that is gone.
    pub(super) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::api::work::ManifestStatus;
    use serde_json::json;

    use super::*;

    fn statuses(health: &str) -> Vec<ManifestStatus> {
        let one = json!({"identifier": {"ordinal": 0, "version": "v1", "kind": "Pod", "name": "a", "resource": ""}, "health": health});
        vec![serde_json::from_value(one).unwrap()]
    }

    fn cached(statuses: &[ManifestStatus]) -> CachedWork {
        let work = json!({"metadata": {"name": "w", "uid": "1"}, "spec": {}, "status": {"manifestStatuses": statuses}});
        serde_json::from_str(&work.to_string()).unwrap()
    }

    fn of(health: &str) -> (CachedWork, u64) {
        let statuses = statuses(health);
        (cached(&statuses), CachedWork::fingerprint(&statuses))
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_written_once_while_the_informer_lags_and_again_when_it_was_lost() {
        let sent = Sent::default();
        let (well, report) = of("Healthy");
        let empty = cached(&[]);
        assert_eq!(sent.judge("w", &empty, report), Verdict::Write);
        sent.wrote("w", Some(&empty), Some("1"), report);
        assert_eq!(sent.judge("w", &empty, report), Verdict::Wait(LAG));
        assert!(!sent.is_foreign("w", &well));
        assert_eq!(sent.judge("w", &well, report), Verdict::Said);
        // Another writer empties the status.
        assert!(sent.is_foreign("w", &empty));
        assert_eq!(sent.judge("w", &empty, report), Verdict::Write);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_was_lost_before_it_showed_is_written_again() {
        let sent = Sent::default();
        let (_, report) = of("Healthy");
        let empty = cached(&[]);
        sent.wrote("w", Some(&empty), Some("1"), report);
        tokio::time::advance(LAG).await;
        assert_eq!(sent.judge("w", &empty, report), Verdict::Write);
        sent.wrote("w", Some(&empty), Some("1"), report);
        tokio::time::advance(LAG).await;
        // A report that never shows is no reason to write without end.
        assert_eq!(sent.judge("w", &empty, report), Verdict::Wait(LAG));
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_that_returns_to_what_the_cache_still_shows_is_written() {
        let ((well, healthy), (ill, unhealthy)) = (of("Healthy"), of("Unhealthy"));
        for lag in [Duration::ZERO, 2 * LAG, 2 * LONGEST_PAUSE] {
            let sent = Sent::default();
            sent.wrote("w", Some(&well), Some("1"), unhealthy);
            tokio::time::advance(lag).await;
            assert_eq!(sent.judge("w", &well, healthy), Verdict::Write, "{lag:?}");
            sent.wrote("w", Some(&well), Some("1"), healthy);
            assert_eq!(sent.judge("w", &well, healthy), Verdict::Said);
            // Then the informer shows the first of both writes.
            assert!(sent.is_foreign("w", &ill));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_work_of_the_name_has_no_part_in_it() {
        let sent = Sent::default();
        let (well, report) = of("Healthy");
        sent.wrote("w", None, Some("2"), report);
        assert_eq!(sent.judge("w", &well, report), Verdict::Said);
        assert_eq!(sent.judge("w", &cached(&[]), report), Verdict::Write);
    }
}
