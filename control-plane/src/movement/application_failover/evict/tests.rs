use serde_json::json;

use super::*;
use crate::fleet::testing::at;

fn settings(gates: &str) -> Settings {
    Settings {
        feature_gates: gates.parse().unwrap(),
        ..Settings::default()
    }
}

#[test]
fn what_holds_an_application_back_is_found_before_a_place_is_searched_for() {
    use PurgeMode::{Directly, Gracefully, Never};

    let on = &settings("GracefulEviction=true");
    let off = &settings("GracefulEviction=false");
    let (new, moved) = (
        History::default(),
        History::default().after_move("m0", at(0)),
    );
    let (long, just) = (Some(at(-9_999)), Some(at(0)));
    let off_now = Some(("GracefulEvictionDisabled", 300));
    let waits = |reason, seconds| Some((reason, seconds));
    let back = |seconds| waits("ClusterReturned", seconds);
    for (mode, history, reporting, settings, now, expected) in [
        (Gracefully, &new, long, on, 5, None),
        (Directly, &new, long, off, 5, None),
        (Never, &new, long, off, 5, None),
        (Gracefully, &new, long, off, 5, off_now),
        (Directly, &new, None, on, 5, waits("ClusterNotReady", 10)),
        // The workload came back to the cluster a moment ago.
        (Directly, &new, just, on, 5, back(5)),
        (Directly, &new, Some(at(500)), on, 5, back(10)),
        (Directly, &new, just, on, 10, None),
        // The workload rests for a minute after a move.
        (Directly, &moved, long, on, 59, waits("MovedLately", 1)),
        (Directly, &moved, long, on, 60, None),
    ] {
        let held = obstacle(&mode, history, reporting, "m1", settings, at(now));
        let state = |why| crate::movement::application_failover::explain::FailoverState::Held {
            cluster: "m1".into(),
            since: at(0),
            why,
        };
        let held = held.map(|(why, wait)| (state(why).reason(), wait.as_secs()));
        assert_eq!(held, expected, "{mode} {reporting:?} {now}");
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
        (Some("Never"), false, PurgeMode::Never),
        // The deprecated spellings mean the same.
        (Some("Immediately"), false, PurgeMode::Directly),
        (Some("Graciously"), false, PurgeMode::Gracefully),
        (Some("Graciously"), true, PurgeMode::Directly),
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
    let rules = || Some(json!([{"aliasLabelName": "a", "jsonPath": "{.b}"}]));
    for (rules, preserves_state, leaves) in [
        (None, false, false),
        (Some(json!([])), false, false),
        (rules(), false, true),
        (rules(), true, false),
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
