//! Evicts workloads from tainted clusters: which, in which order, at which rate, and where to.

pub mod any_binding;
pub mod backlog;
mod book;
pub mod condition_writer;
mod controller;
pub mod drain;
pub mod evictor;
pub mod execute;
pub mod explain;
mod feed;
pub mod fence;
pub mod fleet_view;
pub mod jobs;
pub mod judge;
pub mod measure;
pub mod pace;
pub mod plan;
pub mod preserve;
pub mod rate;
pub mod reason;
pub mod record;

pub use controller::start;
pub use feed::budget;

#[cfg(test)]
mod conformance;
