//! An application that stays unhealthy, from its report to its move.

use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::{Stand, binding, cluster, pass};

/// Returns a binding whose application asks for failover, and is unhealthy in `m1`.
fn unhealthy() -> Value {
    let mut binding = binding();
    binding["spec"]["propagateDeps"] = json!(true);
    binding["spec"]["failover"] = json!({"application": {
        "decisionConditions": {"tolerationSeconds": 30}, "purgeMode": "Directly",
    }});
    binding["status"] = json!({"aggregatedStatus": [{"clusterName": "m1", "health": "Unhealthy"}]});
    binding
}

/// Returns where the workload is to run according to what was written; the list is empty as long as
/// nothing was written.
fn placements(stand: &Stand) -> Vec<Value> {
    let writes = stand.api.writes().into_iter();
    let placements = writes.filter_map(|(.., body)| body["spec"].get("clusters").cloned());
    placements.collect()
}

async fn stand(binding: Value) -> Stand {
    let mut stand = Stand::new([
        ("clusters", cluster("m1")),
        ("clusters", cluster("m2")),
        ("resourcebindings", binding),
    ]);
    let pace = Pace::of(&stand.fleet.settings);
    start(&stand.fleet, pace, &mut stand.tasks);
    stand.follow().await;
    stand
}

#[tokio::test(start_paused = true)]
async fn an_application_that_is_unhealthy_for_longer_than_tolerated_moves_once() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let stand = stand(unhealthy()).await;
    pass(28).await;
    assert_eq!(placements(&stand), [Value::Null; 0]);
    pass(10).await;
    assert_eq!(placements(&stand), [json!([{"name": "m2", "replicas": 2}])]);
    let told = stand.api.told().await;
    for reason in ["WaitingForToleration", "ApplicationMoved"] {
        let told_of = told.iter().filter(|it| it.1 == reason);
        let about: Vec<&str> = told_of.map(|it| &*it.0).collect();
        assert_eq!(about, ["web-deployment", "web"], "{told:?}");
    }
    pass(120).await;
    assert_eq!(placements(&stand).len(), 1);
    let figures = recorder.handle().render();
    let counted = r#"muster_application_failovers_total{result="moved"} 1"#;
    assert!(figures.lines().any(|it| it == counted), "{figures}");
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_was_made_again_is_unhealthy_anew() {
    let made = |uid: &str| {
        let mut binding = unhealthy();
        binding["metadata"]["uid"] = json!(uid);
        binding
    };
    let stand = stand(made("first")).await;
    pass(20).await;
    stand.api.put("resourcebindings", made("second"));
    pass(25).await;
    assert_eq!(placements(&stand), [Value::Null; 0]);
    pass(10).await;
    assert_eq!(placements(&stand).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_application_that_recovers_in_time_stays() {
    let stand = stand(unhealthy()).await;
    pass(20).await;
    let mut healthy = unhealthy();
    healthy["status"]["aggregatedStatus"][0]["health"] = json!("Healthy");
    stand.api.put("resourcebindings", healthy);
    pass(120).await;
    assert_eq!(placements(&stand), [Value::Null; 0]);
}
