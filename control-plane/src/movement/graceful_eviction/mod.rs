//! Completes evictions: decides when the copy in the old cluster may be removed.

pub mod assess;
pub(crate) mod controller;
mod onward;
pub(crate) mod plugin;
mod reports;

#[cfg(test)]
mod conformance;

pub use controller::start;
