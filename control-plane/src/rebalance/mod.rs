//! Has workloads placed anew on request of a WorkloadRebalancer (Karmada:
//! `pkg/controllers/workloadrebalancer`).
//!
//! The scheduler places a binding anew whose `spec.rescheduleTriggeredAt` is later than its last
//! scheduling. Karmada writes the creation time of the rebalancer there, so that a workload that is
//! added to an existing rebalancer is not placed anew; here it is, with the time of the change.

mod controller;
mod decide;

pub use controller::start;
