//! How many pods a set of replicas still needs, which of too many go, and how its pods are counted.
//! Pure.

use std::sync::Arc;

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
}

/// Counts pods. One that is ready is available at once: nothing here has `minReadySeconds`.
pub(super) fn tally<'a>(pods: impl IntoIterator<Item = &'a Arc<Record>>) -> Tally {
    let mut tally = Tally::default();
    for pod in pods.into_iter().filter(|pod| pod.active()) {
        tally.all += 1;
        tally.ready += usize::from(pod.ready());
    }
    tally
}

/// Returns a wanted number of replicas; absent means one, as the API server would have written.
pub(super) fn wanted(replicas: Option<i32>) -> usize {
    usize::try_from(replicas.unwrap_or(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: bool, ready: bool) -> Arc<Record> {
        let empty: Pod = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Arc::new(Record {
            node: node.then(|| "n".to_owned()),
            phase: if ready {
                Phase::Running
            } else {
                Phase::Pending
            },
            ready_since: ready.then_some(Timestamp::UNIX_EPOCH),
            ..Record::of(&empty)
        })
    }

    #[test]
    fn the_least_useful_pods_go_first() {
        let pods = [
            pod("ready", true, true),
            pod("starting", true, false),
            pod("homeless", false, false),
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
}
