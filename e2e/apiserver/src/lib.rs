//! A Kubernetes API server in one process: real HTTPS, real watch semantics, an in-memory store.
//!
//! It is there for tests, scenarios and the sandbox, and it is strict: where it is kinder than
//! kube-apiserver, it is wrong. What differs knowingly is listed in `DIFFERENCES.md` beside this
//! file.

mod admission;
pub mod apply;
pub mod audit;
pub mod auth;
mod context;
mod controllers;
mod discovery;
pub mod faults;
#[cfg(test)]
mod floors;
pub mod kinds;
pub mod openapi;
pub mod patch;
mod paths;
mod registry;
mod reviews;
mod running;
pub mod schema;
pub mod seed;
mod serve;
mod server;
pub mod store;
mod subresources;
pub mod table;
pub mod testing;
mod verbs;
pub mod wire;

pub use running::{ApiServer, Forget, Options, Running, StartError};
pub use wire::protobuf;
