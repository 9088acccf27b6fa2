//! Evicts workloads from tainted clusters: which, in which order, at which rate, and where to.

pub mod backlog;
pub mod condition_writer;
mod controller;
pub mod drain;
pub mod evictor;
pub mod execute;
pub mod explain;
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
pub mod turns;

pub use controller::start;

#[cfg(test)]
mod conformance;
