//! Has workloads placed anew on request of a WorkloadRebalancer (Karmada:
//! `pkg/controllers/workloadrebalancer`).
//!
//! The scheduler places a binding anew whose `spec.rescheduleTriggeredAt` is later than its last
//! scheduling. Karmada writes the creation time of the rebalancer there, so that a workload that is
//! added to an existing rebalancer is not placed anew; here it is, with the time of the change.
//! Karmada asks for all of them at once; here those that would move are asked for at the rate of
//! evictions, and after these, and each old copy stays until the new ones are healthy
//! ([`replacement`](crate::scheduler::core::replacement)).

mod controller;
mod decide;
pub mod failback;
pub mod request;
mod turn;

pub use controller::start;
