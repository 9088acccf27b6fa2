//! The Cluster's status: what the member is and has, written when it changed, and looked at anew at the update frequency.

pub mod collector;
mod controller;
mod gauges;
pub mod status;

pub use self::controller::Reporter;
