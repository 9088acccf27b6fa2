//! One line a rule: what is changed, and what is said about it.

use serde_json::{Value, json};

use crate::kinds::catalog;
use crate::schema::Schema;

fn admitted(mut object: Value) -> (Schema, Value) {
    let kind = catalog::of_object(
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    let schema = Schema::builtin(kind.expect("a built-in kind"));
    schema.decode(&mut object).expect("decodes");
    schema.default(&mut object);
    (schema, object)
}

/// Returns the object with `change` merged in.
fn changed(object: &Value, change: &Value) -> Value {
    crate::patch::merge(object, change)
}

fn create(object: &Value, change: &Value) -> Vec<String> {
    let (schema, object) = admitted(changed(object, change));
    schema
        .validate(&object, None)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn update(object: &Value, change: &Value) -> Vec<String> {
    let (schema, old) = admitted(object.clone());
    let (_, new) = admitted(changed(object, change));
    schema
        .validate(&new, Some(&old))
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

#[test]
fn what_is_right_is_accepted() {
    for object in [
        deployment(),
        pod(),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
        // What a StatefulSet asks volumes for is mounted by the name of the claim.
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {"serviceName": "a",
            "selector": {"matchLabels": {"app": "s"}}, "template": {"metadata": {"labels": {"app": "s"}},
                "spec": {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}}]}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a.b_c-D": ""}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"leaseDurationSeconds": 10, "holderIdentity": "me"}}),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template":
            {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, {"nonResourceURLs": ["/x"], "verbs": ["get"]}]}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]}}),
    ] {
        assert_eq!(
            create(&object, &json!({})),
            Vec::<String>::new(),
            "{object}"
        );
        assert_eq!(
            update(&object, &json!({})),
            Vec::<String>::new(),
            "{object}"
        );
    }
}

#[test]
fn pods_are_refused_for_these_reasons() {
    let container = |fields: Value| {
        let base = json!({"name": "c", "image": "i:1"});
        json!({"spec": {"containers": [changed(&base, &fields)]}})
    };
    for (change, expected) in [
        (
            json!({"spec": {"containers": []}}),
            "spec.containers: Required value",
        ),
        (
            container(json!({"name": ""})),
            "spec.containers[0].name: Required value",
        ),
        (
            container(json!({"image": ""})),
            "spec.containers[0].image: Required value",
        ),
        (
            container(json!({"imagePullPolicy": "Maybe"})),
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ),
        (
            container(json!({"ports": [{"containerPort": 70000}]})),
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            container(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ),
        (
            container(json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}})),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
        (
            container(json!({"resources": {"requests": {"cpu": "-1"}}})),
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            json!({"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]}}),
            "spec.containers[1].name: Duplicate value: \"c\"",
        ),
        (
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}}),
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]}}),
            "spec.tolerations[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
        ),
        (
            json!({"spec": {"tolerations": [{"key": "k", "effect": "Never"}]}}),
            "spec.tolerations[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ),
        (
            json!({"spec": {"restartPolicy": "Sometimes"}}),
            "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ),
    ] {
        assert_eq!(create(&pod(), &change), [expected], "{change}");
    }
}

#[test]
fn of_a_pod_only_images_deadlines_and_more_tolerations_may_change() {
    for change in [
        json!({"spec": {"containers": [{"name": "c", "image": "i:2", "imagePullPolicy": "IfNotPresent"}]}}),
        json!({"spec": {"activeDeadlineSeconds": 5}}),
        json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}),
        json!({"metadata": {"labels": {"a": "b"}}}),
    ] {
        assert_eq!(update(&pod(), &change), Vec::<String>::new(), "{change}");
    }
    for change in [
        json!({"spec": {"nodeName": "n"}}),
        json!({"spec": {"containers": [{"name": "c", "image": "i:1", "command": ["x"]}]}}),
    ] {
        let errors = update(&pod(), &change);
        assert!(
            errors[0].starts_with("spec: Forbidden: pod updates may not change fields other than"),
            "{errors:?}"
        );
    }
}

#[test]
fn workloads_are_refused_for_these_reasons() {
    for (change, expected) in [
        (
            json!({"spec": {"selector": null}}),
            "spec.selector: Required value",
        ),
        (
            json!({"spec": {"selector": {"matchLabels": null}}}),
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
        ),
        (
            json!({"spec": {"selector": {"matchLabels": {"app": "x"}}}}),
            "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
        ),
        (
            json!({"spec": {"replicas": -1}}),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": {}}}}),
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            json!({"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}),
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ),
        (
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}),
            "spec.template.spec.containers[0].image: Required value",
        ),
    ] {
        assert_eq!(create(&deployment(), &change), [expected], "{change}");
    }
}

#[test]
fn what_is_immutable_stays() {
    let both = json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}}}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template":
        {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}, "immutable": true});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"kind": "Role", "name": "x"}, "subjects": []});
    for (object, change, expected) in [
        (
            deployment(),
            both,
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"x\"}}: field is immutable",
        ),
        (
            config,
            json!({"data": {"a": "2"}}),
            "data: Forbidden: field is immutable when `immutable` is set",
        ),
        (
            binding,
            json!({"roleRef": {"name": "y"}}),
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"y\"}: cannot change roleRef",
        ),
    ] {
        assert_eq!(update(&object, &change), [expected]);
    }
    let errors = update(
        &job,
        &json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}}),
    );
    assert!(
        errors[0].starts_with("spec.template: Invalid value: ")
            && errors[0].ends_with(": field is immutable")
    );
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {"serviceName": "a",
        "selector": {"matchLabels": {"app": "web"}}, "template": deployment()["spec"]["template"]}});
    assert_eq!(
        update(&set, &json!({"spec": {"replicas": 3}})),
        Vec::<String>::new()
    );
    assert!(
        update(&set, &json!({"spec": {"serviceName": "b"}}))[0]
            .starts_with("spec: Forbidden: updates to statefulset spec")
    );
}

#[test]
fn other_kinds_are_refused_for_these_reasons() {
    let meta = json!({"name": "x"});
    for (object, expected) in [
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {}}),
            "spec.ports: Required value",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 1}, {"name": "b", "port": 2}]}}),
            "spec.ports[0].name: Required value",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": [{"key": "a", "effect": "Boo"}]}}),
            "metadata.taints[0].effect: Unsupported value: \"Boo\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template":
            {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
            "spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ),
        (
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {"leaseDurationSeconds": 0}}),
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        ),
        (
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta,
            "rules": [{"apiGroups": [""], "resources": ["pods"]}]}),
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a b": ""}}),
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "kubernetes.io/tls", "data": {"tls.crt": ""}}),
            "data[tls.key]: Required value",
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": meta, "spec": {"schedule": "now", "jobTemplate": {"spec":
            {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
            "spec.schedule: Invalid value: \"now\": expected exactly 5 fields, found 1: [now]",
        ),
    ] {
        assert_eq!(create(&object, &json!({})), [expected], "{object}");
    }
}
