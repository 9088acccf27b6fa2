//! Moves an application away from a cluster where it stays unhealthy though the cluster itself is well.
//!
//! The policy asks for it with `failover.application` and says how long an application may be unhealthy. `decide` finds where it has been for too
//! long, `history` keeps what must survive a restart and slows down what moves again and again, `controller` gathers, plans the
//! departure as every eviction does, and writes.

mod controller;
pub mod decide;
mod exit;
pub mod explain;
pub mod history;

pub use controller::start;

#[cfg(test)]
mod conformance;
