//! Writes the Cluster's status: on changes, and compared anew at the update frequency.

pub mod collector;
mod conditions;
mod controller;
mod enablements;
mod gauges;
mod status;

pub use self::controller::Reporter;
