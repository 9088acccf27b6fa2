//! Applying ordinary YAML, as `kubectl apply` does: the objects are there afterwards as written.

use anyhow::Context;
use kube::api::{Api, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::discovery::{ApiCapabilities, Scope};
use kube::{Client, ResourceExt};
use muster_shared::client;
use muster_shared::k8s::ApiResource;

/// Splits a YAML text into its objects.
pub fn objects(yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
    serde_saphyr::from_multiple(yaml).context("reading objects from YAML")
}

/// Creates each object, or changes it to what is written. Objects without a namespace go to
/// `default`.
pub async fn apply(client: &Client, yaml: &str) -> anyhow::Result<()> {
    apply_all(client, objects(yaml)?).await
}

/// Creates each object that was read already, or changes it to what is written.
pub async fn apply_all(client: &Client, objects: Vec<DynamicObject>) -> anyhow::Result<()> {
    for object in objects {
        let name = object.name_any();
        let types = object.types.clone().context("an object without kind")?;
        apply_one(client, object)
            .await
            .with_context(|| format!("applying {} {name:?}", types.kind))?;
    }
    Ok(())
}

async fn apply_one(client: &Client, object: DynamicObject) -> anyhow::Result<()> {
    let types = object.types.as_ref().context("an object without kind")?;
    let gvk = GroupVersionKind::try_from(types).context("reading apiVersion and kind")?;
    let (resource, capabilities): (ApiResource, ApiCapabilities) =
        kube::discovery::pinned_kind(client, &gvk)
            .await
            .context("finding the kind")?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.namespace().unwrap_or_else(|| "default".to_owned());
            Api::namespaced_with(client.clone(), &namespace, &resource)
        }
    };
    match api.create(&PostParams::default(), &object).await {
        Err(error) if client::is_conflict(&error) => {
            api.patch(
                &object.name_any(),
                &PatchParams::default(),
                &Patch::Merge(&object),
            )
            .await?;
            Ok(())
        }
        other => Ok(other.map(|_| ())?),
    }
}
