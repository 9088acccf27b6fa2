//! Fencing: no second copy of a workload before the first one is removed or certainly stopped.
//!
//! The agent of a cluster that is cut off stops the copy there (see the agent's crate). The control
//! plane waits twice. The eviction of a cluster that is not ready waits, so that nothing moves when
//! the cluster is back in time ([`eviction`](crate::movement::eviction)). And no Work is made,
//! whoever asked for it, while the Work of a cluster that is left is there and its copy may run
//! ([`binding`](crate::propagation::binding)).
//!
//! The second wait holds against an agent that returns in the same moment: the old Work is deleted
//! first, and then the lease is read from the API. An agent that returns renews the lease first,
//! and then reads its Works. One of the two sees what the other has written.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use muster_shared::client::Head;
use muster_shared::names::CLUSTER_NAMESPACE;

use super::api_error::ApiError;
use super::lease_changes::LeaseChange;

pub mod decide;
pub mod fenced_condition;
pub mod subject;

pub use decide::{Verdict, of_work};
pub use subject::{asked, keeps_data, needs_rule, orders, runs_alone, runs_nothing};

/// Returns whether the lease of a cluster is by the API the one that was seen last. What is to stop
/// a copy has to be written before: an agent that returns renews the lease before it reads its
/// Works, so that one of the two sees the other.
///
/// # Errors
/// The lease cannot be read.
pub async fn is_unrenewed(
    client: &Client,
    cluster: &str,
    last_change: Option<&LeaseChange>,
) -> Result<bool, ApiError> {
    let leases = Api::namespaced(client.clone(), CLUSTER_NAMESPACE);
    let lease = Head::<Lease>::get_opt(&leases, cluster).await;
    let lease = lease.map_err(ApiError::of("read the lease of", &cluster))?;
    let version = lease.and_then(|lease| lease.metadata.resource_version);
    Ok(version == last_change.and_then(|last_change| last_change.version.clone()))
}
