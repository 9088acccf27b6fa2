//! Defaults of built-in kinds that depend on other fields of the same object.

use serde_json::{Value, json};

use crate::catalog::Kind;

/// Fills in what depends on other fields; the table's defaults are in place already.
pub fn conditional(kind: &Kind, object: &mut Value) {
    if let Some(pod) = pod_spec(kind, object) {
        pod_defaults(pod, kind.kind == "Pod");
    }
    match kind.kind {
        "Namespace" => namespace(object),
        "Node" => {
            let capacity = object["status"]["capacity"].clone();
            if capacity.is_object() {
                fill(object, "/status", "allocatable", capacity);
            }
        }
        "Service" => service(object),
        "Deployment" | "DaemonSet" | "StatefulSet" => workload(kind, object),
        "Job" => job(object),
        "HorizontalPodAutoscaler" => {
            let metric = json!([{"type": "Resource", "resource":
                {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
            fill(object, "/spec", "metrics", metric);
        }
        "NetworkPolicy" => {
            let egress = object["spec"].get("egress").is_some();
            let types = if egress {
                json!(["Ingress", "Egress"])
            } else {
                json!(["Ingress"])
            };
            fill(object, "/spec", "policyTypes", types);
        }
        "RoleBinding" | "ClusterRoleBinding" => {
            for subject in each(object, "/subjects") {
                if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
                    fill(subject, "", "apiGroup", json!("rbac.authorization.k8s.io"));
                }
            }
        }
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            for webhook in each(object, "/webhooks") {
                fill(webhook, "/clientConfig/service", "port", json!(443));
            }
        }
        "CustomResourceDefinition" => {
            let kind = object["spec"]["names"]["kind"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if !kind.is_empty() {
                fill(
                    object,
                    "/spec/names",
                    "singular",
                    json!(kind.to_lowercase()),
                );
                fill(
                    object,
                    "/spec/names",
                    "listKind",
                    json!(format!("{kind}List")),
                );
            }
            fill(
                object,
                "/spec/conversion/webhook/clientConfig/service",
                "port",
                json!(443),
            );
        }
        _ => {}
    }
}

/// Returns the pod spec inside an object of `kind`, where the kind has one.
pub fn pod_spec<'a>(kind: &Kind, object: &'a mut Value) -> Option<&'a mut Value> {
    let path = match (kind.group, kind.kind) {
        ("", "Pod") => "/spec",
        ("", "PodTemplate") => "/template/spec",
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("", "ReplicationController")
        | ("batch", "Job") => "/spec/template/spec",
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template/spec",
        _ => return None,
    };
    object.pointer_mut(path).filter(|spec| spec.is_object())
}

fn pod_defaults(spec: &mut Value, is_pod: bool) {
    let host_network = spec["hostNetwork"] == true;
    for list in ["/initContainers", "/containers", "/ephemeralContainers"] {
        for container in each(spec, list) {
            container_defaults(container, is_pod, host_network);
        }
    }
    for volume in each(spec, "/volumes") {
        if volume
            .as_object()
            .is_some_and(|v| v.keys().all(|key| key == "name"))
        {
            fill(volume, "", "emptyDir", json!({}));
        }
    }
    // The deprecated name of the field follows the current one, and the other way round.
    match (
        spec["serviceAccountName"].clone(),
        spec["serviceAccount"].clone(),
    ) {
        (Value::String(name), _) => spec["serviceAccount"] = name.into(),
        (_, Value::String(name)) => spec["serviceAccountName"] = name.into(),
        _ => {}
    }
    if is_pod {
        fill(spec, "", "enableServiceLinks", json!(true));
    }
}

fn container_defaults(container: &mut Value, is_pod: bool, host_network: bool) {
    let image = container["image"].as_str().unwrap_or_default();
    let policy = if has_tag_other_than_latest(image) {
        "IfNotPresent"
    } else {
        "Always"
    };
    fill(container, "", "imagePullPolicy", json!(policy));
    if host_network {
        for port in each(container, "/ports") {
            let number = port["containerPort"].clone();
            fill(port, "", "hostPort", number);
        }
    }
    if is_pod && let Some(limits) = container["resources"]["limits"].as_object().cloned() {
        fill(container, "/resources", "requests", json!({}));
        for (resource, limit) in limits {
            fill(container, "/resources/requests", &resource, limit);
        }
    }
}

fn has_tag_other_than_latest(image: &str) -> bool {
    if image.contains('@') {
        return true;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').is_some_and(|(_, tag)| tag != "latest")
}

fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.is_string() {
        fill(object, "/metadata", "labels", json!({}));
        fill(
            object,
            "/metadata/labels",
            "kubernetes.io/metadata.name",
            name,
        );
    }
}

fn workload(kind: &Kind, object: &mut Value) {
    let strategy = if kind.kind == "Deployment" {
        "/spec/strategy"
    } else {
        "/spec/updateStrategy"
    };
    if object
        .pointer(strategy)
        .is_some_and(|s| s["type"] == "RollingUpdate")
    {
        let rolling = match kind.kind {
            "Deployment" => json!({"maxSurge": "25%", "maxUnavailable": "25%"}),
            "DaemonSet" => json!({"maxSurge": 0, "maxUnavailable": 1}),
            _ => json!({"partition": 0}),
        };
        fill(object, strategy, "rollingUpdate", rolling);
    }
    if kind.kind == "DaemonSet" {
        // Left over from a field that became an annotation; clients of today still get it.
        fill(object, "/metadata", "annotations", json!({}));
        let annotation = "deprecated.daemonset.template.generation";
        fill(object, "/metadata/annotations", annotation, json!("1"));
    }
    for claim in each(object, "/spec/volumeClaimTemplates") {
        fill(claim, "", "apiVersion", json!("v1"));
        fill(claim, "", "kind", json!("PersistentVolumeClaim"));
    }
}

fn service(object: &mut Value) {
    if object["spec"]["sessionAffinity"] == "ClientIP" {
        let config = json!({"clientIP": {"timeoutSeconds": 10800}});
        fill(object, "/spec", "sessionAffinityConfig", config);
    }
    for port in each(object, "/spec/ports") {
        if port["targetPort"] == 0 || port["targetPort"] == "" || port["targetPort"].is_null() {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = object["spec"]["type"]
        .as_str()
        .unwrap_or("ClusterIP")
        .to_owned();
    if kind == "NodePort" || kind == "LoadBalancer" {
        fill(object, "/spec", "externalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        fill(
            object,
            "/spec",
            "allocateLoadBalancerNodePorts",
            json!(true),
        );
    }
    if kind != "ExternalName" {
        fill(object, "/spec", "internalTrafficPolicy", json!("Cluster"));
    }
}

fn job(object: &mut Value) {
    let has = |name: &str| object["spec"].get(name).is_some();
    let (counted, per_index, policy) = (
        has("completions") || has("parallelism"),
        has("backoffLimitPerIndex"),
        has("podFailurePolicy"),
    );
    if !counted {
        fill(object, "/spec", "completions", json!(1));
    }
    fill(object, "/spec", "parallelism", json!(1));
    fill(
        object,
        "/spec",
        "backoffLimit",
        if per_index { json!(i32::MAX) } else { json!(6) },
    );
    fill(object, "/spec", "completionMode", json!("NonIndexed"));
    fill(object, "/spec", "suspend", json!(false));
    fill(object, "/spec", "manualSelector", json!(false));
    let replacement = if policy {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    fill(object, "/spec", "podReplacementPolicy", json!(replacement));
}

/// Sets `name` in the object at `pointer`, where that is an object and lacks the field.
fn fill(object: &mut Value, pointer: &str, name: &str, value: Value) {
    if let Some(Value::Object(fields)) = object.pointer_mut(pointer) {
        let slot = fields.entry(name.to_owned()).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value;
        }
    }
}

/// Returns the objects in the list at `pointer`.
fn each<'a>(object: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = object.pointer_mut(pointer).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter(|item| item.is_object())
}
