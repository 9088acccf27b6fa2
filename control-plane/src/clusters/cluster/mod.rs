//! Member clusters: their liveness, the taints of their conditions, their creation and deletion.

mod api_call;
pub mod api_contact;
pub mod controller;
mod departure;
pub mod duplicates;
mod fleet_id;
pub mod identity;
mod lease_monitor;
pub mod lifecycle;
pub mod liveness;
mod measure;
pub mod monitor;
pub mod monitored;
mod ordered;
mod renewal;
mod waiting;

#[cfg(test)]
mod conformance;

pub(super) use api_call::{failed, write_if_changed};
pub use controller::start;
