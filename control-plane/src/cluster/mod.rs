//! Clusters as members of the fleet: who is silent, which taints their condition asks for, and how they join and leave.

pub mod contact;
pub mod controller;
pub mod identity;
pub mod lifecycle;
pub mod monitor;
mod monitored;
mod rollcall;
pub mod roster;
mod twins;

#[cfg(test)]
mod conformance;

pub use controller::start;
