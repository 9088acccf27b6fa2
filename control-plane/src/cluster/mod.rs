//! Member clusters: their liveness, the taints of their conditions, their creation and deletion.

pub mod api_contact;
pub mod controller;
pub mod duplicates;
mod fleet_id;
pub mod identity;
pub mod lifecycle;
pub mod liveness;
mod measure;
pub mod monitor;
pub mod monitored;
mod paused;
mod rollcall;

#[cfg(test)]
mod conformance;

pub use controller::start;
