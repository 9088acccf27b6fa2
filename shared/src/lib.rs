//! What the Muster agent and control plane must agree on: the typed API of `*.karmada.io`, the
//! rules both sides compute with, and the edges (clients, watches, queues, settings) both are built
//! from.
//!
//! No process and no globals live here. `api`, `quantity`, `conditions`, `taints`, `selectors`,
//! `jsonpath` and `names` are pure and import nothing of ours but `api`.

pub mod api;
pub mod capacity;
pub mod certificate;
pub mod client;
pub mod conditions;
mod connections;
pub mod events;
pub mod https;
pub mod interner;
pub mod interpreter;
pub mod jsonpath;
pub mod k8s;
pub mod lease;
pub mod merge;
pub mod names;
pub mod protobuf;
pub mod queue;
pub mod remind;
pub mod selectors;
pub mod serve;
pub mod settings;
pub mod taints;
pub mod tasks;
pub mod telemetry;
pub mod tls;
pub mod watch;
pub mod work_status;
pub mod write;

pub use muster_quantity as quantity;
