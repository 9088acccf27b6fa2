//! Moves an application away from a cluster where it stays unhealthy though the cluster itself is well.
//!
//! The policy asks for it with `failover.application` and says how long an application may be unhealthy. `decide` finds where it has been for too
//! long, `history` keeps what must survive a restart and slows down what moves again and again, `turns` says whose turn it is,
//! `exit` finds what holds it back and plans the departure as every eviction does, `controller` gathers and writes.

mod controller;
pub mod decide;
mod duty;
mod exit;
pub mod explain;
mod hearing;
pub mod history;
mod turns;

pub use controller::start;

#[cfg(test)]
mod conformance;
