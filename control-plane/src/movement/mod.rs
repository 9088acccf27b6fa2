//! Moves workloads between clusters.
//!
//! The reasons to move are taints (`eviction`), an application that stays unhealthy
//! (`application_failover`), and requests and returns (`rebalance`); all of them pay from the
//! budget in [`fleet`](crate::fleet::budget) and stop while movement is paused.
//! `graceful_eviction` ends what a move began: the old copy goes once the new one is there.
//! `failovers` records what happened.

pub mod application_failover;
pub mod eviction;
pub(crate) mod failovers;
pub mod graceful_eviction;
pub mod rebalance;
