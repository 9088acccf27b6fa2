//! Rows as kubectl prints them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Columns, IncludeObject, age, table};
use crate::catalog;

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

#[test]
fn workloads_and_nodes_show_how_they_do() {
    let created = "2026-01-01T00:00:00Z";
    for (object, expected) in [
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "creationTimestamp": created},
                "spec": {"replicas": 3}, "status": {"readyReplicas": 2, "availableReplicas": 1}}),
            json!(["web", 3, 2, 1, "24h"]),
        ),
        (
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "creationTimestamp": created},
                "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            json!(["n", "True", true, "24h"]),
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}),
            json!(["c", null]),
        ),
    ] {
        assert_eq!(Value::from(cells(&object)), expected);
    }
}
