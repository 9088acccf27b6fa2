//! Code that the Muster agent and the control plane share.
//!
//! | modules | contents |
//! |---|---|
//! | [`api`] | the typed API of `*.karmada.io` and its CustomResourceDefinitions |
//! | [`names`] | namespaces, labels, annotations, finalizers, condition types, object names |
//! | [`conditions`], [`finalizers`], [`taints`], [`selectors`], [`merge`] | rules of Kubernetes |
//! | [`quantity`], [`jsonpath`] | quantities, and JSONPath templates of kubectl |
//! | [`capacity`] | resources of a cluster: totals, requests of pods, grades of nodes |
//! | [`peers`] | clusters that watch each other: what is asked, what is reported |
//! | [`work_status`] | limits on the statuses that travel from members to the fleet |
//! | [`finished`] | what statuses say of the end of a task, by kind |
//! | [`text`] | texts of others, cut to the room that there is for them |
//! | [`client`], [`watch`], [`write`](mod@write), [`protobuf`] | access to a Kubernetes API |
//! | [`controller`], [`queue`], [`lease`] | controllers, and who leads |
//! | [`tasks`], [`events`], [`remind`] | tasks of a process, events, reminders |
//! | [`serve`], [`https`] | servers for metrics, health checks and admission |
//! | [`certificate`], [`tls`] | certificates of agents and servers |
//! | [`settings`], [`telemetry`] | command line, logs and metrics of a process |
//! | [`self_report`], [`check`] | what processes say about themselves; results of checks |
//!
//! The crate starts no process and has no global state. `conditions`, `jsonpath`, `merge`, `names`,
//! `selectors` and `taints` depend on no other module but `api`.

pub mod api;
pub mod capacity;
pub mod certificate;
pub mod check;
pub mod client;
pub mod clock;
pub mod conditions;
pub mod controller;
pub mod events;
pub mod fencing;
pub mod finalizers;
pub mod finished;
pub mod fleet_epoch;
pub mod fleet_id;
pub mod fleet_servers;
mod http_server;
pub mod https;
pub mod interner;
pub mod jsonpath;
pub mod k8s;
pub mod lease;
pub mod merge;
pub mod names;
pub mod peers;
pub mod protobuf;
pub mod queue;
pub mod remind;
mod resource;
pub mod selectors;
pub mod self_report;
pub mod serve;
pub mod settings;
pub mod spare;
pub mod taints;
pub mod tasks;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod text;
pub mod tls;
pub mod watch;
pub mod work_status;
pub mod write;

pub use muster_quantity as quantity;
