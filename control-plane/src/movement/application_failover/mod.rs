//! Moves an application away from a cluster in which it stays unhealthy although the cluster is
//! ready.
//!
//! `failover.application` of a policy requests it and says how long an application may be
//! unhealthy. `decide` finds the clusters in which it has been for too long, `history` stores what
//! must survive a restart and delays repeated moves, `evict` finds reasons not to move yet, and
//! `controller` gathers, reports, and asks the evictor, which has the queue, pays, finds the place
//! and writes.

mod action;
mod controller;
pub(crate) mod decide;
pub(crate) mod evict;
pub mod explain;
pub mod history;
mod readiness;

pub use controller::start;
