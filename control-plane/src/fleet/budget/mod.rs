//! The budget that pays for everything that moves, and its rate by the health of the fleet.

pub mod failed;
mod following;
pub mod pace;
pub mod rate;

pub use following::budget;
