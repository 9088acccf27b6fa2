//! Tests of the scheduler beyond the recorded vectors: failover, taints, groups, spreading.

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use muster_shared::api::policy::PurgeMode;
use serde_json::{Value, json};

use super::fixtures::{
    aggregated, cluster, config_map, decide_with, deployment, dynamic, keeping_empty, leaving,
    outcome, placed, snapshot, static_weights, tainted, text,
};
use crate::fleet::testing::only_condition;
use crate::scheduler::core::explain::explain;
use crate::scheduler::core::{Cycle, Growth, Kind, Options, schedule};

const TAINT_UNTOLERATED: &str = "TaintUntolerated";

fn fleet() -> Vec<Value> {
    (1..=5)
        .map(|number| cluster(&format!("member{number}"), 10))
        .collect()
}

fn with(mut placement: Value, key: &str, value: Value) -> Value {
    placement[key] = value;
    placement
}

#[test]
fn what_is_placed_on_healthy_clusters_stays_in_a_failover() {
    let mut clusters = fleet();
    clusters[2] = tainted("member3", 10, "cluster.karmada.io/not-ready", "NoExecute");
    for (placement, expected) in [
        (dynamic(), "member1:4 member2:4 member4:1 member5:1"),
        (aggregated(), "member1:7 member2:3"),
    ] {
        let before = [("member1", 3), ("member2", 3), ("member3", 4)];
        let spec = placed(deployment(10, &placement), &before);
        let moved = leaving(spec, "member3", TAINT_UNTOLERATED);
        assert_eq!(outcome(&moved, &clusters), expected, "{placement}");
    }
}

#[test]
fn every_taint_that_keeps_work_away_refuses_what_is_new_and_keeps_what_is_placed() {
    let placement = json!({ "clusterAffinity": { "clusterNames": ["member1"] } });
    for (effect, refused) in [
        ("NoSchedule", true),
        ("PreferNoExecute", true),
        ("NoExecute", true),
        ("PreferNoSchedule", false),
    ] {
        let clusters = [tainted("member1", 10, "x", effect)];
        let new = deployment(2, &placement);
        let kept = placed(new.clone(), &[("member1", 2)]);
        let expected = if refused {
            format!(
                "0/1 clusters are available: 1 cluster(s) had untolerated taint {{x:{effect}}}."
            )
        } else {
            "member1:2".to_owned()
        };
        assert_eq!(outcome(&new, &clusters), expected);
        assert_eq!(outcome(&kept, &clusters), "member1:2");
    }
}

#[test]
fn of_several_constraints_that_a_cluster_lacks_the_field_of_the_first_one_is_named() {
    let bare = cluster("m", 10);
    for (fields, named) in [
        (["zone", "region", "provider"], "zones"),
        (["region", "provider", "zone"], "region"),
        (["cluster", "provider", "region"], "provider"),
    ] {
        let constraints: Vec<Value> = fields
            .iter()
            .map(|field| json!({ "spreadByField": field, "minGroups": 1 }))
            .collect();
        let spec = config_map(&json!({ "spreadConstraints": constraints }));
        let expected =
            format!("0/1 clusters are available: 1 cluster(s) did not have {named} property.");
        assert_eq!(
            outcome(&spec, std::slice::from_ref(&bare)),
            expected,
            "{fields:?}"
        );
    }
}

#[test]
fn a_cluster_without_the_label_of_a_constraint_is_refused_and_one_with_it_is_not() {
    let by_label = json!({ "spreadConstraints": [{ "spreadByLabel": "rack", "minGroups": 1 }] });
    let spec = config_map(&by_label);
    for (labels, expected) in [
        (json!({ "rack": "r1" }), "m:0"),
        (json!({ "rack": "" }), "0/1"),
        (json!({ "row": "r1" }), "0/1"),
        (json!(null), "0/1"),
    ] {
        let mut cluster = cluster("m", 10);
        cluster["metadata"]["labels"] = labels.clone();
        let got = outcome(&spec, std::slice::from_ref(&cluster));
        assert!(got.starts_with(expected), "{labels}: {got}");
    }
}

#[test]
fn a_cluster_takes_back_what_was_about_to_leave_once_it_has_recovered() {
    let placement = with(
        dynamic(),
        "clusterTolerations",
        json!([{ "key": "x", "operator": "Exists", "tolerationSeconds": 60 }]),
    );
    let spec = leaving(deployment(2, &placement), "m", TAINT_UNTOLERATED);
    let evicting = "0/1 clusters are available: 1 cluster(s) is in the process of eviction.";

    assert_eq!(outcome(&spec, &[cluster("m", 10)]), "m:2");
    // A toleration for a minute brings the workload neither back to where that minute is over, nor,
    // once the task is done, in again.
    let driven_out =
        "0/1 clusters are available: 1 cluster(s) had untolerated taint {x:NoExecute}.";
    for spec in [&spec, &deployment(2, &placement)] {
        assert_eq!(
            outcome(spec, &[tainted("m", 10, "x", "NoExecute")]),
            driven_out
        );
    }
    // The application failed there, and nothing says that it would not again.
    let failed = leaving(deployment(2, &dynamic()), "m", "ApplicationFailure");
    assert_eq!(outcome(&failed, &[cluster("m", 10)]), evicting);
    // Where it was placed again nevertheless, because no other cluster took it, it can be scaled.
    let again = placed(failed, &[("m", 1)]);
    assert_eq!(outcome(&again, &[cluster("m", 10)]), "m:2");
    // Karmada waits for the task.
    let classic = decide_with(&spec, &[cluster("m", 10)], &Options::karmada());
    assert_eq!(text(classic), evicting);
}

#[test]
fn an_application_goes_back_to_a_cluster_where_its_old_copy_is_healthy_again() {
    let up = cluster("m", 10);
    let down = tainted("m", 10, "x", "NoExecute");
    let evicting = "0/1 clusters are available: 1 cluster(s) is in the process of eviction.";
    let untolerated =
        "0/1 clusters are available: 1 cluster(s) had untolerated taint {x:NoExecute}.";
    for reason in ["ApplicationFailure", "NotApplied"] {
        let spec = leaving(deployment(2, &dynamic()), "m", reason);
        let mut goes = spec.clone();
        goes.graceful_eviction_tasks[0].purge_mode = Some(PurgeMode::Directly);
        for (spec, health, reporting, cluster, expected) in [
            (&spec, "Healthy", "m", &up, "m:2"),
            (&spec, "Unhealthy", "m", &up, evicting),
            (&spec, "Unknown", "m", &up, evicting),
            (&spec, "Healthy", "other", &up, evicting),
            (&spec, "Healthy", "m", &down, untolerated),
            // That copy is about to be removed.
            (&goes, "Healthy", "m", &up, evicting),
        ] {
            let reports = json!([{ "clusterName": reporting, "health": health }]);
            let status: ResourceBindingStatus =
                serde_json::from_value(json!({ "aggregatedStatus": reports })).unwrap();
            let clusters = snapshot(std::slice::from_ref(cluster));
            let got = |options: &Options| text(schedule(spec, &status, &clusters, options));
            let mode = &spec.graceful_eviction_tasks[0].purge_mode;
            let what = format!("{reason}, {mode:?}, {health} in {reporting}");
            assert_eq!(got(&Options::default()), expected, "{what}");
            assert_ne!(got(&Options::karmada()), "m:2", "{what}");
        }
    }
}

#[test]
fn new_replicas_avoid_clusters_with_taints_as_long_as_others_suffice() {
    let ill = tainted("m1", 10, "cluster.karmada.io/not-ready", "NoSchedule");
    let clusters = [ill, cluster("m2", 4)];
    let weights = static_weights(&[("m1", 1), ("m2", 1)]);
    let at_most = |most: i64| {
        let constraint = json!({ "spreadByField": "cluster", "minGroups": 1, "maxGroups": most });
        with(dynamic(), "spreadConstraints", json!([constraint]))
    };
    for (placement, replicas, expected) in [
        (dynamic(), 6, "m1:2 m2:4"),
        (aggregated(), 6, "m1:2 m2:4"),
        (weights.clone(), 6, "m1:2 m2:4"),
        (weights, 2, "m1:1 m2:1"),
        // A cluster with a weight of zero takes nothing off the others.
        (static_weights(&[("m1", 1), ("m2", 0)]), 6, "m1:6"),
        // m2 has room for four only: then m1 is better than nothing.
        (dynamic(), 12, "m1:9 m2:3"),
        // m1 is better than nothing, too, where a constraint leaves no other choice.
        (at_most(2), 6, "m1:2 m2:4"),
        (at_most(2), 12, "m1:9 m2:3"),
        (at_most(1), 6, "m1:6"),
        // Replicas that run there are not moved because the workload grows.
        (at_most(1), 3, "m1:3"),
        (at_most(1), 2, "m1:2"),
    ] {
        let spec = placed(deployment(replicas, &placement), &[("m1", 2)]);
        assert_eq!(
            outcome(&spec, &clusters),
            expected,
            "{placement} {replicas}"
        );
    }
}

#[test]
fn new_replicas_avoid_a_silent_cluster_before_it_has_its_taint() {
    for (ready, expected) in [
        ("True", "m1:5 m2:1"),
        ("Unknown", "m1:2 m2:4"),
        ("False", "m1:2 m2:4"),
    ] {
        let mut ill = cluster("m1", 10);
        ill["status"]["conditions"] = only_condition("Ready", ready);
        let spec = placed(deployment(6, &dynamic()), &[("m1", 2)]);
        let clusters = [ill.clone(), cluster("m2", 4)];
        assert_eq!(outcome(&spec, &clusters), expected, "{ready}");
        // Where it alone has room, it is better than nothing.
        let spec = placed(deployment(10, &dynamic()), &[("m1", 2)]);
        assert_eq!(outcome(&spec, &[ill]), "m1:10", "{ready}");
    }
}

#[test]
fn a_member_that_cannot_read_its_works_gets_nothing_new_and_keeps_what_it_has() {
    let with_works = |name: &str, status: &str| {
        let mut cluster = cluster(name, 10);
        let mut works = cluster["status"]["conditions"][0].clone();
        (works["type"], works["status"]) = (json!("WorksUpToDate"), json!(status));
        let conditions = cluster["status"]["conditions"].as_array_mut();
        conditions.unwrap().push(works);
        cluster
    };
    let copies = json!({ "clusterTolerations": [{ "operator": "Exists" }] });
    let divided = |replicas, held: &[(&str, i32)]| placed(deployment(replicas, &dynamic()), held);
    let check = |what: &str, spec: &ResourceBindingSpec, read: &str, unread: &str| {
        for (status, expected) in [("True", read), ("Unknown", read), ("False", unread)] {
            let clusters = [with_works("m1", status), cluster("m2", 10)];
            assert_eq!(outcome(spec, &clusters), expected, "{what}: {status}");
        }
    };
    let (one, both) = ([("m1", 4)], [("m1", 2), ("m2", 2)]);
    for (what, replicas, held, read, unread) in [
        ("new", 4, &[][..], "m1:2 m2:2", "m2:4"),
        ("it stays", 4, &one, "m1:4", "m1:4"),
        ("it grows", 6, &one, "m1:5 m2:1", "m1:4 m2:2"),
        // Those that read their Works do not suffice: what is wanted counts for more.
        ("it grows beyond", 18, &one, "m1:11 m2:7", "m1:11 m2:7"),
        ("it shrinks", 2, &both, "m1:1 m2:1", "m1:1 m2:1"),
    ] {
        check(what, &divided(replicas, held), read, unread);
    }
    // No toleration helps.
    check("a new copy", &config_map(&copies), "m1:0 m2:0", "m2:0");
    let stays = placed(config_map(&copies), &[("m1", 0)]);
    check("a copy stays", &stays, "m1:0 m2:0", "m1:0 m2:0");
    let alone = [with_works("m1", "False")];
    let why = "cluster(s) could not read their Works (WorksUpToDate=False)";
    assert_eq!(
        outcome(&deployment(4, &dynamic()), &alone),
        format!("0/1 clusters are available: 1 {why}.")
    );
    let explained = explain(
        &divided(1, &[("m1", 1)]),
        &ResourceBindingStatus::default(),
        &snapshot(&alone),
        &Options::default(),
    );
    assert!(
        explained[0]
            .to_string()
            .contains(&format!("keeps what it holds, admits no more: {why}"))
    );
}

#[test]
fn who_flees_one_failing_cluster_must_not_count_on_another() {
    let clusters = [
        tainted("m1", 10, "x", "NoExecute"),
        tainted("m2", 10, "x", "NoExecute"),
    ];
    let options = Options {
        growth: Growth::AdmittingOnly,
        ..Options::default()
    };
    for placement in [
        dynamic(),
        aggregated(),
        static_weights(&[("m1", 1), ("m2", 1)]),
    ] {
        let spec = placed(deployment(4, &placement), &[("m1", 2), ("m2", 2)]);
        let moved = leaving(spec, "m1", TAINT_UNTOLERATED);
        let refused = decide_with(&moved, &clusters, &options).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unschedulable, "{placement}");
    }
}

#[test]
fn where_no_later_group_takes_a_workload_the_groups_before_it_are_tried() {
    let group =
        |name: &str, cluster: &str| json!({ "affinityName": name, "clusterNames": [cluster] });
    let groups = json!([group("a", "m1"), group("b", "m2"), group("c", "m3")]);
    let placement = with(dynamic(), "clusterAffinities", groups);
    let status: ResourceBindingStatus =
        serde_json::from_value(json!({ "schedulerObservingAffinityName": "b" })).unwrap();
    let down = |name: &str| tainted(name, 8, "down", "NoExecute");
    let up = |name: &str| cluster(name, 8);
    let new = deployment(4, &placement);
    let evicted = leaving(placed(new.clone(), &[("m2", 4)]), "m2", TAINT_UNTOLERATED);
    for (spec, clusters, expected) in [
        (&new, [up("m1"), up("m2"), up("m3")], Some("b")),
        (&new, [up("m1"), down("m2"), up("m3")], Some("c")),
        (&new, [up("m1"), down("m2"), down("m3")], Some("a")),
        (&evicted, [up("m1"), down("m2"), down("m3")], Some("a")),
        (&evicted, [down("m1"), down("m2"), down("m3")], None),
    ] {
        let pass = Cycle::run(spec, &status, &snapshot(&clusters), &Options::default());
        let group = pass.result.ok().and_then(|it| it.affinity_name);
        assert_eq!(group.as_deref(), expected);
        let tried: Vec<_> = pass.attempts.iter().map(|it| &*it.group).collect();
        assert_eq!(tried, ["b", "c", "a"][..tried.len()]);
    }
}

#[test]
fn nothing_is_moved_to_where_dispatching_is_suspended_and_a_first_placement_is_made() {
    let one = json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }]);
    let up: Vec<Value> = (1..=3).map(|it| cluster(&format!("m{it}"), 10)).collect();
    let suspended = |mut spec: ResourceBindingSpec, suspension: Value| {
        spec.suspension = serde_json::from_value(suspension).unwrap();
        spec
    };
    let on = |names: &[&str]| json!({ "dispatchingOnClusters": { "clusterNames": names } });
    let all = || json!({ "dispatching": true });
    let new = deployment(2, &json!({ "spreadConstraints": one }));
    let there = placed(new.clone(), &[("m1", 2)]);
    let evicted = leaving(there.clone(), "m1", TAINT_UNTOLERATED);
    let kept = leaving(there.clone(), "m1", "NoClusterFit");
    let mut down = up.clone();
    down[0] = tainted("m1", 10, "down", "NoExecute");
    let divided = placed(deployment(4, &dynamic()), &[("m1", 2)]);
    let weights = static_weights(&[("m1", 1), ("m2", 1), ("m3", 3)]);
    let zero = placed(deployment(8, &weights), &[("m1", 0), ("m2", 0), ("m3", 0)]);
    for (what, spec, suspension, clusters, expected) in [
        ("first", &new, all(), &up, "m1:2"),
        ("there", &there, all(), &up, "m1:2"),
        ("kept there while none fitted", &kept, all(), &up, "m1:2"),
        ("evicted", &evicted, on(&["m2"]), &down, "m3:2"),
        ("growing", &divided, on(&["m2", "m3"]), &up, "m1:4"),
        ("growing where it is", &divided, all(), &up, "m1:4"),
        ("from zero", &zero, on(&["m3"]), &up, "m1:4 m2:4 m3:0"),
    ] {
        let spec = suspended(spec.clone(), suspension);
        assert_eq!(outcome(&spec, clusters), expected, "{what}");
    }
    let nowhere = outcome(&suspended(evicted, all()), &down);
    let text = "2 cluster(s) would not get it: its dispatching is suspended";
    assert!(nowhere.contains(text), "{nowhere}");
}

/// Returns the clusters of a workload that asks for so many replicas, and to some of whose clusters
/// dispatching is suspended. Each copy is healthy, except where `health` says otherwise.
fn shrunk(
    spec: ResourceBindingSpec,
    suspended: &[&str],
    health: &[(&str, &str)],
    clusters: &[Value],
) -> String {
    let report = |name: &str| {
        let said = health.iter().find(|(cluster, _)| *cluster == name);
        let health = said.map_or("Healthy", |&(_, health)| health);
        json!({ "clusterName": name, "applied": true, "health": health })
    };
    let reports: Vec<Value> = spec.clusters.iter().map(|it| report(&it.name)).collect();
    let status = json!({ "aggregatedStatus": reports });
    let status: ResourceBindingStatus = serde_json::from_value(status).unwrap();
    let suspension = json!({ "dispatchingOnClusters": { "clusterNames": suspended } });
    let spec = ResourceBindingSpec {
        suspension: serde_json::from_value(suspension).unwrap(),
        ..spec
    };
    let options = Options::default();
    text(schedule(&spec, &status, &snapshot(clusters), &options))
}

#[test]
fn a_copy_whose_dispatching_is_suspended_is_not_given_up_by_a_smaller_number_of_replicas() {
    let clusters: Vec<Value> = (1..=3).map(|it| cluster(&format!("m{it}"), 10)).collect();
    let weights = static_weights(&[("m1", 1), ("m2", 4)]);
    let rising = static_weights(&[("m1", 1), ("m2", 2), ("m3", 3)]);
    let steep = static_weights(&[("m1", 2), ("m2", 2), ("m3", 7)]);
    let one = aggregated();
    let (few, even) = ([("m1", 1), ("m2", 4)], [("m1", 2), ("m2", 2)]);
    let rose = [("m1", 1), ("m2", 2), ("m3", 3)];
    let all = [("m1", 2), ("m2", 2), ("m3", 7)];
    let each = ["m1", "m2", "m3"];
    for (what, replicas, placement, held, suspended, expected) in [
        ("by weights", 2, &weights, &few[..], &each[..1], "m1:1 m2:1"),
        ("all of the rest", 1, &weights, &few, &each[..1], "m1:1"),
        ("free to go", 2, &weights, &few, &each[1..2], "m2:2"),
        ("few suffice", 2, &one, &even, &each[1..2], "m2:2"),
        ("fewer than it holds", 1, &one, &even, &each[1..2], "m2:1"),
        ("both", 2, &weights, &few, &each[..2], "m1:1 m2:1"),
        // That of m2 would go for that of m1.
        ("one by one", 2, &rising, &rose, &each[..2], "m1:1 m2:1"),
        ("all", 3, &steep, &all, &each, "m1:1 m2:1 m3:1"),
        ("too few for all", 2, &steep, &all, &each, "m1:1 m3:1"),
    ] {
        let spec = placed(deployment(replicas, placement), held);
        assert_eq!(shrunk(spec, suspended, &[], &clusters), expected, "{what}");
    }
    let gone = placed(deployment(2, &static_weights(&[("m2", 1)])), &few);
    let found = shrunk(gone, &["m1"], &[], &clusters);
    assert_eq!(found, "m2:2", "its weight was taken away");
    let zero = placed(deployment(0, &weights), &few);
    let found = shrunk(zero, &["m1"], &[], &clusters);
    assert_eq!(found, "", "scaled to zero");
}

#[test]
fn a_living_copy_is_not_given_up_for_a_suspended_one_that_does_not_live() {
    let sound = cluster("m2", 10);
    let [alone, failed] = ["NoSchedule", "NoExecute"].map(|it| tainted("m2", 10, "down", it));
    let mut silent = sound.clone();
    silent["status"]["conditions"][0]["status"] = json!("Unknown");
    for (what, other, health, expected) in [
        ("it lives", &sound, &[][..], "m2:2"),
        ("it lives in a cluster left alone", &alone, &[], "m2:2"),
        ("never made", &sound, &[("m2", "Unknown")], "m1:2"),
        ("ill", &sound, &[("m2", "Unhealthy")], "m1:2"),
        ("its cluster failed", &failed, &[], "m1:2"),
        ("its cluster is silent", &silent, &[], "m1:2"),
    ] {
        let spec = placed(deployment(2, &aggregated()), &[("m1", 2), ("m2", 2)]);
        let clusters = [cluster("m1", 10), other.clone()];
        assert_eq!(shrunk(spec, &["m2"], health, &clusters), expected, "{what}");
    }
}

#[test]
fn a_soft_taint_has_another_cluster_chosen_and_moves_nothing() {
    let placement = |more: Value| {
        json!({
            "spreadConstraints": [{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }],
            "clusterTolerations": more,
        })
    };
    let soft = tainted("m1", 20, "noisy", "PreferNoSchedule");
    let both = [soft.clone(), cluster("m2", 10)];
    let plain = deployment(2, &placement(json!([])));
    let tolerating = deployment(
        2,
        &placement(json!([{ "key": "noisy", "operator": "Exists" }])),
    );
    for (what, spec, clusters, expected) in [
        ("a new one", &plain, &both[..], "m2:2"),
        ("one that tolerates it", &tolerating, &both, "m1:2"),
        ("nowhere else to go", &plain, &both[..1], "m1:2"),
        (
            "one that is there",
            &placed(plain.clone(), &[("m1", 2)]),
            &both,
            "m1:2",
        ),
    ] {
        assert_eq!(outcome(spec, clusters), expected, "{what}");
    }
}

#[test]
fn so_many_groups_are_tried_and_no_more() {
    let groups: Vec<Value> = (0..300)
        .map(|number| json!({ "affinityName": format!("g{number}"), "clusterNames": [format!("m{number}")] }))
        .collect();
    let spec = deployment(4, &json!({ "clusterAffinities": groups }));
    for (there, tried, placed) in [("m99", 100, true), ("m100", 100, false)] {
        let clusters = snapshot(&[cluster(there, 10)]);
        let status = ResourceBindingStatus::default();
        let pass = Cycle::run(&spec, &status, &clusters, &Options::default());
        assert_eq!(
            (pass.attempts.len(), pass.result.is_ok()),
            (tried, placed),
            "{there}"
        );
    }
}

#[test]
fn each_rule_holds_until_it_is_switched_off_by_name() {
    let plain = || config_map(&json!({}));
    let mut blind = cluster("m", 10);
    blind["status"]["apiEnablements"] = json!([]);
    let only_other = config_map(&json!({ "clusterAffinity": { "clusterNames": ["other"] } }));
    let failed = leaving(plain(), "m", "ApplicationFailure");
    let by_region = json!({ "spreadConstraints": [{ "spreadByField": "region", "minGroups": 1 }] });
    let recovered = leaving(plain(), "m", TAINT_UNTOLERATED);
    let decided = |spec: &ResourceBindingSpec, cluster: &Value, plugins: &str| {
        let options = Options::default()
            .with_plugins(&plugins.parse().unwrap())
            .unwrap();
        decide_with(spec, std::slice::from_ref(cluster), &options)
    };
    for (rule, spec, cluster) in [
        ("APIEnablement", plain(), blind),
        (
            "TaintToleration",
            plain(),
            tainted("m", 10, "x", "NoSchedule"),
        ),
        ("ClusterAffinity", only_other, cluster("m", 10)),
        ("ClusterEviction", failed, cluster("m", 10)),
    ] {
        let refused = decided(&spec, &cluster, "*").unwrap_err();
        assert_eq!(refused.kind(), Kind::NoClusterFit, "{rule}");
        let without = decided(&spec, &cluster, &format!("*,-{rule}"));
        assert_eq!(text(without), "m:0", "{rule}");
    }
    // Without its filter a constraint is still met, or nothing is placed.
    for (plugins, kind) in [
        ("*", Kind::NoClusterFit),
        ("*,-SpreadConstraint", Kind::SchedulerError),
    ] {
        let refused = decided(&config_map(&by_region), &cluster("m", 10), plugins).unwrap_err();
        assert_eq!(refused.kind(), kind, "{plugins}");
    }
    // As long as the taint drives it out, it does not come back, though taints keep nothing away.
    let driven_out = tainted("m", 10, "x", "NoExecute");
    let refused = decided(&recovered, &driven_out, "*,-TaintToleration").unwrap_err();
    assert_eq!(refused.kind(), Kind::NoClusterFit);
    // Named, the filter for evictions is Karmada's.
    assert_eq!(text(decided(&recovered, &cluster("m", 10), "*")), "m:0");
    let classic = decided(&recovered, &cluster("m", 10), "*,ClusterEviction").unwrap_err();
    assert_eq!(classic.kind(), Kind::NoClusterFit);
}

#[test]
fn a_requested_placement_prefers_no_cluster_for_having_the_workload() {
    let placement = json!({
        "spreadConstraints": [{ "minGroups": 2, "maxGroups": 2 }],
        "replicaScheduling": { "replicaSchedulingType": "Duplicated" },
    });
    let mut spec = placed(deployment(2, &placement), &[("member2", 2), ("member3", 2)]);
    assert_eq!(outcome(&spec, &fleet()), "member2:2 member3:2");
    spec.reschedule_triggered_at = serde_json::from_value(json!("2026-01-01T00:00:01Z")).unwrap();
    let status = json!({ "lastScheduledTime": "2026-01-01T00:00:00Z" });
    let status: ResourceBindingStatus = serde_json::from_value(status).unwrap();
    let fresh = |options| text(schedule(&spec, &status, &snapshot(&fleet()), &options));
    let mut roomy = fleet();
    roomy[0] = cluster("member1", 20);
    assert_eq!(fresh(Options::karmada()), "member2:2 member3:2");
    let home = schedule(&spec, &status, &snapshot(&roomy), &Options::default());
    assert!(text(home).starts_with("member1:2 "));
}

#[test]
fn locality_keeps_a_workload_where_it_is_until_it_is_switched_off() {
    let placement = with(
        aggregated(),
        "spreadConstraints",
        json!([{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }]),
    );
    let spec = placed(deployment(2, &placement), &[("m2", 2)]);
    let clusters = [cluster("m1", 50), cluster("m2", 10)];
    let decided = |plugins: &str| {
        let options = Options::default().with_plugins(&plugins.parse().unwrap());
        text(decide_with(&spec, &clusters, &options.unwrap()))
    };
    assert_eq!(decided("*"), "m2:2");
    assert_eq!(decided("*,-ClusterLocality"), "m1:2");
}

#[test]
fn who_shrinks_leaves_the_smaller_clusters_or_gives_back_in_proportion() {
    let clusters = [cluster("m1", 10), cluster("m2", 10)];
    for (placement, replicas, expected) in [
        (aggregated(), 6, "m2:6"),
        (aggregated(), 8, "m2:8"),
        (dynamic(), 6, "m1:2 m2:4"),
        // Weights are about the whole, whatever was there before.
        (static_weights(&[("m1", 1), ("m2", 1)]), 6, "m1:3 m2:3"),
    ] {
        let spec = placed(deployment(replicas, &placement), &[("m1", 4), ("m2", 8)]);
        assert_eq!(outcome(&spec, &clusters), expected, "{placement}");
    }
}

#[test]
fn without_replicas_nothing_is_placed_unless_empty_workloads_are_kept() {
    for placement in [json!({}), dynamic(), aggregated()] {
        let spec = placed(deployment(0, &placement), &[("m1", 4)]);
        let clusters = [cluster("m1", 10), cluster("m2", 10)];
        for (keep_empty, expected) in [(false, ""), (true, "m1:0 m2:0")] {
            let options = Options {
                keep_empty,
                ..Options::default()
            };
            let decided = decide_with(&spec, &clusters, &options);
            assert_eq!(text(decided), expected, "{placement}");
        }
    }
}

#[test]
fn a_copy_that_gives_all_its_replicas_away_does_not_stay_with_a_share_of_zero() {
    let weights = static_weights(&[("m2", 1)]);
    let m2 = ("m2", 2);
    for (what, held, expected) in [
        ("it gives them away", &[("m1", 2)][..], "m2:2"),
        ("it had none", &[("m1", 0), m2], "m1:0 m2:2"),
        ("it was not there", &[m2], "m1:0 m2:2"),
    ] {
        let spec = placed(deployment(2, &weights), held);
        let options = keeping_empty();
        let clusters = [cluster("m1", 10), cluster("m2", 10)];
        let decided = decide_with(&spec, &clusters, &options);
        assert_eq!(text(decided), expected, "{what}");
    }
}

#[test]
fn what_an_old_copy_uses_is_room_for_the_workload_where_it_is_placed_again() {
    // One core is free beside what the old copy uses.
    let clusters = snapshot(&[cluster("m1", 1)]);
    for (what, reported, mode, kept, fits) in [
        ("it is there", "m1", "Gracefully", json!(2), true),
        ("it stays for ever", "m1", "Never", json!(2), true),
        ("it is smaller", "m1", "Gracefully", json!(1), false),
        ("it is not counted", "m1", "Gracefully", Value::Null, false),
        ("it goes first", "m1", "Directly", json!(2), false),
        ("unreported", "m2", "Gracefully", json!(2), false),
    ] {
        let mut spec = deployment(3, &aggregated());
        let task = json!([{
            "fromCluster": "m1", "reason": "NoClusterFit", "producer": "p",
            "purgeMode": mode, "replicas": kept,
        }]);
        spec.graceful_eviction_tasks = serde_json::from_value(task).unwrap();
        let status = json!({"aggregatedStatus": [{"clusterName": reported}]});
        let status: ResourceBindingStatus = serde_json::from_value(status).unwrap();
        let decided = schedule(&spec, &status, &clusters, &Options::default());
        assert_eq!(text(decided) == "m1:3", fits, "{what}");
    }
}

#[test]
fn an_old_copy_that_waits_for_others_is_given_no_share_of_zero() {
    let clusters = ["m1", "m2", "m3"].map(|name| cluster(name, 10));
    let options = keeping_empty();
    let here = placed(deployment(2, &aggregated()), &[("m1", 2), ("m2", 2)]);
    let mut again = leaving(here.clone(), "m1", TAINT_UNTOLERATED);
    again.clusters.clone_from(&here.clusters);
    again.clusters[0].replicas = 0;
    for (what, spec, expected) in [
        (
            "it left",
            leaving(here, "m1", TAINT_UNTOLERATED),
            "m2:2 m3:0",
        ),
        ("it is placed there", again, "m1:0 m2:2 m3:0"),
    ] {
        let decided = decide_with(&spec, &clusters, &options);
        assert_eq!(text(decided), expected, "{what}");
    }
}

#[test]
fn a_job_has_no_share_of_zero_in_which_it_would_be_complete_at_once() {
    let options = keeping_empty();
    let options = options.with_plugins(&"*,-APIEnablement".parse().unwrap());
    let options = options.unwrap();
    let clusters = [cluster("m1", 10), cluster("m2", 10)];
    for (version, kind, replicas, expected) in [
        ("apps/v1", "Deployment", 2, "m1:2 m2:0"),
        ("batch/v1", "Job", 2, "m1:2"),
        ("batch/v1", "Job", 0, "m1:0 m2:0"),
    ] {
        let mut spec = placed(deployment(replicas, &aggregated()), &[("m1", 2)]);
        spec.resource.api_version = version.to_owned();
        spec.resource.kind = kind.to_owned();
        let decided = decide_with(&spec, &clusters, &options);
        assert_eq!(text(decided), expected, "{kind} {replicas}");
    }
}
