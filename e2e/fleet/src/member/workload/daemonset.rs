//! DaemonSets: one pod on each node that its template suits.
//!
//! Pods are made with their node already named, as the controller did before Kubernetes 1.12; today
//! it pins them with a node affinity and leaves the binding to the scheduler, which comes to the
//! same.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::json;

use super::replicas::tally;
use super::{Failed, Name, Owner, World, fingerprint, status};
use crate::member::pods::{Key, Record};

const REVISION: &str = "controller-revision-hash";

/// What is to be done: nodes that lack a pod, and pods that go.
#[derive(Debug, Default)]
struct Plan {
    create: Vec<String>,
    delete: Vec<Arc<Record>>,
}

/// Compares the nodes with the pods. One outdated pod is replaced at a time, while no other is
/// missing.
fn plan(nodes: &[String], pods: &[Arc<Record>], revision: &str) -> Plan {
    let mut plan = Plan::default();
    let mut by_node: BTreeMap<&str, &Arc<Record>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.active()) {
        let node = pod.node.as_deref().unwrap_or_default();
        let belongs = nodes.iter().any(|name| name == node);
        if !belongs || by_node.insert(node, pod).is_some() {
            plan.delete.push(Arc::clone(pod));
        }
    }
    let leaving = |node: &str| {
        pods.iter()
            .any(|pod| pod.deleting && pod.node.as_deref() == Some(node))
    };
    plan.create = nodes
        .iter()
        .filter(|node| !by_node.contains_key(node.as_str()) && !leaving(node))
        .cloned()
        .collect();
    let whole = by_node.len() == nodes.len() && by_node.values().all(|pod| pod.ready());
    let outdated = by_node
        .values()
        .find(|pod| pod.revision.as_deref() != Some(revision));
    if plan.delete.is_empty()
        && let Some(pod) = outdated
        && (whole || !pod.ready())
    {
        plan.delete.push(Arc::clone(pod));
    }
    plan
}

pub(super) async fn reconcile(world: &World, key: &Key) -> Result<(), Failed> {
    let Some(set) = world.daemon_sets.get(Some(&key.0), &key.1) else {
        return Ok(());
    };
    let Some(spec) = &set.spec else {
        return Ok(());
    };
    let revision = fingerprint(&spec.template);
    let mut template = spec.template.clone();
    let nodes = world.nodes.names();
    let labels = template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.insert(REVISION.to_owned(), revision.clone());
    let uid = set.uid().unwrap_or_default();
    if set.metadata.deletion_timestamp.is_none() {
        let plan = plan(&nodes, &world.pods.owned_by(&uid), &revision);
        let owner = Owner::of(&*set);
        for node in plan.create {
            let name = Name::Beginning(&set.name_any());
            world
                .create_pod(&owner, name, template.clone(), Some(&node))
                .await?;
        }
        for pod in plan.delete {
            world.delete_pod(&pod).await?;
        }
    }
    report(world, &set, &nodes, &revision).await
}

async fn report(
    world: &World,
    set: &DaemonSet,
    nodes: &[String],
    revision: &str,
) -> Result<(), Failed> {
    let pods = world.pods.owned_by(&set.uid().unwrap_or_default());
    let (placed, misplaced): (Vec<Arc<Record>>, Vec<Arc<Record>>) = pods
        .into_iter()
        .filter(|pod| pod.active())
        .partition(|pod| pod.node.as_ref().is_some_and(|node| nodes.contains(node)));
    let all = tally(&placed);
    let updated = placed
        .iter()
        .filter(|pod| pod.revision.as_deref() == Some(revision))
        .count();
    let wanted = json!({
        "observedGeneration": set.metadata.generation,
        "desiredNumberScheduled": nodes.len(),
        "currentNumberScheduled": all.all,
        "numberMisscheduled": misplaced.len(),
        "numberReady": all.ready,
        "updatedNumberScheduled": status::count(updated),
        "numberAvailable": status::count(all.ready),
        "numberUnavailable": status::count(nodes.len().saturating_sub(all.ready)),
    });
    let current = status::current(set.status.as_ref());
    let api: Api<DaemonSet> =
        Api::namespaced(world.client.clone(), &set.namespace().unwrap_or_default());
    status::write(&api, &set.name_any(), &current, &wanted).await
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::member::pods::Phase;

    fn pod(name: &str, node: &str, revision: &str) -> Arc<Record> {
        let empty: Pod = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Arc::new(Record {
            node: Some(node.to_owned()),
            phase: Phase::Running,
            ready_since: Some(jiff::Timestamp::UNIX_EPOCH),
            revision: Some(revision.to_owned()),
            ..Record::of(&empty)
        })
    }

    fn steps(nodes: &[&str], pods: &[Arc<Record>]) -> (Vec<String>, Vec<String>) {
        let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        let plan = plan(&nodes, pods, "new");
        (
            plan.create,
            plan.delete.iter().map(|pod| pod.key.1.clone()).collect(),
        )
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_node_has_one_pod_and_no_more() {
        assert_eq!(
            steps(&["a", "b"], &[pod("x", "a", "new")]),
            (names(&["b"]), names(&[]))
        );
        assert_eq!(
            steps(&["a"], &[pod("x", "a", "new"), pod("y", "b", "new")]),
            (names(&[]), names(&["y"]))
        );
        assert_eq!(
            steps(&["a"], &[pod("x", "a", "new"), pod("y", "a", "new")]),
            (names(&[]), names(&["y"]))
        );
    }

    #[test]
    fn outdated_pods_are_replaced_one_at_a_time() {
        assert_eq!(
            steps(&["a", "b"], &[pod("x", "a", "old"), pod("y", "b", "old")]).1,
            names(&["x"])
        );
        assert_eq!(steps(&["a", "b"], &[pod("y", "b", "old")]).1, names(&[]));
    }
}
