//! Interprets resources: number of replicas, components, health, status and dependencies.
//!
//! [`Interpreters`] is what agent and control plane ask. It asks, in this order, and the first that
//! has a rule for the kind and the operation answers; where it fails, its error is the answer, and
//! the next is not asked:
//!
//! 1. the scripts of the users' customizations ([`lua`]),
//! 2. the users' [webhooks](webhook),
//! 3. the scripts for kinds of other projects that come with Muster ([`lua::thirdparty`]),
//! 4. the [native] rules for the kinds of Kubernetes.
//!
//! What the users wrote are objects of the fleet API, which [`sources`] follows.
//!
//! Objects are `serde_json::Value`s, so that unknown fields survive.

mod error;
mod failures;
mod interpreter;
mod interpreters;
mod layers;
pub mod lua;
pub mod native;
mod operation;
mod pod;
mod question;
mod read;
pub mod sources;
pub mod webhook;

pub use error::Error;
pub use failures::{Failed, Source};
pub use interpreter::{Interpreter, Native, without_blocking_others};
pub use interpreters::Interpreters;
pub use layers::{Changed, Layers};
pub use native::{
    acceptable_status, aggregate_status, denies_health, dependencies, general_health, health,
    hook_enabled, interpret_replica, is_suspended, prune, prune_server_fields, reported_status,
    reports_health, retain, revise_replica, status,
};
pub use operation::Operation;
pub use question::{Answer, Dependency, Question, Replicas};
pub use read::Unread;
