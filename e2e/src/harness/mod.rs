//! Starting a fleet on this machine, breaking it, and waiting for what should happen.

pub mod access;
pub mod apply;
pub mod clean;
pub mod dump;
pub mod envtest;
pub mod fleet;
pub mod kubeconfig;
pub mod observer;
pub mod process;
pub mod provider;
pub mod roll;
pub mod route;
