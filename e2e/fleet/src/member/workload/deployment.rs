//! Deployments: a ReplicaSet for each template, and the share of each in the pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use muster_shared::client;
use serde_json::{Value, json};

use super::replicas::{tally, wanted};
use super::rollout::{Set, scale, unavailable};
use super::{Failed, Owner, World, controller, fingerprint, status};
use crate::member::pods::Key;

/// Label that distinguishes a template's pods and set from those of others.
const HASH: &str = "pod-template-hash";
/// Annotation that numbers the templates.
const REVISION: &str = "deployment.kubernetes.io/revision";

pub(super) async fn reconcile(world: &World, key: &Key) -> Result<(), Failed> {
    let Some(deployment) = world.deployments.get(Some(&key.0), &key.1) else {
        return Ok(());
    };
    let Some(spec) = &deployment.spec else {
        return Ok(());
    };
    if deployment.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let uid = deployment.uid().unwrap_or_default();
    let owned: Vec<Arc<ReplicaSet>> = world
        .replica_sets
        .list()
        .into_iter()
        .filter(|set| set.namespace().as_deref() == Some(key.0.as_str()))
        .filter(|set| controller(&set.metadata, "Deployment").is_some_and(|owner| owner.uid == uid))
        .collect();
    let hash = fingerprint(&spec.template);
    let api: Api<ReplicaSet> = Api::namespaced(world.client.clone(), &key.0);
    if !owned
        .iter()
        .any(|set| set.labels().get(HASH) == Some(&hash))
    {
        let revision = owned
            .iter()
            .filter_map(|set| revision(set))
            .max()
            .unwrap_or(0)
            + 1;
        let set = new_set(&deployment, spec, &hash, revision);
        // The watch shows the new set and has this reconciled again; so it does if somebody was
        // faster.
        return match api.create(&PostParams::default(), &set).await {
            Err(error) if !client::is_conflict(&error) => Err(error.into()),
            _ => Ok(()),
        };
    }
    let replicas = wanted(spec.replicas);
    let sets: Vec<Set> = owned.iter().map(|set| view(set, &hash)).collect();
    for (name, wanted) in scale(replicas, &sets) {
        let patch = Patch::Merge(json!({"spec": {"replicas": wanted}}));
        api.patch(&name, &PatchParams::default(), &patch).await?;
    }
    number(world, &deployment, &owned, &hash).await?;
    report(world, &deployment, spec, &owned, &hash).await
}

fn view(set: &ReplicaSet, hash: &str) -> Set {
    let available = set.status.as_ref().and_then(|it| it.available_replicas);
    Set {
        name: set.name_any(),
        current: set.labels().get(HASH).map(String::as_str) == Some(hash),
        wanted: wanted(set.spec.as_ref().and_then(|spec| spec.replicas)),
        available: usize::try_from(available.unwrap_or(0)).unwrap_or(0),
    }
}

fn revision(set: &ReplicaSet) -> Option<u64> {
    set.annotations().get(REVISION)?.parse().ok()
}

fn new_set(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    hash: &str,
    revision: u64,
) -> ReplicaSet {
    let mut template = spec.template.clone();
    let meta = template.metadata.get_or_insert_default();
    meta.labels
        .get_or_insert_default()
        .insert(HASH.to_owned(), hash.to_owned());
    let labels = meta.labels.clone();
    let mut selector = spec.selector.clone();
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH.to_owned(), hash.to_owned());
    let owner = Owner::of(deployment);
    let mut set = ReplicaSet::default();
    set.metadata.name = Some(format!("{}-{hash}", deployment.name_any()));
    set.metadata.namespace = Some(owner.namespace);
    set.metadata.owner_references = Some(vec![owner.reference]);
    set.metadata.labels = labels;
    set.metadata.annotations = Some(BTreeMap::from([(
        REVISION.to_owned(),
        revision.to_string(),
    )]));
    set.spec = Some(k8s_openapi::api::apps::v1::ReplicaSetSpec {
        replicas: Some(0),
        selector,
        template: Some(template),
        min_ready_seconds: None,
    });
    set
}

/// Writes the number of the present template on the Deployment, as the real controller does.
async fn number(
    world: &World,
    deployment: &Deployment,
    owned: &[Arc<ReplicaSet>],
    hash: &str,
) -> Result<(), Failed> {
    let present = owned
        .iter()
        .find(|set| set.labels().get(HASH).map(String::as_str) == Some(hash));
    let Some(revision) = present.and_then(|set| revision(set)) else {
        return Ok(());
    };
    if deployment.annotations().get(REVISION) == Some(&revision.to_string()) {
        return Ok(());
    }
    let api: Api<Deployment> = Api::namespaced(
        world.client.clone(),
        &deployment.namespace().unwrap_or_default(),
    );
    let patch = json!({"metadata": {"annotations": {REVISION: revision.to_string()}}});
    match api
        .patch(
            &deployment.name_any(),
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await
    {
        Err(error) if !client::is_not_found(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

async fn report(
    world: &World,
    deployment: &Deployment,
    spec: &DeploymentSpec,
    owned: &[Arc<ReplicaSet>],
    hash: &str,
) -> Result<(), Failed> {
    let of = |set: &Arc<ReplicaSet>| tally(&world.pods.owned_by(&set.uid().unwrap_or_default()));
    let tallies: Vec<_> = owned
        .iter()
        .map(|set| (view(set, hash).current, of(set)))
        .collect();
    let all: usize = tallies.iter().map(|(_, tally)| tally.all).sum();
    let updated: usize = tallies
        .iter()
        .filter(|(current, _)| *current)
        .map(|(_, tally)| tally.all)
        .sum();
    let ready: usize = tallies.iter().map(|(_, tally)| tally.ready).sum();
    let replicas = wanted(spec.replicas);
    let current = status::current(deployment.status.as_ref());
    let wanted = json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": status::count(all),
        "updatedReplicas": status::count(updated),
        "readyReplicas": status::count(ready),
        "availableReplicas": status::count(ready),
        "unavailableReplicas": status::count(replicas.max(all).saturating_sub(ready)),
        "conditions": conditions(&current, deployment, hash, (replicas, all, updated, ready)),
    });
    let api: Api<Deployment> = Api::namespaced(
        world.client.clone(),
        &deployment.namespace().unwrap_or_default(),
    );
    status::write(&api, &deployment.name_any(), &current, &wanted).await
}

fn conditions(
    current: &Value,
    deployment: &Deployment,
    hash: &str,
    (replicas, all, updated, available): (usize, usize, usize, usize),
) -> Value {
    let enough = available >= replicas - unavailable(replicas);
    let (reason, message) = if enough {
        (
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    let available_condition = status::condition(current, "Available", enough, reason, message);
    let set = format!("{}-{hash}", deployment.name_any());
    let complete = updated == replicas && all == replicas && available >= replicas;
    let progressing = if complete {
        let message = format!("ReplicaSet \"{set}\" has successfully progressed.");
        status::condition(
            current,
            "Progressing",
            true,
            "NewReplicaSetAvailable",
            &message,
        )
    } else {
        let message = format!("ReplicaSet \"{set}\" is progressing.");
        status::condition(current, "Progressing", true, "ReplicaSetUpdated", &message)
    };
    json!([available_condition, progressing])
}
