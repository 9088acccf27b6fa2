//! What must leave a failed cluster, in which order, how fast, and where to.

pub mod backlog;
pub mod judge;
pub mod plan;
pub mod rate;

#[cfg(test)]
mod conformance;
