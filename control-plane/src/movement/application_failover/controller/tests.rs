use muster_shared::api::any_binding::AnyBinding;
use serde_json::json;

use super::*;
use crate::movement::application_failover::decide::Since;

#[test]
fn what_is_not_tolerated_at_all_is_to_leave_without_waiting_for_an_event() {
    let spec = serde_json::from_value(json!({"clusters": [{"name": "m1"}]})).unwrap();
    let reports =
        serde_json::from_value::<Vec<_>>(json!([{"clusterName": "m1", "health": "Unhealthy"}]))
            .unwrap();
    let now = Timestamp::from_second(1_000).unwrap();
    let first = decide(Duration::ZERO, &spec, &reports, &Since::new(), now);
    let wait = until(first.next.unwrap(), now);
    assert!(wait <= Duration::from_millis(5), "{wait:?}");
    let then = now + wait;
    let second = decide(Duration::ZERO, &spec, &reports, &first.since, then);
    assert_eq!(second.leave, ["m1"]);
}

#[test]
fn what_is_tolerated_is_reported_once_it_is_no_flicker() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let history = |since: &[(&str, i64)]| History {
        since: since
            .iter()
            .map(|(name, second)| ((*name).to_owned(), at(*second)))
            .collect(),
        ..History::default()
    };
    let settled = SETTLING.as_secs().cast_signed();
    for (what, since, now, expected) in [
        ("nothing is unhealthy", &[][..], 100, None),
        (
            "the first",
            &[("m2", 10), ("m1", 20)],
            10 + settled,
            Some("m2"),
        ),
        ("not yet", &[("m1", 10)], 9 + settled, None),
        ("for long", &[("m1", 10)], 500 + settled, Some("m1")),
    ] {
        let state = tolerated_state(&history(since), at(900), at(now));
        let cluster = state.map(|state| match state {
            FailoverState::Tolerated { cluster, until, .. } if until == at(900) => cluster,
            other => panic!("{other:?}"),
        });
        assert_eq!(cluster.as_deref(), expected, "{what}");
    }
}

#[test]
fn the_first_cluster_that_nothing_holds_an_application_in_is_left() {
    let pause = Duration::from_secs(7);
    for (held, ready) in [
        (&[][..], Some("m1")),
        (&["m1"], Some("m2")),
        (&["m2"], Some("m1")),
        (&["m1", "m2"], None),
    ] {
        let leave = ["m1".to_owned(), "m2".to_owned()];
        let obstacle = |cluster: &str| {
            let is_held = held.contains(&cluster);
            is_held.then_some((Obstacle::GateOff, pause))
        };
        let (found, before) = first_free(&leave, obstacle);
        assert_eq!(found.as_deref(), ready, "{held:?}");
        let names: Vec<&str> = before.iter().map(|(name, ..)| name.as_str()).collect();
        let expected = if ready == Some("m1") { &[][..] } else { held };
        assert_eq!(names, expected);
        assert!(before.iter().all(|(_, _, wait)| *wait == Some(pause)));
    }
}

#[test]
fn a_binding_concerns_us_by_its_policy_or_by_what_is_written_down() {
    let asks = json!({"application": {"decisionConditions": {"tolerationSeconds": 5}}});
    for (failover, annotation, expected) in [
        (json!(null), None, false),
        (asks.clone(), None, true),
        (json!(null), Some(history::ANNOTATION), true),
        (asks, Some(history::ANNOTATION), true),
        (json!(null), Some("other"), false),
    ] {
        let annotations: HashMap<_, _> = annotation.map(|it| (it, "{}")).into_iter().collect();
        let binding: AnyBinding = serde_json::from_value(json!({
            "metadata": {"name": "a", "annotations": annotations},
            "spec": {"resource": {"apiVersion": "v1", "kind": "Pod", "name": "a"}, "failover": failover},
        }))
        .unwrap();
        assert_eq!(concerns_us(&binding), expected, "{failover} {annotation:?}");
    }
}

#[test]
fn that_an_application_has_nowhere_to_go_is_not_forgotten_at_a_start() {
    for (status, reason, cluster, expected) in [
        ("True", "NowhereToGo", "m1", true),
        ("True", "StateNotPreserved", "m1", true),
        ("True", "NowhereToGo", "m10", false),
        ("True", "WaitingForRate", "m1", false),
        ("False", "NowhereToGo", "m1", false),
    ] {
        let message = format!("has to leave {cluster} and stays: full");
        let binding: AnyBinding = serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"resource": {"apiVersion": "v1", "kind": "Pod", "name": "a"}},
            "status": {"conditions": [{
                "type": CONDITION, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        }))
        .unwrap();
        let found = is_stranded(&binding, "m1");
        assert_eq!(found, expected, "{status} {reason} {message}");
    }
}
