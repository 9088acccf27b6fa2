//! Properties that hold for all kinds and operations.

use jiff::Timestamp;
use muster_shared::api::binding::AggregatedStatusItem;
use muster_shared::k8s::RawExtension;
use serde_json::{Value, json};

use super::*;

const KINDS: &[(&str, &str)] = &[
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("networking.k8s.io/v1", "Ingress"),
    ("v1", "ServiceAccount"),
    ("v1", "Secret"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "PersistentVolume"),
    ("policy/v1", "PodDisruptionBudget"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("multicluster.x-k8s.io/v1alpha1", "ServiceImport"),
    ("v1", "ConfigMap"),
    ("example.com/v1", "Thing"),
];

fn object((api_version, kind): (&str, &str), status: &Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": { "name": "it", "namespace": "default" },
        "spec": { "type": "LoadBalancer" },
        "status": status,
    })
}

fn aggregate(template: &Value, reported: &Value) -> Result<Option<Value>, Error> {
    let member = AggregatedStatusItem {
        status: Some(RawExtension(reported.clone())),
        ..AggregatedStatusItem::default()
    };
    aggregate_status(template, &[member], Timestamp::UNIX_EPOCH)
}

#[test]
fn an_operation_that_a_kind_has_no_rule_for_is_an_error() {
    for kind in KINDS {
        let object = object(*kind, &json!({}));
        let revised = revise_replica(object.clone(), 1).err();
        let retained = retain(object.clone(), &object).err();
        let aggregated = aggregate(&object, &json!({})).err();
        for (operation, outcome) in [
            (Operation::ReviseReplica, revised),
            (Operation::Retain, retained),
            (Operation::AggregateStatus, aggregated),
        ] {
            let unsupported = matches!(outcome, Some(Error::Unsupported { .. }));
            let has = hook_enabled(kind.0, kind.1, operation);
            assert_eq!(unsupported, !has, "{operation} of {kind:?}: {outcome:?}");
        }
    }
}

#[test]
fn a_status_of_the_wrong_type_is_an_error_wherever_it_is_read() {
    for status in [json!("text"), json!([1]), json!(7), json!(true)] {
        for kind in KINDS {
            let object = object(*kind, &status);
            assert!(super::status(&object).is_err(), "reflect {kind:?} {status}");
            if hook_enabled(kind.0, kind.1, Operation::InterpretHealth) {
                assert!(health(&object).is_err(), "judge {kind:?} {status}");
            }
            if hook_enabled(kind.0, kind.1, Operation::AggregateStatus) {
                let template = self::object(*kind, &json!({}));
                assert!(
                    aggregate(&template, &status).is_err(),
                    "sum {kind:?} {status}"
                );
            }
        }
        // Of a Service without an address from outside no status is read.
        let mut service = object(("v1", "Service"), &status);
        service["spec"]["type"] = json!("ClusterIP");
        assert_eq!(super::status(&service), Ok(None));
        assert_eq!(aggregate(&service, &status), Ok(None));
    }
}

#[test]
fn labels_and_data_that_are_no_texts_are_not_retained() {
    let token = "kubernetes.io/service-account-token";
    for (kind, observed, path) in [
        (
            ("batch/v1", "Job"),
            json!({ "spec": { "selector": { "matchLabels": { "a": 1 } } } }),
            "spec.selector.matchLabels",
        ),
        (
            ("batch/v1", "Job"),
            json!({ "spec": { "template": { "metadata": { "labels": { "a": null } } } } }),
            "spec.template.metadata.labels",
        ),
        (("v1", "Secret"), json!({ "data": { "a": [] } }), "data"),
    ] {
        let mut desired = object(kind, &Value::Null);
        desired["type"] = json!(token);
        let error = retain(desired, &observed).unwrap_err().to_string();
        assert!(error.contains(path), "{error}");
    }
}

#[test]
fn of_two_conditions_of_a_pod_the_first_counts() {
    for (first, second) in [("True", "False"), ("False", "True")] {
        let ready = |status: &str| json!({ "type": "Ready", "status": status });
        let conditions = json!([ready(first), ready(second)]);
        let status = json!({ "phase": "Running", "conditions": conditions });
        let pod = object(("v1", "Pod"), &status);
        assert_eq!(health(&pod), Ok(Some(first == "True")));
    }
}

#[test]
fn what_a_person_keeps_from_being_rolled_out_is_no_failure() {
    let partition = |held: i64| {
        let rolling = json!({ "partition": held });
        json!({ "replicas": 3, "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } })
    };
    let by_hand = json!({ "replicas": 3, "updateStrategy": { "type": "OnDelete" } });
    let paused = json!({ "replicas": 3, "paused": true });
    let one = partition(2);
    let plain = json!({ "replicas": 3 });
    for (what, kind, spec, [updated, available], expected) in [
        ("a canary", "StatefulSet", &one, [1, 3], true),
        ("nothing yet", "StatefulSet", &partition(7), [0, 3], true),
        ("a canary to come", "StatefulSet", &one, [0, 3], false),
        ("one beside it fails", "StatefulSet", &one, [1, 2], false),
        ("replaced by hand", "StatefulSet", &by_hand, [0, 3], true),
        ("of which one fails", "StatefulSet", &by_hand, [0, 2], false),
        ("a rollout", "StatefulSet", &plain, [1, 3], false),
        ("paused", "Deployment", &paused, [1, 3], true),
        ("of which one fails", "Deployment", &paused, [1, 2], false),
        ("a rollout", "Deployment", &plain, [1, 3], false),
        ("replaced by hand", "DaemonSet", &by_hand, [0, 3], true),
        ("of which one fails", "DaemonSet", &by_hand, [0, 2], false),
        ("a rollout", "DaemonSet", &plain, [1, 3], false),
    ] {
        let object = json!({
            "apiVersion": "apps/v1", "kind": kind,
            "metadata": { "name": "it", "namespace": "default", "generation": 2 },
            "spec": spec,
            "status": {
                "observedGeneration": 2, "replicas": 3,
                "updatedReplicas": updated, "availableReplicas": available,
                "desiredNumberScheduled": 3,
                "updatedNumberScheduled": updated, "numberAvailable": available,
            },
        });
        assert_eq!(health(&object), Ok(Some(expected)), "{kind}: {what}");
    }
}

#[test]
fn what_the_api_server_keeps_by_itself_is_not_taken_away() {
    for (kind, key, value) in [
        (
            ("v1", "PersistentVolume"),
            "lastPhaseTransitionTime",
            "2026-01-01T00:00:00Z",
        ),
        (("v1", "Pod"), "qosClass", "Burstable"),
    ] {
        let held = json!({ "phase": "Pending", key: value });
        let wanted = aggregate(&object(kind, &held), &json!({ "phase": "Pending" }));
        assert_eq!(wanted, Ok(Some(held)), "{kind:?}");
    }
}

/// Values as hostile as an API server lets through: 124 levels, thousands of entries, wrong types
/// everywhere.
fn hostile() -> Vec<Value> {
    let deep = |leaf: Value| (0..124).fold(leaf, |inner, _| json!({ "status": inner, "a": [1] }));
    let many = |item: Value| Value::Array(vec![item; 2_000]);
    let names: Vec<Value> = (0..2_000)
        .map(|n| json!({ "name": n.to_string(), "ip": n.to_string(), "hostname": n, "type": n }))
        .collect();
    let ports: Vec<Value> = (0..2_000)
        .map(|n| json!({ "port": n, "protocol": "TCP" }))
        .collect();
    let ingress = json!([{ "ip": "1", "ports": ports.clone() }, { "ip": "1", "ports": ports }]);
    let addresses: Vec<Value> = (0..2_000).map(|n| json!({ "ip": n.to_string() })).collect();
    vec![
        deep(json!(1)),
        json!({ "conditions": many(json!({ "type": 1 })), "containerStatuses": many(json!([])) }),
        json!({ "loadBalancer": { "ingress": names } }),
        json!({ "loadBalancer": { "ingress": ingress } }),
        json!({ "loadBalancer": { "ingress": addresses } }),
        json!({ "replicas": i64::MAX, "active": i64::MIN, "startTime": "9999-99-99" }),
        json!({ "conditions": [null, 1, "x", [], {}], "active": [{}], "disruptedPods": [] }),
    ]
}

#[test]
fn hostile_objects_are_judged_in_bounded_time_and_without_panic() {
    let started = tokio::time::Instant::now();
    for value in hostile() {
        for kind in KINDS {
            let mut object = object(*kind, &value);
            object["spec"]["initContainers"] = value.clone();
            let named = |n: i32| json!({ "name": n.to_string() });
            match kind.1 {
                "Pod" => object["spec"]["containers"] = (0..2_000).map(named).collect(),
                "ServiceAccount" => object["secrets"] = (0..2_000).map(named).collect(),
                _ => {}
            }
            let _ = (
                health(&object),
                super::status(&object),
                dependencies(&object),
            );
            let _ = (
                interpret_replica(&object),
                revise_replica(object.clone(), 3),
            );
            let _ = (retain(object.clone(), &object), aggregate(&object, &value));
            let wanted = aggregate(&object, &value)
                .ok()
                .flatten()
                .unwrap_or_default();
            acceptable_status(&object, wanted, Timestamp::UNIX_EPOCH);
            prune(&mut object);
        }
    }
    // Two orders of magnitude more than it takes; a comparison of all with all takes longer.
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
