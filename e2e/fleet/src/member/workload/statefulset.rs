//! StatefulSets: pods with numbers, made and replaced in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use kube::ResourceExt as _;
use kube::api::Api;
use serde_json::json;

use super::replicas::{tally, wanted};
use super::{Failed, Name, Owner, World, fingerprint, status};
use crate::member::pods::{Key, Record};

/// Label that says which template a pod was made from.
const REVISION: &str = "controller-revision-hash";

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Keep,
    /// Make the pod with this number.
    Create(usize),
    /// Delete the pod with this number.
    Delete(usize),
}

/// A pod as far as the order of things matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Member {
    ready: bool,
    updated: bool,
    deleting: bool,
}

/// Kubernetes' rule (`OrderedReady`, `RollingUpdate`): fill the gaps from below, shrink from above,
/// replace from above, one at a time and only while the others are ready.
fn step(replicas: usize, pods: &BTreeMap<usize, Member>) -> Step {
    for number in 0..replicas {
        match pods.get(&number) {
            None => return Step::Create(number),
            Some(pod) if !pod.ready || pod.deleting => break,
            Some(_) => {}
        }
    }
    let beyond = pods.range(replicas..).rev();
    let mut beyond = beyond.filter(|(_, pod)| !pod.deleting);
    if let Some((number, _)) = beyond.next() {
        let leaving = pods.values().any(|pod| pod.deleting);
        return if leaving {
            Step::Keep
        } else {
            Step::Delete(*number)
        };
    }
    let settled = pods.values().all(|pod| pod.ready && !pod.deleting);
    match pods.iter().rev().find(|(_, pod)| !pod.updated) {
        // A pod that does not work is replaced although it is not ready; a working one waits for
        // the rest.
        Some((number, pod)) if !pod.deleting && (settled || !pod.ready) => Step::Delete(*number),
        _ => Step::Keep,
    }
}

pub(super) async fn reconcile(world: &World, key: &Key) -> Result<(), Failed> {
    let Some(set) = world.stateful_sets.get(Some(&key.0), &key.1) else {
        return Ok(());
    };
    let Some(spec) = &set.spec else {
        return Ok(());
    };
    let uid = set.uid().unwrap_or_default();
    let revision = format!("{}-{}", set.name_any(), fingerprint(&spec.template));
    let owned = world.pods.owned_by(&uid);
    let numbered: BTreeMap<usize, Arc<Record>> = owned
        .iter()
        .filter_map(|pod| Some((number(&pod.key.1)?, Arc::clone(pod))))
        .collect();
    let members = numbered
        .iter()
        .map(|(number, pod)| {
            let updated = pod.revision.as_ref() == Some(&revision);
            (
                *number,
                Member {
                    ready: pod.ready(),
                    updated,
                    deleting: pod.deleting,
                },
            )
        })
        .collect();
    if set.metadata.deletion_timestamp.is_none() {
        match step(wanted(spec.replicas), &members) {
            Step::Keep => {}
            Step::Create(number) => create(world, &set, spec, number, &revision).await?,
            Step::Delete(number) => world.delete_pod(&numbered[&number]).await?,
        }
    }
    report(world, &set, spec, &revision).await
}

fn number(name: &str) -> Option<usize> {
    name.rsplit_once('-')?.1.parse().ok()
}

async fn create(
    world: &World,
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    number: usize,
    revision: &str,
) -> Result<(), Failed> {
    let name = format!("{}-{number}", set.name_any());
    let mut template = spec.template.clone();
    let labels = template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.insert(REVISION.to_owned(), revision.to_owned());
    labels.insert(
        "statefulset.kubernetes.io/pod-name".to_owned(),
        name.clone(),
    );
    labels.insert(
        "apps.kubernetes.io/pod-index".to_owned(),
        number.to_string(),
    );
    let pod = template.spec.get_or_insert_default();
    pod.hostname = Some(name.clone());
    pod.subdomain.clone_from(&spec.service_name);
    world
        .create_pod(&Owner::of(set), Name::Exactly(&name), template, None)
        .await
}

async fn report(
    world: &World,
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    revision: &str,
) -> Result<(), Failed> {
    let pods = world.pods.owned_by(&set.uid().unwrap_or_default());
    let all = tally(&pods);
    let is_updated = |pod: &&Arc<Record>| pod.revision.as_deref() == Some(revision);
    let updated = tally(pods.iter().filter(is_updated));
    let current = status::current(set.status.as_ref());
    let replicas = wanted(spec.replicas);
    let complete = updated.all == replicas && all.all == replicas && updated.ready == replicas;
    // The current revision follows when the roll-out is complete; until then it names the old one.
    let present = match current["currentRevision"].as_str() {
        Some(old) if !complete => old.to_owned(),
        _ => revision.to_owned(),
    };
    let of_present = pods
        .iter()
        .filter(|pod| pod.active() && pod.revision.as_deref() == Some(&present))
        .count();
    let wanted = json!({
        "observedGeneration": set.metadata.generation,
        "replicas": all.all,
        "readyReplicas": status::count(all.ready),
        "availableReplicas": all.ready,
        "currentReplicas": status::count(of_present),
        "updatedReplicas": status::count(updated.all),
        "currentRevision": present,
        "updateRevision": revision,
        "collisionCount": 0,
    });
    let api: Api<StatefulSet> =
        Api::namespaced(world.client.clone(), &set.namespace().unwrap_or_default());
    status::write(&api, &set.name_any(), &current, &wanted).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Member = Member {
        ready: true,
        updated: true,
        deleting: false,
    };
    const OLD: Member = Member {
        updated: false,
        ..GOOD
    };
    const STARTING: Member = Member {
        ready: false,
        ..GOOD
    };
    const LEAVING: Member = Member {
        deleting: true,
        ..GOOD
    };

    fn after(replicas: usize, pods: &[(usize, Member)]) -> Step {
        step(replicas, &pods.iter().copied().collect())
    }

    #[test]
    fn pods_come_in_order_and_each_waits_for_those_before() {
        assert_eq!(after(3, &[]), Step::Create(0));
        assert_eq!(after(3, &[(0, STARTING)]), Step::Keep);
        assert_eq!(after(3, &[(0, GOOD)]), Step::Create(1));
        assert_eq!(after(3, &[(0, GOOD), (2, GOOD)]), Step::Create(1));
        assert_eq!(after(3, &[(0, LEAVING), (1, GOOD)]), Step::Keep);
    }

    #[test]
    fn pods_go_from_above_one_at_a_time() {
        let three = |last| [(0, GOOD), (1, GOOD), (2, last)];
        assert_eq!(after(1, &three(GOOD)), Step::Delete(2));
        assert_eq!(after(1, &three(LEAVING)), Step::Keep);
    }

    #[test]
    fn a_new_template_replaces_from_above_while_all_are_ready() {
        assert_eq!(after(2, &[(0, OLD), (1, OLD)]), Step::Delete(1));
        assert_eq!(after(2, &[(0, OLD), (1, STARTING)]), Step::Keep);
        assert_eq!(after(2, &[(0, OLD), (1, GOOD)]), Step::Delete(0));
        let broken = Member {
            ready: false,
            ..OLD
        };
        assert_eq!(after(2, &[(0, OLD), (1, broken)]), Step::Delete(1));
    }
}
