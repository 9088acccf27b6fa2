//! Decoding, pruning and defaulting of whole objects.

use serde_json::{Value, json};

use super::Schema;
use crate::kinds::catalog;

fn schema(api_version: &str, kind: &str) -> Schema {
    Schema::builtin(catalog::of_object(api_version, kind).expect("a built-in kind"))
}

fn admitted(mut object: Value) -> Value {
    let schema = schema(
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    schema.decode(&mut object).expect("decodes");
    assert_eq!(schema.prune(&mut object), Vec::<String>::new());
    schema.default(&mut object);
    object
}

#[test]
fn a_minimal_deployment_is_filled_in_as_the_real_server_does() {
    let object = admitted(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx:1.25", "ports": [{"containerPort": 80}]}]},
            },
        },
    }));
    assert_eq!(
        object,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "progressDeadlineSeconds": 600,
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "selector": {"matchLabels": {"app": "web"}},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {
                        "containers": [{
                            "image": "nginx:1.25", "imagePullPolicy": "IfNotPresent", "name": "web",
                            "ports": [{"containerPort": 80, "protocol": "TCP"}],
                            "resources": {},
                            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                        }],
                        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                        "securityContext": {}, "terminationGracePeriodSeconds": 30,
                    },
                },
            },
            "status": {},
        })
    );
}

#[test]
fn images_decide_the_pull_policy() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("nginx@sha256:abc", "IfNotPresent"),
    ] {
        let pod = admitted(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": image}]}}),
        );
        assert_eq!(
            pod["spec"]["containers"][0]["imagePullPolicy"], policy,
            "{image}"
        );
        assert_eq!(pod["spec"]["enableServiceLinks"], true);
    }
}

#[test]
fn services_point_at_their_own_port_unless_told_otherwise() {
    let service = admitted(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"selector": {"app": "s"}, "ports": [{"port": 80}, {"name": "b", "port": 81, "targetPort": "http"}]}}),
    );
    assert_eq!(
        service["spec"]["ports"][0],
        json!({"port": 80, "targetPort": 80, "protocol": "TCP"})
    );
    assert_eq!(service["spec"]["ports"][1]["targetPort"], "http");
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(service["status"], json!({"loadBalancer": {}}));
}

#[test]
fn what_go_would_not_keep_disappears_and_what_it_always_prints_appears() {
    let pod = admitted(json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "labels": {}, "annotations": null},
        "spec": {"hostNetwork": false, "nodeSelector": {}, "terminationGracePeriodSeconds": 0,
            "containers": [{"image": "a:1", "env": [{"name": "A", "value": ""}], "command": []}]}}));
    assert_eq!(pod["metadata"], json!({"name": "p"}));
    assert!(pod["spec"].get("hostNetwork").is_none() && pod["spec"].get("nodeSelector").is_none());
    assert_eq!(
        pod["spec"]["terminationGracePeriodSeconds"], 0,
        "a pointer keeps its zero"
    );
    assert_eq!(pod["spec"]["containers"][0]["env"], json!([{"name": "A"}]));
    assert_eq!(
        pod["spec"]["containers"][0]["name"], "",
        "printed though empty; validation will object"
    );
    assert!(pod["spec"]["containers"][0].get("command").is_none());
}

#[test]
fn wrong_types_are_refused_with_their_field() {
    for (object, message) in [
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": "x"}}),
            "spec.replicas: \"x\" is no integer of 32 bits",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 1}}),
            "data: 1 is no string",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": {"a": 1}}}),
            "spec.containers: {\"a\":1} is no list",
        ),
    ] {
        let schema = schema(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
        );
        assert_eq!(schema.decode(&mut object.clone()), Err(message.to_owned()));
    }
}

#[test]
fn unknown_fields_are_dropped_and_named() {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "colour": 1},
        "spec": {"containers": [{"name": "c", "imagee": "x"}], "x": {}}});
    let mut unknown = schema("v1", "Pod").prune(&mut pod);
    unknown.sort();
    assert_eq!(
        unknown,
        ["metadata.colour", "spec.containers[0].imagee", "spec.x"]
    );
    assert_eq!(pod["spec"], json!({"containers": [{"name": "c"}]}));
}

fn custom(properties: &Value) -> Schema {
    let crd = json!({"spec": {"scope": "Namespaced", "versions": [{"name": "v1", "schema":
        {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}}]}});
    Schema::of_crd(&crd, "v1").expect("a schema")
}

#[test]
fn custom_objects_are_pruned_and_defaulted_by_their_schema() {
    let schema = custom(&json!({
        "replicas": {"type": "integer", "default": 2},
        "strategy": {"type": "object", "default": {}, "properties": {"kind": {"type": "string", "default": "a"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}},
        "workload": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }));
    let mut object = json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n"},
        "spec": {"x": 1, "free": {"a": {"b": 1}}, "items": [{"y": 1}, {}], "replicas": null,
            "workload": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "odd": 1}, "spec": {"any": 1}}}});
    schema.decode(&mut object).expect("decodes");
    let unknown = schema.prune(&mut object);
    assert_eq!(
        unknown,
        ["spec.items[0].y", "spec.x", "spec.workload.metadata.odd"]
    );
    schema.default(&mut object);
    assert_eq!(
        object["spec"],
        json!({"replicas": 2, "strategy": {"kind": "a"}, "free": {"a": {"b": 1}}, "items": [{"n": 1}, {"n": 1}],
            "workload": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"any": 1}}})
    );
}

#[test]
fn defaulting_twice_changes_nothing() {
    for kind in catalog::all().iter().filter(|kind| kind.stored()) {
        let schema = Schema::builtin(kind);
        let mut once =
            json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "n"}});
        schema.decode(&mut once).expect("decodes");
        schema.default(&mut once);
        let mut twice = once.clone();
        schema.decode(&mut twice).expect("decodes again");
        schema.default(&mut twice);
        assert_eq!(once, twice, "{}", kind.kind);
    }
}
