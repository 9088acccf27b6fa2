//! Interprets resources with scripts in Lua 5.1.
mod admission;
mod answer;
mod customization;
mod engine;
mod error;
mod kube;
mod limits;
mod lua;
mod operation;
mod read;
mod script;
pub mod thirdparty;

use std::sync::Arc;

pub use admission::{Conflict, check, conflict};
pub use answer::{Component, Dependency, NodeClaim, Replicas, Requirements};
pub use customization::{Customization, Rules};
pub use engine::Engine;
pub use error::{Error, Source};
pub use limits::{Limit, Limits};
pub use operation::Operation;

/// Seconds since 1970, for `os.time` and `os.date` of scripts.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;
