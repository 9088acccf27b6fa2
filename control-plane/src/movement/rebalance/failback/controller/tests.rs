use muster_shared::api::any_binding::AnyBinding;
use serde_json::Value;

use super::*;
use crate::fleet::testing::key;
use crate::scheduler::core::Decision;

#[test]
fn workloads_are_found_by_each_cluster_that_they_left_until_they_leave_it_no_more() {
    let homes = Homes::default();
    let names = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    homes.change(&key("a"), &[], &names(&["m1", "m2"]));
    homes.change(&key("b"), &[], &names(&["m2"]));
    let of = |cluster: &str| {
        let mut of: Vec<String> = homes.of(cluster).into_iter().map(|it| it.name).collect();
        of.sort();
        of
    };
    assert_eq!((of("m1"), of("m2")), (names(&["a"]), names(&["a", "b"])));
    assert_eq!(homes.all(), HashSet::from([key("a"), key("b")]));
    homes.change(&key("a"), &names(&["m1", "m2"]), &names(&["m1"]));
    assert_eq!((of("m1"), of("m2")), (names(&["a"]), names(&["b"])));
    homes.change(&key("a"), &names(&["m1"]), &[]);
    assert_eq!((of("m1"), of("m3")), (names(&[]), names(&[])));
    assert_eq!(homes.all(), HashSet::from([key("b")]));
    homes.change(&key("b"), &names(&["m2"]), &[]);
    assert!(
        homes.0.lock().is_empty(),
        "nothing is kept of what came home"
    );
}

#[test]
fn a_process_trusts_what_it_reads_of_clusters_after_two_graces() {
    let (began, grace) = (Instant::now(), Duration::from_secs(40));
    for (second, rest) in [(0, Some(80)), (79, Some(1)), (80, None), (200, None)] {
        let now = began + Duration::from_secs(second);
        let expected = rest.map(Duration::from_secs);
        assert_eq!(untrusted(began, grace, now), expected, "{second}");
    }
}

#[test]
fn nothing_returns_while_something_else_is_under_way() {
    let task = |more: Value| {
        let mut task = json!({ "fromCluster": "m1", "reason": "r", "producer": "p" });
        let fields = more.as_object().unwrap().clone();
        task.as_object_mut().unwrap().extend(fields);
        json!({ "gracefulEvictionTasks": [task] })
    };
    let asked = json!({ "rescheduleTriggeredAt": "2026-01-01T00:00:10Z" });
    let scheduled = json!({ "lastScheduledTime": "2026-01-01T00:00:09Z" });
    let deleted = json!({ "name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let none = json!({});
    for (what, metadata, spec, status, expected) in [
        ("nothing", &none, none.clone(), &none, true),
        ("deletion", &deleted, none.clone(), &none, false),
        ("a request", &none, asked.clone(), &scheduled, false),
        (
            "a request that could not be met",
            &none,
            asked.clone(),
            &json!({
                "lastScheduledTime": "2026-01-01T00:00:09Z",
                "conditions": [{
                    "type": "Scheduled", "status": "False", "reason": "Unschedulable",
                    "message": "", "lastTransitionTime": "2026-01-01T00:00:10Z",
                }],
            }),
            true,
        ),
        (
            "a request that was answered",
            &none,
            asked.clone(),
            &json!({ "lastScheduledTime": "2026-01-01T00:00:11Z" }),
            true,
        ),
        ("an eviction", &none, task(json!({})), &none, false),
        (
            "an eviction that deletes",
            &none,
            task(json!({ "suppressDeletion": false })),
            &none,
            false,
        ),
        (
            "a copy that is kept for ever",
            &none,
            task(json!({ "suppressDeletion": true })),
            &none,
            true,
        ),
        (
            "a suspension",
            &none,
            json!({ "suspension": { "scheduling": true } }),
            &none,
            false,
        ),
    ] {
        let mut spec = spec;
        spec["resource"] = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "a" });
        let binding = json!({ "metadata": metadata, "spec": spec, "status": status });
        let binding: AnyBinding = serde_json::from_value(binding).unwrap();
        assert_eq!(is_settled(&binding), expected, "{what}");
    }
}

#[test]
fn a_placement_brings_a_workload_home_if_it_has_more_there_than_before() {
    let since = Timestamp::UNIX_EPOCH;
    let due = BTreeMap::from(["m1", "m2", "m3", "m4"].map(|it| (it.to_owned(), since)));
    let targets = |list: &[(&str, i32)]| -> Vec<_> {
        let list = list
            .iter()
            .map(|(name, replicas)| json!({ "name": name, "replicas": replicas }));
        serde_json::from_value(list.collect()).unwrap()
    };
    let spec = ResourceBindingSpec {
        clusters: targets(&[("m1", 1), ("m2", 2), ("m3", 2), ("away", 1)]),
        ..ResourceBindingSpec::default()
    };
    for (after, expected) in [
        (&[][..], &[][..]),
        (&[("m1", 1), ("m2", 2), ("away", 1)], &[]),
        (&[("m1", 2), ("m2", 1), ("away", 9)], &["m1"]),
        (&[("m4", 0)], &["m4"]),
        (&[("m4", 5), ("m3", 3), ("m2", 2)], &["m3", "m4"]),
    ] {
        let decision = Decision {
            clusters: targets(after),
            ..Decision::default()
        };
        let expected = match expected {
            [] => Course::Stays,
            names => Course::Returns(names.to_vec()),
        };
        let found = course(&spec, Some(&decision), &due, &[]);
        assert_eq!(found, expected, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_asked_and_waits_for_its_target_keeps_no_others_from_returning() {
    use crate::fleet::testing::{Stand, binding, cluster};

    let stand = Stand::followed([("clusters", cluster("m1"))]).await;
    for (reason, expected) in [
        ("Success", true),
        ("WaitingForRate", true),
        ("TargetObstructed", false),
    ] {
        let mut asked = binding();
        asked["spec"]["rescheduleTriggeredAt"] = json!("2026-01-01T00:00:10Z");
        asked["status"] = json!({
            "lastScheduledTime": "2026-01-01T00:00:09Z",
            "conditions": [{
                "type": "Scheduled", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:10Z",
            }],
        });
        let asked: AnyBinding = serde_json::from_value(asked).unwrap();
        assert_eq!(takes_turn(&stand.fleet, &asked), expected, "{reason}");
    }
}
