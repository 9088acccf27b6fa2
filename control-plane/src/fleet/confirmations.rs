//! Asks the API whether clusters are as the cache has them, before workloads leave them.

use std::collections::HashMap;
use std::time::Duration;

use kube::api::Api;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Head;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::Fleet;
use super::api_error::ApiError;

/// Time for which a cluster counts as unchanged while the watch of clusters shows no event. A watch
/// that was cut off is noticed after a minute only, and meanwhile the cluster may have recovered,
/// or somebody may have paused movement out of it.
const TRUSTED: Duration = Duration::from_secs(5);

/// Times at which the API had clusters as the cache has them, by name.
#[derive(Default)]
pub struct Confirmations(Mutex<HashMap<String, Instant>>);

impl Confirmations {
    /// Returns whether clusters are as the cache has them. Where the watch of clusters has been
    /// silent for some seconds each is read, once for all workloads that leave it in that time; if
    /// one is another, all are listed again. One that the cache lacks is not asked about.
    ///
    /// # Errors
    /// A cluster cannot be read.
    pub async fn confirm(&self, fleet: &Fleet, names: &[&str]) -> Result<bool, ApiError> {
        for name in names {
            if fleet.clusters.silence() >= TRUSTED && !self.is_as_cached(fleet, name).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn is_as_cached(&self, fleet: &Fleet, name: &str) -> Result<bool, ApiError> {
        let Some(cached) = fleet.clusters.get(None, name) else {
            return Ok(true);
        };
        let mut confirmed = self.0.lock().await;
        confirmed.retain(|_, at| at.elapsed() < TRUSTED);
        if confirmed.contains_key(name) {
            return Ok(true);
        }
        let asked = Instant::now();
        let api: Api<Head<Cluster>> = Api::all(fleet.client.clone());
        // A status or `managedFields` that cannot be decoded keep no workloads in a failed cluster.
        let read = Head::get_opt(&api, name).await;
        let read = read.map_err(ApiError::of("read", &format!("Cluster {name}")))?;
        let version = read.and_then(|it| it.metadata.resource_version);
        let is_known = version.is_some() && version == cached.metadata.resource_version;
        if is_known {
            confirmed.insert(name.to_owned(), asked);
        } else {
            // The list takes a while. Others read their clusters meanwhile.
            drop(confirmed);
            let _ = timeout(TRUSTED, fleet.clusters.confirmed()).await;
        }
        Ok(is_known)
    }
}
