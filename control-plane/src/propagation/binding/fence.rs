//! Fencing: holds new Works back while a copy elsewhere may run.
//!
//! Every path that makes a copy ends here: evictions, application failover, new schedules,
//! rebalancing, and edits of policies and bindings.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use muster_shared::conditions;
use muster_shared::k8s::{Condition, ObjectMeta};
use muster_shared::names::{self, condition::REMOVAL_PENDING};
use tokio::time::Instant;

use super::error::Error;
use super::plan::Wanted;
use super::render::Origin;
use crate::fleet::Fleet;
use crate::fleet::availability::is_ready;
use crate::fleet::fencing::{self, Verdict};
use crate::fleet::works::{CachedWork, cluster_of, in_cluster};

/// Reason of the condition `RemovalPending` while a copy may run.
const FENCED: &str = "WaitingForFence";
/// Pause before the next check, if no change is seen earlier.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Time for which a cluster that is ready may take to remove its copy before that is reported.
const UNREPORTED: Duration = Duration::from_secs(15);

/// A copy that may run, and holds new ones back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Message that says what is waited for.
    message: String,
    /// Whether it is reported that the copy holds new ones back.
    is_reported: bool,
    /// Pause before the copy is checked again.
    pub pause: Duration,
}

/// Returns the first copy outside the targets that may run. `is_left` says whether all Works have
/// been deleted that the binding does not want any more.
pub(super) async fn held(
    fleet: &Fleet,
    client: &Client,
    wanted: &Wanted<'_>,
    is_left: bool,
) -> Result<Option<Held>, Error> {
    let Wanted {
        origin: Origin { key, .. },
        spec,
        scope,
        works,
        ..
    } = *wanted;
    let Some(after) = fencing::asked(spec).filter(|_| !scope.targets.is_empty()) else {
        return Ok(None);
    };
    let is_target = |cluster: &str| scope.targets.iter().any(|target| target.name == cluster);
    let mut targets = scope.targets.iter();
    if targets.any(|target| in_cluster(works, &target.name).is_none()) {
        // A Work that was made a moment ago may not be in the cache yet.
        fleet.unseen_works.compare(fleet).await?;
        let unseen = fleet.unseen_works.read(fleet, key).await?;
        let namespaces = unseen
            .iter()
            .filter_map(|it| it.metadata.namespace.as_deref());
        let mut clusters = namespaces.filter_map(names::cluster_of_execution_namespace);
        if clusters.any(|cluster| !is_target(cluster)) {
            return Ok(Some(Held {
                message: String::new(),
                is_reported: false,
                pause: Duration::from_millis(500),
            }));
        }
    }
    for work in works {
        let Some(cluster) = cluster_of(work).filter(|cluster| !is_target(cluster)) else {
            continue;
        };
        let is_expected = scope.expected.contains(cluster);
        let goes = goes(is_left, is_expected, &work.metadata);
        let is_kept = is_expected && !goes;
        if let Some(held) = judge(fleet, client, cluster, work, after, goes, is_kept).await? {
            return Ok(Some(held));
        }
    }
    Ok(None)
}

/// Returns whether a Work outside the targets has been deleted; `is_left` says whether those were
/// that are not expected any more.
fn goes(is_left: bool, is_expected: bool, work: &ObjectMeta) -> bool {
    is_left && !is_expected || work.deletion_timestamp.is_some()
}

/// Returns whether it is reported that a copy holds new ones back; a copy that is to be removed in
/// a ready cluster is reported only after a while.
fn is_reported(is_ready: bool, is_kept: bool, deleted: Option<Timestamp>, now: Timestamp) -> bool {
    let waits = deleted.map(|at| now.duration_since(at).unsigned_abs());
    !is_ready || is_kept || waits.is_some_and(|waits| waits >= UNREPORTED)
}

/// Judges the copy of a Work; `goes` says whether the Work has been deleted, and `is_kept` whether
/// an eviction task keeps it until a person says otherwise.
async fn judge(
    fleet: &Fleet,
    client: &Client,
    cluster: &str,
    work: &CachedWork,
    after: Duration,
    goes: bool,
    is_kept: bool,
) -> Result<Option<Held>, Error> {
    let now = Instant::now();
    let (verdict, last_change) = fencing::of_work(fleet, cluster, Some(work), after, now);
    let is_ready = is_ready(fleet, cluster);
    let (why, pause) = match verdict {
        _ if is_kept => {
            let why = "suppressDeletion of its eviction task is true, which keeps it there";
            (why.to_owned(), CHECK_EVERY)
        }
        Verdict::Stopped if goes => {
            // The Work was deleted before the lease is read.
            if fencing::is_unrenewed(client, cluster, last_change.as_ref()).await? {
                return Ok(None);
            }
            (
                "its lease is renewed again".to_owned(),
                Duration::from_millis(500),
            )
        }
        Verdict::Stopped => ("its Work there is kept".to_owned(), CHECK_EVERY),
        Verdict::Waits { until, time } => {
            let why = format!(
                "or until {} s have passed since the last renewal of its lease, when it is stopped",
                time.as_secs()
            );
            (why, until.saturating_duration_since(now).min(CHECK_EVERY))
        }
        Verdict::Unfenced(why) => (why, CHECK_EVERY),
    };
    let deleted = work.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    Ok(Some(Held {
        message: format!(
            "its copy in {cluster} may still run, and two copies must not (failover.cluster.fencing): \
             no other is made until that one is removed; {why}"
        ),
        is_reported: is_reported(is_ready, is_kept, deleted, fleet.clock.now()),
        pause: pause.max(Duration::from_millis(100)),
    }))
}

impl Held {
    /// Returns the condition while the copy holds new ones back; `None` where nothing has to be
    /// reported.
    pub fn condition(&self, now: Timestamp) -> Option<Condition> {
        let (kind, message) = (REMOVAL_PENDING, &self.message);
        self.is_reported
            .then(|| conditions::new(kind, conditions::TRUE, FENCED, message, now))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::at;

    #[test]
    fn a_work_is_deleted_if_it_says_so_or_is_among_those_that_were_removed() {
        for (is_left, is_expected, is_deleted, expected) in [
            (false, false, false, false),
            (true, false, false, true),
            (true, true, false, false),
            (false, true, false, false),
            (false, true, true, true),
            (true, true, true, true),
            (false, false, true, true),
        ] {
            let deletion = is_deleted.then_some("2024-01-01T00:00:00Z");
            let work = serde_json::from_value(json!({ "deletionTimestamp": deletion })).unwrap();
            let goes = goes(is_left, is_expected, &work);
            assert_eq!(goes, expected, "{is_left} {is_expected} {is_deleted}");
        }
    }

    #[test]
    fn a_copy_is_reported_of_at_once_in_a_silent_cluster_and_after_a_while_in_a_ready_one() {
        for (is_ready, is_kept, deleted, now, expected) in [
            (false, false, None, 0, true),
            (false, false, Some(0), 0, true),
            (true, false, None, 100, false),
            (true, false, Some(0), 14, false),
            (true, false, Some(0), 15, true),
            // The clock of the API may be ahead.
            (true, false, Some(20), 0, true),
            // A copy that its task keeps does not go by itself.
            (true, true, None, 0, true),
        ] {
            let reported = is_reported(is_ready, is_kept, deleted.map(at), at(now));
            assert_eq!(reported, expected, "{is_ready} {is_kept} {deleted:?} {now}");
        }
    }
}
