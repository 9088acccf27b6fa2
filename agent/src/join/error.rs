//! Errors of the registration.

use crate::write;

/// Reason why the registration failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The identity of the member could not be read.
    #[error("identify the member: {0}")]
    Identify(#[source] write::Error),
    /// The namespace that identifies a cluster has no UID.
    #[error("identify the member: namespace \"kube-system\" has no uid")]
    NoIdentity,
    /// Another cluster of the fleet has the name or the id. Only an operator can resolve this.
    #[error("refused to join: {0}")]
    Taken(String),
    /// The fleet API and the member are the same cluster, in which templates would be started where
    /// they are stored.
    #[error(
        "refused to join: the fleet API and the member are the same cluster ({0}); --karmada-kubeconfig must lead to the \
         fleet API, --kubeconfig to the member"
    )]
    Itself(String),
    /// The control plane says that the member is registered under another name. This may be wrong
    /// for a while, or another cluster claims this member's id: the agent keeps reporting, and
    /// applies nothing.
    #[error("not a member as long as the control plane says so: {0}")]
    Twin(String),
    /// The control plane manages the member itself.
    #[error("not the agent of this member: {0}")]
    Pushed(String),
    /// The fleet API rejected a request or did not answer.
    #[error(transparent)]
    Fleet(#[from] write::Error),
}

impl Error {
    /// Returns whether a retry cannot help.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Taken(_) | Self::Itself(_))
    }

    /// Returns whether the Cluster says that this agent must not act for the member, for now: the
    /// member is registered under another name, or the control plane manages it itself.
    pub fn is_doubt(&self) -> bool {
        matches!(self, Self::Twin(_) | Self::Pushed(_))
    }

    /// Returns whether the control plane manages the member itself.
    pub fn is_push(&self) -> bool {
        matches!(self, Self::Pushed(_))
    }

    /// Returns the status code with which the member refuses the agent's credentials, if it does.
    pub fn refusal(&self) -> Option<u16> {
        match self {
            Self::Identify(write::Error::Call {
                source: kube::Error::Api(status),
                ..
            }) => Some(status.code).filter(|code| [401, 403].contains(code)),
            _ => None,
        }
    }

    /// Returns whether the identity of the member could not be read.
    pub fn is_anonymity(&self) -> bool {
        matches!(self, Self::Identify(_))
    }
}
