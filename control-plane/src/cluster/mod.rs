//! Clusters as members of the fleet: who is silent, which taints their condition asks for, and how they join and leave.

pub mod contact;
pub mod monitor;
pub mod roster;
pub mod taints;

#[cfg(test)]
mod conformance;
