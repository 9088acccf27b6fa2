//! The member's credentials for the fleet (`--report-secrets`): accounts in the member, and their tokens as Secrets of the fleet API.
//!
//! Karmada's agent does this once, before it registers, and ends when it cannot. Here it is a task beside the others: whatever it
//! lacks is told and tried again, and neither the sign of life nor the status waits for it.

pub mod account;
mod controller;
pub mod report;
mod withdrawal;

pub use self::account::Report;
pub use self::controller::Reporter;
pub use self::withdrawal::Withdrawal;
