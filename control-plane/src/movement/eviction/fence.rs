//! Asks whether the copy that an eviction leaves behind is removed or certainly stopped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::Taint;
use muster_shared::names::{self, condition::READY};
use tokio::time::Instant;

use super::fleet_view::evicts;
use crate::fleet::Fleet;
use crate::fleet::availability::readiness;
use crate::fleet::binding::BindingKey;
use crate::fleet::fencing::{self, Verdict};

/// Time for which a cluster that is ready again keeps fenced workloads: beyond the default of
/// `removeOnMismatchSeconds` (180 s), after which the taints of its failure are gone.
const SETTLING: Duration = Duration::from_mins(5);

/// Whether a workload may leave a cluster as far as fencing is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It is not fenced, its cluster can remove the copy, or the copy is stopped.
    Open,
    /// The copy may run until this instant.
    Until(Instant, String),
    /// Nothing stops the copy.
    Shut(String),
}

type Ask = dyn Fn(&Cluster, &AnyBinding, Instant) -> Gate + Send + Sync;

/// The question. Cheap to clone.
#[derive(Clone)]
pub struct Fence(Arc<Ask>);

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fence")
    }
}

impl Fence {
    /// Makes a fence that answers by a function.
    pub fn new(
        ask: impl Fn(&Cluster, &AnyBinding, Instant) -> Gate + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(ask))
    }

    /// Returns a fence that is open for all.
    pub fn none() -> Self {
        Self::new(|_, _, _| Gate::Open)
    }

    /// Returns the fence that asks the fleet.
    pub fn of(fleet: &Arc<Fleet>) -> Self {
        let fleet = Arc::downgrade(fleet);
        Self::new(move |cluster, binding, now| {
            fleet
                .upgrade()
                .map_or(Gate::Open, |fleet| gate(&fleet, cluster, binding, now))
        })
    }

    /// Asks.
    pub fn ask(&self, cluster: &Cluster, binding: &AnyBinding, now: Instant) -> Gate {
        (self.0)(cluster, binding, now)
    }
}

/// Returns how much longer a cluster that has just become ready again keeps its workloads: the
/// taint of its failure goes only when it has been ready for a while, and what was released a
/// moment ago would be stopped again. `None` means that the time is over, that a taint came later,
/// or that there is none.
fn settles(cluster: &Cluster, now: Timestamp) -> Option<Duration> {
    let ready = cluster.condition(READY)?.last_transition_time.0;
    let is_older = |taint: &Taint| {
        taint
            .time_added
            .as_ref()
            .is_some_and(|added| added.0 <= ready)
    };
    let evicting = cluster.spec.taints.iter().filter(|taint| evicts(taint));
    let mut evicting = evicting.peekable();
    evicting.peek()?;
    let rest = SETTLING.checked_sub(Duration::try_from(now.duration_since(ready)).ok()?)?;
    (!rest.is_zero() && evicting.all(is_older)).then_some(rest)
}

fn gate(fleet: &Fleet, cluster: &Cluster, binding: &AnyBinding, now: Instant) -> Gate {
    let Some(after) = fencing::asked(&binding.spec) else {
        return of_data(cluster, &binding.spec);
    };
    let verdict = || {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let namespace = names::execution_namespace(name);
        let works = fleet.work_index.of(&BindingKey::of(binding));
        let work = works
            .iter()
            .find(|work| work.metadata.namespace.as_ref() == Some(&namespace))?;
        Some(fencing::of_work(fleet, name, Some(work), after, now).0)
    };
    judge(cluster, &binding.spec, verdict, fleet.clock.now(), now)
}

/// Judges a workload that is not fenced: its data may keep it in a cluster that is not heard of.
fn of_data(cluster: &Cluster, spec: &ResourceBindingSpec) -> Gate {
    let keeps = fencing::keeps_data(spec).filter(|_| readiness(cluster) != conditions::TRUE);
    keeps.map_or(Gate::Open, Gate::Shut)
}

/// Judges a fenced workload; the verdict is that of its Work, if there is one.
fn judge(
    cluster: &Cluster,
    spec: &ResourceBindingSpec,
    verdict: impl FnOnce() -> Option<Verdict>,
    date: Timestamp,
    now: Instant,
) -> Gate {
    if spec.preserve_resources_on_deletion == Some(true) {
        return Gate::Shut(
            "preserveResourcesOnDeletion would keep the copy there running".to_owned(),
        );
    }
    if readiness(cluster) == conditions::TRUE {
        // Its agent removes the copy before another one is made.
        return match settles(cluster, date) {
            None => Gate::Open,
            Some(rest) => {
                let why = "the cluster is ready again, and the taint may go".to_owned();
                Gate::Until(now + rest, why)
            }
        };
    }
    match verdict() {
        // Without a Work the agent was never told of the workload.
        None | Some(Verdict::Stopped) => Gate::Open,
        Some(Verdict::Waits { until, time }) => {
            let why = format!(
                "its copy may run until {} s after the last renewal of the cluster's lease",
                time.as_secs()
            );
            Gate::Until(until, why)
        }
        Some(Verdict::Unfenced(why)) => Gate::Shut(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_that_is_ready_again_keeps_its_workloads_while_the_taint_of_its_failure_goes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (what, added, effect, now, expected) in [
            (
                "it has just come back",
                Some(900),
                "NoExecute",
                1_000,
                Some(300),
            ),
            (
                "a while ago",
                Some(900),
                "PreferNoExecute",
                1_200,
                Some(100),
            ),
            ("long ago", Some(900), "NoExecute", 1_300, None),
            ("somebody drains it", Some(1_001), "NoExecute", 1_002, None),
            ("a taint without time", None, "NoExecute", 1_002, None),
            ("its clock is ahead", Some(900), "NoExecute", 990, None),
            (
                "nothing drives it out",
                Some(900),
                "NoSchedule",
                1_200,
                None,
            ),
        ] {
            let cluster: Cluster = serde_json::from_value(json!({
                "metadata": { "name": "m1" },
                "spec": { "syncMode": "Pull", "taints": [
                    { "key": "a", "effect": effect, "timeAdded": added.map(at) },
                ] },
                "status": { "conditions": [
                    { "type": "Ready", "status": "True", "reason": "r", "message": "", "lastTransitionTime": at(1_000) },
                ] },
            }))
            .unwrap();
            let rest = settles(&cluster, at(now));
            assert_eq!(rest.map(|rest| rest.as_secs()), expected, "{what}");
        }
    }

    #[test]
    fn a_fenced_workload_leaves_when_its_copy_can_be_removed_or_is_stopped() {
        let now = Instant::now();
        let date = |second| Timestamp::from_second(second).unwrap();
        let waits = Verdict::Waits {
            until: now + Duration::from_secs(7),
            time: Duration::from_secs(100),
        };
        let in_seconds = |seconds| Some(Some(now + Duration::from_secs(seconds)));
        for (what, ready, second, preserves, verdict, until) in [
            ("stopped", "Unknown", 0, None, Some(Verdict::Stopped), None),
            ("never told of", "Unknown", 0, None, None, None),
            (
                "it may run",
                "Unknown",
                0,
                None,
                Some(waits.clone()),
                in_seconds(7),
            ),
            (
                "ready for long",
                "True",
                300,
                None,
                Some(waits.clone()),
                None,
            ),
            (
                "ready again",
                "True",
                290,
                None,
                Some(Verdict::Stopped),
                in_seconds(10),
            ),
            (
                "kept",
                "Unknown",
                0,
                Some(true),
                Some(Verdict::Stopped),
                Some(None),
            ),
            (
                "not kept",
                "Unknown",
                0,
                Some(false),
                Some(Verdict::Stopped),
                None,
            ),
        ] {
            let cluster: Cluster = serde_json::from_value(json!({
                "metadata": { "name": "m1" },
                "spec": { "syncMode": "Pull", "taints": [
                    { "key": "a", "effect": "NoExecute", "timeAdded": date(0) },
                ] },
                "status": { "conditions": [
                    { "type": "Ready", "status": ready, "reason": "r", "message": "", "lastTransitionTime": date(0) },
                ] },
            }))
            .unwrap();
            let spec = ResourceBindingSpec {
                preserve_resources_on_deletion: preserves,
                ..ResourceBindingSpec::default()
            };
            // The gate is open, closed until an instant, or closed.
            let found = match judge(&cluster, &spec, || verdict, date(second), now) {
                Gate::Open => None,
                Gate::Until(until, _) => Some(Some(until)),
                Gate::Shut(_) => Some(None),
            };
            assert_eq!(found, until, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_work_that_tells_of_a_copy_is_that_of_its_cluster() {
        use crate::fleet::testing::Stand;
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
            let stand = Stand::followed(objects.into_iter().chain(works)).await;
            let fence = Fence::of(&stand.fleet);
            let binding = stand.binding("web-deployment");
            let cluster = stand.fleet.clusters.get(None, "m1").unwrap();
            let gate = fence.ask(&cluster, &binding.unwrap(), Instant::now());
            let why = match gate {
                Gate::Open => None,
                Gate::Shut(why) => Some(why),
                Gate::Until(..) => panic!("{gate:?}"),
            };
            assert_eq!(why.as_deref(), expected);
        }
    }
}
