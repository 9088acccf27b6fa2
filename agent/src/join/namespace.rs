//! Creates namespaces of the system.

use kube::api::PostParams;
use muster_shared::client;
use muster_shared::k8s::{Api, Client, Namespace, ObjectMeta};
use muster_shared::names;

use crate::write::{self, within};

/// Creates a namespace unless it exists or the right is missing; the control plane creates the same
/// ones.
pub async fn ensure_namespace(fleet: &Client, name: &str) -> Result<(), write::Error> {
    let api: Api<Namespace> = Api::all(fleet.clone());
    match within("read a namespace", client::get_metadata_opt(&api, name)).await {
        Ok(Some(_)) => return Ok(()),
        Ok(None) => {}
        Err(error) if error.is_forbidden() => {}
        Err(error) => return Err(error),
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some([(names::label::SYSTEM.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    match within(
        "create a namespace",
        api.create(&PostParams::default(), &namespace),
    )
    .await
    {
        Err(error) if !error.is_conflict() && !error.is_forbidden() => Err(error),
        _ => Ok(()),
    }
}
