//! Creates bindings from templates and policies.
//!
//! A template is any object of the fleet API that a policy selects. The policy claims it, with
//! labels and annotations on the template, and a binding is created from both. `select` chooses the
//! policy, `claims` writes the claim, `build` makes the binding, `audit` finds parts of policies
//! without effect, `report` decides the status of policies; `controller` and `policies` gather and
//! write.

mod arrivals;
pub mod audit;
mod audits;
mod bind;
mod bound;
pub(crate) mod build;
pub(crate) mod candidates;
mod claims;
mod controller;
mod dependencies;
mod error;
mod identity;
mod in_charge;
mod kinds;
mod lazy;
mod policies;
pub(crate) mod preempt;
mod priority;
mod refused;
mod report;
mod reported;
pub(crate) mod select;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod remade_tests;

pub use controller::start;

/// Starts the detector over a fleet that serves Deployments, and fills its caches.
#[cfg(test)]
async fn detect(bench: &mut crate::fleet::testing::Bench) {
    bench.api.serve_deployments();
    start(&bench.fleet, &mut bench.tasks);
    bench.follow().await;
}
