//! The status of bindings and templates from what the members report in their Works.

mod aggregate;
mod controller;

pub use controller::start;
