//! Replaces credentials that the fleet API refuses, although they have not expired.

use muster_shared::client::Gateway;
use muster_shared::k8s::{Api, Namespace};
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::queue::jittered;

use super::{Bootstrap, CHECK_EVERY, PART};
use crate::write::within;

/// Whether it is known that the fleet API accepts the credentials in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// The fleet API has not been asked since the agent began.
    Begun,
    /// The fleet API accepted the credentials, or issued them.
    Accepted,
    /// The fleet API accepted the credentials, and the bootstrap kubeconfig was replaced since.
    Replaced,
    /// The fleet API accepted the credentials once, and refuses them now that the bootstrap
    /// kubeconfig was replaced.
    Refused,
}

impl Trial {
    /// Returns the state after the bootstrap kubeconfig was replaced.
    pub(super) const fn after_replacement(self) -> Self {
        match self {
            Self::Begun => Self::Begun,
            Self::Accepted | Self::Replaced | Self::Refused => Self::Replaced,
        }
    }

    /// Returns the state after the fleet API was asked whether it refuses the credentials; `None`
    /// if it did not say.
    const fn after_answer(self, is_refused: Option<bool>) -> Self {
        match (self, is_refused) {
            (_, Some(false)) => Self::Accepted,
            (Self::Replaced, Some(true)) => Self::Refused,
            _ => self,
        }
    }
}

impl Bootstrap {
    /// Asks the fleet API where that is due whether it accepts the credentials, and obtains others
    /// if it refuses those that the agent began with: it was set up anew at its former address, or
    /// has replaced its authority while the agent was away. Where the agent uses another server of
    /// the fleet, that one is asked: what is at the address of the kubeconfig may be something else
    /// since the other one was promoted.
    ///
    /// An agent that was accepted once does not change its credentials while it runs. What it knows
    /// is that fleet's, and the one that refuses it later may be another.
    pub(super) async fn go_on(&self, trial: Trial, gateway: &Gateway) -> Trial {
        if matches!(trial, Trial::Accepted | Trial::Refused) {
            return trial;
        }
        let is_refused = is_refused(gateway).await;
        if trial == Trial::Begun && is_refused == Some(true) {
            self.replace(gateway).await;
            return Trial::Accepted;
        }
        let next = trial.after_answer(is_refused);
        if next == Trial::Refused {
            tracing::warn!(
                "the fleet API refuses the certificate, and the bootstrap kubeconfig was replaced: the agent starts again"
            );
        }
        next
    }

    /// Obtains other credentials in place of those that the fleet API refuses, unless it accepts
    /// them before.
    async fn replace(&self, gateway: &Gateway) {
        // Remembered, so that the certificate in its place is stored as well.
        *self.refused.lock() = gateway.certificate();
        tokio::select! {
            config = self.obtain() => gateway.take(config),
            () = until_accepted(gateway) => {
                *self.refused.lock() = None;
                self.health.ready(PART, Ok(()));
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_was_accepted_begins_anew_once_it_is_refused_and_has_another_token() {
        use Trial::{Accepted, Begun, Refused, Replaced};
        for (trial, is_replaced, is_refused, expected) in [
            (Begun, false, None, Begun),
            (Begun, false, Some(false), Accepted),
            (Begun, true, None, Begun),
            (Accepted, true, None, Replaced),
            (Accepted, true, Some(false), Accepted),
            (Accepted, true, Some(true), Refused),
            (Replaced, false, None, Replaced),
            (Replaced, false, Some(true), Refused),
            (Replaced, true, Some(false), Accepted),
        ] {
            let replaced = if is_replaced {
                trial.after_replacement()
            } else {
                trial
            };
            let found = replaced.after_answer(is_refused);
            assert_eq!(found, expected, "{trial:?} {is_replaced} {is_refused:?}");
        }
    }
}
