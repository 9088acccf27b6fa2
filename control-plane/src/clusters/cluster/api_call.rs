//! Requests about one cluster, and what can go wrong with them.

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Head;
use muster_shared::k8s::Condition;
use muster_shared::{client, conditions};
use serde_json::{Value, json};

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;

/// Failure of a reconcile of one cluster.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot {step} of cluster {cluster:?}: {}", client::brief(error))]
    Call {
        step: &'static str,
        cluster: String,
        error: Box<kube::Error>,
    },
    #[error(transparent)]
    Other(#[from] ApiError),
}

impl Error {
    /// Returns whether the API gave an answer, though not the one that was asked for. That it has
    /// too much to do is none.
    pub(super) fn is_answered(&self) -> bool {
        let (Self::Call { error, .. } | Self::Other(ApiError { source: error, .. })) = self;
        match &**error {
            kube::Error::Api(status) => !matches!(status.code, 429 | 503),
            error => matches!(error, kube::Error::SerdeError(_)),
        }
    }
}

pub(super) async fn write(
    fleet: &Fleet,
    cluster: &Cluster,
    patch: &Value,
) -> Result<(), kube::Error> {
    let api = Api::<Head<Cluster>>::all(fleet.client.clone());
    api.patch(
        &cluster.name_any(),
        &PatchParams::default(),
        &Patch::Merge(patch),
    )
    .await
    .map(drop)
}

/// Writes one condition of a Cluster beside those of others, unless the Cluster has changed since
/// it was read; returns it as it is written.
pub(super) async fn write_condition(
    client: &Client,
    cluster: &Cluster,
    condition: Condition,
) -> Result<Condition, kube::Error> {
    let kind = condition.type_.clone();
    let status = cluster.status.as_ref();
    let mut list = status.map_or_else(Vec::new, |status| status.conditions.clone());
    conditions::set(&mut list, condition.clone());
    let written = conditions::get(&list, &kind).cloned().unwrap_or(condition);
    let patch = json!({
        "metadata": {"resourceVersion": cluster.metadata.resource_version},
        "status": {"conditions": list},
    });
    let (name, params) = (cluster.name_any(), PatchParams::default());
    let api = Api::<Head<Cluster>>::all(client.clone());
    api.patch_status(&name, &params, &Patch::Merge(patch))
        .await?;
    Ok(written)
}

/// Writes one condition of a Cluster if its status or message is news, and returns it as it is
/// written.
pub(in crate::clusters) async fn write_news(
    client: &Client,
    cluster: &Cluster,
    condition: Condition,
) -> Result<Option<Condition>, kube::Error> {
    let known = cluster.condition(&condition.type_);
    if known.is_some_and(|it| it.status == condition.status && it.message == condition.message) {
        return Ok(None);
    }
    write_condition(client, cluster, condition).await.map(Some)
}

/// Ignores the error that the object is gone already, or was changed meanwhile: the controller
/// finds out when it looks next.
pub(super) fn tolerate(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    result.or_else(|error| {
        if client::is_not_found(&error) || client::is_conflict(&error) {
            Ok(())
        } else {
            Err(error)
        }
    })
}

pub(super) fn failed(step: &'static str, cluster: &Cluster) -> impl Fn(kube::Error) -> Error {
    let cluster = cluster.name_any();
    move |error| Error::Call {
        step,
        cluster: cluster.clone(),
        error: Box::new(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_or_changed_already_is_looked_at_again_and_the_rest_is_an_error() {
        for (code, reason, expected) in [
            (404, "NotFound", true),
            (409, "Conflict", true),
            (403, "Forbidden", false),
            (500, "InternalError", false),
        ] {
            let status = kube::core::Status::failure("", reason).with_code(code);
            let result = tolerate(Err(kube::Error::Api(status.boxed())));
            assert_eq!(result.is_ok(), expected, "{code}");
        }
        assert!(tolerate(Ok(())).is_ok());
    }
}
