//! Has workloads placed anew on request of a WorkloadRebalancer (Karmada:
//! `pkg/controllers/workloadrebalancer`).
//!
//! The scheduler places a binding anew whose `spec.rescheduleTriggeredAt` is later than its last
//! scheduling. Karmada writes the creation time of the rebalancer there, so that a workload that is
//! added to an existing rebalancer is not placed anew; here it is, with the time of the change.
//! Karmada asks for all of them at once, and says `Successful` when it has; here a few hundred are
//! asked for at a time, and have their result when the scheduler has answered. Those that move do
//! so at the rate of evictions, and after these, and each old copy stays until the new ones are
//! healthy ([`replacement`](crate::scheduler::core::replacement)).

mod controller;
mod decide;
pub mod failback;
pub mod request;

pub use controller::start;

#[cfg(test)]
mod tests;
