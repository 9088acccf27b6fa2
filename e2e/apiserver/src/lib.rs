//! A Kubernetes API server in one process: real HTTPS, real watch semantics, an in-memory store.
//!
//! It is there for tests, scenarios and the sandbox, and it is strict: where it is kinder than
//! kube-apiserver, it is wrong. What differs knowingly is listed in `DIFFERENCES.md` beside this
//! file.

mod admission;
pub mod apply;
pub mod audit;
pub mod authorize;
mod bootstrap_tokens;
mod certificates;
pub mod clock;
mod codec;
mod controllers;
mod crd;
mod discovery;
pub mod faults;
mod fields;
pub mod identity;
mod impersonation;
mod json;
pub mod kinds;
mod metadata;
mod names;
pub mod openapi;
pub mod patch;
mod paths;
mod pem;
mod prepare;
pub mod protobuf;
mod rbac;
pub mod refusal;
mod registry;
mod request;
mod reviews;
mod running;
mod scale;
pub mod schema;
pub mod seed;
mod selectors;
mod serve;
mod server;
pub mod store;
mod subresources;
pub mod table;
pub mod testing;
mod tokens;
mod traits;
mod verbs;
mod wire;
mod x509;

pub use running::{ApiServer, Forget, Options, Running, StartError};
