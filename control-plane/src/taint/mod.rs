//! Taints by policy: which ClusterTaintPolicy wants which taint on which cluster, since when, and who may take it off.

pub mod condition_taints;
mod controller;
pub mod decide;
pub mod default_tolerations;
pub mod policy;
pub mod record;
pub mod window;

#[cfg(test)]
mod conformance;

pub use controller::start;
