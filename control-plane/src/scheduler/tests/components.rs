//! Workloads with several pod templates: one cluster has room for all components, or there is none.

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use serde_json::{Value, json};

use super::fixtures::{cluster, decide_with, placed, snapshot, tainted, text};
use crate::scheduler::core::need::{Need, need};
use crate::scheduler::core::{Decision, FitError, Options, schedule};

/// Returns a job manager of one core and so many task managers of two.
fn job(tasks: i32, constraint: &Value) -> ResourceBindingSpec {
    let component = |name: &str, replicas: i32, cores: &str| {
        json!({ "name": name, "replicas": replicas,
            "replicaRequirements": { "resourceRequest": { "cpu": cores } } })
    };
    serde_json::from_value(json!({
        "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "job" },
        "components": [component("manager", 1, "1"), component("task", tasks, "2")],
        "placement": { "spreadConstraints": [constraint] },
    }))
    .unwrap()
}

fn one_cluster() -> Value {
    json!({ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 })
}

fn decide(
    spec: &ResourceBindingSpec,
    clusters: &[Value],
    gate: bool,
) -> Result<Decision, FitError> {
    let options = Options {
        components: gate,
        ..Options::default()
    };
    decide_with(spec, clusters, &options)
}

#[test]
fn a_workload_goes_to_the_cluster_that_has_room_for_all_its_components() {
    let clusters = [cluster("m1", 4), cluster("m2", 9)];
    // The same, as it is without admission.
    let short = || json!({ "maxGroups": 1 });
    for (constraint, tasks, gate, expected) in [
        (one_cluster(), 3, true, "m2:0"),
        (one_cluster(), 5, true, "no cluster"),
        (short(), 3, true, "m2:0"),
        (short(), 5, true, "no cluster"),
        (one_cluster(), 3, false, "m1:0"),
        (one_cluster(), 5, false, "m1:0"),
    ] {
        let spec = job(tasks, &constraint);
        let found = decide(&spec, &clusters, gate);
        match (&found, expected) {
            (Err(error), "no cluster") => {
                assert!(error.to_string().contains("no enough resource"), "{error}");
            }
            _ => assert_eq!(text(found), expected, "{constraint}: {tasks} tasks, {gate}"),
        }
    }
}

#[test]
fn where_it_is_not_exactly_one_cluster_nobody_asks_for_room() {
    let mut clusters = [cluster("m1", 4), cluster("m2", 9)];
    for cluster in &mut clusters {
        cluster["spec"]["region"] = json!("r");
    }
    // Of several clusters nobody knows what each would get. Three tasks fit into m2 only, five
    // nowhere.
    for (field, tasks, min, max, expected) in [
        ("cluster", 5, 2, 2, "m1:0 m2:0"),
        ("cluster", 5, 1, 2, "m1:0 m2:0"),
        ("region", 3, 1, 1, "m1:0"),
    ] {
        let constraint = json!({ "spreadByField": field, "minGroups": min, "maxGroups": max });
        let found = decide(&job(tasks, &constraint), &clusters, true);
        assert_eq!(text(found), expected, "{field} {min} {max}");
    }
}

#[test]
fn the_cluster_has_the_numbers_of_the_components_and_keeps_what_it_has() {
    let full = [cluster("m1", 0), cluster("m2", 9)];
    let held = placed(job(3, &one_cluster()), &[("m1", 0)]);
    let decision = decide(&held, &full, true).unwrap();
    assert_eq!(decision.clusters[0].name, "m1", "its room is its own");
    let assigned: Vec<_> = decision.clusters[0]
        .components
        .iter()
        .map(|it| (it.name.as_str(), it.replicas))
        .collect();
    assert_eq!(assigned, [("manager", 1), ("task", 3)]);
    // Of one component the number is that of the whole.
    let mut alone = job(3, &one_cluster());
    alone.components.truncate(1);
    let decision = decide(&alone, &full, true).unwrap();
    assert_eq!(decision.clusters[0].name, "m2");
    assert!(decision.clusters[0].components.is_empty());
}

#[test]
fn a_workload_stays_in_a_cluster_that_takes_no_others() {
    let held = placed(job(3, &one_cluster()), &[("m1", 0)]);
    for cores in [0, 20] {
        let cordoned = tainted("m1", cores, "unschedulable", "NoSchedule");
        let found = decide(&held, &[cordoned, cluster("m2", 9)], true);
        assert_eq!(text(found), "m1:0", "{cores} cores");
    }
    let cordoned = tainted("m1", 20, "unschedulable", "NoSchedule");
    let found = decide(&job(3, &one_cluster()), &[cordoned, cluster("m2", 9)], true);
    assert_eq!(text(found), "m2:0", "a new one does not go there");
}

#[test]
fn a_workload_returns_to_a_cluster_that_keeps_its_old_copy_and_has_no_other_room() {
    let mut spec = job(3, &one_cluster());
    let task = json!([{ "fromCluster": "m1", "reason": "NoClusterFit", "producer": "p" }]);
    spec.graceful_eviction_tasks = serde_json::from_value(task).unwrap();
    let options = Options {
        components: true,
        ..Options::default()
    };
    let full = snapshot(&[cluster("m1", 0)]);
    for (reported, returns) in [("m1", true), ("m2", false)] {
        let status = json!({ "aggregatedStatus": [{ "clusterName": reported }] });
        let status = serde_json::from_value(status).unwrap();
        let decided = schedule(&spec, &status, &full, &options);
        assert_eq!(decided.is_ok(), returns, "{reported}");
    }
}

#[test]
fn a_workload_is_scheduled_when_it_has_no_cluster_or_its_components_change() {
    let divided = |mut spec: ResourceBindingSpec, components: Value| {
        let mut placement = json!(spec.placement);
        placement["replicaScheduling"] = json!({ "replicaSchedulingType": "Divided" });
        spec.placement = serde_json::from_value(placement).unwrap();
        spec.clusters = serde_json::from_value(components).unwrap();
        spec
    };
    let has = |tasks: i32| {
        json!([{ "name": "m1", "components": [
            { "name": "manager", "replicas": 1 }, { "name": "task", "replicas": tasks }] }])
    };
    let clusters = snapshot(&[cluster("m1", 10)]);
    for (components, expected) in [
        (json!([]), Some(Need::ReplicasChanged)),
        (has(3), None),
        (has(2), Some(Need::ReplicasChanged)),
        // Without numbers only scheduling says whether a target is missing.
        (json!([{ "name": "m1" }]), Some(Need::NotDivided)),
    ] {
        let spec = divided(job(3, &one_cluster()), components.clone());
        let applied = serde_json::to_string(&spec.placement).unwrap();
        let status = ResourceBindingStatus::default();
        let found = need(&spec, &status, Some(&applied), &applied, &clusters);
        assert_eq!(found, expected, "{components}");
    }
}
