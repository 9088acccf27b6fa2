//! Requests about one cluster, and what can go wrong with them.

use kube::api::Api;
use kube::{Client, ResourceExt};
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Head;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use serde_json::Value;

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::write::{merge, merge_status};

/// Returns whether the API gave an answer, though not the one that was asked for. That it has too
/// much to do is none.
pub(super) fn is_answered(error: &ApiError) -> bool {
    match &*error.source {
        kube::Error::Api(status) => !matches!(status.code, 429 | 503),
        error => matches!(error, kube::Error::SerdeError(_)),
    }
}

pub(super) async fn write(
    fleet: &Fleet,
    cluster: &Cluster,
    patch: &Value,
) -> Result<(), kube::Error> {
    let api = Api::<Head<Cluster>>::all(fleet.client.clone());
    merge(&api, &cluster.name_any(), patch).await.map(drop)
}

/// Writes one condition of a Cluster beside those of others, unless the Cluster has changed since
/// it was read; returns it as it is written.
pub(super) async fn write_condition(
    client: &Client,
    cluster: &Cluster,
    condition: Condition,
) -> Result<Condition, kube::Error> {
    let kind = condition.type_.clone();
    let mut list = cluster.conditions().to_vec();
    conditions::set(&mut list, condition.clone());
    let written = conditions::get(&list, &kind).cloned().unwrap_or(condition);
    let patch = conditions::patch(&cluster.metadata, &list);
    let api = Api::<Head<Cluster>>::all(client.clone());
    merge_status(&api, &cluster.name_any(), &patch).await?;
    Ok(written)
}

/// Writes one condition of a Cluster if its status or message has changed, and returns it as it is
/// written.
pub(in crate::clusters) async fn write_if_changed(
    client: &Client,
    cluster: &Cluster,
    condition: Condition,
) -> Result<Option<Condition>, kube::Error> {
    if !conditions::is_update(cluster.condition(&condition.type_), &condition) {
        return Ok(None);
    }
    write_condition(client, cluster, condition).await.map(Some)
}

/// Makes the error of a step in the reconciliation of a cluster, for `map_err`.
pub(in crate::clusters) fn failed(
    step: &'static str,
    cluster: &Cluster,
) -> impl FnOnce(kube::Error) -> ApiError {
    ApiError::of(step, &format!("Cluster {}", cluster.name_any()))
}
