//! Requests about one cluster, and what can go wrong with them.

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use serde_json::Value;

use crate::fleet::Fleet;

/// Failure of a reconcile of one cluster.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot {step} of cluster {cluster:?}: {}", client::brief(error))]
    Call {
        step: &'static str,
        cluster: String,
        error: Box<kube::Error>,
    },
}

pub(super) async fn write(
    fleet: &Fleet,
    cluster: &Cluster,
    patch: &Value,
) -> Result<(), kube::Error> {
    let api = Api::<Cluster>::all(fleet.client.clone());
    api.patch(
        &cluster.name_any(),
        &PatchParams::default(),
        &Patch::Merge(patch),
    )
    .await
    .map(drop)
}

/// Gone already, or changed meanwhile: the next look tells.
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
