use std::collections::BTreeMap;
use std::sync::Arc;

use muster_control_plane::fleet::pause::Pause;
use muster_shared::api::any_binding::AnyBinding;
use serde_json::{Value, json};

use super::*;
use crate::cluster_row::Counts;
use crate::fixtures::{self, lease, member, tasks};
use crate::old_copies::old_copies;
use crate::old_copies::tests::work;
use crate::view::Member;

const NOW: &str = "2026-01-01T00:10:00Z";

fn binding(conditions: &Value, leaving: Option<&str>) -> Arc<AnyBinding> {
    let changes = json!({
        "spec": {
            "resource": {"name": "web"}, "clusters": [{"name": "m1", "replicas": 2}],
            "gracefulEvictionTasks": tasks(leaving),
        },
        "status": {"conditions": conditions},
    });
    fixtures::binding("shop", "web-deployment", &changes)
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    let since = "2026-01-01T00:05:00Z";
    json!([fixtures::condition(kind, status, reason, "because", since)])
}

#[test]
fn the_state_of_a_workload_is_what_somebody_has_to_know_first() {
    let stranded = condition("EvictionPending", "True", "NowhereToGo");
    let evicted = condition("EvictionPending", "False", "Evicted");
    let unplaced = condition("Scheduled", "False", "NoClusterFit");
    let failing = condition("ApplicationFailoverPending", "True", "WaitingForToleration");
    let late = condition("DataPending", "True", "DataNotReady");
    let lacking = condition("DependenciesMissing", "True", "DependenciesNotPlaced");
    let unheard = condition("FullyApplied", "Unknown", "ClustersNotHeard");
    let held = condition("Scheduled", "True", "StoppedByThreshold");
    let placed = condition("Scheduled", "True", "Success");
    for (conditions, leaving, state, since) in [
        (json!([]), None, "Placed", "-"),
        (json!([]), Some("m2"), "Moving", "60s"),
        (stranded, Some("m2"), "NowhereToGo", "5m0s"),
        (evicted, None, "Placed", "-"),
        (unplaced, None, "Unplaced", "5m0s"),
        (late, Some("m2"), "DataNotReady", "5m0s"),
        (failing, None, "WaitingForToleration", "5m0s"),
        (lacking, None, "DependenciesMissing", "5m0s"),
        (unheard, None, "Unknown", "5m0s"),
        (held, None, "StoppedByThreshold", "5m0s"),
        (placed, None, "Placed", "-"),
    ] {
        let row = WorkloadRow::of(&binding(&conditions, leaving), &Left::default());
        assert_eq!(row.state, state, "{conditions}");
        assert_eq!(ago(row.since, NOW.parse().unwrap()), since, "{conditions}");
        assert!(row.concerns("m1") && !row.concerns("m"));
        assert_eq!(row.concerns("m2"), leaving.is_some());
    }
}

#[test]
fn a_workload_in_a_cluster_that_falls_silent_while_nobody_leads_is_not_reported_to_be_placed() {
    let moves = condition("EvictionPending", "True", "NowhereToGo");
    let why = "no control plane leads that could judge whether m1 is silent";
    for (silent, conditions, expected) in [
        ("m1", json!([]), ("Unknown", why)),
        ("m2", json!([]), ("Placed", "")),
        ("m1", moves, ("NowhereToGo", "because")),
    ] {
        let left = Left {
            unjudged: BTreeSet::from([silent.to_owned()]),
            ..Left::default()
        };
        let row = WorkloadRow::of(&binding(&conditions, None), &left);
        let found = (&*row.state, &*row.message);
        assert_eq!(found, expected, "{silent} {conditions}");
    }
}

#[test]
fn an_old_copy_that_somebody_has_to_release_is_named_and_is_no_move() {
    let mut binding = AnyBinding::clone(&binding(&json!([]), Some("m2")));
    binding.spec.graceful_eviction_tasks[0].suppress_deletion = Some(true);
    let row = WorkloadRow::of(&binding, &Left::default());
    assert_eq!(row.state, "Placed");
    assert_eq!(row.leaving, ["m2"]);
    assert!(row.message.contains("in m2 stays until"), "{}", row.message);
}

#[test]
fn a_workload_is_a_line_and_with_wide_its_reason_too() {
    let rows = [WorkloadRow::of(
        &binding(&condition("EvictionPending", "True", "NowhereToGo"), None),
        &Left::default(),
    )];
    assert_eq!(
        workloads(&rows, true, NOW.parse().unwrap()),
        "NAMESPACE   WORKLOAD         CLUSTERS   LEAVING   STATE         SINCE   WHY\n\
         shop        deployment/web   m1(2)      -         NowhereToGo   5m0s    because\n"
    );
}

#[test]
fn a_workload_leaves_a_cluster_until_its_old_copy_there_is_gone_and_one_that_is_silent_says_so() {
    let moved = binding(&json!([]), Some("m3"));
    let left = Left {
        copies: old_copies(
            &["m1", "m4", "m5"].map(|it| work("web-deployment", it)),
            &[],
        ),
        not_heard: BTreeSet::from(["m3".to_owned(), "m4".to_owned()]),
        ..Left::default()
    };
    let key = left.copies.keys().next().unwrap().clone();
    let copies = BTreeMap::from([(BindingKey::of(&moved), left.copies[&key].clone())]);
    let row = WorkloadRow::of(&moved, &Left { copies, ..left });
    assert_eq!(row.leaving(), ["m3 (silent)", "m1", "m4 (silent)", "m5"]);
    assert_eq!(row.leaving, ["m3", "m1", "m4", "m5"]);
    assert!(row.concerns("m4"));
}

#[test]
fn what_follows_a_workload_is_placed_where_that_is() {
    let follows = json!({"spec": {
        "resource": {"apiVersion": "v1", "kind": "ConfigMap"},
        "requiredBy": [{"name": "web-deployment", "namespace": "shop", "clusters": [{"name": "m2"}]}],
    }});
    let follows = fixtures::binding("shop", "settings", &follows);
    let row = WorkloadRow::of(&follows, &Left::default());
    assert_eq!(
        (&*row.clusters, &*row.state),
        (&["m2".to_owned()][..], "Placed")
    );
    // A ConfigMap runs nothing and is no workload.
    let counts = Counts::of(Some(&[follows]), None);
    assert_eq!(counts.placed, Some(BTreeMap::new()));
}

#[test]
fn a_cluster_that_is_silent_says_since_when_and_how_many_workloads_it_has() {
    let changes = json!({
        "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]},
        "status": {
            "kubernetesVersion": "v1.36.0", "nodeSummary": {"totalNum": 3, "readyNum": 2},
            "conditions": condition("Ready", "Unknown", "ClusterStatusUnknown"),
        },
    });
    let cluster = member("m1", &changes);
    let lease = lease("m1", "2026-01-01T00:04:20.000000Z");
    let works = ["web-deployment", "api-deployment"].map(|it| work(it, "m1"));
    let counts = Counts::of(Some(&[binding(&json!([]), None)]), Some(&works));
    let now: Timestamp = NOW.parse().unwrap();
    let row = ClusterRow::of(&cluster, Some(&lease), (false, false), &counts, now);
    let rows = [row];
    assert_eq!(
        clusters(&rows, None, false, now),
        "NAME   READY     REASON                 SINCE   HEARD   NODES   WORKLOADS   OLD COPIES   TAINTS\n\
         m1     Unknown   ClusterStatusUnknown   5m0s    5m40s   2/3?    1           2            a:NoExecute\n\n\
         ?: as the cluster reported last, which is not ready now.\n"
    );
    let wide = clusters(&rows, None, true, now);
    assert!(
        wide.contains("Pull   -        v1.36.0      -       a:NoExecute"),
        "{wide}"
    );
}

#[test]
fn each_cluster_has_one_state_whatever_people_ordered_and_one_that_is_silent_is_not_ready() {
    let is = |status: &str| condition("Ready", status, "R");
    let (drain, failed) = (Some("failover.muster.io/drain"), Some("example.com/failed"));
    let unjudged = "Silent Unknown SilentAndNotJudged false";
    for (conditions, taint, is_silent, expected) in [
        (is("True"), None, false, "Ready True R true"),
        (is("True"), drain, false, "Ready True R true"),
        (is("True"), failed, false, "Attention True R true"),
        (is("True"), None, true, unjudged),
        (is("False"), None, true, "NotReady False R true"),
        (is("Unknown"), None, true, "Silent Unknown R true"),
        (json!([]), None, true, "New Unknown NeverReported false"),
    ] {
        let taints = taint.map(|key| json!({"key": key, "effect": "NoExecute"}));
        let changes = json!({
            "spec": {"taints": taints.as_slice()}, "status": {"conditions": conditions},
        });
        let it = Member::of(&member("m1", &changes), None, is_silent);
        let is_dated = it.since.is_some();
        let found = format!("{:?} {} {} {is_dated}", it.state, it.ready, it.reason);
        assert_eq!(found, expected);
    }
}

#[test]
fn a_pause_of_the_fleet_marks_each_cluster_and_one_that_is_over_marks_none() {
    let now: Timestamp = NOW.parse().unwrap();
    let row = |pause: &str, is_paused| {
        let changes = json!({
            "metadata": {"annotations": {"failover.muster.io/paused": pause}},
            "status": {"conditions": condition("Ready", "True", "ClusterReady")},
        });
        let cluster = member("m1", &changes);
        ClusterRow::of(&cluster, None, (false, is_paused), &Counts::default(), now)
    };
    let over = r#"{"until": "2026-01-01T00:09:00Z"}"#;
    for (pause, is_paused, expected) in [
        ("disks", false, true),
        (over, false, false),
        (over, true, true),
    ] {
        assert_eq!(
            row(pause, is_paused).paused,
            expected,
            "{pause} {is_paused}"
        );
    }
    let pause = Pause {
        by: "ann".to_owned(),
        ..Pause::default()
    };
    let text = clusters(&[row(over, true)], Some(&pause), false, now);
    assert!(text.contains("m1     True,Paused"), "{text}");
    assert!(
        text.ends_with("\nPAUSED: all movement is paused by ann until somebody resumes it\n"),
        "{text}"
    );
}
