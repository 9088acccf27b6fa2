//! Evicts workloads: which, in which order, at which rate, and where to.
//!
//! A workload leaves a cluster because of its taints, which are judged here, or because it fails
//! there, which the controller of failing applications reports.
//!
//! One eviction passes these files:
//!
//! * `controller` gives every cluster and binding to `evictor`, which has no access to the API.
//! * `judge` says whether a workload has to leave, and by which rule it stays (`Stay`).
//! * `backlog` is the queue, one lane per failed cluster; `fair_queue` orders a lane.
//! * `evictor/next` takes the next one if nothing forbids it: the rate of the fleet
//!   ([`budget`](crate::fleet::budget)), the own rate of a drain and pauses (`evictor/limits`), the
//!   `fence`, the template of a Job.
//! * `plan` computes the binding after the eviction, `execute` writes it in one patch.
//! * `explain` has the states that are reported (`EvictionState`), `condition_writer` writes them.
//!
//! A restart evicts nothing twice: the evictor is rebuilt from the API before it opens
//! (`Evictor::open`), its budget begins empty, a patch carries the resource version that was
//! planned on, and a write whose end is unknown (`Outcome::Unclear`) stays paid.

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
