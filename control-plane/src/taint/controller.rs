//! Keeps the taints of every cluster as the taint policies want them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::ClusterAffinity;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::client;
use muster_shared::events::EventType;
use muster_shared::queue::{Next, Queue};
use muster_shared::selectors::matches_affinity;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use serde_json::json;

use super::decide::{Outcome, Scene, decide};
use super::policy::faults;
use super::record::{ANNOTATION, Record};
use crate::cluster::controller::until;
use crate::cluster::taints;
use crate::fleet::Fleet;

/// After somebody else wrote the cluster first: our watch tells us within this time as a rule.
const CONFLICT: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot write the taints of cluster {cluster:?}: {}",
    client::brief(error)
)]
struct Error {
    cluster: String,
    error: Box<kube::Error>,
}

/// Starts the controller. Taints by themselves move nothing, so it runs with the gate `Failover` off as well: then
/// one sees what would happen.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let queue = Queue::<String>::new("clustertaintpolicy");
    fleet.clusters.on_change({
        let queue = queue.clone();
        move |change| {
            if let Change::Applied { old, new } = change
                && old.as_ref().is_none_or(|old| matters(old, new))
            {
                queue.add(new.name_any());
            }
        }
    });
    fleet.taint_policies.on_change({
        let (fleet, queue) = (Arc::downgrade(fleet), queue.clone());
        move |change| {
            let Some(fleet) = fleet.upgrade() else { return };
            if let Change::Applied { new, .. } = change {
                report_faults(&fleet, new);
            }
            for cluster in fleet.clusters.list() {
                queue.add(cluster.name_any());
            }
        }
    });
    let looked_at = Arc::new(Mutex::new(HashSet::new()));
    fleet.work(
        tasks,
        "taint policies",
        queue,
        fleet.settings.concurrent_cluster_syncs,
        move |fleet, name| {
            let looked_at = Arc::clone(&looked_at);
            async move { look(&fleet, &looked_at, &name).await }
        },
    );
}

/// Whether a change can change a decision: heartbeats and resource counts cannot.
fn matters(old: &Cluster, new: &Cluster) -> bool {
    let conditions = [old, new].map(|it| it.status.as_ref().map(|status| &status.conditions));
    old.spec != new.spec
        || old.metadata.labels != new.metadata.labels
        || old.annotations().get(ANNOTATION) != new.annotations().get(ANNOTATION)
        || conditions[0] != conditions[1]
}

fn report_faults(fleet: &Fleet, policy: &ClusterTaintPolicy) {
    for fault in faults(&policy.spec) {
        tracing::warn!(policy = policy.name_any(), %fault, "a part of a taint policy is stepped over");
        fleet.events.publish(
            policy,
            EventType::Warning,
            "InvalidClusterTaintPolicy",
            fault.to_string(),
        );
    }
}

async fn look(
    fleet: &Fleet,
    looked_at: &Mutex<HashSet<String>>,
    name: &str,
) -> Result<Next, Error> {
    let looked_at = || looked_at.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(cluster) = fleet.clusters.get(None, name) else {
        looked_at().remove(name);
        return Ok(Next::Done);
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Next::Done);
    }
    let policies = fleet.taint_policies.list();
    let policies: Vec<&ClusterTaintPolicy> = policies.iter().map(AsRef::as_ref).collect();
    let now = Timestamp::now();
    let outcome = decide(
        &Scene {
            cluster: &cluster,
            record: Record::read(cluster.annotations().get(ANNOTATION).map(String::as_str)),
            policies: &policies,
            selects: &|affinity: &ClusterAffinity| matches_affinity(affinity, &cluster),
            first_look: !looked_at().contains(name),
        },
        now,
    );
    if outcome.taints.is_some() || outcome.record.is_some() {
        match write(fleet, &cluster, &outcome).await {
            Ok(()) => tell(fleet, &cluster, &outcome),
            Err(error) if client::is_conflict(&error) => return Ok(Next::After(CONFLICT)),
            Err(error) if client::is_not_found(&error) => return Ok(Next::Done),
            Err(error) => {
                fleet.events.publish(
                    &*cluster,
                    EventType::Warning,
                    "TaintClusterFailed",
                    client::brief(&error),
                );
                return Err(Error {
                    cluster: name.to_owned(),
                    error: Box::new(error),
                });
            }
        }
    }
    looked_at().insert(name.to_owned());
    Ok(outcome
        .again
        .map_or(Next::Done, |due| Next::After(until(due, now))))
}

async fn write(fleet: &Fleet, cluster: &Cluster, outcome: &Outcome) -> Result<(), kube::Error> {
    let mut patch = json!({"metadata": {"resourceVersion": cluster.metadata.resource_version}});
    if let Some(record) = &outcome.record {
        patch["metadata"]["annotations"] = json!({ANNOTATION: record.write()});
    }
    if let Some(taints) = &outcome.taints {
        patch["spec"] = json!({"taints": (!taints.is_empty()).then_some(taints)});
    }
    let api = Api::<Cluster>::all(fleet.client.clone());
    api.patch(
        &cluster.name_any(),
        &PatchParams::default(),
        &Patch::Merge(patch),
    )
    .await
    .map(drop)
}

fn tell(fleet: &Fleet, cluster: &Cluster, outcome: &Outcome) {
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
        let note = format!(
            "Update Cluster({name}) with taints({}) succeed",
            taints::describe(taints)
        );
        fleet
            .events
            .publish(cluster, EventType::Normal, "TaintClusterSucceed", note);
    }
}
