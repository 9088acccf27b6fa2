//! What scenarios share.

pub mod kubectl;
mod place;

pub use place::Place;
