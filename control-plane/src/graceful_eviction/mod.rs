//! The end of an eviction: when the copy in the cluster that is being left may go.

pub mod assess;
pub(crate) mod controller;
pub mod plugin;
pub mod standing;

#[cfg(test)]
mod conformance;

pub use controller::start;
pub use plugin::Plugins;
