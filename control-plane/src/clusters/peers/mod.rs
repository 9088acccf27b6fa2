//! Clusters that watch each other: which agents watch a cluster, and what their reports add up to
//! (condition `SeenByPeers`).
//!
//! A report lies on the Cluster of the agent that makes it, which is all that an agent may write.
//! Reports make a failover slower or more certain and never cause one:
//! [`super::taint::policy`] refuses a policy that evicts on them alone.

pub mod choose;
mod controller;
#[cfg(test)]
mod false_alarms;
pub mod judge;

pub use controller::start;
