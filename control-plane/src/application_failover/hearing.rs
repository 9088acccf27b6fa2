//! Which clusters are heard of, and since when.
//!
//! What a cluster reported before it fell silent may be long past when it comes back: its agent says first that the cluster is well, and
//! then how its workloads are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::names::condition::READY;
use muster_shared::watch::{Change, Informer};

use crate::clock::Clock;

/// Whether the reports of a cluster count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It is not ready: its last report may be out of date.
    Not,
    /// Since that moment at the latest.
    Since(Timestamp),
}

impl Heard {
    /// What follows from a cluster and from when it was seen to come back, if it was.
    pub fn of(cluster: Option<&Cluster>, returned: Option<Timestamp>) -> Self {
        let ready = cluster.and_then(|cluster| cluster.condition(READY));
        match ready {
            Some(ready) if ready.status == "True" => {
                // The member's own word counts as well: after a restart it is all there is, and it can only delay a move.
                let told = ready.last_transition_time.0;
                Self::Since(returned.map_or(told, |returned| returned.max(told)))
            }
            _ => Self::Not,
        }
    }
}

/// Follows the clusters.
#[derive(Clone)]
pub struct Hearing {
    clusters: Informer<Cluster>,
    returned: Arc<Mutex<HashMap<String, Timestamp>>>,
}

impl Hearing {
    /// Begins to listen.
    pub fn follow(clusters: &Informer<Cluster>, clock: &Arc<Clock>) -> Self {
        let returned: Arc<Mutex<HashMap<String, Timestamp>>> = Arc::default();
        clusters.on_change({
            let (returned, clock) = (Arc::clone(&returned), Arc::clone(clock));
            move |change| {
                let mut returned = returned.lock().unwrap_or_else(PoisonError::into_inner);
                match change {
                    Change::Applied {
                        old: Some(old),
                        new,
                    } => {
                        if !is_ready(old) && is_ready(new) {
                            returned.insert(new.name_any(), clock.now());
                        }
                    }
                    Change::Applied { old: None, .. } => {}
                    Change::Deleted { old } => {
                        returned.remove(&old.name_any());
                    }
                }
            }
        });
        Self {
            clusters: clusters.clone(),
            returned,
        }
    }

    /// Whether the reports of a cluster count.
    pub fn of(&self, name: &str) -> Heard {
        let returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        let returned = returned.get(name).copied();
        Heard::of(self.clusters.get(None, name).as_deref(), returned)
    }
}

fn is_ready(cluster: &Cluster) -> bool {
    Heard::of(Some(cluster), None) != Heard::Not
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_cluster_is_heard_since_it_came_back() {
        let cluster = |status: &str, since: i64| -> Cluster {
            serde_json::from_value(json!({
                "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
                "status": {"conditions": [{"type": "Ready", "status": status, "reason": "r", "message": "", "lastTransitionTime": at(since)}]},
            }))
            .unwrap()
        };
        for (cluster, returned, expected) in [
            (None, None, Heard::Not),
            (Some(Cluster::default()), Some(at(5)), Heard::Not),
            (Some(cluster("False", 1)), Some(at(5)), Heard::Not),
            (Some(cluster("Unknown", 1)), None, Heard::Not),
            (Some(cluster("True", 1)), None, Heard::Since(at(1))),
            // Its clock is behind, or ahead.
            (Some(cluster("True", 1)), Some(at(5)), Heard::Since(at(5))),
            (Some(cluster("True", 9)), Some(at(5)), Heard::Since(at(9))),
        ] {
            assert_eq!(Heard::of(cluster.as_ref(), returned), expected);
        }
    }
}
