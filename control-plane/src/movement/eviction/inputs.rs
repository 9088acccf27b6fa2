//! What an eviction reads in a binding.

use std::borrow::Cow;
use std::collections::HashSet;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::policy::Placement;

use super::judge;
use super::plan::is_refused;
use crate::fleet::completion;

/// Returns whether the workload of a binding has completed in a cluster: it is a task, and the
/// cluster reports so; `None` if the cluster reports nothing of it. A completed task that is
/// created in another cluster runs again.
pub fn has_completed(binding: &AnyBinding, cluster: &str) -> Option<bool> {
    let reports = &binding.status().aggregated_status;
    completion::completed(&binding.spec.resource, reports, cluster)
}

/// Returns the placement of a binding whose tolerations count.
pub fn placement(binding: &AnyBinding) -> Option<Cow<'_, Placement>> {
    judge::placement(&binding.spec, binding.applied_placement())
}

/// Returns whether nothing differs that an eviction depends on. What the clusters report counts
/// only where it is to be preserved, and where a Job has completed.
pub fn is_same(binding: &AnyBinding, other: &AnyBinding) -> bool {
    binding.spec == other.spec
        && (!preserves_state(binding)
            || binding.status().aggregated_status == other.status().aggregated_status)
        && has_completed_where(binding, other)
        && binding.metadata.annotations == other.metadata.annotations
        && binding.applied_placement() == other.applied_placement()
        && binding.metadata.deletion_timestamp == other.metadata.deletion_timestamp
}

/// Returns whether a cluster reports something by which it may do in place of one that has to be
/// left, and did not before: one that could not apply the workload does not say so any more, or an
/// old copy that a cluster keeps is healthy again.
pub fn may_take_more(before: &AnyBinding, now: &AnyBinding) -> bool {
    let is_healthy = |binding: &AnyBinding, cluster: &str| binding.status().is_healthy_in(cluster);
    let mut left = now.spec.graceful_eviction_tasks.iter();
    refuses_less(before, now)
        || left.any(|it| {
            let cluster = &it.from_cluster;
            !it.purges_directly() && is_healthy(now, cluster) && !is_healthy(before, cluster)
        })
}

/// Returns whether a cluster that could not apply the workload does not say so any more.
fn refuses_less(before: &AnyBinding, now: &AnyBinding) -> bool {
    let still: HashSet<&str> = refusing(now).collect();
    refusing(before).any(|it| !still.contains(it))
}

/// Returns the clusters that report that they could not apply the workload.
fn refusing(binding: &AnyBinding) -> impl Iterator<Item = &str> {
    let reports = binding.status().aggregated_status.iter();
    let refusals = reports.filter(|it| is_refused(it));
    refusals.map(|it| it.cluster_name.as_str())
}

/// Returns whether the clusters of a Job report the same of its completion in both versions of the
/// binding.
fn has_completed_where(binding: &AnyBinding, other: &AnyBinding) -> bool {
    let mut clusters = binding.spec.clusters.iter();
    !completion::is_task(&binding.spec.resource)
        || clusters.all(|it| has_completed(binding, &it.name) == has_completed(other, &it.name))
}

fn preserves_state(binding: &AnyBinding) -> bool {
    let spec = &binding.spec;
    let (cluster, application) = (spec.cluster_failover(), spec.application_failover());
    cluster.is_some_and(|it| it.state_preservation.is_some())
        || application.is_some_and(|it| it.state_preservation.is_some())
}

#[cfg(test)]
mod tests {
    use muster_shared::api::policy::PurgeMode;
    use serde_json::{Value, json};

    use super::*;

    fn binding(changes: &[(&str, Value)]) -> AnyBinding {
        let mut binding = json!({
            "metadata": {"namespace": "default", "name": "b"},
            "spec": {
                "resource": {"apiVersion": "batch/v1", "kind": "Job", "name": "j"},
                "clusters": [{"name": "m1"}, {"name": "m2"}],
            },
        });
        for (pointer, value) in changes {
            let mut at = &mut binding;
            for part in pointer.split('.') {
                at = &mut at[part];
            }
            *at = value.clone();
        }
        serde_json::from_value(binding).unwrap()
    }

    fn reports(done: &[&str]) -> Value {
        let report = |name: &&str| {
            let complete = json!([{"type": "Complete", "status": "True"}]);
            json!({"clusterName": name, "status": {"conditions": complete}})
        };
        json!(done.iter().map(report).collect::<Vec<_>>())
    }

    #[test]
    fn only_what_an_eviction_depends_on_is_another_wish() {
        let job = ("spec.resource.kind", json!("Job"));
        let other = ("spec.resource.kind", json!("Other"));
        let rules = json!({"rules": [{"aliasLabelName": "a", "jsonPath": "{.b}"}]});
        let preserved = (
            "spec.failover",
            json!({"cluster": {"statePreservation": rules}}),
        );
        let plain = ("spec.failover", json!({"cluster": {}}));
        let reported = |done: &[&str]| ("status.aggregatedStatus", reports(done));
        let annotated = ("metadata.annotations", json!({"a": "b"}));
        let deleted = ("metadata.deletionTimestamp", json!("2024-01-01T00:00:00Z"));
        let version = ("metadata.resourceVersion", json!("2"));
        let active = json!([{"clusterName": "m1", "status": {"active": 1}}]);
        let runs = ("status.aggregatedStatus", active);
        let [here, elsewhere] = ["m2", "m3"].map(|it| reported(&[it]));
        let (jobs, others) = (vec![job], vec![other.clone()]);
        let of_policy = vec![other.clone(), plain.clone()];
        let stateful = vec![other, preserved];
        for (what, both, change, expected) in [
            ("nothing", &jobs, None, true),
            ("a write", &jobs, Some(version), true),
            ("an annotation", &jobs, Some(annotated), false),
            ("its deletion", &jobs, Some(deleted), false),
            ("its spec", &jobs, Some(plain), false),
            ("a completed Job", &jobs, Some(here.clone()), false),
            ("a Job that runs", &jobs, Some(runs), false),
            ("a Job elsewhere", &jobs, Some(elsewhere), true),
            ("a report", &others, Some(here.clone()), true),
            ("of a policy", &of_policy, Some(here.clone()), true),
            ("a state that is kept", &stateful, Some(here), false),
        ] {
            let changed: Vec<_> = both.iter().cloned().chain(change).collect();
            let (old, new) = (binding(both), binding(&changed));
            assert_eq!(is_same(&old, &new), expected, "{what}");
            assert_eq!(is_same(&new, &old), expected, "{what}, and back");
        }
    }

    #[test]
    fn a_cluster_may_take_more_once_it_refuses_nothing_or_its_old_copy_is_healthy_again() {
        let left = |cluster: &str| {
            let task = json!({"fromCluster": cluster, "reason": "ApplicationFailure"});
            ("spec.gracefulEvictionTasks", json!([task]))
        };
        let report = |report: Value| ("status.aggregatedStatus", json!([report]));
        let says = |health: &str| {
            let healthy = json!({"clusterName": "m3", "applied": true, "health": health});
            report(healthy)
        };
        let refused = report(json!({"clusterName": "m3", "appliedMessage": "refused"}));
        let [well, ill, unknown] = ["Healthy", "Unhealthy", "Unknown"].map(says);
        for (what, task, before, now, expected) in [
            ("a copy got well", "m3", &ill, &well, true),
            ("a copy is known again", "m3", &unknown, &well, true),
            ("a copy stays well", "m3", &well, &well, false),
            ("a copy stays ill", "m3", &ill, &ill, false),
            ("a copy fell ill", "m3", &well, &ill, false),
            ("of another cluster", "m4", &ill, &well, false),
            ("a refusal ended", "m4", &refused, &ill, true),
            ("a refusal began", "m4", &ill, &refused, false),
        ] {
            let [before, now] = [before, now].map(|it| binding(&[left(task), it.clone()]));
            assert_eq!(may_take_more(&before, &now), expected, "{what}");
        }
        let [before, now] = [ill, well].map(|report| {
            let mut binding = binding(&[left("m3"), report]);
            let tasks = &mut binding.spec.graceful_eviction_tasks;
            tasks[0].purge_mode = Some(PurgeMode::Directly);
            binding
        });
        assert!(!may_take_more(&before, &now), "it goes first");
    }

    #[test]
    fn events_refer_to_the_binding() {
        let reference = binding(&[]).reference();
        assert_eq!(reference.kind.as_deref(), Some("ResourceBinding"));
        assert_eq!(reference.name.as_deref(), Some("b"));
        assert_eq!(reference.namespace.as_deref(), Some("default"));
    }
}
