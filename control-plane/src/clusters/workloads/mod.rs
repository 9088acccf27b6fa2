//! Condition `WorkloadsHealthy` of a Cluster: whether workloads of the fleet that are healthy in
//! other clusters are healthy in this one, too.
//!
//! A workload that is unhealthy everywhere says nothing about a cluster: its own image or
//! configuration may be at fault.

mod controller;
pub mod count;

pub use controller::start;
