//! What must leave a failed cluster, in which order, how fast, and where to.

pub mod backlog;
pub mod desk;
pub mod explain;
pub mod fleet_view;
pub mod judge;
pub mod plan;
pub mod rate;
pub mod subject;

#[cfg(test)]
mod conformance;
