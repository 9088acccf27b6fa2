//! Status of bindings and templates, from the reports of the members in their Works.

mod aggregate;
mod applied;
mod controller;
mod places;
mod reflect;
mod silence;

pub use controller::start;
