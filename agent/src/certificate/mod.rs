//! Renews the certificate by which the fleet API authenticates the agent (controller
//! `certRotation`).
//!
//! The kubeconfig with the certificate is in a Secret of the member, which is mounted into the
//! agent's pod. When little of its lifetime is left, a new key and a signing request are made, and
//! the issued certificate is written to the Secret and used by this process at once. Karmada's
//! agent writes the Secret, and uses the old certificate until it is restarted.
//!
//! With a bootstrap kubeconfig the agent also asks for its first certificate, and for another when
//! its certificate has expired, or is refused when the agent starts; an agent that is refused while
//! it runs starts again when the bootstrap kubeconfig is replaced. Without one, such an agent can
//! only take a valid certificate that somebody else writes to the Secret.

mod asking;
mod bootstrap;
mod controller;
pub mod document;
mod stored;

pub use self::asking::Asked;
pub use self::bootstrap::{Bootstrap, PART};
pub use self::controller::Rotation;

/// The Secret with the agent's kubeconfig.
#[derive(Clone, Debug)]
pub struct Place {
    /// Namespace in the member.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Key of the kubeconfig in it.
    pub key: String,
}
