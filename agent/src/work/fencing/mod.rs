//! Stops workloads whose policy asks for fencing when the member is cut off from the fleet API.
//!
//! [`Silence`] knows since when the member's lease has not been renewed, [`record`] keeps that in
//! the member for the next process and for agents that stand by ([`kept`]), [`Fencer`] stops what
//! is due (at times of [`rounds`], with [`dependents`](crate::work::dependents) that run on), and
//! the applier asks [`Fencer`] for permission before it starts anything that may be due.

mod controller;
mod fenced;
mod kept;
mod objects;
pub mod orders;
mod record;
mod rounds;
mod silence;
mod step;

pub use controller::{Fencer, Setup, heartbeat_note};
pub use record::Machine;
pub use silence::{Permission, Silence};
