//! Health of the member's API server.
//!
//! [`probe`] asks the API server, [`debounce`] keeps one failed probe from moving workloads,
//! [`mod@watch`] does both once per period. [`deeper`] has further checks that an operator can
//! enable.

pub mod debounce;
pub mod deeper;
pub mod probe;
mod watch;

pub use self::watch::{Health, watch};
