//! Asks the API whether a cluster is as the cache has it, before workloads leave it.

use std::collections::HashMap;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::Api;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Head;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;

/// Time for which a cluster counts as unchanged while the watch of clusters shows no event. A watch
/// that was cut off is noticed after a minute only, and the cluster may have recovered meanwhile.
const TRUSTED: Duration = Duration::from_secs(5);

/// Times at which the API had clusters as the cache has them, by name.
#[derive(Default)]
pub(super) struct Confirmations(Mutex<HashMap<String, Instant>>);

impl Confirmations {
    /// Returns whether a cluster is as the cache has it. Where the watch of clusters has been
    /// silent for some seconds the cluster is read, once for all workloads that leave it in that
    /// time; if it is another, all are listed again.
    ///
    /// # Errors
    /// The cluster cannot be read.
    pub(super) async fn confirm(&self, fleet: &Fleet, cached: &Cluster) -> Result<bool, ApiError> {
        if fleet.clusters.silence() < TRUSTED {
            return Ok(true);
        }
        let name = cached.name_any();
        let mut confirmed = self.0.lock().await;
        confirmed.retain(|_, at| at.elapsed() < TRUSTED);
        if confirmed.contains_key(&name) {
            return Ok(true);
        }
        let asked = Instant::now();
        let api: Api<Head<Cluster>> = Api::all(fleet.client.clone());
        // A status or `managedFields` that cannot be decoded keep no workloads in a failed cluster.
        let read = Head::get_opt(&api, &name).await;
        let read = read.map_err(ApiError::of("read", &format!("Cluster {name}")))?;
        let version = read.and_then(|it| it.metadata.resource_version);
        let is_known = version.is_some() && version == cached.metadata.resource_version;
        if is_known {
            confirmed.insert(name, asked);
        } else {
            // The list takes a while. Other evictions read their clusters meanwhile.
            drop(confirmed);
            let _ = timeout(TRUSTED, fleet.clusters.confirmed()).await;
        }
        Ok(is_known)
    }
}
