//! Taints of clusters, from their conditions and from ClusterTaintPolicies.

pub mod condition_taints;
mod controller;
pub mod decide;
pub mod default_tolerations;
pub mod policy;
pub mod record;
mod refusal;
pub(crate) mod window;

#[cfg(test)]
mod conformance;

pub use controller::start;
pub(crate) use controller::{is_other_policy, matters};
