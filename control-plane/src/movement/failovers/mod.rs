//! Records what happened: one `Failover` object for each outage, drain, or series of application
//! failovers.
//!
//! Nothing is decided by these objects. What they say is found again after a crash: moves in the
//! annotations that the moving write carries ([`crate::movement::eviction::record`] and
//! [`crate::movement::application_failover::history`]), stranded workloads in their conditions,
//! causes in the conditions and taints of the clusters. What a record says already is added to
//! these.

mod cause;
mod controller;
mod durations;
mod episode;
mod ledger;
mod measure;
mod observed;
mod prune;

pub use controller::start;
