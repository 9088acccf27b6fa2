//! Writes the Cluster's status: on changes, and compared anew at the update frequency.

pub mod collector;
mod controller;
mod gauges;
pub mod status;

pub use self::controller::Reporter;
