use kube::runtime::watcher::Event;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::api::cluster::ResourceSummary;
use crate::watch::pages::Rejected;

fn node(name: &str, cpu: &str, pods: &str) -> NodeView {
    let conditions = json!([{ "type": "Ready", "status": "True" }]);
    let status = json!({ "allocatable": { "cpu": cpu, "pods": pods }, "conditions": conditions });
    serde_json::from_value(json!({ "metadata": { "name": name }, "status": status })).unwrap()
}

fn pod(name: &str, node: Option<&str>, cpu: &str, phase: &str) -> PodView {
    let containers = json!([{ "resources": { "requests": { "cpu": cpu } } }]);
    serde_json::from_value(json!({
        "metadata": { "namespace": "ns", "name": name },
        "spec": { "nodeName": node, "containers": containers },
        "status": { "phase": phase },
    }))
    .unwrap()
}

fn counts(census: &Census) -> Vec<i64> {
    census
        .modelings(&default_models())
        .iter()
        .map(|modeling| modeling.count)
        .collect()
}

#[test]
fn a_pod_that_moves_on_moves_its_request() {
    let mut census = Census::default();
    assert!(census.apply_pod(&pod("p", None, "2", "Pending")));
    assert_eq!(census.summary().allocating["cpu"].0, "2");
    assert!(census.apply_pod(&pod("p", Some("n"), "2", "Running")));
    assert!(census.summary().allocating.is_empty());
    assert_eq!(census.summary().allocated["cpu"].0, "2");
    assert!(
        !census.apply_pod(&pod("p", Some("n"), "2", "Running")),
        "nothing new"
    );
    assert!(census.apply_pod(&pod("p", Some("n"), "2", "Succeeded")));
    assert_eq!(census.summary(), ResourceSummary::default());
    assert!(
        !census.delete_pod(&pod("p", None, "2", "Succeeded")),
        "had ended before"
    );
}

#[test]
fn pods_may_arrive_before_their_node_and_outlive_it() {
    let mut census = Census::default();
    census.apply_pod(&pod("p", Some("n"), "3", "Running"));
    census.apply_node(&node("n", "8", "110"));
    let mut models = default_models();
    for model in &mut models {
        model.ranges.truncate(1);
    }
    let grade = |census: &Census| {
        census
            .modelings(&models)
            .iter()
            .position(|modeling| modeling.count == 1)
    };
    assert_eq!(grade(&census), Some(3), "5 of 8 cores are free");
    assert!(census.delete_node(&node("n", "8", "110")));
    assert_eq!(grade(&census), None);
    assert_eq!(census.summary().allocated["cpu"].0, "3");
    assert_eq!(census.node_summary().total_num, 0);
}

#[test]
fn a_node_that_takes_no_pods_offers_no_room() {
    let unready = || {
        let mut node = node("n", "8", "110");
        node.status.conditions[0].status = "Unknown".into();
        node
    };
    let cordoned = || {
        let mut node = node("n", "8", "110");
        node.spec.unschedulable = true;
        node
    };
    for (what, out, ready) in [("cordoned", cordoned(), 2), ("not ready", unready(), 1)] {
        let mut census = Census::default();
        census.apply_node(&node("other", "8", "110"));
        census.apply_node(&node("n", "8", "110"));
        census.apply_pod(&pod("p", Some("n"), "3", "Running"));
        assert_eq!(census.summary().allocatable["cpu"].0, "16", "{what}");
        assert!(census.apply_node(&out), "{what}");
        // What its pod uses is offered and used, so that 8 cores are free.
        let summary = census.summary();
        assert_eq!(summary.allocatable["cpu"].0, "11", "{what}");
        assert_eq!(summary.allocatable["pods"].0, "111", "{what}");
        assert_eq!(summary.allocated["cpu"].0, "3", "{what}");
        assert_eq!(counts(&census)[0], 1, "{what}");
        let nodes = census.node_summary();
        assert_eq!((nodes.total_num, nodes.ready_num), (2, ready), "{what}");
        census.apply_node(&node("n", "8", "110"));
        assert_eq!(census.summary().allocatable["cpu"].0, "16", "{what}");
    }
}

#[test]
fn a_node_that_its_cluster_keeps_pods_away_from_offers_no_room() {
    for (kind, cores) in [
        ("DiskPressure", "8"),
        ("PIDPressure", "8"),
        ("NetworkUnavailable", "8"),
        // Kubernetes lets all pods but those without requests tolerate it.
        ("MemoryPressure", "16"),
    ] {
        let mut pressed = node("n", "8", "110");
        let mut condition = pressed.status.conditions[0].clone();
        condition.kind = kind.into();
        pressed.status.conditions.push(condition);
        let mut census = Census::default();
        census.apply_node(&node("other", "8", "110"));
        census.apply_node(&pressed);
        assert_eq!(census.summary().allocatable["cpu"].0, cores, "{kind}");
        assert_eq!(census.node_summary().ready_num, 2, "{kind}");
    }
}

#[test]
fn a_node_that_is_about_to_leave_its_cluster_offers_no_room() {
    for (key, effect, cores) in [
        ("ToBeDeletedByClusterAutoscaler", "NoSchedule", "8"),
        ("karpenter.sh/disrupted", "NoSchedule", "8"),
        ("node.kubernetes.io/out-of-service", "NoExecute", "8"),
        // It stays if its room is used.
        (
            "DeletionCandidateOfClusterAutoscaler",
            "PreferNoSchedule",
            "16",
        ),
        // Whoever tolerates it finds room.
        ("dedicated", "NoSchedule", "16"),
    ] {
        let mut leaving = node("n", "8", "110");
        leaving.spec = serde_json::from_value(json!({
            "taints": [{ "key": "a", "effect": "NoSchedule" }, { "key": key, "effect": effect }],
        }))
        .unwrap();
        let mut census = Census::default();
        census.apply_node(&node("other", "8", "110"));
        census.apply_node(&leaving);
        assert_eq!(census.summary().allocatable["cpu"].0, cores, "{key}");
    }
}

#[test]
fn an_amount_beyond_all_measure_goes_with_its_node() {
    let mut census = Census::default();
    census.apply_node(&node("a", "8", "110"));
    for name in ["x", "y", "z"] {
        census.apply_node(&node(name, "1e30", "110"));
    }
    for name in ["x", "y", "z"] {
        census.delete_node(&node(name, "1e30", "110"));
    }
    assert_eq!(census.summary().allocatable["cpu"].0, "8");
}

#[test]
fn the_last_good_count_is_served_until_a_new_list_is_complete() {
    let mut census = Census::default();
    let first = [
        Event::Init,
        Event::InitApply(pod("a", None, "1", "Pending")),
        Event::InitDone,
    ];
    for event in first {
        census.fold_pod(event);
    }
    assert!(!census.is_complete(), "nodes are not listed yet");
    for event in [Event::Init, Event::InitDone] {
        census.fold_node(event);
    }
    assert!(census.is_complete());

    assert!(
        !census.fold_pod(Event::Init),
        "starting over changes nothing"
    );
    assert_eq!(census.summary().allocating["cpu"].0, "1");
    census.fold_pod(Event::InitApply(pod("b", None, "4", "Pending")));
    assert!(census.is_complete());
    assert!(
        census.fold_pod(Event::InitDone),
        "what was not listed again is gone"
    );
    assert_eq!(census.summary().allocating["cpu"].0, "4");
    assert_eq!(census.pods(), 1);
}

#[test]
fn a_list_that_breaks_off_and_starts_over_loses_nothing_and_keeps_nothing() {
    let mut census = Census::default();
    for event in [
        Event::Init,
        Event::InitApply(node("n", "4", "10")),
        Event::Init,
        Event::InitApply(node("m", "2", "10")),
        Event::InitApply(node("n", "4", "10")),
        Event::InitDone,
    ] {
        census.fold_node(event);
    }
    assert_eq!(census.node_summary().total_num, 2);
    assert_eq!(census.summary().allocatable["cpu"].0, "6");

    // A node that goes while lists break off is dropped all the same.
    for event in [
        Event::Init,
        Event::Init,
        Event::InitApply(node("m", "2", "10")),
        Event::InitDone,
    ] {
        census.fold_node(event);
    }
    assert_eq!(census.node_summary().total_num, 1);
}

fn unreadable(name: &str, deleted: bool) -> Rejected {
    Rejected {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: None,
        error: String::new(),
        resource_version: None,
        deleting: deleted,
        deleted,
    }
}

#[test]
fn what_is_listed_and_does_not_decode_counts_as_before() {
    let mut census = Census::default();
    for event in [
        Event::Init,
        Event::InitApply(node("n", "4", "10")),
        Event::InitApply(node("m", "2", "10")),
        Event::InitDone,
    ] {
        census.fold_node(event);
    }
    for event in [
        Event::Init,
        Event::InitApply(pod("p", Some("n"), "1", "Running")),
        Event::InitDone,
    ] {
        census.fold_pod(event);
    }
    let known = (census.node_summary(), census.summary());

    census.fold_node(Event::Init);
    for name in ["n", "m"] {
        assert!(!census.keep_node(&unreadable(name, false)), "{name}");
    }
    assert!(!census.fold_node(Event::InitDone));
    census.fold_pod(Event::Init);
    assert!(!census.keep_pod(&unreadable("p", false)));
    assert!(!census.fold_pod(Event::InitDone));
    assert_eq!((census.node_summary(), census.summary()), known);

    assert!(census.keep_node(&unreadable("m", true)));
    assert!(census.keep_pod(&unreadable("p", true)));
    assert_eq!(census.node_summary().total_num, 1);
    assert_eq!(census.pods(), 0);
}

#[test]
fn nothing_is_counted_while_no_node_can_be_read() {
    let n = || node("n", "4", "10");
    let again = |deleted| Err(unreadable("n", deleted));
    for (what, then, is_counted) in [
        ("nothing", vec![], false),
        ("it can be read", vec![Ok(Event::Apply(n()))], true),
        (
            "another one can",
            vec![Ok(Event::Apply(node("m", "2", "10")))],
            true,
        ),
        ("it is deleted", vec![Ok(Event::Delete(n()))], true),
        ("it is deleted unreadably", vec![again(true)], true),
        (
            "it is listed again",
            vec![Ok(Event::Init), again(false), Ok(Event::InitDone)],
            false,
        ),
        (
            "a list lacks it",
            vec![Ok(Event::Init), Ok(Event::InitDone)],
            true,
        ),
    ] {
        let mut census = Census::default();
        for event in [Event::Init, Event::InitDone] {
            census.fold_pod(event);
        }
        census.fold_node(Event::Init);
        census.keep_node(&unreadable("n", false));
        census.fold_node(Event::InitDone);
        let mut changed = false;
        for event in then {
            changed |= match event {
                Ok(event) => census.fold_node(event),
                Err(rejected) => census.keep_node(&rejected),
            };
        }
        assert_eq!(
            (census.is_complete(), changed),
            (is_counted, is_counted),
            "{what}"
        );
    }
}

#[test]
fn a_resource_that_no_node_offers_any_more_is_not_reported() {
    let mut census = Census::default();
    census.apply_node(&node("n", "0", "10"));
    assert_eq!(
        census.summary().allocatable["cpu"].0,
        "0",
        "offered, though there is none of it"
    );
    census.delete_node(&node("n", "0", "10"));
    assert_eq!(census.summary(), ResourceSummary::default());
}

#[derive(Clone, Debug)]
enum Change {
    Pod(u8, Option<u8>, u16, bool),
    PodGone(u8),
    Node(u8, u8, u8),
    NodeGone(u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0..12_u8, prop::option::of(0..4_u8), 0..3000_u16, prop::bool::weighted(0.2))
            .prop_map(|(pod, node, milli, ended)| Change::Pod(pod, node, milli, ended)),
        1 => (0..12_u8).prop_map(Change::PodGone),
        2 => (0..4_u8, 0..9_u8, 0..4_u8).prop_map(|(node, cpu, pods)| Change::Node(node, cpu, pods)),
        1 => (0..4_u8).prop_map(Change::NodeGone),
    ]
}

proptest! {
    #[test]
    fn the_running_count_equals_a_fresh_one(changes in prop::collection::vec(change(), 0..60)) {
        let mut census = Census::default();
        let mut pods = std::collections::BTreeMap::new();
        let mut nodes = std::collections::BTreeMap::new();
        for change in changes {
            match change {
                Change::Pod(id, on, milli, ended) => {
                    let on = on.map(|on| format!("n{on}"));
                    let phase = if ended { "Failed" } else { "Running" };
                    let pod = pod(&format!("p{id}"), on.as_deref(), &format!("{milli}m"), phase);
                    census.apply_pod(&pod);
                    pods.insert(id, pod);
                }
                Change::PodGone(id) => {
                    census.delete_pod(&pod(&format!("p{id}"), None, "0", ""));
                    pods.remove(&id);
                }
                Change::Node(id, cpu, places) => {
                    let node = node(&format!("n{id}"), &cpu.to_string(), &places.to_string());
                    census.apply_node(&node);
                    nodes.insert(id, node);
                }
                Change::NodeGone(id) => {
                    census.delete_node(&node(&format!("n{id}"), "0", "0"));
                    nodes.remove(&id);
                }
            }
        }
        let mut fresh = Census::default();
        for node in nodes.values() {
            fresh.apply_node(node);
        }
        for pod in pods.values() {
            fresh.apply_pod(pod);
        }
        prop_assert_eq!(census.summary(), fresh.summary());
        prop_assert_eq!(census.node_summary(), fresh.node_summary());
        prop_assert_eq!(counts(&census), counts(&fresh));
        prop_assert_eq!(census.pods(), fresh.pods());
    }
}
