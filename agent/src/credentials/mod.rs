//! Reports credentials of the member to the fleet (`--report-secrets`): service accounts in the
//! member, and their tokens as Secrets in the fleet API. Those that are no longer reported are
//! removed.
//!
//! Karmada's agent does this once, before it registers, and exits if it fails. Here it is a
//! separate task that retries and reports failures; leases and status do not wait for it.

mod controller;
mod ownership;
pub mod report;
mod withdrawal;

pub use self::controller::Credentials;
pub use self::ownership::is_an_agents;
