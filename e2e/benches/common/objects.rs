//! Nodes and pods as an API server returns them, managed fields and all: what the agent has to read
//! through.

use muster_e2e::apiserver::Running;
use serde_json::{Value, json};

/// Gives a member its nodes and pods.
pub fn fill(member: &Running, nodes: usize, pods: usize) -> anyhow::Result<()> {
    let seeds = member.seeds("", "v1", "nodes")?;
    for number in 0..nodes {
        seeds.put(node(number))?;
    }
    let seeds = member.seeds("", "v1", "pods")?;
    for number in 0..pods {
        seeds.put(pod(number, nodes, 0))?;
    }
    Ok(())
}

/// Returns a node, of one of four sizes.
pub fn node(number: usize) -> Value {
    let (cores, memory) = [(4, 16), (8, 32), (16, 64), (32, 128)][number % 4];
    let has = json!({"cpu": cores.to_string(), "memory": format!("{memory}Gi"), "pods": "110", "ephemeral-storage": "100Gi"});
    let conditions: Vec<Value> = [
        ("Ready", "True"),
        ("MemoryPressure", "False"),
        ("DiskPressure", "False"),
        ("PIDPressure", "False"),
    ]
    .iter()
    .map(|(kind, status)| {
        json!({"type": kind, "status": status, "reason": "Kubelet", "message": "kubelet has said so",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    })
    .collect();
    let images: Vec<Value> = (0..20)
        .map(|image| json!({"names": [format!("registry.example/app/{image}@sha256:{:064x}", image)], "sizeBytes": 71_300_000}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": format!("node-{number}"), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.io/hostname": format!("node-{number}"), "topology.kubernetes.io/zone": format!("z{}", number % 3)},
            "managedFields": managed(&["status"], 30),
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": has, "allocatable": has, "conditions": conditions, "images": images,
            "nodeInfo": {"kubeletVersion": "v1.33.0", "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}

/// Returns a running pod of two containers with 120 millicores together; about 9 kB. `revision`
/// changes what a kubelet reports and nothing that counts.
pub fn pod(number: usize, nodes: usize, revision: usize) -> Value {
    let name = format!("app-{number}");
    let containers: Vec<Value> = [("main", "100m", "128Mi"), ("sidecar", "20m", "32Mi")]
        .iter()
        .map(|(name, cpu, memory)| container(name, cpu, memory, number))
        .collect();
    let statuses: Vec<Value> = ["main", "sidecar"]
        .iter()
        .map(|container| {
            json!({"name": container, "ready": true, "started": true, "restartCount": revision,
                "image": format!("registry.example/app/{container}:1.2.{}", number % 9),
                "imageID": format!("registry.example/app/{container}@sha256:{:064x}", number % 9),
                "containerID": format!("containerd://{number:064x}"),
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
        })
        .collect();
    let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": format!("app-{}", number % 500), "pod-template-hash": format!("{:x}", number % 500)},
            "annotations": {"checksum/config": format!("{:064x}", number)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("app-{}", number % 500),
                "uid": format!("00000000-0000-4000-8000-{:012x}", number % 500), "controller": true}],
            "managedFields": managed(&["metadata", "spec", "status"], 14),
        },
        "spec": {
            "nodeName": format!("node-{}", number % nodes), "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "schedulerName": "default-scheduler",
            "containers": containers,
            "volumes": [{"name": "config", "configMap": {"name": "config", "defaultMode": 420}}, {"name": "token", "emptyDir": {}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1", "qosClass": "Burstable",
            "startTime": "2026-01-01T00:00:00Z", "conditions": conditions, "containerStatuses": statuses,
        },
    })
}

fn container(name: &str, cpu: &str, memory: &str, number: usize) -> Value {
    let environment: Vec<Value> = (0..20)
        .map(|setting| json!({"name": format!("SETTING_{setting}"), "value": format!("value-{number}-{setting}")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "failureThreshold": 3});
    json!({
        "name": name, "image": format!("registry.example/app/{name}:1.2.{}", number % 9), "env": environment,
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "1", "memory": "1Gi"}},
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "readinessProbe": probe, "livenessProbe": probe,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}, {"name": "token", "mountPath": "/var/run/token", "readOnly": true}],
        "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
    })
}

/// Entries of `metadata.managedFields`, each naming so many fields in each part of the object.
fn managed(parts: &[&str], fields: usize) -> Vec<Value> {
    let owned = |part: &&str| {
        let fields: serde_json::Map<String, Value> = (0..fields)
            .map(|field| {
                (
                    format!("f:fieldNumber{field}"),
                    json!({".": {}, "f:value": {}}),
                )
            })
            .collect();
        (format!("f:{part}"), Value::Object(fields))
    };
    ["kube-controller-manager", "kubelet"]
        .iter()
        .map(|manager| {
            let tree: serde_json::Map<String, Value> = parts.iter().map(owned).collect();
            json!({"manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": tree})
        })
        .collect()
}
