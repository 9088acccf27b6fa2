//! The clusters of the fleet: how they join and leave, whether they live, and what taints them.
//!
//! `cluster` keeps conditions and life cycle of Clusters, `taint` adds and removes their taints,
//! `peers` has clusters watch each other, `workloads` compares their workloads, `policy_status`
//! reports on ClusterTaintPolicies, `registration` lets members in, and `push` serves members that
//! have no agent.

pub(crate) mod cluster;
pub(crate) mod peers;
pub(crate) mod policy_status;
pub mod push;
pub mod registration;
pub mod taint;
pub(crate) mod workloads;

pub use peers::judge as witnesses;
