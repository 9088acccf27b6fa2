//! Finds members that are registered twice, and tells the Cluster that came later (the decision is in [`identity`]).

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use muster_shared::api::cluster::Cluster;
use muster_shared::events::EventType;
use muster_shared::names::condition;
use muster_shared::queue::Queue;
use muster_shared::watch::{Change, Informer};
use muster_shared::{client, conditions};
use serde_json::json;

use super::identity::{self, Identities};
use crate::fleet::Fleet;

/// Keeps account of who claims which id; a change of one Cluster's puts those on the queue whose case that changes.
pub fn listen(clusters: &Informer<Cluster>, queue: &Queue<String>) -> Arc<Identities> {
    let identities = Arc::new(Identities::default());
    clusters.on_change({
        let (queue, identities) = (queue.clone(), Arc::clone(&identities));
        let clusters = clusters.clone();
        move |change| {
            let (name, id) = match change {
                Change::Applied { new, .. } => (new.name_any(), new.spec.id.as_deref()),
                Change::Deleted { old } => (old.name_any(), None),
            };
            for other in identities.note(&name, id, !clusters.is_synced()) {
                queue.add(other);
            }
        }
    });
    identities
}

/// Says on the Cluster that came later that its member has one already.
pub async fn tell_apart(
    fleet: &Fleet,
    cluster: &Cluster,
    identities: &Identities,
) -> Result<(), kube::Error> {
    let name = cluster.name_any();
    let holders = identities.holders(&name);
    if holders.len() < 2 && cluster.condition(condition::UNIQUE_IDENTITY).is_none() {
        return Ok(());
    }
    let claims: Vec<_> = holders
        .iter()
        .filter_map(|(name, since)| {
            let cluster = fleet.clusters.get(None, name)?;
            Some(identity::claim(&cluster, *since))
        })
        .collect();
    let Some(said) = identity::judge(cluster, &claims, Timestamp::now()) else {
        return Ok(());
    };
    let mut list = cluster
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    let (is_wrong, message) = (said.status == conditions::FALSE, said.message.clone());
    conditions::set(&mut list, said);
    let patch = json!({
        "metadata": {"resourceVersion": cluster.metadata.resource_version},
        "status": {"conditions": list},
    });
    let api = Api::<Cluster>::all(fleet.client.clone());
    let params = PatchParams::default();
    match api.patch_status(&name, &params, &Patch::Merge(patch)).await {
        Ok(_) if is_wrong => {
            tracing::warn!(cluster = name, "{message}");
            let reason = "DuplicateRegistration";
            fleet
                .events
                .publish(cluster, EventType::Warning, reason, message);
        }
        Ok(_) => tracing::info!(cluster = name, "{message}"),
        // The change that was in our way makes us look again.
        Err(error) if client::is_conflict(&error) || client::is_not_found(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
