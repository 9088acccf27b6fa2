//! Creates Works from bindings: one for each chosen cluster.

mod about;
pub(crate) mod absence;
pub mod companions;
pub mod compare;
mod controller;
mod deliver;
mod error;
mod fence;
pub mod hold;
mod hold_condition;
mod keeping;
mod namespaces;
mod overriding;
pub mod owner;
mod prepare;
mod reach;
pub mod references;
pub mod removal;
pub mod render;
mod shrink;
mod state;
mod write;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod leaving;

pub use controller::start;
pub use namespaces::start as start_namespaces;
