//! State of a cluster for a workload: whether what it has can be relied on.

use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::watch::Presence;

use super::availability::{Workload, can_hold, readiness};

/// State of a cluster for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceState {
    /// The cluster is ready, and nothing would evict the workload from it.
    Sound,
    /// The cluster is ready, and the workload has to leave it.
    Left,
    /// The cluster is not ready: its last report may be outdated.
    Silent,
    /// The cluster was seen being deleted.
    Gone,
}

impl PlaceState {
    /// Returns the state of a cluster for a workload.
    pub fn of<C: AsRef<Cluster>>(cluster: &Presence<C>, workload: &Workload<'_>) -> Self {
        let cluster = match cluster {
            Presence::There(cluster) => cluster.as_ref(),
            Presence::Gone => return Self::Gone,
            // It is silent; its copy may well run.
            Presence::Unknown(_) => return Self::Silent,
        };
        match can_hold(Some(cluster), workload) {
            Ok(()) => Self::Sound,
            // Also of one that is being removed: its copies may be as dead as it is.
            Err(_) if readiness(cluster) != conditions::TRUE => Self::Silent,
            Err(_) => Self::Left,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_shared::api::binding::ResourceBindingSpec;
    use muster_shared::watch::Doubt;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::only_condition;

    fn cluster(ready: &str, effect: &str, deleting: bool) -> Presence<Arc<Cluster>> {
        let deletion = deleting.then_some("2024-01-01T00:00:00Z");
        let cluster = json!({
            "metadata": {"name": "m1", "deletionTimestamp": deletion},
            "spec": {"taints": [{"key": "x", "effect": effect}]},
            "status": {"conditions": only_condition("Ready", ready)},
        });
        Presence::There(Arc::new(serde_json::from_value(cluster).unwrap()))
    }

    #[test]
    fn only_what_was_seen_leaving_is_gone_and_only_what_is_available_is_sound() {
        let spec = ResourceBindingSpec::default();
        let workload = Workload::of(&spec, None);
        for (cluster, expected) in [
            (cluster("True", "None", false), PlaceState::Sound),
            (cluster("True", "NoSchedule", false), PlaceState::Sound),
            (cluster("True", "PreferNoExecute", false), PlaceState::Sound),
            (cluster("True", "NoExecute", false), PlaceState::Left),
            (cluster("True", "None", true), PlaceState::Left),
            (cluster("Unknown", "None", false), PlaceState::Silent),
            (cluster("False", "NoExecute", false), PlaceState::Silent),
            (cluster("Unknown", "None", true), PlaceState::Silent),
            (Presence::Unknown(Doubt::Unseen), PlaceState::Silent),
            (
                Presence::Unknown(Doubt::Unreadable { deleting: true }),
                PlaceState::Silent,
            ),
            (Presence::Gone, PlaceState::Gone),
        ] {
            assert_eq!(PlaceState::of(&cluster, &workload), expected, "{cluster:?}");
        }
    }
}
