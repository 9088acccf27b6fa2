//! Stops workloads whose policy asks for fencing when the member is cut off from the fleet API.
//!
//! [`Silence`] knows since when the member's lease has not been renewed, [`record`] keeps that in
//! the member for the next process, [`Fencer`] stops what is due, and the applier asks [`Fencer`]
//! for permission before it starts anything that may be due.

mod controller;
mod objects;
pub mod orders;
mod record;
mod silence;

pub use controller::{Fencer, Setup};
pub use silence::{Permission, Silence};
