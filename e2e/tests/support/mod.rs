//! What scenarios share.

mod place;

pub use place::Place;
