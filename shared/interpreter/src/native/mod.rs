//! Native rules for the kinds of Kubernetes, one file per operation: those of Karmada's default
//! interpreter.
//!
//! They are pure functions. A function returns `None` for a kind without a rule for the operation;
//! [`hook_enabled`] says the same without computing.

mod aggregate;
mod dependencies;
mod general_health;
mod health;
mod kind;
mod pod;
mod prune;
mod replica;
mod retain;
mod revise;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

pub use aggregate::{acceptable_status, aggregate_status, reported_status};
pub use dependencies::dependencies;
pub use general_health::{denies_health, general_health, is_suspended, reports_health};
pub use health::health;
pub use kind::hook_enabled;
pub(crate) use kind::unsupported;
pub use prune::{prune, prune_server_fields};
pub use replica::interpret_replica;
pub use retain::{retain, retain_labelled};
pub use revise::revise_replica;
pub use status::status;

use crate::{Error, Operation};
