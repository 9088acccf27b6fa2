//! Works from bindings: what each chosen cluster is to have.

pub mod compare;
mod controller;
pub mod form;
pub mod kept;
pub mod marks;
mod namespaces;
pub mod purge;
pub mod render;
pub mod works;

#[cfg(test)]
mod conformance;

pub use controller::start;
pub use kept::{BindingKey, Kept};
pub use namespaces::start as start_namespaces;
pub use works::{CachedWork, WorkIndex};
