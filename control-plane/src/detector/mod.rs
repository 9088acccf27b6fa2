//! Bindings from templates and policies.
//!
//! A template is any object of the fleet API that a policy selects. The policy claims it (labels
//! and annotations on the template), and the pair becomes a binding: what is to be placed, by which
//! rules. `select` says which policy, `claim` how it is marked, `build` what the binding says,
//! `audit` what of a policy has no effect; `controller` and `policies` gather, call and write.

mod arrivals;
pub mod audit;
mod audits;
mod bind;
mod bound;
pub mod build;
pub mod candidates;
mod claims;
mod controller;
mod dependencies;
mod error;
mod identity;
mod in_charge;
mod kinds;
mod lazy;
mod policies;
pub mod preempt;
mod priority;
pub mod select;
mod takeover;

#[cfg(test)]
mod conformance;

pub use controller::start;
