//! All scenarios as one program, which is linked once, and whose tests wait side by side.
//!
//! `cargo test -p muster-e2e --test scenarios failover::` runs those of one module.

// The lints know test functions, not the functions that they share: those fail the test as well.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod admission;
mod agent;
mod check;
mod comparison;
mod data;
mod detection;
mod edges;
mod eviction;
mod failover;
mod fencing;
mod fleet_api;
mod heartbeats;
mod host_loss;
mod identity;
mod kills;
mod kubectl;
mod layers;
mod orders;
mod page;
mod propagation;
mod push;
mod registration;
mod scheduler;
mod stolen;
mod support;
mod taints;
mod webhook;
