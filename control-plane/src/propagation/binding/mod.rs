//! Creates Works from bindings: one for each chosen cluster.

mod about;
pub(crate) mod absence;
pub mod companions;
pub(crate) mod compare;
mod controller;
mod definitions;
mod deliver;
mod error;
mod fence;
pub(crate) mod hold;
mod hold_condition;
mod idle_overrides;
mod keeping;
pub(in crate::propagation) mod namespaces;
mod overriding;
pub(crate) mod owner;
mod plan;
mod prepare;
pub mod references;
pub(crate) mod removal;
pub mod render;
mod shrink;
mod state;
mod suspend;
mod write;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod conformance_of_applications;
#[cfg(test)]
mod data_tests;
#[cfg(test)]
mod leaving_tests;
#[cfg(test)]
mod replacing_tests;
#[cfg(test)]
mod successors_tests;
#[cfg(test)]
mod undivided_tests;

pub use controller::start;
pub use namespaces::start as start_namespaces;
pub use overriding::answer as answer_overrides;
