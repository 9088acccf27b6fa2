//! A Kubernetes API server in one process: real HTTPS, real watch semantics, an in-memory store.
//!
//! It is there for tests, scenarios and the sandbox, and it is strict: where it is kinder than
//! kube-apiserver, it is wrong. What differs knowingly is listed in `DIFFERENCES.md` beside this
//! file.

mod admission;
mod admission_config;
mod apply;
pub mod audit;
mod auth;
mod catalog;
mod context;
mod controllers;
mod discovery;
pub mod faults;
mod kinds;
mod openapi;
mod patch;
mod paths;
mod registry;
mod reviews;
mod running;
mod schema;
pub mod seed;
mod serve;
mod server;
mod snapshot;
pub mod store;
mod subresources;
mod table;
pub mod testing;
mod verbs;
mod wire;

pub use auth::identity::{self, User};
pub use running::{ApiServer, Forget, Options, Running};
pub use server::Cut;
pub use snapshot::Snapshot;
pub use wire::media::Body;
pub use wire::protobuf;
