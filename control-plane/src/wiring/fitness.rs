//! Warns of a fleet API that would start the templates itself: one with nodes or with controllers
//! of workloads.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams};
use muster_shared::k8s::{Node, ReplicaSet};
use muster_shared::names::SYSTEM_NAMESPACE;
use muster_shared::serve::Health;

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet_api::unfit;

/// Pause before the first check, in which an API that was started just now gets its first objects.
const FIRST: Duration = Duration::from_secs(1);
/// Interval of further checks: a cluster that joins its nodes to the wrong API is found the same
/// day, and an API that is well is asked rarely.
const AGAIN: Duration = Duration::from_hours(1);
/// Number of ReplicaSets that are examined: a controller of Deployments makes one for each.
const SAMPLE: u32 = 20;
/// Name in `/readyz`. The control plane stays ready: its words are shown, and written to the log.
const PART: &str = "fleet-api";
/// Reason of the event.
const REASON: &str = "UnfitFleetAPI";

/// Checks the fleet API until shutdown.
pub(super) async fn watch(fleet: Arc<Fleet>, health: Health) {
    let looks = async {
        fleet.leadership.acquired().await;
        let mut pause = FIRST;
        loop {
            tokio::time::sleep(pause).await;
            pause = AGAIN;
            if !fleet.leadership.is_current() {
                continue;
            }
            match check(&fleet).await {
                Ok(Some(why)) => report(&fleet, &health, &why),
                Ok(None) => health.note(PART, None),
                Err(error) => tracing::debug!(%error, "could not look at the fleet API"),
            }
        }
    };
    fleet.shutdown.run_until_cancelled(looks).await;
}

fn report(fleet: &Fleet, health: &Health, why: &str) {
    let note = format!(
        "This is no API for a fleet: {why}. Templates would be started here as well as in the members. Use an API server of its own \
         (chart value fleetApi.mode=bundled)."
    );
    health.note(PART, Some(note.clone()));
    fleet.warn_of_api(SYSTEM_NAMESPACE, REASON, note);
}

async fn check(fleet: &Fleet) -> Result<Option<String>, ApiError> {
    let nodes: Api<Node> = Api::all(fleet.client.clone());
    let nodes = nodes.list_metadata(&ListParams::default().limit(1)).await;
    let nodes = nodes.map_err(ApiError::of("list", &"nodes"))?;
    let sets: Api<ReplicaSet> = Api::all(fleet.client.clone());
    let sets = sets
        .list_metadata(&ListParams::default().limit(SAMPLE))
        .await;
    let sets = sets.map_err(ApiError::of("list", &"ReplicaSets"))?;
    Ok(unfit(&nodes.items, &sets.items))
}
