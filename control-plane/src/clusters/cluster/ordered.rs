//! Conditions `MovementPaused` and `LastOrder` of a Cluster: what people ordered, with an event
//! each.

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::{LAST_ORDER, MOVEMENT_PAUSED};
use muster_shared::names::taint::{CORDON, DRAIN};
use muster_shared::queue::Next;

use super::api_call::write_condition;
use crate::fleet::Fleet;
use crate::fleet::attribution::{Attribution, order};
use crate::fleet::pause::Pause;
use crate::fleet::write::Written;

/// Returns the condition that reports a pause; `None` if it is there, or if the cluster was never
/// paused. `resumed` is the order that ended the last pause of the fleet.
fn paused(
    cluster: &Cluster,
    pause: Option<&Pause>,
    resumed: Option<Attribution>,
    now: Timestamp,
) -> Option<Condition> {
    let metadata = &cluster.metadata;
    let own = || Attribution::in_force(metadata, order::RESUME, order::PAUSE, None);
    let (status, reason, message) = match pause {
        Some(pause) if pause.cluster.is_none() => {
            (conditions::TRUE, "FleetPaused", pause.to_string())
        }
        Some(pause) => (conditions::TRUE, "ClusterPaused", pause.to_string()),
        None => {
            // That of a cluster that was never paused says nothing, and an end is reported once.
            let known = cluster.condition(MOVEMENT_PAUSED)?;
            if known.status == conditions::FALSE {
                return None;
            }
            let is_of_fleet = known.reason == "FleetPaused";
            let last = if is_of_fleet { resumed } else { own() };
            let last = last.map_or_else(String::new, |it| format!(": resumed {it}"));
            let message = format!("movement is not paused{last}");
            (conditions::FALSE, "NotPaused", message)
        }
    };
    let said = conditions::new(MOVEMENT_PAUSED, status, reason, &message, now);
    conditions::is_update(cluster.condition(MOVEMENT_PAUSED), &said).then_some(said)
}

/// Returns the drain of a cluster, or else its cordon, if it is in force and nobody is recorded for
/// it, as when it was written without `kubectl muster`.
fn unrecorded(cluster: &Cluster) -> Option<Attribution> {
    let taints = &cluster.spec.taints;
    let taint = taints.iter().find(|it| it.key == DRAIN);
    let taint = taint.or_else(|| taints.iter().find(|it| it.key == CORDON));
    let taint = taint.filter(|_| Attribution::of_command(cluster).is_none())?;
    let order = if taint.key == DRAIN {
        order::DRAIN
    } else {
        order::CORDON
    };
    Some(Attribution {
        order: order.to_owned(),
        at: taint.time_added.as_ref().map(|it| it.0),
        ..Attribution::default()
    })
}

/// Returns the condition that says who drained, cordoned or tainted a cluster last, or ended that;
/// `None` if it is there, or if nobody did.
fn last_order(cluster: &Cluster, now: Timestamp) -> Option<Condition> {
    let recorded = Attribution::all(&cluster.metadata).into_iter().rev();
    let mut orders = unrecorded(cluster).into_iter().chain(recorded);
    let (reason, usual, last) = orders.find_map(|it| {
        let (reason, usual) = match it.order.as_str() {
            order::DRAIN => ("Drained", "drained"),
            order::UNDRAIN => ("Undrained", "the drain was ended"),
            order::CORDON => ("Cordoned", "cordoned"),
            order::UNCORDON => ("Uncordoned", "uncordoned"),
            order::TAINT => ("Tainted", "taints were changed"),
            _ => return None,
        };
        Some((reason, usual, it))
    })?;
    let done = Some(&*last.change).filter(|it| !it.is_empty());
    let message = format!("{} {last}", done.unwrap_or(usual));
    let said = conditions::new(LAST_ORDER, conditions::TRUE, reason, &message, now);
    conditions::is_update(cluster.condition(LAST_ORDER), &said).then_some(said)
}

/// Writes the conditions, each with an event, where they have changed. Returns when to reconcile
/// the cluster again: soon where somebody else wrote it first.
///
/// # Errors
/// Those of the API.
pub async fn note(fleet: &Fleet, cluster: &Cluster) -> Result<Next, kube::Error> {
    let (name, now) = (cluster.name_any(), fleet.clock.now());
    let pause = fleet.pauses.of(&name, now);
    let kind = match pause {
        Some(_) => (EventType::Warning, "MovementPaused"),
        None => (EventType::Normal, "MovementResumed"),
    };
    let resumed = fleet.pauses.resumed();
    let paused = paused(cluster, pause.as_deref(), resumed, now).map(|said| (kind, said));
    let ordered = last_order(cluster, now).map(|said| ((EventType::Normal, "Ordered"), said));
    // Of two, the second is written upon the version of the cluster that the first makes.
    let Some(((kind, reason), said)) = paused.or(ordered) else {
        return Ok(Next::Done);
    };
    let written = Written::of(write_condition(&fleet.client, cluster, said.clone()).await)?;
    if let Written::Done(_) = written {
        fleet.events.publish(cluster, kind, reason, said.message);
    }
    Ok(written.next())
}

#[cfg(test)]
mod tests {
    use http::Method;
    use muster_shared::k8s::ObjectMeta;
    use muster_shared::names::annotation::ORDERED_BY;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{Bench, REFUSALS};

    #[test]
    fn a_pause_is_reported_once_when_it_begins_changes_and_ends() {
        let now = Timestamp::from_second(10).unwrap();
        let mut cluster = Cluster::default();
        let never = paused(&cluster, None, None, now);
        assert_eq!(never, None, "it was never paused");
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
            let said = paused(&cluster, pause.as_ref(), None, now).unwrap();
            assert_eq!((&*said.status, &*said.reason), (status, reason));
            cluster.status.get_or_insert_default().conditions = vec![said];
            let again = paused(&cluster, pause.as_ref(), None, now);
            assert_eq!(again, None, "reported once");
        }
    }

    #[test]
    fn who_ordered_what_last_is_reported_once() {
        let now = Timestamp::from_second(10).unwrap();
        let mut cluster = Cluster::default();
        assert_eq!(last_order(&cluster, now), None, "nobody ordered anything");
        for (given, change, reason, done) in [
            (order::DRAIN, "", "Drained", "drained"),
            (order::PAUSE, "", "", ""),
            (order::UNDRAIN, "", "Undrained", "the drain was ended"),
            (order::CORDON, "", "Cordoned", "cordoned"),
            (order::TAINT, "", "Tainted", "taints were changed"),
            (order::TAINT, "tainted a:b", "Tainted", "tainted a:b"),
        ] {
            let order = Attribution {
                order: given.to_owned(),
                change: change.to_owned(),
                by: "alice".to_owned(),
                reason: "an upgrade".to_owned(),
                ..Attribution::default()
            };
            let text = Attribution::added(&cluster.metadata, order);
            cluster.metadata.annotations = Some([(ORDERED_BY.to_owned(), text)].into());
            if let Some(said) = last_order(&cluster, now) {
                assert_eq!(said.reason, reason);
                assert_eq!(said.message, format!("{done} by alice: an upgrade"));
                cluster.status.get_or_insert_default().conditions = vec![said];
            } else {
                assert_eq!(reason, "", "{given}");
            }
            assert_eq!(last_order(&cluster, now), None, "reported once");
        }
    }

    #[test]
    fn a_drain_that_nobody_recorded_is_no_ended_one() {
        let now = Timestamp::from_second(10).unwrap();
        let ended = Attribution {
            order: order::UNDRAIN.to_owned(),
            ..Attribution::default()
        };
        let text = Attribution::added(&ObjectMeta::default(), ended);
        let cluster = |key: &str| -> Cluster {
            serde_json::from_value(json!({
                "metadata": { "name": "m1", "annotations": { ORDERED_BY: text } },
                "spec": { "syncMode": "Pull", "taints": [
                    { "key": key, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" },
                ] },
            }))
            .unwrap()
        };
        for (key, reason, message) in [
            (
                DRAIN,
                "Drained",
                "drained by somebody at 2026-01-01T00:00:00Z",
            ),
            (
                CORDON,
                "Cordoned",
                "cordoned by somebody at 2026-01-01T00:00:00Z",
            ),
            ("a", "Undrained", "the drain was ended by somebody"),
        ] {
            let said = last_order(&cluster(key), now).unwrap();
            assert_eq!((&*said.reason, &*said.message), (reason, message));
        }
    }

    #[test]
    fn that_a_pause_has_ended_is_reported_once_with_who_ended_it() {
        let now = Timestamp::from_second(10).unwrap();
        let order = |order: &str, at: Option<Timestamp>| Attribution {
            order: order.to_owned(),
            by: "bob".to_owned(),
            at,
            ..Attribution::default()
        };
        let resumed = "movement is not paused: resumed by bob";
        let recently = vec![order(order::RESUME, None)];
        // The last pause was one of the fleet, and ended by its own time.
        let years_ago = vec![order(order::RESUME, Some(Timestamp::UNIX_EPOCH))];
        // The order that ended it is no more among the last.
        let others = vec![order(order::TAINT, None); 8];
        let ended = "movement is not paused";
        for (reason, message, orders, expected) in [
            ("ClusterPaused", "", recently, Some(resumed)),
            ("FleetPaused", "", years_ago, Some(ended)),
            ("NotPaused", resumed, others, None),
        ] {
            let status = match reason {
                "NotPaused" => conditions::FALSE,
                _ => conditions::TRUE,
            };
            let mut cluster = Cluster::default();
            let known = conditions::new(MOVEMENT_PAUSED, status, reason, message, now);
            cluster.status.get_or_insert_default().conditions = vec![known];
            for order in orders {
                let text = Attribution::added(&cluster.metadata, order);
                cluster.metadata.annotations = Some([(ORDERED_BY.to_owned(), text)].into());
            }
            let said = paused(&cluster, None, None, now).map(|it| it.message);
            assert_eq!(said.as_deref(), expected, "{reason}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_a_pause_has_ended_is_written_and_reported() {
        let paused = json!({
            "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
            "status": {"conditions": [{
                "type": MOVEMENT_PAUSED, "status": "True", "reason": "ClusterPaused",
                "message": "upgrade", "lastTransitionTime": "2024-01-01T00:00:00Z",
            }]},
        });
        let bench = Bench::followed([("clusters", paused)]).await;
        let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
        for (code, is_usual) in REFUSALS {
            let (method, path) = (Method::PATCH, "/clusters/m1/status");
            bench.api.refuse(method, path, code, "m1");
            let noted = note(&bench.fleet, &cluster).await;
            assert_eq!(noted.is_ok(), is_usual, "{code}");
            // Nothing else may show that a refused write is still to be made.
            let again = noted.is_ok_and(|it| it == Next::Again);
            assert_eq!(again, code == 409, "{code}");
        }
        assert_eq!(bench.api.reported().await, []);
        bench.api.answer_truly();
        note(&bench.fleet, &cluster).await.unwrap();
        let reported = [("m1".to_owned(), "MovementResumed".to_owned())];
        assert_eq!(bench.api.reported().await, reported);
    }

    #[tokio::test(start_paused = true)]
    async fn that_a_pause_has_ended_is_not_reported_again_after_a_restart() {
        // A former process reported that bob ended the pause of the fleet; this one has not seen
        // it.
        let resumed = json!({
            "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"},
            "status": {"conditions": [{
                "type": MOVEMENT_PAUSED, "status": "False", "reason": "NotPaused",
                "message": "movement is not paused: resumed by bob at 2024-01-01T00:00:00Z",
                "lastTransitionTime": "2024-01-01T00:00:00Z",
            }]},
        });
        let bench = Bench::followed([("clusters", resumed)]).await;
        let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
        note(&bench.fleet, &cluster).await.unwrap();
        assert_eq!(bench.api.writes(), [], "a fleet at rest writes nothing");
        assert_eq!(bench.api.reported().await, []);
    }
}
