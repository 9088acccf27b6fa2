//! How many pods a set of replicas still needs, which of too many go, and how its pods are counted.
//! Pure.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::member::pods::{Phase, Record};

/// What is to be done about the number of pods.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// Enough.
    Keep,
    /// Make so many more.
    Create(usize),
    /// These go.
    Delete(Vec<Arc<Record>>),
}

/// Compares what is wanted with the active pods. Of too many the least useful go first: without a
/// node, not started, not ready, younger (Kubernetes' `ActivePods` order without deletion costs).
pub(super) fn plan(wanted: usize, pods: &[Arc<Record>]) -> Plan {
    let mut active: Vec<Arc<Record>> = pods.iter().filter(|pod| pod.active()).cloned().collect();
    let Some(surplus) = active.len().checked_sub(wanted) else {
        return Plan::Create(wanted - active.len());
    };
    if surplus == 0 {
        return Plan::Keep;
    }
    active.sort_by_key(|pod| {
        let age = std::cmp::Reverse(pod.created);
        (
            pod.node.is_some(),
            pod.phase != Phase::Pending,
            pod.ready(),
            age,
            pod.key.clone(),
        )
    });
    active.truncate(surplus);
    Plan::Delete(active)
}

/// The pods of a set by how far they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Active pods.
    pub all: usize,
    /// Those that are ready.
    pub ready: usize,
    /// Those that have been ready for long enough.
    pub available: usize,
    /// When the next ready one will have been ready for long enough.
    pub next_available: Option<Duration>,
}

/// Counts pods.
pub(super) fn tally<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Record>>,
    min_ready: Duration,
    now: Timestamp,
) -> Tally {
    let min_ready = SignedDuration::try_from(min_ready).unwrap_or(SignedDuration::MAX);
    let mut tally = Tally::default();
    for pod in pods.into_iter().filter(|pod| pod.active()) {
        tally.all += 1;
        let Some(since) = pod.ready_since else {
            continue;
        };
        tally.ready += 1;
        match Duration::try_from(min_ready - now.duration_since(since)) {
            Ok(left) if !left.is_zero() && !min_ready.is_zero() => {
                tally.next_available =
                    Some(tally.next_available.map_or(left, |next| next.min(left)));
            }
            _ => tally.available += 1,
        }
    }
    tally
}

/// `minReadySeconds` as a duration.
pub(super) fn min_ready(seconds: Option<i32>) -> Duration {
    Duration::from_secs(
        seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .unwrap_or(0),
    )
}

/// Returns a wanted number of replicas; absent means one, as the API server would have written.
pub(super) fn wanted(replicas: Option<i32>) -> usize {
    usize::try_from(replicas.unwrap_or(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: bool, ready_at: Option<i64>) -> Arc<Record> {
        let empty: Pod = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Arc::new(Record {
            node: node.then(|| "n".to_owned()),
            phase: if ready_at.is_some() {
                Phase::Running
            } else {
                Phase::Pending
            },
            ready_since: ready_at.map(|second| Timestamp::from_second(second).unwrap()),
            ..Record::of(&empty)
        })
    }

    #[test]
    fn the_least_useful_pods_go_first() {
        let pods = [
            pod("ready", true, Some(0)),
            pod("starting", true, None),
            pod("homeless", false, None),
        ];
        let names = |wanted| match plan(wanted, &pods) {
            Plan::Delete(gone) => gone.iter().map(|pod| pod.key.1.clone()).collect(),
            other => vec![format!("{other:?}")],
        };
        assert_eq!(names(2), ["homeless"]);
        assert_eq!(names(1), ["homeless", "starting"]);
        assert_eq!(names(3), ["Keep"]);
        assert_eq!(names(5), ["Create(2)"]);
    }

    #[test]
    fn a_pod_is_available_when_it_has_been_ready_for_long_enough() {
        let pods = [
            pod("a", true, Some(0)),
            pod("b", true, Some(7)),
            pod("c", true, None),
        ];
        let now = Timestamp::from_second(10).unwrap();
        let late = tally(&pods, Duration::from_secs(5), now);
        assert_eq!((late.all, late.ready, late.available), (3, 2, 1));
        assert_eq!(late.next_available, Some(Duration::from_secs(2)));
        assert_eq!(tally(&pods, Duration::ZERO, now).available, 2);
    }
}
