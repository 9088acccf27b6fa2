//! Progress of requested moves, as rebalancers and bindings show it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Config;
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::scheduler::core::cycle::is_reschedule_requested;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ObjectReference;
use muster_shared::api::rebalancer::{WorkloadRebalancer, WorkloadReference};
use muster_shared::clock::calendar;
use muster_shared::k8s::ResourceExt;
use muster_shared::names;
use serde::Serialize;

use crate::follow::{self, Check, Deleted, Snapshot, Stopped, Waiting};

/// Progress of the moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Progress {
    /// Workloads that have moved, or are gone.
    pub moved: usize,
    /// Workloads whose new copies are being started.
    pub replacing: usize,
    /// Workloads that wait in the queue.
    pub waiting: usize,
    /// Reasons why nothing moves now.
    #[serde(rename = "nothingMoves", skip_serializing_if = "Vec::is_empty")]
    pub nothing_moves: Vec<String>,
}

impl Progress {
    /// Returns the progress in one line.
    pub fn line(&self) -> String {
        let all = self.moved + self.replacing + self.waiting;
        let Self {
            moved,
            replacing,
            waiting,
            ..
        } = self;
        format!("{moved} of {all} moved, {replacing} being replaced, {waiting} waiting")
    }

    fn is_done(&self) -> bool {
        self.replacing == 0 && self.waiting == 0
    }
}

/// Counts workloads; `asked` are those whose requests have been carried out. A binding that cannot
/// be seen has not moved.
fn count(
    workloads: &[WorkloadReference],
    asked: &BTreeSet<WorkloadReference>,
    bindings: &[Arc<AnyBinding>],
    deleted: Deleted<'_>,
) -> Progress {
    let mut progress = Progress::default();
    let by_workload: BTreeMap<WorkloadReference, &Arc<AnyBinding>> = bindings
        .iter()
        .map(|binding| (workload_of(&binding.spec.resource), binding))
        .collect();
    for workload in workloads {
        let key = BindingKey {
            namespace: workload.namespace.clone(),
            name: names::binding(&workload.kind, &workload.name),
        };
        match by_workload.get(workload) {
            None if deleted(&key) => progress.moved += 1,
            None => progress.waiting += 1,
            Some(binding)
                if !asked.contains(workload)
                    || is_reschedule_requested(&binding.spec, binding.status()) =>
            {
                progress.waiting += 1;
            }
            Some(binding) if is_moved(binding) => progress.moved += 1,
            Some(_) => progress.replacing += 1,
        }
    }
    progress
}

/// Names the workload of a binding as a rebalancer does.
pub(super) fn workload_of(resource: &ObjectReference) -> WorkloadReference {
    WorkloadReference {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        name: resource.name.clone(),
        namespace: resource.namespace.clone().filter(|it| !it.is_empty()),
    }
}

/// Returns whether every chosen cluster reports a healthy copy, and no old copy waits for that. A
/// share of zero replicas is no copy.
fn is_moved(binding: &AnyBinding) -> bool {
    let (spec, status) = (&binding.spec, binding.status());
    let mut copies = spec.copies();
    !spec.is_moving() && copies.all(|it| status.is_healthy_in(&it.name))
}

/// Shows the progress until all have moved.
pub(super) async fn follow(
    config: &Config,
    names: &[String],
    workloads: &[WorkloadReference],
    waiting: Waiting,
) -> anyhow::Result<(Progress, Result<(), Stopped>)> {
    // A rebalancer deletes itself some time after its requests, and moves may take longer.
    let mut asked = BTreeSet::new();
    let check = |fleet: Snapshot<'_, WorkloadRebalancer>| {
        for rebalancer in fleet.objects.list() {
            if names.contains(&rebalancer.name_any())
                && let Some(status) = &rebalancer.status
            {
                let observed = status.observed_workloads.iter();
                let observed = observed.filter(|it| it.result.is_some());
                asked.extend(observed.map(|it| it.workload.clone()));
            }
        }
        let progress = Progress {
            nothing_moves: fleet.movement.of([], calendar()).reasons,
            ..count(workloads, &asked, &fleet.bindings, fleet.deleted)
        };
        Check {
            line: progress.line(),
            nothing_moves: progress.nothing_moves.clone(),
            end: progress.is_done().then_some(()),
            progress,
        }
    };
    follow::follow(config, waiting, check).await
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures;

    #[test]
    fn a_workload_has_moved_when_its_new_copies_are_healthy_and_the_old_ones_gone() {
        let workload: WorkloadReference = fixtures::read(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web",
        }));
        let check = |asked: bool, requested: &str, tasks: Value, health: &str| {
            let changes = json!({
                "spec": {
                    "resource": {"name": "web"}, "clusters": [{"name": "home"}],
                    "gracefulEvictionTasks": tasks, "rescheduleTriggeredAt": requested,
                },
                "status": {
                    "lastScheduledTime": "2026-01-01T00:00:05Z",
                    "aggregatedStatus": [{"clusterName": "home", "health": health}],
                },
            });
            let asked: BTreeSet<_> = asked.then(|| workload.clone()).into_iter().collect();
            let bindings = [fixtures::binding("shop", "web-deployment", &changes)];
            count(std::slice::from_ref(&workload), &asked, &bindings, &|_| {
                true
            })
            .line()
        };
        let (early, late) = ("2026-01-01T00:00:04Z", "2026-01-01T00:00:06Z");
        let task = |suppressed: Value| {
            json!([{"fromCluster": "away", "reason": "PlacementChanged", "producer": "Scheduler",
                "suppressDeletion": suppressed}])
        };
        let (none, graceful, never) = (json!([]), task(Value::Null), task(json!(true)));
        let waits = "0 of 1 moved, 0 being replaced, 1 waiting";
        let replaced = "0 of 1 moved, 1 being replaced, 0 waiting";
        let moved = "1 of 1 moved, 0 being replaced, 0 waiting";
        for (what, asked, requested, tasks, health, expected) in [
            ("not asked", false, early, &none, "Healthy", waits),
            ("not scheduled", true, late, &none, "Healthy", waits),
            ("starting", true, early, &graceful, "Unknown", replaced),
            ("two copies", true, early, &graceful, "Healthy", replaced),
            ("not healthy", true, early, &none, "Unhealthy", replaced),
            ("moved", true, early, &none, "Healthy", moved),
            ("never removed", true, early, &never, "Healthy", moved),
        ] {
            let found = check(asked, requested, tasks.clone(), health);
            assert_eq!(found, expected, "{what}");
        }
        for (replicas, expected) in [(0, true), (1, false)] {
            let shares =
                json!([{"name": "home", "replicas": 2}, {"name": "silent", "replicas": replicas}]);
            let changes = json!({
                "spec": {"replicas": 2, "clusters": shares},
                "status": {"aggregatedStatus": [{"clusterName": "home", "health": "Healthy"}]},
            });
            let binding = fixtures::binding("shop", "web-deployment", &changes);
            assert_eq!(is_moved(&binding), expected, "{replicas}");
        }
    }
}
