//! Removes completed graceful eviction tasks from bindings.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use jiff::Timestamp;
use muster_interpreter::{Interpreters, Operation};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::queue::Next;
use muster_shared::queue::until;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use serde_json::json;

use super::assess::{Assessment, Facts, assess, counts_replicas};
use super::onward::{AGAIN, Refusals, may_move_on, move_on};
use super::reports::{asks_for_health, carrying_out, is_to_bring, kept_reports};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::availability::{Workload, applies_works, readiness, reads_works};
use crate::fleet::binding::BindingKey;
use crate::fleet::binding_index::Trait;
use crate::fleet::budget::pace::Pace;
use crate::fleet::completion::{is_divided_job, is_over_as_a_whole, is_over_in, leaves_undone};
use crate::fleet::copy::WorkState;
use crate::fleet::copy::least;
use crate::fleet::memory::Backoff;
use crate::fleet::place_state::PlaceState;
use crate::fleet::works::{CachedWork, binding_of};
use crate::fleet::write::Written;
use crate::movement::eviction::judge::{Switches, placement};
use crate::scheduler::controller::LiveSnapshot;
use crate::scheduler::core::Options;
use crate::settings::evict_plugin::EvictPlugins;

/// Time in which reports are gathered before a binding is reconciled, which reads the Works of all
/// its targets; and changes of clusters before all bindings are.
const GATHERING: Duration = Duration::from_millis(100);
/// The interpreters without customizations and webhooks of users.
static SHIPPED: LazyLock<Interpreters> = LazyLock::new(|| Interpreters::of(&[]));
/// Until a kind that was not followed before has been listed.
const UNLISTED: Duration = Duration::from_secs(5);

/// Inputs of the second move of a workload (`onward.rs`).
pub(super) struct OnwardContext {
    pub(super) pace: Pace,
    pub(super) snapshot: LiveSnapshot,
    pub(super) options: Options,
    pub(super) refusals: Refusals,
    /// Searches for another cluster that found none. May be lost.
    pub(super) nowhere: Backoff<BindingKey>,
}

/// Starts the controller. It runs with the gate `Failover` off as well: what was begun is brought
/// to its end.
pub fn start(fleet: &Arc<Fleet>, pace: &Pace, tasks: &mut Tasks) {
    let onward = Arc::new(OnwardContext {
        pace: pace.clone(),
        snapshot: LiveSnapshot::follow(fleet),
        options: Options::of(&fleet.settings).for_departure(),
        refusals: Refusals::default(),
        nowhere: Backoff::between(AGAIN, AGAIN),
    });
    // The template says whether the members decide on the number of replicas.
    fleet.follow_templates();
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    // Settings that were checked name plugins that there are.
    let plugins = EvictPlugins::parse(&fleet.settings.evict_plugins).unwrap_or_default();
    Controller::new(fleet, "graceful eviction")
        .watches(&fleet.bindings, |_, change| match change {
            Change::Applied { new, .. } => is_concerned(new).then(|| BindingKey::of(new)),
            Change::Deleted { .. } => None,
        })
        // A report counts when its Work says the same, which may be seen later.
        .gathers(GATHERING, &fleet.works, |fleet, change| {
            let Change::Applied { old, new } = change else {
                return None;
            };
            let is_same = old.as_ref().is_some_and(|old| new.reports_as(old));
            let key = binding_of(new).filter(|_| !is_same);
            key.filter(|key| waits(fleet, key))
        })
        .resyncs_on(&fleet.clusters, |_, change| change.differs(matters))
        .resyncs_on(&fleet.pauses, |_, ()| true)
        .resyncs(tasks, GATHERING, with_tasks)
        .run(
            tasks,
            workers,
            onward,
            move |fleet, onward, key| async move { work_off(&fleet, &onward, plugins, key).await },
        );
}

/// Returns whether a binding has graceful eviction tasks.
fn waits(fleet: &Fleet, key: &BindingKey) -> bool {
    let held = fleet.bindings.get(key);
    held.is_some_and(|it| !it.spec.graceful_eviction_tasks.is_empty())
}

/// Returns the bindings that have tasks to assess.
fn with_tasks(fleet: &Fleet) -> Vec<BindingKey> {
    let bindings = fleet.bindings.having(Trait::HasTasks, None);
    let bindings = bindings.filter(|it| has_tasks(it));
    bindings.map(|it| BindingKey::of(&it)).collect()
}

async fn work_off(
    fleet: &Fleet,
    onward: &OnwardContext,
    plugins: EvictPlugins,
    key: BindingKey,
) -> Result<Next, ApiError> {
    let binding = fleet.bindings.get(&key);
    let Some(binding) = binding.filter(|it| is_concerned(it.as_ref())) else {
        onward.forget(&key);
        return Ok(Next::Done);
    };
    let spec = &binding.spec;
    let now = fleet.clock.now();
    let (assessment, retry) = check(fleet, plugins, binding.as_ref(), now);
    if assessment.kept != spec.graceful_eviction_tasks {
        let left: Vec<&str> = assessment.done.iter().map(|it| &*it.0).collect();
        let is_confirmed = fleet.confirmations.confirm(fleet, &left).await?;
        if !is_confirmed {
            return Ok(Next::Again);
        }
        let kept = &assessment.kept;
        let mut patch = json!({
            "metadata": {"resourceVersion": binding.metadata.resource_version},
            "spec": {"gracefulEvictionTasks": (!kept.is_empty()).then_some(kept)},
        });
        if !assessment.restored.is_empty() {
            patch["spec"]["clusters"] = json!(assessment.restored);
        }
        let written = key.merge(&fleet.client, "write the eviction tasks of", &patch);
        let written = written.await?;
        if let Written::Done(_) = written {
            report(fleet, binding.as_ref(), &key, &assessment);
        }
        // The binding as it is now is reconciled next.
        return Ok(written.next());
    }
    let end = assessment.again.map(|end| until(end, now));
    let moves_on = move_on(fleet, onward, &key, &binding, now).await;
    let next = end.into_iter().chain(retry).chain(moves_on).min();
    Ok(next.map_or(Next::Done, Next::After))
}

/// Assesses the tasks of a binding. Returns what becomes of them, and when to reconcile again
/// although nothing changes.
fn check(
    fleet: &Fleet,
    plugins: EvictPlugins,
    binding: &AnyBinding,
    now: Timestamp,
) -> (Assessment, Option<Duration>) {
    let (spec, status) = (&binding.spec, binding.status());
    let placement = placement(spec, binding.applied_placement());
    let switches = Switches::of(&fleet.settings);
    let workload = Workload::of(spec, placement.as_deref());
    let workload = workload.under(switches.failover, switches.no_execute);
    let retry = Cell::new(None);
    let least = |cluster: &str, share: i32| {
        let known = least(fleet, spec, cluster, share);
        if known.is_none() {
            // A list may have lacked it.
            retry.set(Some(UNLISTED));
        }
        known.unwrap_or(share)
    };
    let works = fleet.work_index.of(&BindingKey::of(binding));
    // Whoever asked for the deletion of a Work that is wanted again finds out what became of it.
    if works.iter().any(|work| fleet.deleted_works.is_asked(work)) {
        retry.set(Some(UNLISTED));
    }
    let works = carrying_out(&works, &fleet.deleted_works);
    // The completions of an old copy of a Job are done by nobody until a target has been given
    // them. Those that the copy has done are in its Work alone, until the template says that
    // the Job is over.
    let undone = leaves_undone(fleet, spec, works.values().copied(), &[]);
    let is_given = undone == Some(false) && !awaits_job(fleet, spec, &works);
    let work = |cluster: &str| match works.get(cluster) {
        None => WorkState::Absent,
        // The targets have not been sent all that the old copy does, and neither their health nor
        // time makes up for that.
        Some(_) if !is_given => WorkState::Sent,
        Some(work) => WorkState::said(&work.status()),
    };
    let scheduled = binding.metadata.generation == Some(status.scheduler_observed_generation);
    // Another scheduler has still to choose who takes the place of what was left.
    let restores = !fleet.settings.schedules(spec.scheduler_name.as_deref());
    let is_unplaced = restores && !scheduled;
    // Who removes the copy then waits for these. A target that refuses the workload, or gets
    // nothing by order of the policy, keeps no old copy beside one that runs.
    let awaits = |cluster: &str| {
        let is_coming = |work: &&CachedWork| is_to_bring(&spec.resource, &work.status());
        let is_to_have = !spec.dispatching_suspended_in(cluster) && applies_works(fleet, cluster);
        is_unplaced || is_to_have && works.get(cluster).is_none_or(is_coming)
    };
    let reports = if spec.graceful_eviction_tasks.iter().any(asks_for_health) {
        kept_reports(spec, &status.aggregated_status, |cluster| {
            works.get(cluster).map(|work| work.status())
        })
    } else {
        Vec::new()
    };
    let reported = &status.aggregated_status;
    let has_ended = |cluster: &str| is_over_in(&spec.resource, reported, cluster);
    let mut tasks = spec.graceful_eviction_tasks.iter();
    // No event shows when the template says that the Job is over.
    if undone.is_none() || tasks.any(|it| has_ended(&it.from_cluster)) {
        retry.set(Some(UNLISTED));
    }
    // A target that has still to run it needs what the task says: its state, and where it failed.
    let is_over = |name: &str| {
        let mut targets = spec.clusters.iter();
        has_ended(name)
            && !spec.clusters.is_empty()
            && targets.all(|it| has_ended(&it.name))
            && is_over_as_a_whole(fleet, &spec.resource)
    };
    let facts = Facts {
        clusters: &spec.clusters,
        work: &work,
        awaits: &awaits,
        reports: &reports,
        scheduled,
        cluster: &|name| PlaceState::of(&fleet.clusters.presence(None, name), &workload),
        plugins,
        least: &least,
        has_rule: SHIPPED.has(
            &spec.resource.api_version,
            &spec.resource.kind,
            Operation::InterpretHealth,
        ),
        counts_replicas: counts_replicas(spec, &status.aggregated_status),
        is_over: &is_over,
        asks_for_none: spec.is_scaled_to_zero(),
        restores,
    };
    let tasks = &spec.graceful_eviction_tasks;
    let is_paused = |cluster: &str| fleet.pauses.of(cluster, now).is_some();
    let assessment = assess(tasks, &facts, now).while_paused(tasks, is_paused);
    (assessment, retry.get())
}

/// Returns whether a target has still to get its part of a divided Job: it has no Work yet.
fn awaits_job(
    fleet: &Fleet,
    spec: &ResourceBindingSpec,
    works: &HashMap<&str, &CachedWork>,
) -> bool {
    let mut targets = spec.clusters.iter();
    is_divided_job(spec)
        && targets.any(|it| !works.contains_key(it.name.as_str()))
        && !is_over_as_a_whole(fleet, &spec.resource)
}

/// Returns whether there are tasks to assess. The tasks of a binding that is being deleted are
/// removed with it.
fn has_tasks(binding: &AnyBinding) -> bool {
    let tasks = &binding.spec.graceful_eviction_tasks;
    !tasks.is_empty() && binding.metadata.deletion_timestamp.is_none()
}

/// Returns whether a binding has tasks to assess, or may have to be moved on.
fn is_concerned(binding: &AnyBinding) -> bool {
    has_tasks(binding) || may_move_on(binding)
}

/// Returns whether a change of a cluster can matter to a task.
fn matters(old: &Cluster, new: &Cluster) -> bool {
    old.spec.taints != new.spec.taints
        || readiness(old) != readiness(new)
        || reads_works(old) != reads_works(new)
        || old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
}

fn report(fleet: &Fleet, binding: &AnyBinding, key: &BindingKey, assessment: &Assessment) {
    for (cluster, done) in &assessment.done {
        let why = done.describe();
        tracing::info!(binding = %key, cluster, why, "the eviction is over");
        let (reason, note) = if done.removes_the_copy() {
            (
                "EvictWorkloadFromClusterSucceed",
                succeeded(cluster, fleet.clusters.get(None, cluster).as_deref()),
            )
        } else {
            (
                "EvictWorkloadFromClusterAbandoned",
                format!("The eviction from cluster {cluster} is over: {why}."),
            )
        };
        fleet.publish(binding, EventType::Normal, reason, note);
    }
}

/// Returns what is said of an eviction whose old copy is being removed. Whether it is gone only the
/// agent of its cluster can say.
fn succeeded(name: &str, cluster: Option<&Cluster>) -> String {
    if cluster.map(readiness) == Some(conditions::TRUE) {
        return format!(
            "The workload has left cluster {name}; its old copy there is being removed."
        );
    }
    format!(
        "The workload has left cluster {name}, which is not ready; its old copy there may run until the cluster is back and its agent removes it."
    )
}

#[cfg(test)]
mod followed_tests;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn tasks_are_reconciled_while_their_binding_stays() {
        let task = json!([{ "fromCluster": "m1", "reason": "r", "producer": "p" }]);
        for (tasks, deletion, expected) in [
            (json!([]), Value::Null, false),
            (task.clone(), Value::Null, true),
            (task, json!("2024-01-01T00:00:00Z"), false),
            (json!([]), json!("2024-01-01T00:00:00Z"), false),
        ] {
            let binding: AnyBinding = serde_json::from_value(json!({
                "metadata": { "name": "a", "deletionTimestamp": deletion },
                "spec": { "resource": { "apiVersion": "v1", "kind": "ConfigMap", "name": "a" },
                    "gracefulEvictionTasks": tasks },
            }))
            .unwrap();
            assert_eq!(has_tasks(&binding), expected, "{tasks} {deletion}");
        }
    }

    #[test]
    fn of_a_silent_cluster_it_is_said_that_the_old_copy_may_still_run() {
        for (status, may_run) in [
            (Some("True"), false),
            (Some("Unknown"), true),
            (Some("False"), true),
            (None, true),
        ] {
            let cluster = status.map(|status| {
                let ready = json!({"type": "Ready", "status": status, "reason": "R",
                    "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"});
                serde_json::from_value(json!({
                    "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
                    "status": {"conditions": [ready]},
                }))
                .unwrap()
            });
            let said = succeeded("m1", cluster.as_ref());
            assert_eq!(
                said.contains("may run until"),
                may_run,
                "{status:?}: {said}"
            );
        }
    }

    #[test]
    fn what_a_cluster_can_hold_and_make_changes_with_its_taints_its_health_and_its_deletion() {
        let old = json!({
            "metadata": {"name": "m1"},
            "spec": {"syncMode": "Pull"},
            "status": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
            }]},
        });
        let unread = {
            let mut unread = old["status"]["conditions"][0].clone();
            (unread["type"], unread["status"]) = (json!("WorksUpToDate"), json!("False"));
            json!([old["status"]["conditions"][0], unread])
        };
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
            ("/status/conditions", unread, true),
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
}
