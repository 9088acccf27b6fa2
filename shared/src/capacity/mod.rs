//! Resources of a cluster: what its nodes offer, what its pods request, and the grades of its
//! nodes.
//!
//! A [`Census`] is updated by watch events. [`PodView`] and [`NodeView`] are the few fields of pods
//! and nodes that it needs, decoded directly from the API and dropped once counted. About fifty
//! bytes are kept of each pod, so that 100,000 pods take a few megabytes, and the cost of an event
//! depends on what it changes only.
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

pub use amounts::{Amounts, Names, is_counted};
pub use census::Census;
pub use models::{ModelFault, default_models, standardize, validate, validate_resources};
pub use request::{Parts, SIDECAR};
pub use view::{ContainerView, NodeView, PodView};

#[cfg(test)]
mod tests;
