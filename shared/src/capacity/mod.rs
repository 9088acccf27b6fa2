//! What a cluster has, what is asked of it, and how its nodes are graded.
//!
//! A [`Census`] is folded from watch events: [`PodView`] and [`NodeView`] are the small parts of a
//! pod and a node that matter, decoded straight from the API and thrown away once counted. What
//! stays of a pod is about fifty bytes, so a hundred thousand of them fit into a few megabytes, and
//! each event costs only what it changes.
//!
//! ```
//! use kube::runtime::watcher::Event;
//! use muster_shared::capacity::{Census, NodeView, PodView};
//!
//! let mut census = Census::default();
//! let node: NodeView = serde_json::from_str(
//!     r#"{ "metadata": { "name": "n1" }, "status": {
//!         "allocatable": { "cpu": "4", "pods": "110" },
//!         "conditions": [{ "type": "Ready", "status": "True" }]
//!     } }"#,
//! )?;
//! census.fold_node(Event::Init);
//! census.fold_node(Event::InitApply(node));
//! census.fold_node(Event::InitDone);
//! census.fold_pod(Event::Init);
//! census.fold_pod(Event::InitDone);
//!
//! assert!(census.is_complete());
//! assert_eq!(census.summary().allocatable["cpu"].0, "4");
//! # Ok::<(), serde_json::Error>(())
//! ```

mod amounts;
mod census;
mod compact;
mod models;
mod request;
mod row;
mod shapes;
mod view;

pub(crate) use amounts::{Amounts, Names, amount};
pub use census::{Census, Counted};
pub use models::{ModelFault, default_models, standardize, validate};
pub(crate) use request::{Parts, SIDECAR};
pub use view::{ContainerView, NodeView, PodView};

#[cfg(test)]
mod tests;
