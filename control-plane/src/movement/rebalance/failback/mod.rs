//! Has workloads placed anew that left a cluster because of a taint, once it has been healthy for
//! the time that the policy or `--failback-after` asks for. Karmada has no counterpart.
//!
//! The patch that evicts records the cluster in an annotation of the binding. Since when a cluster
//! is healthy is recorded in an annotation of the Cluster, so that the count survives a restart.

mod controller;
pub mod decide;
mod in_flight;
mod pending;
mod window;

pub(super) use controller::start;
