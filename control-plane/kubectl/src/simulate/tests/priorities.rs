//! A cluster of 1,000 workloads with three priorities is lost, and others have room for half.

use std::collections::BTreeMap;

use super::*;

const HIGH: i64 = 1_000;
const MIDDLE: i64 = 100;
const LOW: i64 = 0;

/// Returns a Deployment of one replica of one CPU in `m1`, which it leaves so many seconds after
/// the cluster is tainted.
fn workload(number: usize, priority: i64, seconds: u32) -> Arc<AnyBinding> {
    let tolerated = json!([{
        "key": "example.com/failed", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": seconds,
    }]);
    let more = json!({
        "replicas": 1,
        "clusters": [{"name": "m1", "replicas": 1}],
        "schedulePriority": {"priority": priority},
        "placement": {
            "clusterTolerations": tolerated,
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
        },
    });
    web(&format!("w{number:04}"), "m1", &more)
}

/// Returns the fleet, in which the workloads of each priority tolerate the taint for so long.
fn fleet_of_three(seconds: [u32; 3]) -> Fleet {
    let bindings = (0..1_000).map(|number| {
        let (priority, seconds) = match number % 5 {
            0 => (HIGH, seconds[0]),
            1 | 2 => (MIDDLE, seconds[1]),
            _ => (LOW, seconds[2]),
        };
        workload(number, priority, seconds)
    });
    let large = |name: &str, cpu: &str| -> Cluster {
        let mut cluster = json!(cluster(name, cpu, "eu"));
        cluster["status"]["resourceSummary"]["allocatable"]["pods"] = json!("5000");
        read(cluster)
    };
    Fleet {
        clusters: vec![large("m1", "1000"), large("m2", "300"), large("m3", "200")],
        ..fleet(bindings.collect())
    }
}

#[test]
fn of_a_thousand_workloads_the_important_ones_get_the_room_whoever_has_to_leave_first() {
    let flags = [
        "--feature-gates=Failover=true",
        "--resource-eviction-rate=10",
    ];
    for (what, seconds, expected) in [
        ("all at once", [30, 30, 30], [HIGH, MIDDLE]),
        ("the least important first", [300, 60, 0], [MIDDLE, HIGH]),
    ] {
        let reported = foretell(&fleet_of_three(seconds), &["m1"], &[], &flags);
        let list = |name: &str| reported[name].as_array().unwrap().clone();
        let priority = |it: &Value| it["priority"].as_i64().unwrap();
        // By priority: workloads that move, when the first and the last do, and those that stay.
        let mut all: BTreeMap<i64, (usize, [i64; 2], usize)> = BTreeMap::new();
        let moves = list("moves");
        for it in &moves {
            let after = it["afterSeconds"].as_i64().unwrap();
            let of = all.entry(priority(it)).or_insert((0, [after, after], 0));
            *of = (of.0 + 1, [of.1[0], after], of.2);
        }
        for it in list("stranded") {
            all.entry(priority(&it)).or_default().2 += 1;
        }
        println!("1,000 workloads have to leave, {what}; others have room for 500:");
        println!("  priority  moved  first after  last after  stranded");
        for (priority, (moved, [first, last], stranded)) in all.iter().rev() {
            println!("  {priority:>8}  {moved:>5}  {first:>9} s  {last:>8} s  {stranded:>8}");
        }
        let counts: Vec<_> = all.iter().map(|(of, it)| (*of, it.0, it.2)).collect();
        let expected_counts = [(LOW, 0, 400), (MIDDLE, 300, 100), (HIGH, 200, 0)];
        assert_eq!(counts, expected_counts, "{what}");
        let mut order: Vec<i64> = moves.iter().map(priority).collect();
        order.dedup();
        assert_eq!(order, expected, "{what}");
    }
}

#[test]
fn priorities_are_shown_where_there_are_some() {
    for (priority, is_shown) in [(0, false), (7, true)] {
        let more = json!({"schedulePriority": {"priority": priority}});
        // There is room for one of them.
        let fleet = fleet(vec![web("a", "m1", &json!({})), web("b", "m1", &more)]);
        let (text, reported) = reported(&fleet, &["m1"], &[], &[]);
        assert_eq!(
            text.matches("PRIORITY").count(),
            if is_shown { 2 } else { 0 }
        );
        let (moved, stranded) = (&reported["moves"][0], &reported["stranded"][0]);
        assert_eq!(moved["priority"], priority, "{reported:#}");
        assert_eq!(stranded["priority"], 0, "{reported:#}");
    }
}
