//! Clusters of sync mode Push: the control plane connects to the member, reports its status,
//! applies its Works and reflects the status of its objects.
//!
//! The code of these tasks is the agent's ([`muster_agent::Hosted`]), so that a member behaves the
//! same in both modes. Each member has tasks, connections and limits of its own: one that is slow
//! or dead delays no other. There is no lease: the status itself says when the member does not
//! answer.
//!
//! `connection` reads address and credentials, `renewal` keeps a token fresh, `controller` starts
//! and ends the tasks of each member.

mod connection;
mod controller;
mod renewal;

#[cfg(test)]
mod fuzz;

pub use controller::start;
pub use renewal::ask as ask_for_token;
