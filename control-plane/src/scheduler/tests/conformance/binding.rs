//! Suite `schedule_binding`: repeated schedules of one binding while its environment changes.

use std::sync::Arc;

use jiff::Timestamp;
use muster_shared::api::binding::{
    GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus, TargetCluster,
};
use muster_shared::api::policy::Placement;
use muster_shared::conditions;
use muster_shared::k8s::Time;
use muster_shared::names::condition::SCHEDULED;
use serde_json::{Value, json};

use super::{by_name, decode, replay};
use crate::fleet::testing::at;
use crate::scheduler::core::outcome::{Outcome, Subject, pass};
use crate::scheduler::core::{FitError, Kind, Options, Snapshot};

#[test]
fn bindings_are_handled_as_recorded() {
    replay("schedule_binding", evaluate, |case, out| {
        for (number, step) in out["steps"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .enumerate()
        {
            by_name(&mut step["clusters"]);
            if case.output["steps"][number]["scheduledCondition"]["message"].is_null() {
                // Not recorded where it depended on chance.
                step["scheduledCondition"]["message"] = Value::Null;
            }
        }
    });
}

/// The lists of clusters as the recording kept them.
///
/// It kept no copies: evicting a cluster closes the gap within the list, and so a list that was
/// recorded in an earlier step and not written anew since shows its last cluster twice. Replaying
/// that is the only way to compare these steps as a whole; nothing outside this test knows of it.
#[derive(Default)]
struct Recording {
    lists: Vec<Vec<TargetCluster>>,
    /// For each step, which list it shows and how much of it.
    steps: Vec<(usize, usize)>,
}

impl Recording {
    fn step(&mut self, clusters: &[TargetCluster], written: bool) {
        if written || self.lists.is_empty() {
            self.lists.push(clusters.to_vec());
        }
        self.steps.push((self.lists.len() - 1, clusters.len()));
    }

    fn evict(&mut self, position: usize, length: usize) {
        if let Some(list) = self.lists.last_mut() {
            list[position..length].rotate_left(1);
            if length >= 2 && position + 1 < length {
                list[length - 1] = list[length - 2].clone();
            }
        }
    }

    fn shown(&self, step: usize) -> &[TargetCluster] {
        let (list, length) = self.steps[step];
        &self.lists[list][..length]
    }
}

/// A binding and what surrounds it.
struct World {
    snapshot: Snapshot,
    spec: ResourceBindingSpec,
    status: ResourceBindingStatus,
    applied_placement: Option<String>,
    generation: i64,
    recording: Recording,
}

fn evaluate(input: &Value) -> Value {
    let mut world = World {
        snapshot: clusters(&input["clusterObjects"]),
        spec: decode(&json!({
            "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "x" },
            "replicas": input["replicas"],
            "placement": input["placement"],
        })),
        status: ResourceBindingStatus::default(),
        applied_placement: None,
        generation: 1,
        recording: Recording::default(),
    };
    if input["hasRequirements"] == json!(true) {
        world.spec.replica_requirements = decode(&json!({ "resourceRequest": { "cpu": "1" } }));
    }
    let steps = input["steps"].as_array().expect("steps are listed");
    let mut steps: Vec<_> = steps.iter().map(|step| world.step(step)).collect();
    for (number, step) in steps.iter_mut().enumerate() {
        step["clusters"] = json!(world.recording.shown(number));
    }
    json!({ "steps": steps })
}

impl World {
    fn step(&mut self, step: &Value) -> Value {
        let now = at(step["at"].as_i64().unwrap_or(0));
        self.change(step, now);
        let observed = self
            .status
            .scheduler_observed_affinity_name
            .clone()
            .unwrap_or_default();
        let options = Options::karmada();
        let subject = Subject {
            generation: self.generation,
            applied_placement: self.applied_placement.as_deref(),
            spec: &self.spec,
            status: &self.status,
        };
        let outcome = pass(&subject, &self.snapshot, &options, now);
        let grouped = self
            .spec
            .placement
            .as_ref()
            .is_some_and(|placement| !placement.cluster_affinities.is_empty());
        let attempts: Vec<_> = outcome
            .attempts
            .iter()
            .map(|attempt| {
                if grouped {
                    attempt.group.clone()
                } else {
                    observed.clone()
                }
            })
            .collect();
        // Where the reference puts the binding; ours wait for clusters to change, and are
        // reconciled again now and then.
        let retry = match outcome.failure.as_ref().map(FitError::kind) {
            None | Some(Kind::NoClusterFit) => "none",
            Some(Kind::Unschedulable) => "unschedulable",
            Some(Kind::SchedulerError) => "backoff",
        };
        let before = (self.spec.clone(), self.status.clone());
        self.write(outcome, now);
        let written = before != (self.spec.clone(), self.status.clone());
        self.recording.step(&self.spec.clusters, written);
        let scheduled =
            conditions::get(&self.status.conditions, SCHEDULED).expect("a pass reports");
        let applied = self.applied_placement.as_deref().unwrap_or_default();
        json!({
            "attempts": attempts,
            "retry": retry,
            "schedulerObservingAffinityName":
                self.status.scheduler_observed_affinity_name.clone().unwrap_or_default(),
            "scheduledCondition": { "status": scheduled.status, "reason": scheduled.reason, "message": scheduled.message },
            "generation": self.generation,
            "schedulerObservedGeneration": self.status.scheduler_observed_generation,
            "lastScheduledAt": self
                .status
                .last_scheduled_time
                .as_ref()
                .map(|time| time.0.as_second()),
            "appliedPlacementIsCurrent":
                serde_json::from_str::<Placement>(applied).ok().as_ref()
                    == self.spec.placement.as_deref(),
        })
    }

    /// Makes the changes that others make before the pass.
    fn change(&mut self, step: &Value, now: Timestamp) {
        if !step["setClusterObjects"].is_null() {
            self.snapshot = clusters(&step["setClusterObjects"]);
        }
        let before = self.spec.clone();
        if let Some(replicas) = step["setReplicas"].as_i64() {
            self.spec.replicas = i32::try_from(replicas).expect("replicas have 31 bits");
        }
        if !step["setPlacement"].is_null() {
            self.spec.placement = Some(decode(&step["setPlacement"]));
        }
        if step["triggerReschedule"] == json!(true) {
            self.spec.reschedule_triggered_at = Some(Time(now));
        }
        if let Some(cluster) = step["evictCluster"].as_str() {
            let length = self.spec.clusters.len();
            let position = self
                .spec
                .clusters
                .iter()
                .position(|target| target.name == cluster);
            if let Some(position) = position {
                self.recording.evict(position, length);
            }
            evict(&mut self.spec, cluster);
        }
        if step["clearGracefulEvictionTasks"] == json!(true) {
            self.spec.graceful_eviction_tasks.clear();
        }
        if let Some(text) = step["setAppliedPlacementAnnotation"].as_str() {
            self.applied_placement = Some(text.to_owned());
        }
        self.generation += i64::from(self.spec != before);
    }

    fn write(&mut self, outcome: Outcome, now: Timestamp) {
        if let Some(placed) = outcome.placed {
            self.generation += i64::from(self.spec.clusters != placed.clusters);
            self.spec.clusters = placed.clusters;
            self.applied_placement = Some(placed.applied_placement);
        }
        self.status = outcome.report.on(&self.status, now);
    }
}

/// Moves a cluster from the result to the tasks, as eviction does.
fn evict(spec: &mut ResourceBindingSpec, cluster: &str) {
    if spec.target(cluster).is_none() {
        return;
    }
    spec.clusters.retain(|target| target.name != cluster);
    if spec.eviction_task(cluster).is_none() {
        spec.graceful_eviction_tasks.push(GracefulEvictionTask {
            from_cluster: cluster.to_owned(),
            ..GracefulEvictionTask::default()
        });
    }
}

fn clusters(objects: &Value) -> Snapshot {
    let objects = objects.as_array().cloned().unwrap_or_default();
    Snapshot::new(objects.iter().map(|object| {
        let kinds = if object["apiMissing"] == json!(true) {
            json!([])
        } else {
            json!([{ "groupVersion": "apps/v1", "resources": [{ "name": "deployments", "kind": "Deployment" }] }])
        };
        let deleting = (object["deleting"] == json!(true)).then(|| at(0).to_string());
        Arc::new(decode(&json!({
            "metadata": {
                "name": object["name"],
                "labels": object["labels"],
                "deletionTimestamp": deleting,
            },
            "spec": {
                "region": object["region"],
                "taints": object["taints"].as_array().cloned().unwrap_or_default(),
            },
            "status": {
                "apiEnablements": kinds,
                "resourceSummary": {
                    "allocatable": { "cpu": object["freeCPU"].to_string(), "pods": "1000" },
                },
            },
        })))
    }))
}
