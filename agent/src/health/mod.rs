//! Health of the member's API server.
//!
//! [`probe`] asks the API server, [`debounce`] keeps one failed probe from moving workloads,
//! [`mod@watch`] does both once per period. [`deeper`] and [`recent`] have further checks that an
//! operator can enable. [`peers`] watches other clusters, as the control plane asks.

pub mod debounce;
pub mod deeper;
pub mod peers;
pub mod probe;
pub mod recent;
mod watch;

pub use self::watch::{Health, watch};
