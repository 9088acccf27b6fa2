//! The status of bindings and templates from what the members report in their Works.

mod aggregate;
mod applied;
mod controller;

pub use controller::start;
