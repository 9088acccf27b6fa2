//! Renewing the certificate by which the fleet API knows the agent (controller `certRotation`), before it expires.
//!
//! The kubeconfig with the certificate is a Secret of the member, which the agent's pod has mounted. When little is left of the
//! certificate's life, a new key and a signing request go to the fleet API, and what is issued goes into the Secret, and into this
//! process at once. Karmada's agent does the first half and goes on with the old certificate until somebody restarts it.

mod controller;
pub mod document;

pub use self::controller::{Place, Rotation};
