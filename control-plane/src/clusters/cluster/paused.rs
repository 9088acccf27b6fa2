//! Condition `MovementPaused` of a Cluster.

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::events::EventType;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::MOVEMENT_PAUSED;
use muster_shared::{client, conditions};

use super::api_call::write_condition;
use crate::fleet::Fleet;
use crate::fleet::pause::Pause;

/// Returns the condition to write; `None` if it is there, or if the cluster was never paused.
fn judge(cluster: &Cluster, pause: Option<&Pause>, now: Timestamp) -> Option<Condition> {
    let known = cluster.condition(MOVEMENT_PAUSED);
    let (status, reason, message) = match pause {
        Some(pause) if pause.cluster.is_none() => {
            (conditions::TRUE, "FleetPaused", pause.to_string())
        }
        Some(pause) => (conditions::TRUE, "ClusterPaused", pause.to_string()),
        None => (
            conditions::FALSE,
            "NotPaused",
            "movement is not paused".to_owned(),
        ),
    };
    if pause.is_none() {
        known?;
    }
    let same = known.is_some_and(|known| known.status == status && known.message == message);
    (!same).then(|| conditions::new(MOVEMENT_PAUSED, status, reason, &message, now))
}

/// Writes the condition, and an event, where that is news.
///
/// # Errors
/// Those of the API; whoever wrote the cluster first makes us look again.
pub async fn note(fleet: &Fleet, cluster: &Cluster) -> Result<(), kube::Error> {
    let (name, now) = (cluster.name_any(), fleet.clock.now());
    let pause = fleet.pauses.of(&name, now);
    let Some(said) = judge(cluster, pause.as_deref(), now) else {
        return Ok(());
    };
    match write_condition(&fleet.client, cluster, said.clone()).await {
        Ok(_) => {
            let (kind, reason) = match pause {
                Some(_) => (EventType::Warning, "MovementPaused"),
                None => (EventType::Normal, "MovementResumed"),
            };
            fleet.events.publish(cluster, kind, reason, said.message);
            Ok(())
        }
        // The next version of the cluster is looked at as well.
        Err(error) if client::is_conflict(&error) || client::is_not_found(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{REFUSALS, Stand, refusal};

    #[test]
    fn a_pause_is_told_once_when_it_begins_changes_and_ends() {
        let now = Timestamp::from_second(10).unwrap();
        let mut cluster = Cluster::default();
        assert_eq!(judge(&cluster, None, now), None, "it was never paused");
        let of = |cluster: Option<&str>, reason: &str| Pause {
            cluster: cluster.map(str::to_owned),
            reason: reason.to_owned(),
            ..Pause::default()
        };
        for (pause, status, reason) in [
            (Some(of(None, "freeze")), "True", "FleetPaused"),
            (Some(of(None, "thaw")), "True", "FleetPaused"),
            (Some(of(Some("m1"), "upgrade")), "True", "ClusterPaused"),
            (None, "False", "NotPaused"),
        ] {
            let said = judge(&cluster, pause.as_ref(), now).unwrap();
            assert_eq!(
                (said.status.as_str(), said.reason.as_str()),
                (status, reason)
            );
            cluster.status.get_or_insert_default().conditions = vec![said];
            assert_eq!(judge(&cluster, pause.as_ref(), now), None, "told once");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_a_pause_has_ended_is_written_and_told() {
        let paused = json!({
            "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
            "status": {"conditions": [{
                "type": MOVEMENT_PAUSED, "status": "True", "reason": "ClusterPaused",
                "message": "upgrade", "lastTransitionTime": "2024-01-01T00:00:00Z",
            }]},
        });
        let stand = Stand::followed([("clusters", paused)]).await;
        let cluster = stand.fleet.clusters.get(None, "m1").unwrap();
        for (code, reason, is_usual) in REFUSALS {
            let refused = refusal(code, reason, "m1");
            let (method, path) = (Method::PATCH, "/clusters/m1/status");
            stand.api.answer(method, path, code, refused);
            let noted = note(&stand.fleet, &cluster).await;
            assert_eq!(noted.is_ok(), is_usual, "{code}");
        }
        assert_eq!(stand.api.told().await, []);
        stand.api.answer_truly();
        note(&stand.fleet, &cluster).await.unwrap();
        let told = [("m1".to_owned(), "MovementResumed".to_owned())];
        assert_eq!(stand.api.told().await, told);
    }
}
