//! The namespaces that the control plane itself needs.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use muster_shared::client;
use muster_shared::names::CLUSTER_NAMESPACE;

use crate::fleet::Fleet;
use crate::fleet::write::{create_missing, namespace};

/// Creates the namespaces of the election and of the leases, retrying until they exist: a fresh
/// fleet API has neither.
pub(super) async fn ensure(fleet: &Fleet) {
    let api: Api<Namespace> = Api::all(fleet.client.clone());
    let mut wanted = vec![
        fleet.settings.leader_elect_resource_namespace.as_str(),
        CLUSTER_NAMESPACE,
    ];
    wanted.dedup();
    for name in wanted {
        loop {
            let refusal = match create_missing(&api, &namespace(name)).await {
                Ok(true) => {
                    tracing::info!(name, "created a namespace that the fleet needs");
                    break;
                }
                Ok(false) => break,
                Err(error) => error,
            };
            let why = client::brief(&refusal);
            if is_refused_for_good(&refusal) {
                // Then somebody else is to make it, and the election says what is missing.
                tracing::info!(
                    name,
                    why,
                    "a namespace that the fleet needs may not be created"
                );
                break;
            }
            // The caches say in /readyz, and in the log, that the API cannot be reached.
            tracing::info!(
                name,
                why,
                "could not create a namespace that the fleet needs"
            );
            tokio::select! {
                () = fleet.shutdown.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(2)) => {}
            }
        }
    }
}

/// Returns whether asking again cannot help: the API answered, and it was not a matter of load or
/// of time.
fn is_refused_for_good(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => (400..500).contains(&status.code) && status.code != 429,
        _ => false,
    }
}
