//! Whether the member's API answers, and what may be said about it.
//!
//! [`probe`] asks, [`debounce`] keeps one bad answer from moving workloads, [`watch`] does both once a
//! period. [`deeper`] asks what an operator wants to know beyond that.

pub mod debounce;
pub mod deeper;
pub mod probe;
mod watch;

pub use self::watch::{Health, watch};
