//! Rows as kubectl prints them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Columns, IncludeObject, age, table};
use crate::kinds::catalog;

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().expect("a time")
}

fn cells(object: &Value) -> Vec<Value> {
    let kind = catalog::of_object(
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
    );
    let columns = Columns::builtin(kind.expect("a built-in kind"));
    let table = table(&columns, &[object], IncludeObject::None, now());
    let cells = table["rows"][0]["cells"].as_array().unwrap().clone();
    assert_eq!(
        cells.len(),
        table["columnDefinitions"].as_array().unwrap().len()
    );
    cells
}

#[test]
fn durations_have_two_or_three_figures() {
    for (seconds, text) in [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (12_000, "3h20m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_158_400, "2y1d"),
        (252_288_000, "8y"),
    ] {
        assert_eq!(age::human(seconds), text, "{seconds}");
    }
}

#[test]
fn every_kind_has_as_many_cells_as_columns_even_for_an_empty_object() {
    for kind in catalog::all().iter().filter(|kind| kind.stored()) {
        cells(
            &json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": "n"}}),
        );
    }
}

fn pod(status: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T23:59:00Z"},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}], "nodeName": "n1"},
        "status": status})
}

#[test]
fn pods_say_how_they_do_in_one_word() {
    let running = json!({"name": "a", "ready": true, "state": {"running": {}}, "restartCount": 1,
        "lastState": {"terminated": {"finishedAt": "2026-01-01T23:55:00Z"}}});
    let done = json!({"name": "b", "ready": false, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    for (status, ready, word, restarts) in [
        (json!({"phase": "Pending"}), "0/2", "Pending", "0"),
        (
            json!({"phase": "Running", "containerStatuses": [running, running]}),
            "2/2",
            "Running",
            "2 (5m ago)",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [running, {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
            "1/2",
            "CrashLoopBackOff",
            "1 (5m ago)",
        ),
        (
            json!({"phase": "Running", "containerStatuses": [running, done]}),
            "1/2",
            "NotReady",
            "1 (5m ago)",
        ),
        (
            json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}),
            "0/2",
            "ExitCode:3",
            "0",
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]}),
            "0/2",
            "Init:0/1",
            "0",
        ),
        (
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
            "0/2",
            "Init:Error",
            "0",
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted"}),
            "0/2",
            "Evicted",
            "0",
        ),
    ] {
        let cells = cells(&pod(&status));
        assert_eq!(
            cells[1..5],
            [json!(ready), json!(word), json!(restarts), json!("60s")],
            "{status}"
        );
    }
    let mut going = pod(&json!({"phase": "Running"}));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    assert_eq!(cells(&going)[2], "Terminating");
}

#[test]
fn common_kinds_show_what_kubectl_shows() {
    let created = "2026-01-01T00:00:00Z";
    for (object, expected) in [
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "creationTimestamp": created},
                "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                    "template": {"spec": {"containers": [{"name": "c", "image": "i:1"}]}}},
                "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2}}),
            json!(["web", "2/3", 3, 2, "24h", "c", "i:1", "app=web"]),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "creationTimestamp": created,
                "labels": {"node-role.kubernetes.io/control-plane": ""}},
                "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.33.0"},
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}),
            json!([
                "n",
                "Ready,SchedulingDisabled",
                "control-plane",
                "24h",
                "v1.33.0",
                "10.0.0.1",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "creationTimestamp": created},
                "spec": {"type": "NodePort", "clusterIP": "10.1.1.1", "selector": {"a": "b"},
                    "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}}),
            json!([
                "s",
                "NodePort",
                "10.1.1.1",
                "<none>",
                "80:30080/TCP,53/UDP",
                "24h",
                "a=b"
            ]),
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "creationTimestamp": created},
                "spec": {"completions": 2, "parallelism": 1},
                "status": {"succeeded": 2, "startTime": created, "completionTime": "2026-01-01T00:01:05Z",
                    "conditions": [{"type": "Complete", "status": "True"}]}}),
            json!(["j", "Complete", "2/2", "65s", "24h", "", "", "<none>"]),
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "", "b": ""}}),
            json!(["c", 2, "<unknown>"]),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "lastTimestamp": "2026-01-01T23:59:30Z",
                "type": "Warning", "reason": "Why", "message": "what\n", "involvedObject": {"kind": "Pod", "name": "p"},
                "source": {"component": "kubelet", "host": "n1"}, "count": 3}),
            json!([
                "30s",
                "Warning",
                "Why",
                "pod/p",
                "",
                "kubelet, n1",
                "what",
                "<unknown>",
                3,
                "e"
            ]),
        ),
    ] {
        assert_eq!(Value::from(cells(&object)), expected);
    }
}

#[test]
fn custom_columns_follow_their_paths_and_types() {
    let crd = json!({"spec": {"versions": [
        {"name": "v1", "additionalPrinterColumns": [
            {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
            {"name": "Count", "type": "integer", "jsonPath": ".spec.n", "priority": 1},
            {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Wrong", "type": "integer", "jsonPath": ".metadata.name"},
            {"name": "Map", "type": "string", "jsonPath": ".spec.map"},
        ]},
        {"name": "v2"},
    ]}});
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T23:00:00Z"},
        "spec": {"n": 2, "map": {"a": 1}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let shown = table(
        &Columns::of_crd(&crd, "v1"),
        &[&object],
        IncludeObject::Metadata,
        now(),
    );
    assert_eq!(
        shown["rows"][0]["cells"],
        json!(["x", "True", 2, "60m", null, "{\"a\":1}"])
    );
    assert_eq!(shown["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(shown["columnDefinitions"][2]["priority"], 1);
    let plain = table(
        &Columns::of_crd(&crd, "v2"),
        &[&object],
        IncludeObject::Object,
        now(),
    );
    assert_eq!(plain["rows"][0]["cells"], json!(["x", "60m"]));
    assert_eq!(plain["rows"][0]["object"], object);
}
