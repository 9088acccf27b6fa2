//! Member clusters: their liveness, the taints of their conditions, their creation and deletion.

pub mod contact;
pub mod controller;
mod fleet_id;
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
