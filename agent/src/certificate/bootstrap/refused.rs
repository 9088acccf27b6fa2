//! Replaces credentials that the fleet API refuses, although they have not expired.

use muster_shared::client::Gateway;
use muster_shared::k8s::{Api, Namespace};
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::queue::jittered;

use super::{Bootstrap, CHECK_EVERY, PART};
use crate::write::within;

impl Bootstrap {
    /// Obtains other credentials if the fleet API refuses those that the agent began with: it was
    /// set up anew at its former address, or has replaced its authority while the agent was away.
    /// Where the agent uses another server of the fleet, that one is asked: what is at the address
    /// of the kubeconfig may be something else since the other one was promoted.
    /// Returns whether the credentials were tried: `false` while the fleet API does not answer.
    ///
    /// An agent that was accepted once goes on with its credentials until it ends. What it knows is
    /// that fleet's, and the one that refuses it later may be another.
    pub(super) async fn replace_refused(&self, gateway: &Gateway) -> bool {
        match is_refused(gateway).await {
            None => return false,
            Some(false) => return true,
            Some(true) => {}
        }
        // Remembered, so that the certificate in its place is stored as well.
        *self.refused.lock() = gateway.certificate();
        tokio::select! {
            config = self.obtain() => gateway.take(config),
            () = until_accepted(gateway) => {
                *self.refused.lock() = None;
                self.health.ready(PART, Ok(()));
            }
        }
        true
    }
}

/// Returns whether the fleet API refuses the credentials in use; `None` if it does not say.
async fn is_refused(gateway: &Gateway) -> Option<bool> {
    let fleet = gateway.client_in_use().ok()?;
    // Each agent may read this namespace, and nobody may without credentials.
    let namespaces: Api<Namespace> = Api::all(fleet);
    let read = namespaces.get_metadata(CLUSTER_NAMESPACE);
    match within("try the stored certificate", read).await {
        Ok(_) => Some(false),
        Err(error) if error.is_unauthorized() => Some(true),
        Err(error) => (error.is_forbidden() || error.is_gone()).then_some(false),
    }
}

/// Waits until the fleet API accepts the credentials in use.
async fn until_accepted(gateway: &Gateway) {
    while is_refused(gateway).await != Some(false) {
        tokio::time::sleep(jittered(CHECK_EVERY)).await;
    }
}
