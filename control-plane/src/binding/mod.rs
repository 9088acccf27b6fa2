//! Works from bindings: what each chosen cluster is to have.

mod about;
pub(crate) mod absence;
pub mod compare;
mod controller;
mod error;
pub mod form;
mod held;
pub mod kept;
pub mod marks;
mod namespaces;
pub mod owner;
pub mod purge;
mod reach;
pub mod render;
mod state;
pub mod waits;
pub mod works;
mod write;

#[cfg(test)]
mod conformance;

pub use controller::start;
pub use kept::{BindingKey, Kept};
pub use namespaces::start as start_namespaces;
pub use works::{CachedWork, WorkIndex};
