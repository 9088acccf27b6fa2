//! StatefulSets: pods with numbers, made and replaced in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use kube::ResourceExt as _;
use kube::api::Api;
use muster_shared::clock::calendar;
use muster_shared::queue::Next;
use serde_json::json;

use super::replicas::{min_ready, tally, wanted};
use super::{Failed, Name, Owner, World, fingerprint, status};
use crate::member::pods::{Key, Record};

/// Label that says which template a pod was made from.
const REVISION: &str = "controller-revision-hash";

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Keep,
    /// Make the pods with these numbers.
    Create(Vec<usize>),
    /// Delete the pods with these numbers.
    Delete(Vec<usize>),
}

/// A pod as far as the order of things matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Member {
    ready: bool,
    updated: bool,
    deleting: bool,
}

/// What a set is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Aim {
    first: usize,
    replicas: usize,
    /// One after the other (`OrderedReady`) or all at once (`Parallel`).
    ordered: bool,
    /// Pods below this number keep their template; `None` replaces none (`OnDelete`).
    partition: Option<usize>,
}

/// Kubernetes' rule: fill the gaps from below, shrink from above, replace from above, one at a time
/// and only while the others are ready.
fn step(aim: Aim, pods: &BTreeMap<usize, Member>) -> Step {
    let numbers = aim.first..aim.first + aim.replicas;
    let mut missing = Vec::new();
    for number in numbers.clone() {
        match pods.get(&number) {
            None => missing.push(number),
            Some(pod) if aim.ordered && (!pod.ready || pod.deleting) => break,
            Some(_) => {}
        }
        if aim.ordered && !missing.is_empty() {
            break;
        }
    }
    if !missing.is_empty() {
        return Step::Create(missing);
    }
    let settled = pods.values().all(|pod| pod.ready && !pod.deleting);
    let beyond: Vec<usize> = pods
        .iter()
        .rev()
        .filter(|(number, pod)| !numbers.contains(number) && !pod.deleting)
        .map(|(number, _)| *number)
        .collect();
    if !beyond.is_empty() {
        if !aim.ordered {
            return Step::Delete(beyond);
        }
        let leaving = pods.values().any(|pod| pod.deleting);
        return if leaving {
            Step::Keep
        } else {
            Step::Delete(vec![beyond[0]])
        };
    }
    let outdated = pods.iter().rev().find(|(number, pod)| {
        !pod.updated
            && aim
                .partition
                .is_some_and(|partition| **number >= aim.first + partition)
    });
    match outdated {
        // A pod that does not work is replaced although it is not ready; a working one waits for
        // the rest.
        Some((number, pod)) if !pod.deleting && (settled || !pod.ready) => {
            Step::Delete(vec![*number])
        }
        _ => Step::Keep,
    }
}

fn aim(spec: &StatefulSetSpec) -> Aim {
    let strategy = spec.update_strategy.as_ref();
    let partition = strategy
        .and_then(|strategy| strategy.rolling_update.as_ref())
        .and_then(|rolling| rolling.partition)
        .and_then(|partition| usize::try_from(partition).ok())
        .unwrap_or(0);
    let on_delete = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete");
    Aim {
        first: spec
            .ordinals
            .as_ref()
            .and_then(|ordinals| ordinals.start)
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(0),
        replicas: wanted(spec.replicas),
        ordered: spec.pod_management_policy.as_deref() != Some("Parallel"),
        partition: (!on_delete).then_some(partition),
    }
}

pub(super) async fn reconcile(world: &World, key: &Key) -> Result<Next, Failed> {
    let Some(set) = world.stateful_sets.get(Some(&key.0), &key.1) else {
        return Ok(Next::Done);
    };
    let Some(spec) = &set.spec else {
        return Ok(Next::Done);
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
        match step(aim(spec), &members) {
            Step::Keep => {}
            Step::Create(numbers) => {
                for number in numbers {
                    create(world, &set, spec, number, &revision).await?;
                }
            }
            Step::Delete(numbers) => {
                for pod in numbers.iter().filter_map(|number| numbered.get(number)) {
                    world.delete_pod(pod).await?;
                }
            }
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
) -> Result<Next, Failed> {
    let pods = world.pods.owned_by(&set.uid().unwrap_or_default());
    let now = calendar();
    let min_ready = min_ready(spec.min_ready_seconds);
    let all = tally(&pods, min_ready, now);
    let is_updated = |pod: &&Arc<Record>| pod.revision.as_deref() == Some(revision);
    let updated = tally(pods.iter().filter(is_updated), min_ready, now);
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
        "availableReplicas": all.available,
        "currentReplicas": status::count(of_present),
        "updatedReplicas": status::count(updated.all),
        "currentRevision": present,
        "updateRevision": revision,
        "collisionCount": 0,
    });
    let api: Api<StatefulSet> =
        Api::namespaced(world.client.clone(), &set.namespace().unwrap_or_default());
    status::write(&api, &set.name_any(), &current, &wanted).await?;
    Ok(all.next_available.map_or(Next::Done, Next::After))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AIM: Aim = Aim {
        first: 0,
        replicas: 3,
        ordered: true,
        partition: Some(0),
    };
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

    fn after(aim: Aim, pods: &[(usize, Member)]) -> Step {
        step(aim, &pods.iter().copied().collect())
    }

    #[test]
    fn pods_come_in_order_and_each_waits_for_those_before() {
        assert_eq!(after(AIM, &[]), Step::Create(vec![0]));
        assert_eq!(after(AIM, &[(0, STARTING)]), Step::Keep);
        assert_eq!(after(AIM, &[(0, GOOD)]), Step::Create(vec![1]));
        assert_eq!(after(AIM, &[(0, GOOD), (2, GOOD)]), Step::Create(vec![1]));
        assert_eq!(after(AIM, &[(0, LEAVING), (1, GOOD)]), Step::Keep);
        assert_eq!(
            after(
                Aim {
                    ordered: false,
                    ..AIM
                },
                &[(1, STARTING)]
            ),
            Step::Create(vec![0, 2])
        );
        assert_eq!(
            after(
                Aim {
                    first: 5,
                    replicas: 1,
                    ..AIM
                },
                &[]
            ),
            Step::Create(vec![5])
        );
    }

    #[test]
    fn pods_go_from_above_one_at_a_time() {
        let one = Aim { replicas: 1, ..AIM };
        assert_eq!(
            after(one, &[(0, GOOD), (1, GOOD), (2, GOOD)]),
            Step::Delete(vec![2])
        );
        assert_eq!(
            after(one, &[(0, GOOD), (1, GOOD), (2, LEAVING)]),
            Step::Keep
        );
        assert_eq!(
            after(
                Aim {
                    ordered: false,
                    ..one
                },
                &[(0, GOOD), (1, GOOD), (2, GOOD)]
            ),
            Step::Delete(vec![2, 1])
        );
    }

    #[test]
    fn a_new_template_replaces_from_above_while_all_are_ready() {
        let two = Aim { replicas: 2, ..AIM };
        assert_eq!(after(two, &[(0, OLD), (1, OLD)]), Step::Delete(vec![1]));
        assert_eq!(after(two, &[(0, OLD), (1, STARTING)]), Step::Keep);
        assert_eq!(after(two, &[(0, OLD), (1, GOOD)]), Step::Delete(vec![0]));
        assert_eq!(
            after(
                Aim {
                    partition: Some(1),
                    ..two
                },
                &[(0, OLD), (1, GOOD)]
            ),
            Step::Keep
        );
        assert_eq!(
            after(
                Aim {
                    partition: None,
                    ..two
                },
                &[(0, OLD), (1, OLD)]
            ),
            Step::Keep
        );
        let broken = Member {
            ready: false,
            ..OLD
        };
        assert_eq!(after(two, &[(0, OLD), (1, broken)]), Step::Delete(vec![1]));
    }
}
