//! Whether the member's API answers, and what may be said about it.
//!
//! [`probe`] asks, [`debounce`] keeps one bad answer from moving workloads, [`watch`] does both once a period.

pub mod debounce;
pub mod probe;
mod watch;

pub use self::watch::{Health, watch};
