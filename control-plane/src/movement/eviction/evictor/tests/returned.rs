//! Clusters that are ready again while the taints of their failure are still there.

use super::*;

/// Returns the cluster `c0` as the policy `dead` has tainted it, and judges it now: `lets_go` says
/// whether its conditions match no more.
fn judged(name: &str, ready: &str, second: i64, lets_go: bool) -> Arc<Cluster> {
    let mut cluster = Cluster::clone(&since(name, ready, second, &down(7)));
    let window =
        json!({"dead": {"generation": 1, "matched": false, "since": Timestamp::UNIX_EPOCH}});
    let record = json!({
        "taints": [{"key": "down", "effect": "NoExecute", "heldBy": ["dead"]}],
        "windows": if lets_go { window } else { json!({}) },
    });
    let annotation = ("taints.muster.io/record".to_owned(), record.to_string());
    cluster.metadata.annotations = Some([annotation].into());
    Arc::new(cluster)
}

#[test]
fn what_waited_for_the_brake_stays_in_a_cluster_that_is_back() {
    // All but one have failed, so that nothing moves.
    let mut world = World::new(5, 4, 2);
    for name in ["c0", "c1", "c2", "c3"] {
        world.set(&judged(name, "Unknown", 0, false));
    }
    assert!(world.evict(100.0).is_empty());
    for name in ["c0", "c1", "c2"] {
        world.set(&judged(name, "True", 1_100, false));
        world.set(&judged(name, "True", 1_100, true));
    }
    // The taints of two go, which lets the brake go.
    for name in ["c0", "c1"] {
        world.set(&since(name, "True", 1_100, &json!([])));
    }
    let mut left = world.evict(10_000.0);
    left.sort();
    assert_eq!(
        left,
        ["w3-0", "w3-1"],
        "only what is in the one that is lost"
    );
    // The taint of a cluster that falls silent again counts at once.
    world.set(&judged("c2", "Unknown", 11_100, false));
    assert_eq!(world.evict(100.0).len(), 2);
}

#[test]
fn the_brake_holds_until_the_taints_of_those_that_are_back_are_gone() {
    // A lost network of the control plane: all are back within a minute, one after the other.
    let all = ["c0", "c1", "c2", "c3"];
    let mut world = World::new(5, 4, 2);
    for name in all {
        world.set(&judged(name, "Unknown", 0, false));
    }
    assert!(world.evict(100.0).is_empty());
    for name in &all[..3] {
        world.set(&judged(name, "True", 1_100, true));
    }
    assert!(world.evict(60.0).is_empty(), "c3 is about to be back");
    world.set(&judged("c3", "True", 1_160, true));
    for name in all {
        world.set(&since(name, "True", 1_160, &json!([])));
    }
    assert!(world.evict(10_000.0).is_empty(), "nothing had to leave");
}

#[test]
fn a_cluster_that_is_back_before_a_toleration_ends_keeps_its_workloads_whatever_its_clock_says() {
    let tolerated = json!({"placement": {"clusterTolerations": [
        {"key": "gpu", "operator": "Exists"},
        {"key": "down", "operator": "Exists", "tolerationSeconds": 60},
    ]}});
    let tainted = |ready: &str, second: i64, lets_go: bool| {
        let mut cluster = Cluster::clone(&judged("c0", ready, second, lets_go));
        cluster.spec.taints = serde_json::from_value(down(995)).unwrap();
        cluster
    };
    for clock in [-100_000, 0, 100_000] {
        let lost = Arc::new(tainted("Unknown", 990 + clock, false));
        let mut world = World::pair(lost, [binding("w", &["c0"], &tolerated)]);
        assert!(world.evict(30.0).is_empty());
        let mut back = tainted("True", 1_030 + clock, true);
        let other = json!({"key": "gpu", "effect": "NoExecute"});
        back.spec
            .taints
            .push(serde_json::from_value(other).unwrap());
        world.set(&Arc::new(back));
        assert!(world.evict(10_000.0).is_empty(), "{clock}");
    }
}

#[test]
fn a_policy_has_a_moment_to_judge_a_cluster_that_is_back_and_no_more() {
    let mut world = World::pair(judged("c0", "Unknown", 900, false), []);
    world.evict(1.0);
    world.set(&judged("c0", "True", 1_001, false));
    world.put(&binding("w", &["c0"], &json!({})));
    assert!(world.evict(9.0).is_empty());
    assert_eq!(
        world.evict(10.0),
        ["w"],
        "its conditions match for another reason"
    );
}

#[test]
fn a_taint_of_a_person_or_of_a_policy_that_still_wants_it_counts_through_a_blip() {
    for tainted in [
        since("c0", "True", 999, &down(900)),
        judged("c0", "True", 999, false),
    ] {
        let mut world = World::pair(tainted, [binding("w", &["c0"], &json!({}))]);
        assert_eq!(world.evict(60.0), ["w"]);
    }
}

#[test]
fn no_room_is_kept_for_what_stays_in_a_cluster_that_is_back() {
    let requests = json!({"resourceRequest": {"cpu": "1"}});
    let with = |name: &str, on: &str, priority: i32| {
        let more = json!({"schedulePriority": {"priority": priority}, "replicas": 1, "replicaRequirements": requests});
        binding(name, &[on], &more)
    };
    let clusters = vec![
        cluster("c0", &down(900)),
        judged("c1", "True", 999, true),
        cluster("c2", &json!([])),
        cluster("c3", &json!([])),
        cluster("c4", &json!([])),
    ];
    let workloads = vec![with("idle", "c0", 0), with("vital", "c1", 9)];
    let mut world = World::of(clusters, workloads, true);
    let tried = world.pass(20.0, |_| Outcome::Nowhere("full".into()));
    assert_eq!(tried[0].binding.name_any(), "idle");
    assert_eq!(tried[0].kept.workloads(), 0, "nothing leaves c1");
}

#[test]
fn a_taint_that_its_policies_let_go_of_counts_while_the_cluster_is_not_back() {
    // The policy asks for Ready=Unknown and SeenByPeers=False, as in the manual. A witness of the
    // dead cluster falls silent, or `peers.perCluster` becomes 0: SeenByPeers is Unknown, and the
    // policy takes its taint away after `removeOnMismatchSeconds`. The cluster is as dead as
    // before. Likewise, the policy cannot be read any more since the cluster was back for a moment,
    // and what it said then stays in the record.
    for ready in ["Unknown", "False"] {
        let workload = binding("w", &["c0"], &json!({}));
        let mut world = World::pair(judged("c0", ready, 900, false), [workload]);
        world.reported();
        world.set(&judged("c0", ready, 900, true));
        let recovered = world.has_reported("AbandonedOnRecovery");
        assert!(!recovered, "{ready}: nothing has recovered");
        assert_eq!(world.evict(60.0), ["w"], "{ready}");
        // When it is back, what is still there stays, as before.
    }
    let mut world = World::pair(judged("c0", "Unknown", 900, true), []);
    world.set(&judged("c0", "True", 1_000, true));
    world.put(&binding("w", &["c0"], &json!({})));
    assert!(world.evict(10_000.0).is_empty(), "it is back");
}

#[test]
fn a_policy_has_its_moment_although_the_cluster_has_a_tolerated_taint_of_somebody_else() {
    let tolerates = json!({"placement": {"clusterTolerations": [
        {"key": "gpu", "operator": "Exists"},
    ]}});
    let of_gpu = |ready: &str, second: i64, lets_go: bool| {
        let mut cluster = Cluster::clone(&judged("c0", ready, second, lets_go));
        let other = json!({"key": "gpu", "effect": "NoExecute"});
        let taint = serde_json::from_value(other).unwrap();
        cluster.spec.taints.push(taint);
        Arc::new(cluster)
    };
    let mut world = World::pair(of_gpu("Unknown", 900, false), []);
    world.evict(1.0);
    world.set(&of_gpu("True", 1_001, false));
    world.put(&binding("w", &["c0"], &tolerates));
    assert!(
        world.evict(9.0).is_empty(),
        "its policy has not judged it yet"
    );
    world.set(&of_gpu("True", 1_001, true));
    assert!(world.evict(10_000.0).is_empty(), "it lets go");
}

#[test]
fn a_policy_has_its_moment_although_the_cluster_came_back_before_this_process_began() {
    let back = |lets_go| judged("c0", "True", 999, lets_go);
    let mut world = World::pair(back(false), [binding("w", &["c0"], &json!({}))]);
    assert!(
        world.evict(9.0).is_empty(),
        "its policy has not judged it yet"
    );
    world.set(&back(true));
    assert!(world.evict(10_000.0).is_empty(), "it lets go");
}
