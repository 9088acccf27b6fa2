//! Status of ClusterTaintPolicies: the clusters that each selects, those that match it and those
//! that have its taints, and why it does nothing. `decide` is pure; `controller` counts and writes.

mod controller;
mod decide;

pub use controller::start;
