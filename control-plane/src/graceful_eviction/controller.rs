//! Removes completed graceful eviction tasks from bindings.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use muster_shared::api::binding::{
    AggregatedStatusItem, Binding, ClusterResourceBinding, GracefulEvictionTask, ResourceBinding,
    ResourceBindingSpec, ResourceHealth, TargetCluster,
};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::WorkStatus;
use muster_shared::client;
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::interpreter::Operation;
use muster_shared::names::{self, annotation, condition, label};
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer};
use serde_json::json;

use super::assess::{Assessment, Scene, assess, retains_replicas};
use super::standing::Standing;
use crate::eviction::judge::{Switches, placement};
use crate::fleet::Fleet;
use crate::fleet::api_error::overtaken;
use crate::fleet::availability::{Workload, readiness};
use crate::fleet::binding::{BindingKey, BindingKind, event_reference, patch_params, spec_of};
use crate::fleet::deleted_works::DeletedWorks;
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::Lookup;
use crate::fleet::works::{CachedWork, binding_of, means};
use crate::settings::evict_plugin::EvictPlugins;
use muster_shared::queue::until;

/// Until a kind that was not followed before has been listed.
const UNLISTED: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error("cannot write the eviction tasks of {key}: {}", client::brief(error))]
struct Error {
    key: BindingKey,
    error: Box<kube::Error>,
}

/// Starts the controller. It runs with the gate `Failover` off as well: what was begun is brought
/// to its end.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    // The template says whether the members decide on the number of replicas.
    fleet.follow_templates();
    let queue = Queue::<BindingKey>::new("graceful eviction");
    follow(&fleet.bindings, &queue);
    follow(&fleet.cluster_bindings, &queue);
    fleet.clusters.on_change({
        let (fleet, queue) = (Arc::downgrade(fleet), queue.clone());
        move |change| {
            let concerns_us = match change {
                Change::Applied {
                    old: Some(old),
                    new,
                } => matters(old, new),
                Change::Applied { old: None, .. } => false,
                Change::Deleted { .. } => true,
            };
            if let Some(fleet) = fleet.upgrade().filter(|_| concerns_us) {
                enqueue_all::<ResourceBinding>(&fleet, &queue);
                enqueue_all::<ClusterResourceBinding>(&fleet, &queue);
            }
        }
    });
    // A report counts when its Work says the same, which may be heard of later.
    fleet.works.on_change({
        let (fleet, queue) = (Arc::downgrade(fleet), queue.clone());
        move |change| {
            let Change::Applied { old, new } = change else {
                return;
            };
            let is_same = old.as_ref().is_some_and(|old| new.reports_as(old));
            let key = binding_of(new).filter(|_| !is_same);
            if let Some((fleet, key)) = fleet.upgrade().zip(key)
                && waits(&fleet, &key)
            {
                queue.add(key);
            }
        }
    });
    fleet.pauses.on_change({
        let (fleet, queue) = (Arc::downgrade(fleet), queue.clone());
        move || {
            if let Some(fleet) = fleet.upgrade() {
                enqueue_all::<ResourceBinding>(&fleet, &queue);
                enqueue_all::<ClusterResourceBinding>(&fleet, &queue);
            }
        }
    });
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    // Settings that were checked name plugins that there are.
    let plugins = EvictPlugins::parse(&fleet.settings.evict_plugins).unwrap_or_default();
    fleet.work(
        tasks,
        "graceful eviction",
        queue,
        workers,
        move |fleet, key: BindingKey| async move {
            if key.namespace.is_some() {
                work_off::<ResourceBinding>(&fleet, plugins, key).await
            } else {
                work_off::<ClusterResourceBinding>(&fleet, plugins, key).await
            }
        },
    );
}

fn follow<B: Binding>(bindings: &Informer<B>, queue: &Queue<BindingKey>) {
    let queue = queue.clone();
    bindings.on_change(move |change| {
        if let Change::Applied { new, .. } = change
            && has_tasks(new.as_ref())
        {
            queue.add(BindingKey::of(new.as_ref()));
        }
    });
}

/// Whether a binding has tasks.
fn waits(fleet: &Fleet, key: &BindingKey) -> bool {
    let (bindings, wide) = (&fleet.bindings, &fleet.cluster_bindings);
    let has_tasks = |spec: &ResourceBindingSpec| !spec.graceful_eviction_tasks.is_empty();
    spec_of(key, bindings, wide, has_tasks) == Some(true)
}

fn enqueue_all<B: BindingKind>(fleet: &Fleet, queue: &Queue<BindingKey>) {
    for binding in B::cache(fleet).list() {
        if has_tasks(binding.as_ref()) {
            queue.add(BindingKey::of(binding.as_ref()));
        }
    }
}

async fn work_off<B: BindingKind>(
    fleet: &Fleet,
    plugins: EvictPlugins,
    key: BindingKey,
) -> Result<Next, Error> {
    let Some(binding) = B::cache(fleet).get(key.namespace.as_deref(), &key.name) else {
        return Ok(Next::Done);
    };
    let spec = binding.spec();
    if !has_tasks(binding.as_ref()) {
        return Ok(Next::Done);
    }
    let now = fleet.clock.now();
    let (assessment, retry) = look(fleet, plugins, binding.as_ref(), now);
    if assessment.kept != spec.graceful_eviction_tasks {
        let kept = &assessment.kept;
        let mut patch = json!({
            "metadata": {"resourceVersion": binding.meta().resource_version},
            "spec": {"gracefulEvictionTasks": (!kept.is_empty()).then_some(kept)},
        });
        if !assessment.restored.is_empty() {
            patch["spec"]["clusters"] = json!(assessment.restored);
        }
        match B::api(&fleet.client, &key)
            .patch(&key.name, &patch_params(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => tell(fleet, binding.as_ref(), &key, &assessment),
            Err(error) => {
                let error = Box::new(error);
                return overtaken(&error).ok_or(Error { key, error });
            }
        }
    }
    let end = assessment.again.map(|end| until(end, now));
    let next = end.into_iter().chain(retry).min();
    Ok(next.map_or(Next::Done, Next::After))
}

/// What becomes of the tasks, and when to look again although nothing changes.
fn look<B: Binding>(
    fleet: &Fleet,
    plugins: EvictPlugins,
    binding: &B,
    now: Timestamp,
) -> (Assessment, Option<Duration>) {
    let (spec, status) = (binding.spec(), binding.status());
    let applied = binding
        .annotations()
        .get(annotation::APPLIED_PLACEMENT)
        .map(String::as_str);
    let placement = placement(spec, applied);
    let switches = Switches::of(&fleet.settings);
    let workload = Workload::of(spec, placement.as_deref());
    let workload = workload.under(switches.failover, switches.no_execute);
    let retry = Cell::new(None);
    let members_scale = || match fleet.templates.get(&TemplateKey::of(&spec.resource)) {
        Lookup::Found(template) => retains_replicas(template.label(label::RETAIN_REPLICAS)),
        Lookup::Absent => false,
        Lookup::Unknown => {
            retry.set(Some(UNLISTED));
            false
        }
    };
    let works = fleet.work_index.of(&BindingKey::of(binding));
    // Whoever asked for the deletion of a Work that is wanted again finds out what became of it.
    if works.iter().any(|work| fleet.deleted_works.is_asked(work)) {
        retry.set(Some(UNLISTED));
    }
    let works = carrying_out(&works, &fleet.deleted_works);
    let has_work = |target: &TargetCluster| works.contains_key(&*target.name);
    let reports = if spec.graceful_eviction_tasks.iter().any(asks_for_health) {
        standing_reports(spec, &status.aggregated_status, |cluster| {
            works.get(cluster).map(|work| work.status())
        })
    } else {
        Vec::new()
    };
    let scene = Scene {
        clusters: &spec.clusters,
        carried_out: spec.clusters.iter().any(has_work),
        reports: &reports,
        scheduled: binding.meta().generation == Some(status.scheduler_observed_generation),
        cluster: &|name| Standing::of(&fleet.clusters.presence(None, name), &workload),
        plugins,
        members_scale: &members_scale,
        has_rule: fleet.interpreters.has(
            &spec.resource.api_version,
            &spec.resource.kind,
            Operation::InterpretHealth,
        ),
        restores: !fleet.settings.schedules(spec.scheduler_name.as_deref()),
        // Time alone removes nothing: the proposal deprecates `--graceful-eviction-timeout`.
        timeout: None,
    };
    let tasks = &spec.graceful_eviction_tasks;
    let is_paused = |cluster: &str| fleet.pauses.of(cluster, now).is_some();
    let assessment = assess(tasks, &scene, now).while_paused(tasks, is_paused);
    (assessment, retry.get())
}

/// Whether a task ends when the workload is healthy elsewhere.
fn asks_for_health(task: &GracefulEvictionTask) -> bool {
    task.suppress_deletion.is_none()
}

/// The reports, those of targets as far as their Works say the same now; without a Work that says
/// something they are left out. A cluster that was left and chosen again still has the report of
/// its former copy on the binding, of which nothing may be there.
///
/// What is counted is what the Work says: what the binding says is older, and not kept to the
/// letter (a merge patch leaves out fields that are null).
fn standing_reports(
    spec: &ResourceBindingSpec,
    reports: &[AggregatedStatusItem],
    work: impl Fn(&str) -> Option<WorkStatus>,
) -> Vec<AggregatedStatusItem> {
    let targets = spec.clusters.iter().map(|target| &*target.name);
    let targets: HashSet<&str> = targets.collect();
    let standing = |report: &AggregatedStatusItem| {
        if !targets.contains(&*report.cluster_name) {
            return Some(report.clone());
        }
        let said = work(&report.cluster_name)?;
        if !conditions::is_true(&said.conditions, condition::APPLIED) {
            return None;
        }
        let mut manifests = said.manifest_statuses.into_iter();
        let said = manifests.find(|it| means(&it.identifier, &spec.resource))?;
        let is_healthy = report.health == Some(ResourceHealth::Healthy);
        Some(AggregatedStatusItem {
            health: if is_healthy {
                said.health
            } else {
                report.health.clone()
            },
            status: said.status,
            ..report.clone()
        })
    };
    reports.iter().filter_map(standing).collect()
}

/// The Works that place their workload in a cluster, by cluster: those that stay.
fn carrying_out<'a>(
    works: &'a [Arc<CachedWork>],
    deleted: &DeletedWorks,
) -> HashMap<&'a str, &'a CachedWork> {
    let staying = works.iter().filter(|work| !deleted.is_to_go(work));
    staying
        .filter_map(|work| {
            let namespace = work.metadata.namespace.as_deref()?;
            Some((
                names::cluster_of_execution_namespace(namespace)?,
                work.as_ref(),
            ))
        })
        .collect()
}

/// Whether there are tasks to look at. Those of a binding that is being deleted go with it.
fn has_tasks<B: Binding>(binding: &B) -> bool {
    let tasks = &binding.spec().graceful_eviction_tasks;
    !tasks.is_empty() && binding.meta().deletion_timestamp.is_none()
}

/// Whether a change of a cluster can matter to a task.
fn matters(old: &Cluster, new: &Cluster) -> bool {
    old.spec.taints != new.spec.taints
        || readiness(old) != readiness(new)
        || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
}

fn tell<B: Binding>(fleet: &Fleet, binding: &B, key: &BindingKey, assessment: &Assessment) {
    for (cluster, done) in &assessment.done {
        let why = done.describe();
        tracing::info!(binding = %key, cluster, why, "the eviction is over");
        let (reason, note) = if done.removes_the_copy() {
            (
                "EvictWorkloadFromClusterSucceed",
                format!("Evict from cluster {cluster} succeed."),
            )
        } else {
            (
                "EvictWorkloadFromClusterAbandoned",
                format!("Eviction from cluster {cluster} is over: {why}."),
            )
        };
        fleet
            .events
            .publish(binding, EventType::Normal, reason, note.clone());
        fleet.events.publish_about(
            event_reference(&binding.spec().resource),
            EventType::Normal,
            reason,
            note,
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_work_places_a_workload_in_the_cluster_whose_it_is_unless_it_goes() {
        let deleted = DeletedWorks::default();
        for (namespace, deleting, is_asked, expected) in [
            ("karmada-es-m1", false, false, true),
            ("karmada-es-m1", true, false, false),
            // The cache does not show it yet.
            ("karmada-es-m1", false, true, false),
            ("karmada-es-m2", false, false, false),
            ("data", false, false, false),
        ] {
            let deletion = deleting.then_some("2024-01-01T00:00:00Z");
            let uid = format!("{namespace} {deleting} {is_asked}");
            let work = json!({"metadata": {
                "name": "web", "uid": uid, "namespace": namespace, "deletionTimestamp": deletion,
            }});
            let works = [Arc::new(serde_json::from_value(work).unwrap())];
            if is_asked {
                deleted.add(works.iter());
            }
            let carries_out = carrying_out(&works, &deleted).contains_key("m1");
            assert_eq!(carries_out, expected, "{uid}");
        }
    }

    #[test]
    fn tasks_are_looked_at_while_their_binding_stays() {
        let task = json!([{ "fromCluster": "m1", "reason": "r", "producer": "p" }]);
        for (tasks, deletion, expected) in [
            (json!([]), Value::Null, false),
            (task.clone(), Value::Null, true),
            (task, json!("2024-01-01T00:00:00Z"), false),
            (json!([]), json!("2024-01-01T00:00:00Z"), false),
        ] {
            let binding: ResourceBinding = serde_json::from_value(json!({
                "metadata": { "name": "a", "deletionTimestamp": deletion },
                "spec": { "resource": { "apiVersion": "v1", "kind": "ConfigMap", "name": "a" },
                    "gracefulEvictionTasks": tasks },
            }))
            .unwrap();
            assert_eq!(has_tasks(&binding), expected, "{tasks} {deletion}");
        }
    }

    #[test]
    fn members_decide_on_replicas_where_the_label_says_true() {
        for (label, expected) in [(Some("true"), true), (Some("false"), false), (None, false)] {
            assert_eq!(retains_replicas(label), expected, "{label:?}");
        }
    }

    #[test]
    fn what_a_cluster_can_hold_changes_with_its_taints_its_health_and_its_deletion() {
        let old = json!({
            "metadata": {"name": "m1"},
            "spec": {"syncMode": "Pull"},
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
            }]},
        });
        for (path, value, expected) in [
            (
                "/metadata/deletionTimestamp",
                json!("2024-01-01T00:00:00Z"),
                true,
            ),
            (
                "/spec/taints",
                json!([{"key": "a", "effect": "NoExecute"}]),
                true,
            ),
            ("/status/conditions/0/status", json!("Unknown"), true),
            ("/status/conditions/0/reason", json!("Other"), false),
            ("/metadata/resourceVersion", json!("2"), false),
        ] {
            let mut new = old.clone();
            let (parent, field) = path.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap()[field] = value;
            let [old, new] = [&old, &new].map(|it| serde_json::from_value(it.clone()).unwrap());
            assert_eq!(matters(&old, &new), expected, "{path}");
            assert_eq!(matters(&new, &old), expected, "{path}, and back");
        }
    }

    /// What an agent says of a Work.
    fn applied(applied: &str, manifests: &Value) -> WorkStatus {
        serde_json::from_value(json!({
            "conditions": [{
                "type": "Applied", "status": applied, "reason": "r", "message": "",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
            }],
            "manifestStatuses": manifests,
        }))
        .unwrap()
    }

    fn manifest(name: &str, health: &str, status: &Value) -> Value {
        json!({
            "identifier": {
                "ordinal": 0, "version": "v1", "kind": "Deployment", "group": "apps",
                "namespace": "default", "name": name, "resource": "",
            },
            "health": health, "status": status,
        })
    }

    #[test]
    fn the_report_of_a_former_copy_replaces_nothing() {
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {
                "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web",
            },
            "clusters": [{"name": "m2", "replicas": 1}],
        }))
        .unwrap();
        let report = |cluster: &str, health: &str, status: Value| -> AggregatedStatusItem {
            serde_json::from_value(json!({
                "clusterName": cluster, "health": health, "status": status,
            }))
            .unwrap()
        };
        let said = |health: &str, status: &Value| {
            Some(applied("True", &json!([manifest("web", health, status)])))
        };
        let ready = json!({"readyReplicas": 1});
        let counted = json!({"readyReplicas": 1, "seen": 2});
        let null = json!({"readyReplicas": 1, "conditions": [{"lastProbeTime": null}]});
        let (healthy, unhealthy) = (ResourceHealth::Healthy, ResourceHealth::Unhealthy);
        for (what, health, work, expected) in [
            ("there is no Work", "Healthy", None, None),
            (
                "it has said nothing",
                "Healthy",
                Some(WorkStatus::default()),
                None,
            ),
            (
                "of another object",
                "Healthy",
                Some(applied(
                    "True",
                    &json!([manifest("other", "Healthy", &ready)]),
                )),
                None,
            ),
            (
                "it is not applied",
                "Healthy",
                Some(applied(
                    "False",
                    &json!([manifest("web", "Healthy", &ready)]),
                )),
                None,
            ),
            (
                "the same",
                "Healthy",
                said("Healthy", &ready),
                Some((&healthy, &ready)),
            ),
            // These two never come to rest, or are kept by the binding in another form.
            (
                "later",
                "Healthy",
                said("Healthy", &counted),
                Some((&healthy, &counted)),
            ),
            (
                "with null",
                "Healthy",
                said("Healthy", &null),
                Some((&healthy, &null)),
            ),
            (
                "it has begun",
                "Healthy",
                said("Unhealthy", &ready),
                Some((&unhealthy, &ready)),
            ),
            // The binding says so of a cluster that is silent too.
            (
                "not yet told",
                "Unhealthy",
                said("Healthy", &ready),
                Some((&unhealthy, &ready)),
            ),
        ] {
            let reports = [
                report("m1", "Healthy", ready.clone()),
                report("m2", health, ready.clone()),
            ];
            let standing = standing_reports(&spec, &reports, |_| work.clone());
            // What is said of a cluster that is left concerns its old copy.
            assert_eq!(standing[0], reports[0], "{what}");
            let found = standing.get(1).map(|it| {
                let status = it.status.as_ref().unwrap();
                (it.health.as_ref().unwrap(), &status.0)
            });
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn only_tasks_that_wait_for_health_need_the_reports() {
        for (suppressed, expected) in [(None, true), (Some(true), false), (Some(false), false)] {
            let task = GracefulEvictionTask {
                suppress_deletion: suppressed,
                ..GracefulEvictionTask::default()
            };
            assert_eq!(asks_for_health(&task), expected, "{suppressed:?}");
        }
    }
}
