//! Renews the certificate by which the fleet API authenticates the agent (controller
//! `certRotation`).
//!
//! The kubeconfig with the certificate is in a Secret of the member, which is mounted into the
//! agent's pod. When little of its lifetime is left, a new key and a signing request are made, and
//! the issued certificate is written to the Secret and used by this process at once. Karmada's
//! agent writes the Secret, and uses the old certificate until it is restarted.

mod controller;
pub mod document;

pub use self::controller::{Place, Rotation};
