//! Clusters that are ready, and since when.
//!
//! When a cluster becomes ready again, its reports about workloads may be outdated for a moment:
//! its agent reports first that the cluster is ready, and then the state of its workloads.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::clock::Clock;
use muster_shared::names::condition::READY;
use muster_shared::watch::{Change, Informer};
use parking_lot::Mutex;

/// Returns since when a cluster reports, by its condition and by when it was seen to come back, if
/// it was; `None` while it is not ready, so that its last report may be outdated. The time that the
/// member gives counts only where nobody saw it come back: its clock may be ahead by any time, and
/// until then nothing would leave it.
fn ready_since(cluster: Option<&Cluster>, returned: Option<Timestamp>) -> Option<Timestamp> {
    let ready = cluster?.condition(READY).filter(|it| it.status == "True")?;
    Some(returned.unwrap_or(ready.last_transition_time.0))
}

/// Follows the clusters.
#[derive(Clone)]
pub struct ReadinessTracker {
    clusters: Informer<Cluster>,
    returned: Arc<Mutex<HashMap<String, Timestamp>>>,
}

impl ReadinessTracker {
    /// Begins to listen.
    pub fn follow(clusters: &Informer<Cluster>, clock: &Arc<Clock>) -> Self {
        let returned: Arc<Mutex<HashMap<String, Timestamp>>> = Arc::default();
        clusters.on_change({
            let (returned, clock) = (Arc::clone(&returned), Arc::clone(clock));
            move |change| {
                let mut returned = returned.lock();
                match change {
                    Change::Applied { old, new } => {
                        let now = clock.now();
                        if comes_back(old.as_deref(), new, now) {
                            returned.insert(new.name_any(), now);
                        }
                    }
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

    /// Returns since when the reports of a cluster count, or longer; `None` while it is not ready.
    pub fn of(&self, name: &str) -> Option<Timestamp> {
        let returned = self.returned.lock();
        let returned = returned.get(name).copied();
        ready_since(self.clusters.get(None, name).as_deref(), returned)
    }
}

/// Returns whether a cluster counts as reporting from now on: it was not ready before, or not all
/// the time, or it is seen for the first time and says that it became ready at a moment that has
/// not come yet.
fn comes_back(old: Option<&Cluster>, new: &Cluster, now: Timestamp) -> bool {
    let (reported, before) = (ready_since(Some(new), None), ready_since(old, None));
    reported.is_some_and(|it| match old {
        None => it > now,
        Some(_) => reported != before,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::at;

    #[test]
    fn a_cluster_counts_as_reporting_since_it_came_back() {
        let cluster = |status: &str, since: i64| -> Cluster {
            serde_json::from_value(json!({
                "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
                "status": {"conditions": [{"type": "Ready", "status": status, "reason": "r", "message": "", "lastTransitionTime": at(since)}]},
            }))
            .unwrap()
        };
        for (cluster, returned, expected) in [
            (None, None, None),
            (Some(Cluster::default()), Some(at(5)), None),
            (Some(cluster("False", 1)), Some(at(5)), None),
            (Some(cluster("Unknown", 1)), None, None),
            (Some(cluster("True", 1)), None, Some(at(1))),
            // Its clock is behind, or ahead.
            (Some(cluster("True", 1)), Some(at(5)), Some(at(5))),
            (Some(cluster("True", 9)), Some(at(5)), Some(at(5))),
        ] {
            assert_eq!(ready_since(cluster.as_ref(), returned), expected);
        }
        for (old, new, comes) in vec![
            (None, cluster("False", 1), false),
            // After a restart its own word is all there is.
            (None, cluster("True", 1), false),
            (None, cluster("True", 10), false),
            (None, cluster("True", 90_000), true),
            (Some(cluster("True", 1)), cluster("True", 1), false),
            (
                Some(cluster("True", 90_000)),
                cluster("True", 90_000),
                false,
            ),
            (Some(cluster("Unknown", 1)), cluster("True", 1), true),
            (Some(Cluster::default()), cluster("True", 1), true),
            // It was away between two observations.
            (Some(cluster("True", 1)), cluster("True", 7), true),
            (Some(cluster("True", 1)), cluster("Unknown", 7), false),
        ] {
            assert_eq!(
                comes_back(old.as_ref(), &new, at(10)),
                comes,
                "{old:?} {new:?}"
            );
        }
    }
}
