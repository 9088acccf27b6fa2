//! Clusters that stay when a scenario ends: fleets use them one after the other, and remove what
//! would be in the way of the next.
//!
//! Only what scenarios make is removed: templates and policies with our label (their copies in the
//! members bear it too), and what the product makes for the clusters of the fleet. Nobody is there
//! to honour finalizers any more, so they are taken off.

use std::fs::File;
use std::time::Duration;

use anyhow::Context as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use muster_shared::client::is_not_found;
use muster_shared::names::{CLUSTER_NAMESPACE, SYSTEM_NAMESPACE, execution_namespace};
use serde_json::json;

use super::provider::Provider;

/// Marks what a scenario applies.
const LABEL: (&str, &str) = ("muster.e2e/applied", "true");
/// How long objects may take to go.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two checks whether they are gone.
const PAUSE: Duration = Duration::from_millis(300);

/// Group, version and kind of what scenarios apply to the fleet API.
const APPLIED: [[&str; 3]; 7] = [
    ["policy.karmada.io", "v1alpha1", "ClusterTaintPolicy"],
    ["policy.karmada.io", "v1alpha1", "ClusterPropagationPolicy"],
    ["policy.karmada.io", "v1alpha1", "PropagationPolicy"],
    ["apps", "v1", "Deployment"],
    ["apps", "v1", "StatefulSet"],
    ["batch", "v1", "Job"],
    ["", "v1", "ConfigMap"],
];
/// Place in `APPLIED` of the first kind of which copies arrive in members.
const COPIED: usize = 3;
/// Kinds that members make of the copies.
const PLAYED: [[&str; 3]; 2] = [["apps", "v1", "ReplicaSet"], ["", "v1", "Pod"]];
/// Kinds that the product makes of what scenarios apply to the fleet API.
const BINDINGS: [[&str; 3]; 2] = [
    ["work.karmada.io", "v1alpha2", "ResourceBinding"],
    ["work.karmada.io", "v1alpha2", "ClusterResourceBinding"],
];
const WORK: [&str; 3] = ["work.karmada.io", "v1alpha1", "Work"];
const CLUSTER: [&str; 3] = ["cluster.karmada.io", "v1alpha1", "Cluster"];
const LEASE: [&str; 3] = ["coordination.k8s.io", "v1", "Lease"];

/// The use of clusters that others use as well. It is over when dropped.
pub struct Reservation(#[expect(dead_code, reason = "held for its lock")] File);

impl Reservation {
    /// Waits for the clusters of this provider; `None`: every fleet has its own.
    pub async fn take(provider: &dyn Provider) -> anyhow::Result<Option<Self>> {
        if !provider.is_shared() {
            return Ok(None);
        }
        let path = std::env::temp_dir().join(format!("muster-e2e-{}.lock", provider.name()));
        let locked = tokio::task::spawn_blocking(move || {
            let file = File::create(&path)?;
            file.lock()?;
            std::io::Result::Ok(file)
        });
        let file = locked.await?.context("waiting for the clusters")?;
        Ok(Some(Self(file)))
    }
}

/// Marks an object as a scenario's.
pub fn mark(object: &mut DynamicObject) {
    let (name, value) = LABEL;
    object
        .labels_mut()
        .insert(name.to_owned(), value.to_owned());
    // Pods and what makes them bear it, too: where nobody collects garbage they would stay.
    let template = object.data.pointer_mut("/spec/template/metadata/labels");
    if let Some(labels) = template.and_then(serde_json::Value::as_object_mut) {
        labels.insert(name.to_owned(), value.into());
    }
}

/// Removes from the fleet API what scenarios applied, and its bindings.
pub async fn fleet(client: &Client) -> anyhow::Result<()> {
    let marked = ListParams::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    for kind in APPLIED {
        remove(client, kind, None, &marked).await?;
    }
    // Bindings bear no label of ours; with their templates gone, all that are left are leftovers.
    for kind in BINDINGS {
        remove(client, kind, None, &ListParams::default()).await?;
    }
    Ok(())
}

/// Removes a member from the fleet, and from the member what scenarios brought there.
pub async fn member(fleet: &Client, name: &str, client: &Client) -> anyhow::Result<()> {
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    remove(fleet, CLUSTER, None, &named(name)).await?;
    let works = execution_namespace(name);
    remove(fleet, WORK, Some(&works), &ListParams::default()).await?;
    remove(fleet, LEASE, Some(CLUSTER_NAMESPACE), &named(name)).await?;
    let election = named(&format!("karmada-agent-{name}"));
    remove(fleet, LEASE, Some(SYSTEM_NAMESPACE), &election).await?;
    let marked = ListParams::default().labels(&format!("{}={}", LABEL.0, LABEL.1));
    for kind in APPLIED[COPIED..].iter().chain(&PLAYED) {
        remove(client, *kind, None, &marked).await?;
    }
    Ok(())
}

/// Deletes what is selected, finalizers or not, and waits until it is gone. A kind that is not
/// installed has no objects.
async fn remove(
    client: &Client,
    [group, version, kind]: [&str; 3],
    namespace: Option<&str>,
    selection: &ListParams,
) -> anyhow::Result<()> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let plural = &resource.plural;
    let all: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let gone = async {
        loop {
            let found = match all.list(selection).await {
                Ok(found) => found.items,
                Err(error) if is_not_found(&error) => return anyhow::Ok(()),
                // A kind that was installed a moment ago: its storage is still being prepared.
                Err(kube::Error::Api(status)) if status.code == 429 => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if found.is_empty() {
                return Ok(());
            }
            for object in found {
                let api: Api<DynamicObject> = match object.namespace() {
                    Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                    None => all.clone(),
                };
                delete(&api, &object).await?;
            }
            // Deletion in the background does not say when it is done.
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .with_context(|| format!("{plural} of an earlier scenario are still there"))?
        .with_context(|| format!("removing {plural} of an earlier scenario"))
}

async fn delete(api: &Api<DynamicObject>, object: &DynamicObject) -> Result<(), kube::Error> {
    let name = object.name_any();
    let gone = |outcome: Result<(), kube::Error>| match outcome {
        Err(error) if is_not_found(&error) => Ok(()),
        outcome => outcome,
    };
    // At once: there may be no kubelet to wait for.
    let now = DeleteParams::background().grace_period(0);
    let deleted = api.delete(&name, &now).await;
    gone(deleted.map(drop))?;
    if object.finalizers().is_empty() {
        return Ok(());
    }
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let freed = api.patch(&name, &PatchParams::default(), &patch).await;
    gone(freed.map(drop))
}
