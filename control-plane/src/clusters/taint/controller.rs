//! Reconciles the taints of every cluster with the ClusterTaintPolicies.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::Api;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::ClusterAffinity;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::client::{self, Head};
use muster_shared::controller::Controller;
use muster_shared::k8s::Taint;
use muster_shared::queue::Next;
use muster_shared::queue::until;
use muster_shared::selectors::matches_affinity;
use muster_shared::taints::describe;
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Doubt, Presence};
use parking_lot::Mutex;
use serde_json::json;

use super::decide::{Outcome, Scene, decide};
use super::policy::faults;
use super::record::{ANNOTATION, LIMIT, Owned, Record};
use super::refusal::{Refusals, culprits};
use crate::clusters::taint::condition_taints;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::write::{Written, merge};

/// Starts the controller. With the gate `Failover` off it runs only to show what would happen, if
/// asked to.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let workers = fleet.settings.concurrent_cluster_syncs;
    let following = Controller::<String, Fleet>::new(fleet, "clustertaintpolicy");
    // Taints of a policy that was never read stay until the policy is gone.
    let (queue, clusters) = (following.queue().clone(), Arc::downgrade(fleet));
    fleet.taint_policies.on_unread_departure(move |_, _| {
        let names = clusters.upgrade().map(|fleet| fleet.cluster_names());
        for name in names.into_iter().flatten() {
            queue.add(name);
        }
    });
    following
        .watches(&fleet.clusters, |_, change| match change {
            Change::Applied { old, new } => {
                let concerns_us = old.as_ref().is_none_or(|old| matters(old, new));
                concerns_us.then(|| new.name_any())
            }
            // A cluster that is gone is forgotten.
            Change::Deleted { old } => Some(old.name_any()),
        })
        .watches(&fleet.taint_policies, |fleet, change| {
            if let Change::Applied { old, new } = change {
                if old.as_ref().is_some_and(|old| !is_other_policy(old, new)) {
                    return Vec::new();
                }
                report_faults(fleet, new);
            }
            fleet.cluster_names()
        })
        .run(
            tasks,
            workers,
            Arc::<Memory>::default(),
            |fleet, memory, name| async move { check(&fleet, &memory, &name).await },
        );
}

/// Returns whether a policy says something else than before. A change of its status does not.
pub(crate) fn is_other_policy(old: &ClusterTaintPolicy, new: &ClusterTaintPolicy) -> bool {
    let (was, is) = (&old.metadata, &new.metadata);
    old.spec != new.spec
        || was.uid != is.uid
        || was.generation != is.generation
        || was.creation_timestamp != is.creation_timestamp
        || was.deletion_timestamp.is_some() != is.deletion_timestamp.is_some()
}

/// Returns whether a change can change a decision: heartbeats and resource counts cannot.
pub(crate) fn matters(old: &Cluster, new: &Cluster) -> bool {
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || old.annotations().get(ANNOTATION) != new.annotations().get(ANNOTATION)
        || old.conditions() != new.conditions()
}

fn report_faults(fleet: &Fleet, policy: &ClusterTaintPolicy) {
    for fault in faults(&policy.spec, fleet.settings.condition_taints) {
        tracing::warn!(policy = policy.name_any(), %fault, "a part of a taint policy is stepped over");
        fleet
            .events
            .warn(policy, "InvalidClusterTaintPolicy", fault.to_string());
    }
}

/// Memory of this process about clusters and their policies.
#[derive(Default)]
struct Memory {
    /// The clusters that were reconciled, each with the number of policies that are not followed
    /// there.
    left_out: Mutex<HashMap<String, usize>>,
    refusals: Refusals,
}

async fn check(fleet: &Fleet, memory: &Memory, name: &str) -> Result<Next, ApiError> {
    let Some(cluster) = fleet.clusters.get(None, name) else {
        memory.left_out.lock().remove(name);
        return Ok(Next::Done);
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Next::Done);
    }
    let policies = fleet.taint_policies.list();
    let policies: Vec<&ClusterTaintPolicy> = policies.iter().map(AsRef::as_ref).collect();
    let record = Record::on(&cluster);
    let failed = || ApiError::of("write the taints of", &format!("Cluster {name}"));
    let gone = gone(fleet, record.as_ref()).await.map_err(failed())?;
    let now = fleet.clock.now();
    let decide = || {
        let scene = Scene {
            cluster: &cluster,
            record: record.clone(),
            policies: &policies,
            selects: &|affinity: &ClusterAffinity| matches_affinity(affinity, &cluster),
            is_gone: &|policy| gone.contains(policy),
            lacks_some: fleet.taint_policies.unreadable_in("").is_some(),
            is_refused: &|taint| memory.refusals.has(taint),
            is_first: !memory.left_out.lock().contains_key(name),
            reserves: fleet.settings.condition_taints,
        };
        decide(&scene, now)
    };
    // What the API refuses is left out, and the rest is decided anew: each round leaves out one
    // taint more at least.
    let outcome = loop {
        let outcome = decide();
        if outcome.is_settled() {
            break outcome;
        }
        match Written::of(write(fleet, &cluster, &outcome).await) {
            Ok(Written::Done(())) => {
                report(fleet, &cluster, &outcome);
                report_withdrawn(fleet, &cluster, record.as_ref(), &outcome);
                break outcome;
            }
            Ok(late) => return Ok(late.next()),
            Err(error) => {
                let coming = outcome.changes.iter().filter(|(_, _, added)| *added);
                let coming: Vec<&Taint> = coming.map(|(_, taint, _)| taint).collect();
                let written = outcome.taints.as_deref().unwrap_or_default();
                let refused = culprits(&error, written, &coming);
                if !refused.is_empty() {
                    for taint in refused {
                        memory.refusals.add(taint);
                        report_refused(fleet, &cluster, &outcome, taint, &error);
                    }
                    continue;
                }
                fleet
                    .events
                    .warn(&*cluster, "TaintClusterFailed", client::brief(&error));
                return Err(failed()(error));
            }
        }
    };
    let left_out = outcome.left_out.len();
    let known = memory.left_out.lock().insert(name.to_owned(), left_out);
    if outcome.leaves_out_others(known) {
        report_left_out(fleet, &cluster, &outcome);
    }
    Ok(outcome
        .again
        .map_or(Next::Done, |due| Next::After(until(due, now))))
}

/// Returns the policies that a record speaks of and that do not exist any more. The API is asked
/// for one that the cache does not have: it may be unreadable, a list may have lacked it, or it was
/// made again after it was deleted.
async fn gone(fleet: &Fleet, record: Option<&Record>) -> Result<HashSet<String>, kube::Error> {
    let mut gone = HashSet::new();
    for name in record.into_iter().flat_map(Record::policies) {
        match fleet.taint_policies.presence(None, name) {
            Presence::There(_) | Presence::Unknown(Doubt::Unreadable { .. }) => {}
            Presence::Gone | Presence::Unknown(_) => {
                let api = Api::<Head<ClusterTaintPolicy>>::all(fleet.client.clone());
                // Whoever removes the definition deletes each policy, and the kind is unknown then.
                let is_unserved = |error: &kube::Error| {
                    let was_deleted = fleet.taint_policies.was_deleted(None, name);
                    client::is_not_found(error) && was_deleted
                };
                let is_gone = match Head::get_opt(&api, name).await {
                    Ok(found) => found.is_none(),
                    Err(error) if is_unserved(&error) => true,
                    Err(error) => return Err(error),
                };
                if is_gone {
                    gone.insert(name.to_owned());
                }
            }
        }
    }
    Ok(gone)
}

/// Says which taint the API refuses, on the cluster and on the policies that want it.
fn report_refused(
    fleet: &Fleet,
    cluster: &Cluster,
    outcome: &Outcome,
    taint: &Taint,
    error: &kube::Error,
) {
    let why = client::brief(error);
    let what = describe(taint);
    let is_it = |it: &Taint| it.key == taint.key && it.effect == taint.effect;
    for (policy, ..) in outcome.changes.iter().filter(|(_, it, _)| is_it(it)) {
        let note = format!(
            "the fleet API refuses taint {what} of ClusterTaintPolicy {policy}, which is left out; other taints come and go: {why}"
        );
        tracing::warn!(cluster = cluster.name_any(), policy, "{note}");
        let reason = "TaintRefused";
        let events = &fleet.events;
        events.warn(cluster, reason, note.clone());
        if let Some(policy) = fleet.taint_policies.get(None, policy) {
            events.warn(&*policy, reason, note);
        }
    }
}

/// Says which taints of policies somebody has taken off since the record `before`: a tool that
/// keeps Clusters as a repository has them does so as well as a person, and nothing moves then.
fn report_withdrawn(fleet: &Fleet, cluster: &Cluster, before: Option<&Record>, outcome: &Outcome) {
    let was_reported = |it: &Owned| {
        let known = before.and_then(|record| record.owned(&it.key, &it.effect));
        known.is_some_and(|known| known.withdrawn.is_some())
    };
    let taints = outcome.record.iter().flat_map(|it| &it.taints);
    for Owned { key, effect, .. } in taints.filter(|it| it.withdrawn.is_some() && !was_reported(it))
    {
        let note = format!(
            "somebody took off taint {key}:{effect} of a ClusterTaintPolicy: it stays off, and no workload leaves because of it, until the policy does not match the cluster any more. A tool that applies this Cluster from a repository has to leave its spec.taints alone"
        );
        tracing::warn!(cluster = cluster.name_any(), "{note}");
        fleet.events.warn(cluster, "TaintWithdrawn", note);
    }
}

/// Says which policies are not followed on a cluster.
fn report_left_out(fleet: &Fleet, cluster: &Cluster, outcome: &Outcome) {
    let some: Vec<&str> = outcome
        .left_out
        .iter()
        .take(5)
        .map(String::as_str)
        .collect();
    let note = format!(
        "{} taint policies are not followed on this cluster, because the record of those that are may need the {} KiB that it may have (annotation {ANNOTATION}); the youngest are left out, among them {}: use fewer",
        outcome.left_out.len(),
        LIMIT / 1024,
        some.join(", ")
    );
    tracing::warn!(cluster = cluster.name_any(), "{note}");
    let reason = "TooManyClusterTaintPolicies";
    fleet.events.warn(cluster, reason, note);
}

async fn write(fleet: &Fleet, cluster: &Cluster, outcome: &Outcome) -> Result<(), kube::Error> {
    let mut patch = json!({"metadata": {"resourceVersion": cluster.metadata.resource_version}});
    if let Some(record) = &outcome.record {
        patch["metadata"]["annotations"] = json!({ANNOTATION: record.write()});
    }
    if let Some(taints) = &outcome.taints {
        patch["spec"] = json!({"taints": (!taints.is_empty()).then_some(taints)});
    }
    let api = Api::<Head<Cluster>>::all(fleet.client.clone());
    merge(&api, &cluster.name_any(), &patch).await.map(drop)
}

fn report(fleet: &Fleet, cluster: &Cluster, outcome: &Outcome) {
    let name = cluster.name_any();
    for (policy, taint, added) in &outcome.changes {
        let what = if *added { "added" } else { "removed" };
        tracing::info!(
            cluster = name,
            policy,
            taint = taint.key,
            effect = taint.effect,
            "{what} by policy"
        );
    }
    if let Some(taints) = &outcome.taints {
        let note = condition_taints::describe(taints);
        fleet.events.inform(cluster, "TaintClusterSucceed", note);
    }
}

#[cfg(test)]
mod reported_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_reconciled_again_for_what_can_change_a_decision_and_for_nothing_else() {
        let old: Cluster = serde_json::from_value(json!({
            "metadata": {"name": "m1", "labels": {"tier": "gold"}},
            "spec": {"syncMode": "Pull"},
            "status": {"conditions": [], "nodeSummary": {"totalNum": 1, "readyNum": 1}},
        }))
        .unwrap();
        for (path, value, expected) in [
            ("/metadata/labels", json!({"tier": "silver"}), true),
            ("/metadata/annotations", json!({ANNOTATION: "{}"}), true),
            (
                "/spec/taints",
                json!([{"key": "k", "effect": "NoExecute"}]),
                true,
            ),
            ("/spec/region", json!("eu"), true),
            (
                "/status/conditions",
                json!([{"type": "Ready", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]),
                true,
            ),
            ("/metadata/annotations", json!({"other": "x"}), false),
            ("/metadata/resourceVersion", json!("7"), false),
            (
                "/status/nodeSummary",
                json!({"totalNum": 2, "readyNum": 1}),
                false,
            ),
        ] {
            let mut new = serde_json::to_value(&old).unwrap();
            let (parent, field) = path.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap()[field] = value;
            let new: Cluster = serde_json::from_value(new).unwrap();
            assert_eq!(matters(&old, &new), expected, "{path}");
        }
    }

    #[test]
    fn a_policy_is_another_one_when_it_says_something_else_or_is_made_anew() {
        let old: ClusterTaintPolicy = serde_json::from_value(json!({
            "metadata": {
                "name": "p", "uid": "1", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]},
            "status": {},
        }))
        .unwrap();
        let time = "2026-01-02T00:00:00Z";
        for (path, value, expected) in [
            ("/metadata/uid", json!("2"), true),
            ("/metadata/generation", json!(2), true),
            ("/metadata/creationTimestamp", json!(time), true),
            ("/metadata/deletionTimestamp", json!(time), true),
            ("/spec/taints", json!([]), true),
            ("/metadata/labels", json!({"a": "b"}), false),
            ("/metadata/resourceVersion", json!("7"), false),
        ] {
            let mut new = serde_json::to_value(&old).unwrap();
            let (parent, field) = path.rsplit_once('/').unwrap();
            new.pointer_mut(parent).unwrap()[field] = value;
            let new: ClusterTaintPolicy = serde_json::from_value(new).unwrap();
            assert_eq!(is_other_policy(&old, &new), expected, "{path}");
        }
    }
}
