//! Evicts workloads from tainted clusters: which, in which order, at which rate, and where to.

pub mod backlog;
pub mod carry;
mod controller;
pub mod desk;
pub mod explain;
mod feed;
pub mod fleet_view;
pub mod judge;
pub mod measure;
pub mod motive;
pub mod pace;
pub mod plan;
pub mod preserve;
pub mod rate;
pub mod record;
pub mod subject;
pub mod teller;

pub use controller::start;
pub use feed::budget;

#[cfg(test)]
mod conformance;
