//! Asks whether the copy that an eviction leaves behind is removed or certainly stopped.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use tokio::time::Instant;

use crate::fleet::Fleet;
use crate::fleet::availability::readiness;
use crate::fleet::binding::BindingKey;
use crate::fleet::fencing::{self, Verdict};
use crate::fleet::works::in_cluster;

/// Reason why a fenced workload stays whose old copy nothing removes.
const PRESERVED: &str = "preserveResourcesOnDeletion would keep the copy there running";

/// Whether a workload may leave a cluster as far as fencing is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FenceGate {
    /// The workload is not fenced, its cluster can remove the copy, or the copy is stopped.
    Open,
    /// The copy may run until this instant.
    Until(Instant, String),
    /// Nothing stops the copy.
    Shut(String),
}

/// Question whether a workload may leave a cluster as far as fencing is concerned.
pub type Fence = Box<dyn Fn(&Cluster, &AnyBinding, Instant) -> FenceGate + Send + Sync>;

/// Returns a fence that is open for all.
pub fn none() -> Fence {
    Box::new(|_, _, _| FenceGate::Open)
}

/// Returns a fence that judges by the state of the fleet.
pub fn of(fleet: &Arc<Fleet>) -> Fence {
    let fleet = Arc::downgrade(fleet);
    Box::new(move |cluster, binding, now| {
        fleet
            .upgrade()
            .map_or(FenceGate::Open, |fleet| gate(&fleet, cluster, binding, now))
    })
}

fn gate(fleet: &Fleet, cluster: &Cluster, binding: &AnyBinding, now: Instant) -> FenceGate {
    let verdict = |after| {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let works = fleet.work_index.of(&BindingKey::of(binding));
        let work = in_cluster(&works, name)?;
        Some(fencing::of_work(fleet, name, Some(work), after, now).0)
    };
    of_copy(cluster, &binding.spec, verdict)
}

/// Judges a copy of a workload. The verdict on a fenced one, by the time after which it is stopped,
/// is that of its Work, if there is one.
pub fn of_copy(
    cluster: &Cluster,
    spec: &ResourceBindingSpec,
    verdict: impl FnOnce(Duration) -> Option<Verdict>,
) -> FenceGate {
    match fencing::asked(spec) {
        Some(after) => judge(cluster, spec, || verdict(after)),
        None => of_data(cluster, spec),
    }
}

/// Judges a workload that is not fenced: its data may keep it in a cluster that is silent.
fn of_data(cluster: &Cluster, spec: &ResourceBindingSpec) -> FenceGate {
    let keeps = fencing::keeps_data(spec).filter(|_| readiness(cluster) != conditions::TRUE);
    keeps.map_or(FenceGate::Open, FenceGate::Shut)
}

/// Judges a fenced workload; the verdict is that of its Work, if there is one.
fn judge(
    cluster: &Cluster,
    spec: &ResourceBindingSpec,
    verdict: impl FnOnce() -> Option<Verdict>,
) -> FenceGate {
    if spec.is_preserved_on_deletion() {
        return FenceGate::Shut(PRESERVED.to_owned());
    }
    if readiness(cluster) == conditions::TRUE {
        // Its agent removes the copy before another one is made.
        return FenceGate::Open;
    }
    match verdict() {
        // Without a Work the agent never knew of the workload.
        None | Some(Verdict::Stopped) => FenceGate::Open,
        Some(Verdict::Waits { until, time }) => {
            let why = format!(
                "its copy may run until {} s after the last renewal of the cluster's lease",
                time.as_secs()
            );
            FenceGate::Until(until, why)
        }
        Some(Verdict::Unfenced(why)) => FenceGate::Shut(why),
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::names;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fenced_workload_leaves_when_its_copy_can_be_removed_or_is_stopped() {
        let now = Instant::now();
        let waits = Verdict::Waits {
            until: now + Duration::from_secs(7),
            time: Duration::from_secs(100),
        };
        let in_seconds = |seconds| Some(Some(now + Duration::from_secs(seconds)));
        for (what, ready, preserves, verdict, until) in [
            ("stopped", "Unknown", None, Some(Verdict::Stopped), None),
            ("never known", "Unknown", None, None, None),
            (
                "it may run",
                "Unknown",
                None,
                Some(waits.clone()),
                in_seconds(7),
            ),
            ("ready", "True", None, Some(waits.clone()), None),
            (
                "kept",
                "Unknown",
                Some(true),
                Some(Verdict::Stopped),
                Some(None),
            ),
            (
                "not kept",
                "Unknown",
                Some(false),
                Some(Verdict::Stopped),
                None,
            ),
        ] {
            let cluster: Cluster = serde_json::from_value(json!({
                "metadata": { "name": "m1" },
                "spec": { "syncMode": "Pull", "taints": [
                    { "key": "a", "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z" },
                ] },
                "status": { "conditions": [
                    { "type": "Ready", "status": ready, "reason": "r", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z" },
                ] },
            }))
            .unwrap();
            let spec = ResourceBindingSpec {
                preserve_resources_on_deletion: preserves,
                ..ResourceBindingSpec::default()
            };
            // The gate is open, closed until an instant, or closed.
            let found = match judge(&cluster, &spec, || verdict) {
                FenceGate::Open => None,
                FenceGate::Until(until, _) => Some(Some(until)),
                FenceGate::Shut(_) => Some(None),
            };
            assert_eq!(found, until, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_work_that_reports_a_copy_is_that_of_its_cluster() {
        use crate::fleet::testing::Bench;
        for (works, expected) in [
            (&[][..], None),
            // The copy in another cluster is not asked about.
            (&["m2"], None),
            (&["m1"], Some("the cluster has no lease")),
            (&["m2", "m1"], Some("the cluster has no lease")),
        ] {
            let binding = json!({
                "metadata": {"namespace": "shop", "name": "web-deployment"},
                "spec": {
                    "resource": {
                        "apiVersion": "apps/v1", "kind": "Deployment",
                        "namespace": "shop", "name": "web",
                    },
                    "failover": {"cluster": {"fencing": {"afterSeconds": 100}}},
                },
            });
            let cluster = json!({"metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}});
            let work = |cluster: &&str| {
                let annotations = json!({
                    "resourcebinding.karmada.io/namespace": "shop",
                    "resourcebinding.karmada.io/name": "web-deployment",
                });
                let namespace = names::execution_namespace(cluster);
                json!({"metadata": {
                    "namespace": namespace, "name": "web", "annotations": annotations,
                }})
            };
            let objects = [("resourcebindings", binding), ("clusters", cluster)];
            let works = works.iter().map(|it| ("works", work(it)));
            let bench = Bench::followed(objects.into_iter().chain(works)).await;
            let fence = of(&bench.fleet);
            let binding = bench.binding("web-deployment");
            let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
            let gate = fence(&cluster, &binding.unwrap(), Instant::now());
            let why = match gate {
                FenceGate::Open => None,
                FenceGate::Shut(why) => Some(why),
                FenceGate::Until(..) => panic!("{gate:?}"),
            };
            assert_eq!(why.as_deref(), expected);
        }
    }
}
