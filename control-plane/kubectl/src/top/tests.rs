use serde_json::{Value, json};

use super::*;
use crate::fixtures::{condition, lease, member};

const NOW: &str = "2026-01-01T00:10:00Z";
const RENEWED: &str = "2026-01-01T00:09:50.000000Z";

fn row(name: &str, ready: &str, summary: &Value) -> Row {
    Row::of(
        &cluster(name, ready, summary),
        Some(&lease(name, RENEWED)),
        false,
    )
}

fn cluster(name: &str, ready: &str, summary: &Value) -> Cluster {
    let changes = json!({"status": {
        "conditions": [condition("Ready", ready, "Any", "", "2026-01-01T00:00:00Z")],
        "nodeSummary": {"totalNum": 3, "readyNum": 2},
        "resourceSummary": summary,
    }});
    member(name, &changes)
}

fn fleet() -> Vec<Row> {
    vec![
        row(
            "m1",
            "True",
            &json!({
                "allocatable": {"cpu": "12", "memory": "48Gi", "pods": "330", "nvidia.com/gpu": "4"},
                "allocated": {"cpu": "1500m", "memory": "6Gi", "pods": "33", "nvidia.com/gpu": "1"},
                "allocating": {"cpu": "1", "pods": "2"},
            }),
        ),
        row(
            "m2",
            "Unknown",
            &json!({
                "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
                "allocated": {"cpu": "3900m", "memory": "4Gi", "pods": "11"},
            }),
        ),
        row("m3", "False", &Value::Null),
    ]
}

#[test]
fn the_table_marks_what_clusters_that_are_not_ready_reported_last_and_does_not_add_it() {
    let expected = "\
NAME    READY     HEARD   NODES   CPU             MEMORY           PODS           WAITING
m1      True      10s     2/3     1.5/12 (12%)    6Gi/48Gi (12%)   33/330 (10%)   2
m2      Unknown   10s     2/3?    3.9/4 (97%)?    4Gi/16Gi (25%)?  11/110 (10%)?  0?
m3      False     10s     2/3?    -               -                -              -
(sum)   True      -       2/3     1.5/12 (12%)    6Gi/48Gi (12%)   33/330 (10%)   2

?: as the cluster reported last, which is not ready now. It is not in the sum.
";
    let printed = table(&fleet(), false, NOW.parse().unwrap());
    let words = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines();
        lines
            .map(|it| it.split_whitespace().map(str::to_owned).collect())
            .collect()
    };
    assert_eq!(words(&printed), words(expected), "{printed}");
    let wide = table(&fleet(), true, NOW.parse().unwrap());
    assert!(wide.contains("nvidia.com/gpu=1/4 (25%)"), "{wide}");
    // Of clusters none of which is ready there is no sum, which would read as an empty fleet.
    let dead = table(&fleet()[1..], false, NOW.parse().unwrap());
    assert!(!dead.contains("sum"), "{dead}");
    let one = table(&fleet()[..1], false, NOW.parse().unwrap());
    assert!(!one.contains("(sum)") && !one.contains('?'), "{one}");
}

#[test]
fn the_fullest_come_first_and_those_that_say_nothing_last() {
    for (order, expected) in [
        (Order::Name, ["m1", "m2", "m3"]),
        (Order::Cpu, ["m2", "m1", "m3"]),
        (Order::Memory, ["m2", "m1", "m3"]),
        (Order::Pods, ["m1", "m2", "m3"]),
    ] {
        let mut rows = fleet();
        rows.reverse();
        sort(&mut rows, order);
        let names: Vec<&str> = rows.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, expected, "{order:?}");
    }
}

#[test]
fn amounts_are_short_for_people_and_exact_for_programs() {
    for (name, amount, expected) in [
        (CPU, "1500m", "1.5"),
        (CPU, "12", "12"),
        (CPU, "0", "0"),
        (MEMORY, "6Gi", "6Gi"),
        (MEMORY, "1536Mi", "1.5Gi"),
        (MEMORY, "1000", "1000"),
        (MEMORY, "2000Ti", "2000Ti"),
        (PODS, "2000k", "2000000"),
        ("nvidia.com/gpu", "4", "4"),
    ] {
        assert_eq!(
            super::amount(name, amount.parse().unwrap()),
            expected,
            "{name} {amount}"
        );
    }
    let rows = fleet();
    let cpu = json!(rows[0])["resources"]["cpu"].clone();
    let expected = json!({
        "allocatable": "12", "requested": "1500m", "waiting": "1", "percent": 12,
    });
    assert_eq!(cpu, expected);
}

#[test]
fn what_cannot_be_read_is_said_and_is_not_zero() {
    let summary = json!({
        "allocatable": {"cpu": "4", "memory": "0"}, "allocated": {"cpu": "lots", "memory": "1Gi"},
    });
    let bad = row("m1", "True", &summary);
    assert_eq!(bad.resources[CPU].share(CPU), "-/4");
    assert_eq!(json!(bad)["resources"]["cpu"]["requested"], Value::Null);
    // Nothing is offered: there is no share.
    assert_eq!(bad.resources[MEMORY].share(MEMORY), "1Gi/0");
    let both = sum(&[bad, fleet().remove(0)]).unwrap();
    assert_eq!(both.resources[CPU].share(CPU), "-/16");
}

#[test]
fn a_cluster_that_is_silent_while_nobody_judges_is_not_in_the_sum() {
    let cluster = cluster("m1", "True", &Value::Null);
    for (is_silent, expected) in [(true, "Unknown"), (false, "True")] {
        let row = Row::of(&cluster, None, is_silent);
        assert_eq!((&*row.ready, row.is_ready()), (expected, !is_silent));
    }
}

#[tokio::test]
async fn leases_that_cannot_be_read_are_not_reported_as_clusters_that_were_never_heard() {
    for (code, expected) in [(403, true), (200, false)] {
        let client = crate::fixtures::api(move |request| {
            let path = request.uri().path();
            let items = match path {
                _ if path.ends_with("/clusters") => json!([cluster("m1", "True", &json!({}))]),
                _ => json!([]),
            };
            if path.ends_with("/leases") && code != 200 {
                let refused = json!({"kind": "Status", "code": code, "reason": "Forbidden"});
                return (code, refused);
            }
            (200, json!({"metadata": {}, "items": items}))
        });
        let line = crate::line::parse(["kubectl-muster", "top"]).unwrap();
        let crate::Question::Top(options) = line.question else {
            panic!("not what was asked");
        };
        let text = carry_out(&client, &options).await.unwrap();
        assert!(text.contains("m1"), "{text}");
        assert_eq!(text.contains("\nHEARD is not known: "), expected, "{text}");
    }
}
