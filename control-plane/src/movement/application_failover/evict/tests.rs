use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn settings(gates: &str) -> Settings {
    Settings {
        feature_gates: gates.parse().unwrap(),
        ..Settings::default()
    }
}

#[test]
fn what_holds_an_application_back_is_found_before_a_place_is_looked_for() {
    let on = &settings("GracefulEviction=true");
    let off = &settings("GracefulEviction=false");
    let (new, moved) = (
        History::default(),
        History::default().after_move("m0", at(0)),
    );
    let long = Some(at(-9_999));
    let secs = Duration::from_secs;
    for (mode, history, heard, settings, now, reason, pause) in [
        (PurgeMode::Gracefully, &new, long, on, 5, None, None),
        (PurgeMode::Directly, &new, long, off, 5, None, None),
        (PurgeMode::Never, &new, long, off, 5, None, None),
        (
            PurgeMode::Gracefully,
            &new,
            long,
            off,
            5,
            Some("GracefulEvictionDisabled"),
            Some(secs(300)),
        ),
        (
            PurgeMode::Directly,
            &new,
            None,
            on,
            5,
            Some("ClusterNotReady"),
            Some(secs(10)),
        ),
        // The workload came back to the cluster a moment ago.
        (
            PurgeMode::Directly,
            &new,
            Some(at(0)),
            on,
            5,
            Some("ClusterReturned"),
            Some(secs(5)),
        ),
        (
            PurgeMode::Directly,
            &new,
            Some(at(500)),
            on,
            5,
            Some("ClusterReturned"),
            Some(secs(10)),
        ),
        (PurgeMode::Directly, &new, Some(at(0)), on, 10, None, None),
        // The workload rests for a minute after a move.
        (
            PurgeMode::Directly,
            &moved,
            long,
            on,
            59,
            Some("MovedLately"),
            Some(secs(1)),
        ),
        (PurgeMode::Directly, &moved, long, on, 60, None, None),
    ] {
        let held = obstacle(&mode, history, heard, "m1", settings, at(now));
        let state = |why| crate::movement::application_failover::explain::FailoverState::Held {
            cluster: "m1".into(),
            since: at(0),
            why,
        };
        let (why, wait) = held.unzip();
        assert_eq!(
            why.map(|why| state(why).reason()),
            reason,
            "{mode} {heard:?} {now}"
        );
        let wait = wait.map(|wait| secs(wait.as_secs()));
        assert_eq!(wait, pause, "{mode} {heard:?} {now}");
    }
}

#[test]
fn a_fenced_application_is_stopped_before_it_starts_elsewhere_unless_it_is_to_stay() {
    for (mode, fenced, expected) in [
        (None, false, PurgeMode::Gracefully),
        (None, true, PurgeMode::Directly),
        (Some("Gracefully"), true, PurgeMode::Directly),
        (Some("Directly"), true, PurgeMode::Directly),
        (Some("Never"), true, PurgeMode::Never),
        (Some("Directly"), false, PurgeMode::Directly),
    ] {
        let fencing = fenced.then(|| json!({"afterSeconds": 100}));
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "failover": {"cluster": {"fencing": fencing}},
        }))
        .unwrap();
        let behavior = ApplicationFailoverBehavior {
            purge_mode: mode.map(PurgeMode::from),
            ..ApplicationFailoverBehavior::default()
        };
        let found = purge_mode_of(&spec, &behavior);
        assert_eq!(found, expected, "{mode:?} {fenced}");
    }
}

#[test]
fn state_is_left_behind_where_there_are_rules_and_the_gate_is_off() {
    for (rules, preserves_state, leaves) in [
        (None, false, false),
        (Some(json!([])), false, false),
        (
            Some(json!([{"aliasLabelName": "a", "jsonPath": "{.b}"}])),
            false,
            true,
        ),
        (
            Some(json!([{"aliasLabelName": "a", "jsonPath": "{.b}"}])),
            true,
            false,
        ),
    ] {
        let state = rules
            .as_ref()
            .map(|rules| serde_json::from_value(json!({ "rules": rules })).unwrap());
        let behavior = ApplicationFailoverBehavior {
            state_preservation: state,
            ..ApplicationFailoverBehavior::default()
        };
        let gates = format!("StatefulFailoverInjection={preserves_state}");
        let found = leaves_state(&behavior, &settings(&gates));
        assert_eq!(found, leaves, "{rules:?} {preserves_state}");
    }
}

#[test]
fn both_spellings_of_a_purge_mode_mean_the_same() {
    for (spelled, mode) in [
        (None, PurgeMode::Gracefully),
        (Some("Gracefully"), PurgeMode::Gracefully),
        (Some("Graciously"), PurgeMode::Gracefully),
        (Some("Directly"), PurgeMode::Directly),
        (Some("Immediately"), PurgeMode::Directly),
        (Some("Never"), PurgeMode::Never),
    ] {
        let behavior = serde_json::from_value(
            json!({"decisionConditions": {"tolerationSeconds": 1}, "purgeMode": spelled}),
        )
        .unwrap();
        assert_eq!(purge_mode(&behavior), mode, "{spelled:?}");
    }
}
