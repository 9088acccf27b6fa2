//! Reports clusters that are not monitored: those whose `syncMode` is Push.
//!
//! Muster does not connect to members. A cluster in mode Push has no agent that renews a lease: its
//! silence is not noticed, and its `Ready` stays as it was, unless another control plane
//! (Karmada's) updates it.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::events::EventType;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::MONITORED;
use muster_shared::{client, conditions};
use serde_json::json;

use crate::fleet::Fleet;

/// Why a cluster is not listened to, in one word.
const REASON: &str = "PushModeNotServed";

/// What is to be said about the monitoring of a cluster; nothing where it is listened to and always
/// was.
pub fn judge(cluster: &Cluster, now: Timestamp) -> Option<Condition> {
    let known = cluster.condition(MONITORED);
    let observation = if cluster.spec.sync_mode == ClusterSyncMode::Pull {
        known?;
        let message = "the lease that the agent renews is listened to";
        conditions::new(MONITORED, conditions::TRUE, "LeaseFollowed", message, now)
    } else {
        let message = format!(
            "syncMode {}: Muster does not connect to members, so that nobody notices here if this one falls silent; run the agent in it and set syncMode Pull",
            cluster.spec.sync_mode
        );
        conditions::new(MONITORED, conditions::FALSE, REASON, &message, now)
    };
    let same = known.is_some_and(|known| {
        known.status == observation.status && known.message == observation.message
    });
    (!same).then_some(observation)
}

/// Says so, by condition and event, where it is news.
///
/// # Errors
/// Those of the API; whoever wrote the cluster first makes us look again.
pub async fn note(fleet: &Fleet, cluster: &Cluster) -> Result<(), kube::Error> {
    let Some(said) = judge(cluster, fleet.clock.now()) else {
        return Ok(());
    };
    let mut list = cluster
        .status
        .as_ref()
        .map(|status| status.conditions.clone())
        .unwrap_or_default();
    conditions::set(&mut list, said.clone());
    let patch = json!({
        "metadata": {"resourceVersion": cluster.metadata.resource_version},
        "status": {"conditions": list},
    });
    let api = Api::<Cluster>::all(fleet.client.clone());
    let (name, params) = (cluster.name_any(), PatchParams::default());
    match api.patch_status(&name, &params, &Patch::Merge(patch)).await {
        Ok(_) if said.status == conditions::FALSE => {
            tracing::warn!(cluster = name, "{}", said.message);
            let events = &fleet.events;
            events.publish(cluster, EventType::Warning, REASON, said.message);
            Ok(())
        }
        Err(error) if !client::is_conflict(&error) && !client::is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_cluster_is_told_once_that_nobody_listens_to_it() {
        let now = Timestamp::from_second(10).unwrap();
        let mut cluster = Cluster::default();
        cluster.spec.sync_mode = ClusterSyncMode::Pull;
        assert_eq!(judge(&cluster, now), None, "there was never a doubt");

        cluster.spec.sync_mode = ClusterSyncMode::Push;
        let said = judge(&cluster, now).unwrap();
        assert_eq!(
            (said.status.as_str(), said.reason.as_str()),
            ("False", REASON)
        );
        cluster.status.get_or_insert_default().conditions.push(said);
        assert_eq!(judge(&cluster, now), None, "it is said once");

        cluster.spec.sync_mode = ClusterSyncMode::Pull;
        let said = judge(&cluster, now).unwrap();
        assert_eq!(said.status, "True");
        cluster.status.as_mut().unwrap().conditions = vec![said];
        assert_eq!(judge(&cluster, now), None);
    }
}
