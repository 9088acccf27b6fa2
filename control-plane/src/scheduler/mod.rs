//! Which clusters a workload runs on, and how many replicas each of them gets.
//!
//! [`core`] decides, and knows no cache and no clock. [`controller`] determines when a decision is
//! due, and writes it. A decision is a function of a binding and a snapshot of the clusters:
//! eviction, application failover and `kubectl muster explain` call the same function.

pub mod controller;
pub mod core;
#[cfg(test)]
pub(crate) mod tests;
