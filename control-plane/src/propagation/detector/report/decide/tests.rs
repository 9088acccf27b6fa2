use muster_shared::api::any_binding::AnyBinding;
use muster_shared::names::annotation::ORDERED_BY;
use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::{at, template_key};

/// Returns a binding with conditions, each given as type, status and reason.
fn binding(name: &str, clusters: &[&str], reported: &[(&str, &str, &str)]) -> AnyBinding {
    let conditions: Vec<Value> = reported
        .iter()
        .map(|(kind, status, reason)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": format!("{name}: why"),
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    let clusters: Vec<Value> = clusters.iter().map(|it| json!({"name": it})).collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name},
            "clusters": clusters,
        },
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn decide(
    known: Option<&PropagationStatus>,
    bindings: &[AnyBinding],
    findings: &[Finding],
    second: i64,
) -> PropagationStatus {
    let mut tally = Tally::default();
    for binding in bindings {
        tally.take(binding);
    }
    let nothing = || Nothing::NotThere;
    status(
        known,
        Some(3),
        &tally,
        nothing,
        (findings, true),
        at(second),
    )
}

/// Returns the conditions of a status, such as `Ready` and `Effective`, as type, status and reason.
fn reported(status: &PropagationStatus) -> Vec<String> {
    let conditions = status.conditions.iter();
    conditions
        .map(|it| format!("{}={} {}", it.type_, it.status, it.reason))
        .collect()
}

#[test]
fn a_binding_is_placed_waits_or_is_refused() {
    let placed = ("Scheduled", "True", "Success");
    let unplaced = ("Scheduled", "False", "NoClusterFit");
    let stranded = ("EvictionPending", "True", "NowhereToGo");
    let evicted = ("EvictionPending", "False", "Evicted");
    for (clusters, conditions, expected) in [
        (&["m1"][..], vec![placed], "placed"),
        (&["m1"], vec![], "placed"),
        (&["m1"], vec![placed, evicted], "placed"),
        (&["m1"], vec![placed, stranded], "waits: NowhereToGo"),
        // It keeps what it has, and the scheduler has no place for the rest.
        (&["m1"], vec![unplaced], "placed"),
        (&["m1"], vec![unplaced, stranded], "waits: NowhereToGo"),
        (&[], vec![unplaced], "refused: NoClusterFit"),
        (&[], vec![unplaced, stranded], "refused: NoClusterFit"),
        (&[], vec![], "refused: NotScheduledYet"),
        // A Duplicated workload of no replicas needs no cluster.
        (&[], vec![placed], "placed"),
    ] {
        let binding = binding("web", clusters, &conditions);
        let found = match State::of(&binding) {
            State::Placed => "placed".to_owned(),
            State::Waiting(reason, _) => format!("waits: {reason}"),
            State::Refused(reason, _) => format!("refused: {reason}"),
        };
        assert_eq!(found, expected, "{clusters:?} {conditions:?}");
    }
}

#[test]
fn who_suspended_a_policy_and_who_ended_that_is_reported_once() {
    let all = json!({"dispatching": true});
    let some = json!({"dispatchingOnClusters": {"clusterNames": ["m1", "m2"]}});
    let order = |order: &str| {
        let orders = json!([{"order": order, "by": "alice", "reason": "an audit"}]);
        json!({"annotations": {ORDERED_BY: orders.to_string()}})
    };
    let what = "its copies are neither created nor changed in";
    let mut known: Vec<Condition> = Vec::new();
    for (suspension, metadata, expected) in [
        (json!(null), order("unsuspend"), None),
        (json!({"dispatching": false}), json!({}), None),
        (
            all,
            order("suspend"),
            Some(format!(
                "True {what} any cluster: suspended by alice: an audit"
            )),
        ),
        (
            some,
            json!({}),
            Some(format!("True {what} m1, m2: suspended by somebody")),
        ),
        (
            json!(null),
            order("unsuspend"),
            Some("False its copies are created and changed: ended by alice: an audit".to_owned()),
        ),
        // The order is no more among the last.
        (
            json!(null),
            json!({}),
            Some("False its copies are created and changed: ended by alice: an audit".to_owned()),
        ),
    ] {
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        let spec = serde_json::from_value(json!({"suspension": suspension})).unwrap();
        let said = suspended(&known, &metadata, &spec, at(1));
        let reported = said
            .as_ref()
            .map(|it| format!("{} {}", it.status, it.message));
        assert_eq!(reported, expected, "{suspension}");
        known = said.into_iter().collect();
    }
}

#[test]
fn a_status_counts_and_groups_and_says_why() {
    let bindings = [
        binding("a", &["m1"], &[("Scheduled", "True", "Success")]),
        binding("b", &[], &[("Scheduled", "False", "NoClusterFit")]),
        binding("c", &[], &[("Scheduled", "False", "Unschedulable")]),
        binding("d", &[], &[("Scheduled", "False", "Unschedulable")]),
        binding("e", &["m2"], &[("EvictionPending", "True", "NowhereToGo")]),
    ];
    let status = decide(None, &bindings, &[], 1);
    let counts = (
        status.selected,
        status.placed,
        status.refused,
        status.waiting,
    );
    assert_eq!(counts, (5, 2, 3, 1));
    let reasons: Vec<_> = status
        .reasons
        .iter()
        .map(|it| (it.reason.as_str(), it.resources, it.example.as_str()))
        .collect();
    assert_eq!(
        reasons,
        [
            ("Unschedulable", 2, "Deployment shop/c"),
            ("NoClusterFit", 1, "Deployment shop/b"),
            ("NowhereToGo", 1, "Deployment shop/e"),
        ]
    );
    assert_eq!(
        reported(&status),
        [
            "Ready=False NotAllPlaced",
            "Effective=True AllPartsHaveEffect"
        ]
    );
    let ready = &status.conditions[0];
    assert_eq!(ready.observed_generation, Some(3));
    assert!(
        ready.message.starts_with(
            "2 of 5 resources are placed, 3 are not: Unschedulable (Deployment shop/c and 1 more: c: why); "
        ),
        "{}",
        ready.message
    );
}

#[test]
fn the_same_state_is_the_same_status_and_the_time_moves_with_the_condition() {
    let well = [binding("a", &["m1"], &[])];
    let first = decide(None, &well, &[], 1);
    assert_eq!(reported(&first)[0], "Ready=True AllPlaced");
    assert_eq!(decide(Some(&first), &well, &[], 2), first);
    let lost = decide(Some(&first), &[binding("a", &[], &[])], &[], 3);
    assert_eq!(lost.conditions[0].last_transition_time.0, at(3));
    assert_eq!(lost.conditions[1].last_transition_time.0, at(1));
}

#[test]
fn a_policy_is_not_ready_while_nothing_is_known_of_what_it_placed() {
    let silent = |name: &str, reports: &[&str]| -> AnyBinding {
        let mut binding = binding(name, &["m1", "m2"], &[]);
        let report = |name: &&str| json!({"clusterName": name, "health": "Unknown", "appliedMessage": "unknown since noon"});
        let well = json!({"clusterName": "m2", "health": "Healthy", "applied": true});
        let mut reports: Vec<Value> = reports.iter().map(report).collect();
        reports.push(well);
        let reports = serde_json::from_value(json!(reports)).unwrap();
        binding.status.as_mut().unwrap().aggregated_status = reports;
        binding
    };
    let (one, both) = (silent("a", &["m1"]), silent("b", &["m1", "m2"]));
    let refused = binding("c", &[], &[]);
    for (bindings, expected, part) in [
        (
            vec![one.clone()],
            "Ready=True AllPlaced",
            "1 of 1 resources are placed",
        ),
        (
            vec![one.clone(), both.clone()],
            "Ready=Unknown NotHeard",
            "2 of 2 resources are placed; 1 of them only in clusters that are silent (Deployment shop/b: unknown since noon)",
        ),
        (
            vec![both.clone(), both.clone(), refused],
            "Ready=False NotAllPlaced",
            "; 2 of them only in clusters that are silent (Deployment shop/b and 1 more: unknown since noon)",
        ),
    ] {
        let status = decide(None, &bindings, &[], 1);
        assert_eq!(reported(&status)[0], expected);
        let message = &status.conditions[0].message;
        assert!(message.contains(part), "{message}");
    }
    assert_ne!(shown(&one), shown(&both), "its change is a reason to write");
}

#[test]
fn a_policy_without_resources_says_why() {
    let claimed = || Nothing::Claimed {
        template: "Deployment shop/web".to_owned(),
        by: "PropagationPolicy shop/other".to_owned(),
    };
    for (nothing, expected, part) in [
        (
            claimed(),
            "Ready=False ClaimedByAnotherPolicy",
            "Deployment shop/web belongs to PropagationPolicy shop/other",
        ),
        (Nothing::Lazy, "Ready=True WaitingForChange", "Lazy"),
        (Nothing::NotThere, "Ready=True NothingSelected", "selectors"),
        (Nothing::NotListed, "Ready=Unknown NotListed", "listed"),
    ] {
        let status = status(
            None,
            None,
            &Tally::default(),
            || nothing,
            (&[], true),
            at(1),
        );
        assert_eq!(reported(&status)[0], expected);
        assert!(status.conditions[0].message.contains(part));
        assert_eq!(status.selected, 0);
    }
}

#[test]
fn parts_without_effect_are_named_and_nothing_grows_without_bound() {
    let findings: Vec<Finding> = (0..100)
        .map(|number| Finding {
            reason: "UnknownKind",
            note: format!("spec.resourceSelectors[{number}]: {}", "x".repeat(100)),
        })
        .collect();
    let bindings: Vec<_> = (0..20)
        .map(|number| {
            let reason = format!("Reason{number}");
            let name = "é".repeat(600);
            binding(&name, &[], &[("Scheduled", "False", &reason)])
        })
        .collect();
    let status = decide(None, &bindings, &findings, 1);
    assert_eq!(reported(&status)[1], "Effective=False UnknownKind");
    assert!(
        status.conditions[1]
            .message
            .contains("resourceSelectors[0]")
    );
    assert!(status.conditions[1].message.len() <= LONGEST_FINDINGS);
    assert_eq!(status.reasons.len(), MOST_REASONS);
    assert!(
        status
            .reasons
            .iter()
            .all(|it| it.message.len() <= LONGEST_MESSAGE)
    );
    assert!(status.conditions[0].message.len() < 32_768);
}

#[test]
fn a_template_without_a_binding_counts_as_refused() {
    let mut tally = Tally::default();
    let template = template_key("v1", "ConfigMap", "settings");
    tally.refuse(&template, "an override policy is missing");
    let status = status(None, None, &tally, || Nothing::NotThere, (&[], true), at(1));
    assert_eq!((status.selected, status.refused), (1, 1));
    assert_eq!(status.reasons[0].reason, "NotPropagated");
    assert_eq!(status.reasons[0].example, "ConfigMap shop/settings");
}

#[test]
fn what_a_fresh_process_has_not_judged_yet_stays_as_it_is_known() {
    let finding = |note: &str| Finding {
        reason: "NothingSelected",
        note: note.to_owned(),
    };
    let (both, one) = ([finding("a"), finding("b")], [finding("a")]);
    let well = [binding("a", &["m1"], &[])];
    let mut tally = Tally::default();
    tally.take(&well[0]);
    let reported = |known, generation, findings: (&[Finding], bool)| {
        let nothing = || Nothing::NotThere;
        let status = status(known, Some(generation), &tally, nothing, findings, at(9));
        let effective = conditions::get(&status.conditions, EFFECTIVE).cloned();
        effective.map(|it| format!("{} {}", it.status, it.message))
    };
    let known = decide(None, &well, &both, 1);
    let known = Some(&known);
    for (what, generation, findings, expected) in [
        ("nothing is judged yet", 3, (&[][..], false), "False a; b"),
        ("a part is judged", 3, (&one[..], false), "False a; b"),
        ("all is judged", 3, (&one[..], true), "False a"),
        ("and well", 3, (&[][..], true), "True "),
        ("it was edited", 4, (&one[..], false), "False a"),
    ] {
        assert_eq!(
            reported(known, generation, findings).as_deref(),
            Some(expected),
            "{what}"
        );
    }
    let edited = reported(known, 4, (&[], false)).unwrap();
    assert!(edited.starts_with("Unknown "), "{edited}");

    // Findings are reported even before the fleet was compared.
    let nothing = || Nothing::NotThere;
    let unjudged = status(None, Some(3), &tally, nothing, (&[], false), at(1));
    let well = decide(None, &well, &[], 1);
    let all = [("not judged", unjudged), ("well", well)];
    for (what, known) in &all {
        let found = reported(Some(known), 3, (&one, false));
        assert_eq!(found.as_deref(), Some("False a"), "{what}");
    }
}
