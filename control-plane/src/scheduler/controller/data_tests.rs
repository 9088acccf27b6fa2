//! Tests of workloads that are placed before their data is.

use muster_shared::names::annotation::APPLIED_PLACEMENT;
use serde_json::{Value, json};

use super::start;
use crate::fleet::budget::pace::Pace;
use crate::fleet::testing::{Bench, binding, cluster, only_condition, pass, paused};

/// Returns the workload in `m1`, which waits there for its data or runs.
fn workload(waits: bool) -> Value {
    let mut workload = binding();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "data"});
    let ready = json!({"path": "status.phase", "value": "Ready"});
    let gate = json!({"object": object, "ready": ready, "timeoutSeconds": 60});
    workload["spec"]["dataReplication"] = json!({"gates": [gate]});
    workload["metadata"]["generation"] = json!(1);
    let placement = workload["spec"]["placement"].to_string();
    workload["metadata"]["annotations"] = json!({APPLIED_PLACEMENT: placement});
    let status = if waits { "True" } else { "False" };
    workload["status"] = json!({"conditions": only_condition("DataPending", status)});
    workload
}

/// Returns the binding of the data in some clusters.
fn data(clusters: &[&str]) -> Value {
    let clusters = clusters.iter().map(|it| json!({"name": it}));
    let affinity = json!({"clusterAffinity": {"clusterNames": ["m2"]}});
    json!({
        "metadata": {"namespace": "shop", "name": "data-configmap"},
        "spec": {
            "resource": {
                "apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "data",
            },
            "clusters": clusters.collect::<Vec<_>>(), "placement": affinity,
        },
    })
}

/// Starts the scheduler over a fleet with `m2` and these bindings.
async fn started(m1: Value, bindings: impl IntoIterator<Item = Value>) -> Bench {
    let clusters = [m1, cluster("m2")].map(|it| ("clusters", it));
    let bindings = bindings.into_iter().map(|it| ("resourcebindings", it));
    let mut bench = Bench::new(clusters.into_iter().chain(bindings));
    let pace = Pace::of(&bench.fleet.settings);
    start(&bench.fleet, pace, &mut bench.tasks);
    bench.follow_for(10).await;
    bench
}

/// Returns the workload as the API has it.
fn stored(bench: &Bench) -> Value {
    bench.api.binding("web-deployment")
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_was_placed_before_its_data_goes_where_that_is() {
    for (is_divided, waits_first) in [(false, true), (false, false), (true, true), (true, false)] {
        let of = |waits| {
            let mut workload = workload(waits);
            if is_divided {
                let placement = &mut workload["spec"]["placement"];
                placement["replicaScheduling"] = json!({
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
                });
                let placement = placement.to_string();
                let annotations = &mut workload["metadata"]["annotations"];
                annotations[APPLIED_PLACEMENT] = json!(placement);
            }
            workload
        };
        let bench = started(cluster("m1"), [of(waits_first)]).await;
        let placed = || stored(&bench)["spec"]["clusters"][0]["name"].clone();
        assert_eq!(placed(), "m1");
        bench.api.put("resourcebindings", data(&[]));
        pass(1).await;
        assert_eq!(placed(), "m1", "no cluster has the data");
        bench.api.put("resourcebindings", data(&["m2"]));
        pass(1).await;
        if !waits_first {
            assert_eq!(placed(), "m1", "it runs");
            let mut stored = stored(&bench);
            stored["status"]["conditions"] = of(true)["status"]["conditions"].clone();
            bench.api.put("resourcebindings", stored);
            pass(1).await;
        }
        assert_eq!(placed(), "m2", "{is_divided} {waits_first}");
    }
}

/// Lets the workload, which waits in `m1`, be reconciled once its data is in `m2`, and returns what
/// the API has of it then.
async fn after_the_move(workload: Value, m1: Value) -> Value {
    let bench = started(m1, [workload]).await;
    bench.api.put("resourcebindings", data(&["m2"]));
    pass(60).await;
    stored(&bench)
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_is_placed_anew_leaves_no_task_where_it_never_had_a_copy() {
    for purge_mode in ["Gracefully", "Never"] {
        let mut workload = workload(true);
        workload["spec"]["failover"] = json!({"cluster": {"purgeMode": purge_mode}});
        let stored = after_the_move(workload, cluster("m1")).await;
        assert_eq!(stored["spec"]["clusters"][0]["name"], "m2", "{purge_mode}");
        let tasks = stored["spec"]["gracefulEvictionTasks"].as_array();
        assert!(
            tasks.is_none_or(Vec::is_empty),
            "{purge_mode}: nothing ever ran in m1, and m1 matches the placement: {tasks:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_a_cluster_without_a_copy_does_not_hold_the_first_start_of_a_workload() {
    let stored = after_the_move(workload(true), paused(cluster("m1"))).await;
    assert_eq!(
        stored["spec"]["clusters"][0]["name"], "m2",
        "nothing moves out of m1: {:?}",
        stored["status"]["conditions"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_runs_follows_its_number_although_another_target_waits_for_its_data() {
    let mut both = workload(true);
    both["spec"]["clusters"] =
        json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    both["spec"]["placement"]["spreadConstraints"] =
        json!([{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}]);
    let placement = both["spec"]["placement"].to_string();
    both["metadata"]["annotations"] = json!({APPLIED_PLACEMENT: placement});
    // The workload runs in m1, where its data is; that is not placed in m2 yet.
    both["status"]["aggregatedStatus"] = json!([{"clusterName": "m1", "applied": true}]);
    let bench = started(cluster("m1"), [both, data(&["m1"])]).await;
    // A person doubles the number of replicas.
    let mut edited = stored(&bench);
    edited["spec"]["replicas"] = json!(4);
    edited["metadata"]["generation"] = json!(2);
    bench.api.put("resourcebindings", edited);
    pass(60).await;
    let clusters = stored(&bench)["spec"]["clusters"].clone();
    let in_m1 = clusters
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["name"] == "m1");
    assert_eq!(
        in_m1.unwrap()["replicas"],
        4,
        "{:?}",
        stored(&bench)["status"]["conditions"]
    );
}
