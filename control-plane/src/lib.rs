//! The Muster control plane: notices which clusters went silent, decides what must move, moves it at a safe pace,
//! and says why.

pub mod binding;
pub mod cluster;
pub mod detector;
pub mod eviction;
pub mod fleet;
pub mod graceful_eviction;
pub mod scheduler;
pub mod settings;
pub mod status;
pub mod taint;
