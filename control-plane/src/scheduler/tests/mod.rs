//! The scheduler as a whole: worked examples, properties, and recorded decisions.

pub mod components;
pub mod conformance;
pub mod fixtures;
pub mod listing;
pub mod properties;
pub mod specification;
pub mod spreading;
