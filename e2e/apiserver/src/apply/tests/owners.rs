//! Who owns which field: creations, appliers, takeovers, removals.

use serde_json::json;

use super::{config_map, config_maps, deployments, nginx};
use crate::apply::ApplyError;

#[test]
fn an_applier_owns_what_it_says_and_nothing_else() {
    let mut story = deployments();
    story.apply("me", &nginx(Some(3)));
    assert_eq!(
        story.fields("me", "Apply"),
        json!({"f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"nginx\"}": {
                    ".": {}, "f:name": {}, "f:image": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                }}},
            },
        }})
    );
    let entry = &story.object()["metadata"]["managedFields"][0];
    assert_eq!(entry["operation"], "Apply");
    assert_eq!(entry["apiVersion"], "apps/v1");
    assert_eq!(entry["time"], "2023-11-14T22:13:21Z");
    assert_eq!(entry["fieldsType"], "FieldsV1");
}

#[test]
fn a_creation_owns_what_it_and_the_defaults_added() {
    let mut story = deployments();
    story.update("kubectl-create", "", |object| *object = nginx(None));
    assert_eq!(
        story.fields("kubectl-create", "Update"),
        json!({"f:spec": {
            "f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"nginx\"}": {
                        ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                        "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}":
                            {".": {}, "f:containerPort": {}, "f:protocol": {}}},
                        "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
                    }},
                    "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
                    "f:terminationGracePeriodSeconds": {},
                },
            },
        }})
    );
}

#[test]
fn replicas_are_handed_over_to_an_autoscaler_without_being_reset() {
    // The worked example of Kubernetes' page on server-side apply, "transferring ownership".
    let mut story = deployments();
    story.apply("kubectl", &nginx(Some(3)));
    story.update("kube-controller-manager", "scale", |object| {
        object["spec"]["replicas"] = json!(5);
    });
    assert_eq!(
        story.fields("kube-controller-manager", "Update"),
        json!({"f:spec": {"f:replicas": {}}})
    );
    assert!(
        story.fields("kubectl", "Apply")["f:spec"]
            .get("f:replicas")
            .is_none()
    );
    let message = story.conflicts("kubectl", &nginx(Some(3)));
    assert_eq!(
        message,
        "Apply failed with 1 conflict: conflict with \"kube-controller-manager\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
    story.apply("kubectl", &nginx(None));
    assert_eq!(story.object()["spec"]["replicas"], 5);
}

#[test]
fn forcing_takes_the_fields_over() {
    let mut story = config_maps();
    story.apply("one", &config_map(&json!({"a": "1", "b": "1"})));
    let message = story.conflicts("two", &config_map(&json!({"a": "2", "b": "2"})));
    assert_eq!(
        message,
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b"
    );
    let Err(ApplyError::Conflicts { conflicts, .. }) =
        story.try_apply("two", &config_map(&json!({"a": "2"})), false)
    else {
        panic!("a conflict");
    };
    assert_eq!(conflicts[0].message, "conflict with \"one\"");
    assert_eq!(conflicts[0].field, ".data.a");
    story
        .try_apply("two", &config_map(&json!({"a": "2"})), true)
        .expect("forced");
    assert_eq!(story.object()["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(story.fields("one", "Apply"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(story.fields("two", "Apply"), json!({"f:data": {"f:a": {}}}));
}

#[test]
fn the_same_value_is_shared_and_stays_until_the_last_owner_lets_go() {
    let mut story = config_maps();
    story.apply("one", &config_map(&json!({"a": "1", "b": "1"})));
    story.apply("two", &config_map(&json!({"a": "1"})));
    story.apply("one", &config_map(&json!({"b": "1"})));
    assert_eq!(
        story.object()["data"],
        json!({"a": "1", "b": "1"}),
        "two still owns a"
    );
    story.apply("two", &config_map(&json!({})));
    assert_eq!(story.object()["data"], json!({"b": "1"}));
    assert_eq!(
        story.fields("two", "Apply"),
        json!({"f:data": {}}),
        "an empty map is said, hence owned"
    );
}

#[test]
fn what_is_no_longer_said_is_removed_down_to_the_last_trace() {
    let mut story = deployments();
    let mut config = nginx(Some(1));
    config["metadata"]["annotations"] = json!({"a": "b"});
    config["spec"]["template"]["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "side", "image": "side:1"}));
    story.apply("me", &config);
    story.apply("me", &nginx(Some(1)));
    assert!(story.object()["metadata"].get("annotations").is_none());
    let containers = story.object()["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap();
    assert_eq!(containers.len(), 1, "{containers:?}");
    assert_eq!(containers[0]["name"], "nginx");
}

#[test]
fn what_others_added_to_my_list_survives_my_next_apply() {
    let mut story = deployments();
    story.apply("me", &nginx(None));
    story.update("injector", "", |object| {
        let containers = object["spec"]["template"]["spec"]["containers"]
            .as_array_mut()
            .unwrap();
        containers.insert(0, json!({"name": "proxy", "image": "proxy:1"}));
        containers[1]["env"] = json!([{"name": "A", "value": "b"}]);
    });
    let mut changed = nginx(None);
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:1.15");
    story.apply("me", &changed);
    let containers = &story.object()["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0]["name"], "proxy");
    assert_eq!(containers[1]["image"], "nginx:1.15");
    assert_eq!(containers[1]["env"][0]["value"], "b");
}
