//! What policies get at admission and what is refused, case by case.

use muster_shared::names::label;
use serde_json::{Value, json};

use super::*;

const ID: &str = label::PROPAGATION_POLICY_ID;

fn policy(spec: &Value) -> Value {
    let mut whole = json!({ "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default" }] });
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    json!({ "metadata": { "name": "p", "namespace": "default" }, "spec": whole })
}

fn read(object: &Value) -> Policy {
    Policy::deserialize(object).unwrap()
}

fn refusal(spec: &Value) -> String {
    let found = check(&read(&policy(spec)), Scope::Namespaced);
    found.refusal().unwrap_or_default()
}

/// Checks what a placement is refused for; `fault` begins with the field below `spec.placement`.
fn refused(placement: &Value, fault: &str) {
    let expected = match fault {
        "" => String::new(),
        fault => format!("spec.placement.{fault}"),
    };
    let reported = refusal(&json!({ "placement": placement }));
    assert_eq!(reported, expected, "{placement}");
}

#[test]
fn choices_of_clusters_are_checked() {
    let named = |name: &str| json!({ "affinityName": name, "clusterNames": ["m1"] });
    let overflowing = |name: &str| json!({ "affinityName": "home", "clusterNames": ["m1"], "overflowAffinities": [named(name)] });
    let aggregated =
        json!({ "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated" });
    let weighted =
        json!({ "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted" });
    for (placement, expected) in [
        (json!({}), ""),
        (
            json!({ "clusterAffinity": { "clusterNames": ["m1"] }, "clusterAffinities": [named("a")] }),
            "clusterAffinities: Forbidden: clusterAffinity and clusterAffinities cannot co-exist",
        ),
        (
            json!({ "clusterAffinity": { "labelSelector": { "matchExpressions": [{ "key": "a", "operator": "In" }] } } }),
            r#"clusterAffinity.labelSelector: Invalid value: {"matchExpressions":[{"key":"a","operator":"In"}]}: keys and values must be those of labels; In and NotIn need values, Exists and DoesNotExist take none"#,
        ),
        (
            json!({ "clusterAffinity": { "fieldSelector": { "matchExpressions": [{ "key": "region", "operator": "In" }] } } }),
            "clusterAffinity.fieldSelector.matchExpressions[0].values: Required value: without values nothing is selected",
        ),
        (json!({ "clusterAffinities": [named("a"), named("b")] }), ""),
        (
            json!({ "clusterAffinities": [named("a"), named("a")] }),
            r#"clusterAffinities[1].affinityName: Duplicate value: "a""#,
        ),
        (
            json!({ "clusterAffinities": [named("a b")] }),
            r#"clusterAffinities[0].affinityName: Invalid value: "a b": must be a label key: a name of at most 63 characters, with an optional DNS prefix"#,
        ),
        (
            json!({ "clusterAffinities": [overflowing("away")], "replicaScheduling": aggregated }),
            "",
        ),
        (
            json!({ "clusterAffinities": [overflowing("home")], "replicaScheduling": aggregated }),
            r#"clusterAffinities[0].overflowAffinities[0].affinityName: Duplicate value: "home""#,
        ),
        (
            json!({ "clusterAffinities": [overflowing("away")], "replicaScheduling": weighted }),
            "clusterAffinities[0].overflowAffinities: Forbidden: only with replicas that are Divided and Aggregated, or Divided and Weighted with dynamicWeight",
        ),
    ] {
        refused(&placement, expected);
    }
}

#[test]
fn tolerations_spread_and_neighbours_are_checked() {
    let by = |field: &str, min: i64, max: i64| json!({ "spreadByField": field, "minGroups": min, "maxGroups": max });
    for (placement, expected) in [
        (
            json!({ "clusterTolerations": [{ "key": "a", "operator": "Gt", "value": "1" }] }),
            r#"clusterTolerations[0].operator: Unsupported value: "Gt": supported values: "", "Exists", "Equal""#,
        ),
        (
            json!({ "spreadConstraints": [by("cluster", 1, 2), by("region", 1, 0)] }),
            "",
        ),
        (
            json!({ "spreadConstraints": [by("cluster", 3, 2)] }),
            "spreadConstraints[0].maxGroups: Invalid value: 2: must be at least minGroups, which is 3",
        ),
        (
            json!({ "spreadConstraints": [by("cluster", -1, 2)] }),
            "spreadConstraints[0].minGroups: Invalid value: -1: must be at least 0",
        ),
        (
            json!({ "spreadConstraints": [by("cluster", 1, 2), by("cluster", 1, 3)] }),
            r#"spreadConstraints[1].spreadByField: Duplicate value: "cluster""#,
        ),
        (
            json!({ "spreadConstraints": [by("region", 1, 2)] }),
            "spreadConstraints: Required value: a constraint by field cluster has to be among those by field",
        ),
        (
            json!({ "spreadConstraints": [{ "spreadByField": "cluster", "spreadByLabel": "a" }] }),
            "spreadConstraints[0]: Forbidden: spreadByField and spreadByLabel cannot co-exist",
        ),
        (
            json!({ "workloadAffinity": { "affinity": { "groupByLabelKey": "a" }, "antiAffinity": { "groupByLabelKey": "a" } } }),
            r#"workloadAffinity.antiAffinity.groupByLabelKey: Invalid value: "a": must differ from the key of affinity: the same workloads cannot run together and apart"#,
        ),
    ] {
        refused(&placement, expected);
    }
}

#[test]
fn failover_is_checked() {
    let at = "spec.failover.application";
    let application = |with: Value| {
        let mut application =
            json!({ "decisionConditions": {}, "purgeMode": "Gracefully", "gracePeriodSeconds": 9 });
        for (field, value) in with.as_object().unwrap() {
            application[field] = value.clone();
        }
        json!({ "propagateDeps": true, "failover": { "application": application } })
    };
    let preserving = |name: &str, path: &str| json!({ "statePreservation": { "rules": [{ "aliasLabelName": name, "jsonPath": path }] } });
    for (spec, expected) in [
        (application(json!({})), String::new()),
        (application(json!({ "purgeMode": "Graciously" })), String::new()),
        (application(json!({ "purgeMode": "Never", "gracePeriodSeconds": null })), String::new()),
        (
            application(json!({ "purgeMode": "Never" })),
            format!("{at}.gracePeriodSeconds: Invalid value: 9: only takes effect when purgeMode is Gracefully"),
        ),
        (
            application(json!({ "gracePeriodSeconds": null })),
            format!("{at}.gracePeriodSeconds: Required value: should not be empty when purgeMode is Gracefully"),
        ),
        (
            application(json!({ "gracePeriodSeconds": 0 })),
            format!("{at}.gracePeriodSeconds: Invalid value: 0: must be greater than 0"),
        ),
        (application(preserving("app/id", "{.a}")), String::new()),
        (
            application(preserving("app/", "{.a}")),
            format!(r#"{at}.statePreservation.rules[0].aliasLabelName: Invalid value: "app/": must be a label key: a name of at most 63 characters, with an optional DNS prefix"#),
        ),
        (
            application(preserving("id", "")),
            format!("{at}.statePreservation.rules[0].jsonPath: Required value: path of the value"),
        ),
        (
            json!({ "failover": { "cluster": { "purgeMode": "Directly", "gracePeriodSeconds": 5 } } }),
            "spec.failover.cluster.gracePeriodSeconds: Invalid value: 5: only takes effect when purgeMode is Gracefully".to_owned(),
        ),
        (json!({ "failover": { "cluster": {} } }), String::new()),
    ] {
        assert_eq!(refusal(&spec), expected, "{spec}");
    }
    let malformed = refusal(&application(preserving("id", "{.a")));
    assert!(
        malformed.starts_with(&format!(
            r#"{at}.statePreservation.rules[0].jsonPath: Invalid value: "{{.a": "#
        )),
        "{malformed}"
    );
}

#[test]
fn every_problem_is_reported_at_once() {
    let spec = json!({
        "resourceSelectors": [{ "apiVersion": "v1", "kind": "ConfigMap", "namespace": "other" }],
        "preemption": "Always",
        "failover": { "application": { "decisionConditions": {}, "purgeMode": "Never" } },
        "suspension": { "dispatching": true, "dispatchingOnClusters": { "clusterNames": ["m1"] } },
    });
    assert_eq!(
        refusal(&spec),
        r#"[spec.resourceSelectors[0].namespace: Invalid value: "other": must be that of the policy, "default", spec.resourceSelectors[0].name: Required value: a policy that may take over from others names what it takes, spec.propagateDeps: Invalid value: false: application failover is set, propagateDeps must be true, spec.suspension.dispatchingOnClusters: Forbidden: suspension.dispatching suspends all clusters: the two cannot co-exist]"#
    );
    // A policy of the whole fleet selects where it likes.
    let mut wide = read(&policy(
        &json!({ "resourceSelectors": spec["resourceSelectors"] }),
    ));
    wide.metadata.namespace = None;
    assert_eq!(check(&wide, Scope::Cluster).refusal(), None);
}

#[test]
fn tolerations_without_effect_are_warnings() {
    for (toleration, warnings) in [
        (
            json!({ "key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5 }),
            0,
        ),
        (json!({ "operator": "Exists" }), 0),
        (json!({ "value": "a" }), 1),
        (
            json!({ "key": "a", "operator": "Exists", "effect": "PreferNoExecute" }),
            1,
        ),
        (
            json!({ "key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5 }),
            1,
        ),
    ] {
        let policy = read(&policy(
            &json!({ "placement": { "clusterTolerations": [toleration] } }),
        ));
        let found = check(&policy, Scope::Namespaced);
        assert_eq!(
            (found.refusal(), found.warnings.len()),
            (None, warnings),
            "{toleration}"
        );
    }
}

#[test]
fn what_has_no_effect_in_a_placement_is_a_warning() {
    let together = json!({ "affinity": { "groupByLabelKey": "app" } });
    for (placement, warnings) in [
        (json!({}), vec![]),
        (
            json!({ "workloadAffinity": together }),
            vec![
                "spec.placement.workloadAffinity: has no effect: workloads are placed without regard to each other",
            ],
        ),
        (
            json!({ "spreadConstraints": [{ "spreadByLabel": "a" }, { "spreadByLabel": "b" }] }),
            vec![
                "spec.placement.spreadConstraints[0].spreadByLabel: has no effect: of several constraints by a label, the last one counts",
            ],
        ),
    ] {
        let found = check(
            &read(&policy(&json!({ "placement": placement }))),
            Scope::Namespaced,
        );
        assert_eq!(
            (found.refusal(), found.warnings),
            (None, warnings.into_iter().map(str::to_owned).collect())
        );
    }
}

#[test]
fn scheduler_and_identity_stay_what_they_are() {
    let with = |scheduler: Value, id: Value| {
        let mut policy = policy(&json!({ "schedulerName": scheduler }));
        policy["metadata"]["labels"] = json!({});
        if !id.is_null() {
            policy["metadata"]["labels"][ID] = id;
        }
        read(&policy)
    };
    let plain = || with(Value::Null, json!("i"));
    for (old, new, expected) in [
        (plain(), plain(), String::new()),
        (plain(), with(json!("default-scheduler"), json!("i")), String::new()),
        (
            plain(),
            with(json!("other"), json!("i")),
            r#"spec.schedulerName: Invalid value: "other": the schedulerName should not be updated"#.to_owned(),
        ),
        (with(Value::Null, Value::Null), plain(), String::new()),
        (
            plain(),
            with(Value::Null, json!("j")),
            format!(r#"metadata.labels[{ID}]: Invalid value: "j": is immutable, set by the system: "i""#),
        ),
    ] {
        let refusal = check_change(&old, &new, Scope::Namespaced).refusal();
        assert_eq!(refusal.unwrap_or_default(), expected);
    }
}

fn defaulted(spec: &Value, old: Option<&Value>) -> Value {
    let old = old.map(|spec| read(&policy(spec)));
    let mut policy = policy(spec);
    default(&mut policy, old.as_ref(), Scope::Namespaced, "new");
    policy
}

#[test]
fn what_is_left_out_is_filled_in() {
    let selector = |api_version: &str, kind: &str| json!({ "resourceSelectors": [{ "apiVersion": api_version, "kind": kind }] });
    let secret = || selector("v1", "Secret");
    let import = selector("multicluster.x-k8s.io/v1alpha1", "ServiceImport");
    let placement = |with: Value| json!({ "placement": with });
    let spread = |by: Value| placement(json!({ "spreadConstraints": [by] }));
    let scheduling =
        |kind: &str| placement(json!({ "replicaScheduling": { "replicaSchedulingType": kind } }));
    let namespace = "/spec/resourceSelectors/0/namespace";
    let dependencies = "/spec/propagateDeps";
    let constraint = "/spec/placement/spreadConstraints/0";
    let preference = "/spec/placement/replicaScheduling/replicaDivisionPreference";
    let tolerations = "/spec/placement/clusterTolerations";
    let filled = json!({ "maxGroups": 2, "minGroups": 1, "spreadByField": "cluster" });
    let by_label = json!({ "spreadByLabel": "a", "minGroups": 2 });
    for (spec, pointer, expected) in [
        (secret(), namespace, json!("default")),
        (secret(), dependencies, Value::Null),
        (import, dependencies, json!(true)),
        (spread(json!({ "maxGroups": 2 })), constraint, filled),
        (spread(by_label.clone()), constraint, by_label),
        (scheduling("Divided"), preference, json!("Weighted")),
        (scheduling("Duplicated"), preference, Value::Null),
        (placement(json!({})), tolerations, Value::Null),
    ] {
        let policy = defaulted(&spec, None);
        let found = policy.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(found, expected, "{spec}");
    }
}

#[test]
fn what_is_written_is_complete_and_written_once() {
    let spec = json!({
        "placement": { "spreadConstraints": [{}], "replicaScheduling": { "replicaSchedulingType": "Divided" } },
        "propagateDeps": true,
        "failover": { "application": { "decisionConditions": {} } },
        "unknown": { "field": 1 },
    });
    let mut policy = policy(&spec);
    default(&mut policy, None, Scope::Namespaced, "new");
    assert_eq!(
        check(&read(&policy), Scope::Namespaced),
        Findings::default()
    );
    assert_eq!(policy["spec"]["unknown"]["field"], 1);
    let mut again = policy.clone();
    let old = read(&policy);
    default(&mut again, Some(&old), Scope::Namespaced, "newer");
    assert_eq!(again, policy);
}

#[test]
fn a_grace_period_goes_with_the_mode_that_it_was_written_for() {
    let application = |mode: &str, grace: Option<i32>| json!({ "propagateDeps": true, "failover": { "application": { "decisionConditions": {}, "purgeMode": mode, "gracePeriodSeconds": grace } } });
    for (old, mode, grace, expected) in [
        (None, "Gracefully", None, Some(600)),
        (None, "Graciously", None, Some(600)),
        (None, "Gracefully", Some(5), Some(5)),
        (None, "Never", None, None),
        (None, "Never", Some(600), Some(600)),
        (Some(("Gracefully", 600)), "Never", Some(600), None),
        (Some(("Gracefully", 5)), "Never", Some(5), Some(5)),
        (Some(("Never", 600)), "Never", Some(600), Some(600)),
    ] {
        let before = old.map(|(mode, grace)| application(mode, Some(grace)));
        let policy = defaulted(&application(mode, grace), before.as_ref());
        let found = &policy["spec"]["failover"]["application"]["gracePeriodSeconds"];
        assert_eq!(*found, json!(expected), "{mode} after {old:?}");
    }
}

#[test]
fn identity_is_given_once_and_kept() {
    let with = |id: &str| json!({ "metadata": { "namespace": "default", "labels": { ID: id } }, "spec": {} });
    let bare = json!({ "metadata": { "namespace": "default" }, "spec": {} });
    for (old, new, expected) in [
        (None, &bare, json!("new")),
        (None, &with("of another"), json!("new")),
        (Some(with("own")), &bare, json!("own")),
        (Some(with("own")), &with("other"), json!("other")), // and refused
        (Some(bare.clone()), &bare, Value::Null),
    ] {
        let mut policy = new.clone();
        let old = old.as_ref().map(read);
        default(&mut policy, old.as_ref(), Scope::Namespaced, "new");
        let metadata = &policy["metadata"];
        assert_eq!(metadata["labels"][ID], expected);
        let ours = json!(["karmada.io/propagation-policy-controller"]);
        let expected = if old.is_none() { ours } else { Value::Null };
        assert_eq!(metadata["finalizers"], expected);
    }
}
