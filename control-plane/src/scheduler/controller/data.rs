//! Tests of workloads that are placed before their data is.

use serde_json::{Value, json};

use super::start;
use crate::fleet::budget::pace::Pace;
use crate::fleet::testing::{Stand, binding, cluster, pass};

/// Returns the workload in `m1`, which waits there for its data or runs.
fn workload(waits: bool) -> Value {
    let mut workload = binding();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "data"});
    let ready = json!({"path": "status.phase", "value": "Ready"});
    let gate = json!({"object": object, "ready": ready, "timeoutSeconds": 60});
    workload["spec"]["dataReplication"] = json!({"gates": [gate]});
    workload["metadata"]["generation"] = json!(1);
    let placement = workload["spec"]["placement"].to_string();
    let applied = "policy.karmada.io/applied-placement";
    workload["metadata"]["annotations"] = json!({applied: placement});
    workload["status"] = json!({"conditions": [{
        "type": "DataPending", "status": if waits { "True" } else { "False" }, "reason": "R",
        "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z",
    }]});
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
                annotations["policy.karmada.io/applied-placement"] = json!(placement);
            }
            workload
        };
        let clusters = ["m1", "m2"].map(|name| ("clusters", cluster(name)));
        let bindings = [("resourcebindings", of(waits_first))];
        let mut stand = Stand::new(clusters.into_iter().chain(bindings));
        start(
            &stand.fleet,
            Pace::of(&stand.fleet.settings),
            &mut stand.tasks,
        );
        stand.follow().await;
        pass(1).await;
        let placed = || {
            let stored = stand
                .api
                .object("resourcebindings", "shop", "web-deployment");
            stored.unwrap()["spec"]["clusters"][0]["name"].clone()
        };
        assert_eq!(placed(), "m1");
        stand.api.put("resourcebindings", data(&[]));
        pass(1).await;
        assert_eq!(placed(), "m1", "no cluster has the data");
        stand.api.put("resourcebindings", data(&["m2"]));
        pass(1).await;
        if !waits_first {
            assert_eq!(placed(), "m1", "it runs");
            let stored = stand
                .api
                .object("resourcebindings", "shop", "web-deployment");
            let mut stored = stored.unwrap();
            stored["status"]["conditions"] = of(true)["status"]["conditions"].clone();
            stand.api.put("resourcebindings", stored);
            pass(1).await;
        }
        assert_eq!(placed(), "m2", "{is_divided} {waits_first}");
    }
}
