//! Evicts workloads: which, in which order, at which rate, and where to.
//!
//! A workload leaves a cluster because of its taints, which are judged here, or because it fails
//! there, which the controller of failing applications tells.

pub mod applications;
pub mod backlog;
pub mod condition_writer;
mod controller;
pub mod drain;
pub mod evictor;
pub mod execute;
pub mod explain;
pub mod fair_queue;
pub mod fence;
pub mod fleet_view;
pub mod homes;
pub mod inputs;
pub mod jobs;
pub mod judge;
pub mod measure;
mod pending_notes;
pub mod plan;
pub mod preserve;
pub mod reason;
pub mod record;
pub mod room;

pub use controller::{EvictorHandle, start};

#[cfg(test)]
pub(super) mod conformance;
