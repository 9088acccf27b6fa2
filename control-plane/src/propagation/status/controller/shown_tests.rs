//! What the template shows of what its members report.

use serde_json::{Value, json};

use super::*;
use crate::fleet::template_event::Lookup;
use crate::fleet::testing::{self, Bench, pass};

/// Returns the template `shop/web`, by name and namespace.
fn template() -> Value {
    let mut template = testing::deployment(2);
    template["metadata"]["uid"] = json!("u");
    template["metadata"]["generation"] = json!(1);
    template
}

/// Gives a binding or its Work the id of the binding.
fn identified(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "id"});
    object
}

/// Starts the controller over an API that has these objects.
async fn started(objects: impl IntoIterator<Item = (&'static str, Value)>) -> Bench {
    let mut bench = Bench::new(objects);
    bench.api.serve_deployments();
    bench.run(start, 10).await;
    bench
}

/// Returns a fleet with the workload in `m1`, whose agent says that two replicas are ready, and
/// with some more objects.
async fn bench<const N: usize>(more: [(&'static str, Value); N]) -> Bench {
    let mut binding = identified(testing::binding());
    binding["spec"]["resource"]["uid"] = json!("u");
    let objects = [
        ("clusters", testing::cluster("m1")),
        ("resourcebindings", binding),
        ("works", identified(testing::work("m1", "Healthy"))),
    ];
    started(objects.into_iter().chain(more)).await
}

/// Returns the ready replicas that a template was said to have.
fn shown(bench: &Bench) -> Vec<Value> {
    let writes = bench.api.writes().into_iter();
    let shown = writes.filter(|it| it.1.ends_with("/deployments/web/status"));
    shown
        .map(|(.., body)| body["status"]["readyReplicas"].clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_status_that_the_api_does_not_serve_is_written_ever_more_seldom_and_reported_of_once() {
    let bench = bench([("deployments", template())]).await;
    let path = "/deployments/web/status";
    bench.api.refuse(http::Method::PATCH, path, 404, "");
    let mut work = bench.api.all("works").remove(0);
    work["status"]["manifestStatuses"][0]["status"]["readyReplicas"] = json!(1);
    bench.api.put("works", work);
    bench.api.forget();
    pass(4 * 60 * 60).await;
    let attempts = shown(&bench).len();
    assert!((20..50).contains(&attempts), "{attempts} in four hours");
    let reported = bench.api.reported().await;
    let is_reported = reported.iter().any(|it| it.1 == "AggregateStatusFailed");
    assert!(is_reported, "a person has to know: {reported:?}");
    bench.api.answer_truly();
    bench.api.serve_deployments();
    bench.api.forget();
    pass(1200).await;
    assert_eq!(shown(&bench), [json!(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_template_that_a_list_had_left_out_shows_it_when_it_comes_into_sight() {
    let bench = bench([]).await;
    assert_eq!(shown(&bench), [Value::Null; 0]);
    bench.api.put("deployments", template());
    pass(5).await;
    assert_eq!(shown(&bench), [json!(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_template_is_not_complete_before_a_cluster_that_is_added_reports_it() {
    let mut binding = identified(testing::binding());
    binding["spec"]["clusters"] =
        json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    let copy = |cluster: &str| {
        let mut work = identified(testing::work(cluster, "Healthy"));
        work["status"]["manifestStatuses"][0]["status"] = json!({
            "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
            "generation": 1, "observedGeneration": 1, "resourceTemplateGeneration": 1,
        });
        work
    };
    let mut observed = template();
    observed["status"] = json!({
        "observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2,
        "availableReplicas": 2,
    });
    let bench = started([
        ("clusters", testing::cluster("m1")),
        ("clusters", testing::cluster("m2")),
        ("resourcebindings", binding),
        ("deployments", observed),
        ("works", copy("m1")),
    ])
    .await;
    let reported = |bench: &Bench| {
        let status = bench.api.deployment()["status"].take();
        let mut conditions = status["conditions"].as_array().unwrap().iter();
        let progressing = conditions.find(|it| it["type"] == "Progressing").unwrap();
        (
            status["observedGeneration"].clone(),
            progressing["reason"].clone(),
        )
    };
    assert_eq!(reported(&bench), (Value::Null, json!("ReplicaSetUpdated")));
    bench.api.put("works", copy("m2"));
    pass(10).await;
    assert_eq!(
        reported(&bench),
        (json!(1), json!("NewReplicaSetAvailable"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_kept_elsewhere_neither_holds_the_generation_back_nor_counts_for_ever() {
    let mut binding = identified(testing::binding());
    binding["spec"]["resource"]["uid"] = json!("u");
    binding["spec"]["clusters"] = json!([{"name": "m2", "replicas": 2}]);
    binding["spec"]["gracefulEvictionTasks"] =
        json!([{"fromCluster": "m1", "purgeMode": "Never", "reason": "r", "producer": "p"}]);
    let copy = |cluster: &str, generation: i64, health: &str| {
        let mut work = identified(testing::work(cluster, health));
        work["status"]["manifestStatuses"][0]["status"] = json!({
            "replicas": 2, "readyReplicas": 2, "generation": 1, "observedGeneration": 1,
            "resourceTemplateGeneration": generation,
        });
        work
    };
    let mut edited = template();
    edited["metadata"]["generation"] = json!(3);
    let bench = started([
        ("clusters", testing::cluster("m1")),
        ("clusters", testing::cluster("m2")),
        ("resourcebindings", binding),
        ("deployments", edited),
        ("works", copy("m1", 2, "Healthy")),
        ("works", copy("m2", 2, "Unhealthy")),
    ])
    .await;
    let reported = |bench: &Bench| {
        let key = TemplateKey::of(&bench.fleet.bindings.iter().next().unwrap().spec.resource);
        let Lookup::Found(template) = bench.fleet.templates.get(&key) else {
            panic!("no template");
        };
        let status = template.object(&key.kind)["status"].take();
        (
            status["observedGeneration"].clone(),
            status["replicas"].clone(),
        )
    };
    assert_eq!(
        reported(&bench),
        (Value::Null, json!(4)),
        "m2 has not seen it"
    );
    bench.api.put("works", copy("m2", 3, "Unhealthy"));
    pass(10).await;
    assert_eq!(reported(&bench), (json!(3), json!(4)), "m1 runs for both");
    bench.api.put("works", copy("m2", 3, "Healthy"));
    pass(10).await;
    assert_eq!(reported(&bench), (json!(3), json!(2)), "m2 has taken over");
}

#[tokio::test(start_paused = true)]
async fn what_is_nowhere_is_applied_only_if_it_asks_for_nothing() {
    for (components, expected) in [
        (json!([]), "True"),
        (json!([{"name": "manager", "replicas": 1}]), "False"),
    ] {
        // Its last cluster has left the fleet.
        let mut binding = identified(testing::binding());
        binding["spec"]["replicas"] = json!(0);
        binding["spec"]["components"] = components.clone();
        binding["spec"]["clusters"] = json!([]);
        binding["status"] = json!({
            "lastScheduledTime": "2026-01-01T00:00:00Z",
            "aggregatedStatus": [{"clusterName": "m1", "applied": true}],
        });
        let bench = started([("resourcebindings", binding)]).await;
        let held = bench.binding("web-deployment").unwrap();
        let reported = conditions::status(&held.status().conditions, "FullyApplied");
        assert_eq!(reported, Some(expected), "{components}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_cluster_reported_last_is_unknown_while_it_is_silent_and_true_again_afterwards() {
    let bench = bench([("deployments", template())]).await;
    let found = |bench: &Bench| {
        let binding = bench.api.binding("web-deployment");
        let item = binding["status"]["aggregatedStatus"][0].clone();
        let (plural, name) = ("resourcebindings", "web-deployment");
        let applied = bench.api.condition(plural, name, "FullyApplied");
        let counts = bench.api.deployment()["status"].take();
        let counts = ["replicas", "readyReplicas"].map(|it| counts[it].as_i64().unwrap_or(0));
        let last = item["status"]["readyReplicas"].clone();
        assert_eq!(last, json!(2), "state is preserved from it: {item}");
        (item["health"].clone(), applied["status"].clone(), counts)
    };
    for (ready, health, applied, counts) in [
        ("True", "Healthy", "True", [2, 2]),
        ("Unknown", "Unknown", "Unknown", [2, 0]),
        ("True", "Healthy", "True", [2, 2]),
    ] {
        let mut cluster = testing::cluster("m1");
        cluster["status"]["conditions"] = testing::only_condition("Ready", ready);
        bench.api.put("clusters", cluster);
        pass(10).await;
        let expected = (json!(health), json!(applied), counts);
        assert_eq!(found(&bench), expected, "Ready is {ready}");
        // A restart takes nothing back and writes nothing.
        let plurals = ["clusters", "deployments", "resourcebindings", "works"];
        let objects = plurals.into_iter().flat_map(|plural| {
            let objects = bench.api.all(plural).into_iter();
            objects.map(move |it| (plural, it))
        });
        let mut restarted = Bench::new(objects);
        restarted.api.serve_deployments();
        restarted.run(start, 60).await;
        let written = restarted.api.writes();
        assert!(written.is_empty(), "Ready is {ready}: {written:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_a_cluster_that_is_to_have_no_replicas_and_has_none_leaves_nothing_open() {
    // Shares of m2, and the pods that it reported last.
    for (share, pods, expected) in [(0, 0, "True"), (0, 2, "Unknown"), (1, 0, "Unknown")] {
        let mut binding = identified(testing::binding());
        binding["spec"]["clusters"] = json!([
            {"name": "m1", "replicas": 2 - share}, {"name": "m2", "replicas": share},
        ]);
        let [there, mut empty] =
            ["m1", "m2"].map(|cluster| identified(testing::work(cluster, "Healthy")));
        empty["status"]["manifestStatuses"][0]["status"] = json!({"replicas": pods});
        let mut silent = testing::cluster("m2");
        silent["status"]["conditions"][0]["status"] = json!("Unknown");
        let bench = started([
            ("clusters", testing::cluster("m1")),
            ("clusters", silent),
            ("resourcebindings", binding),
            ("works", there),
            ("works", empty),
        ])
        .await;
        let held = bench.binding("web-deployment").unwrap();
        let reported = conditions::status(&held.status().conditions, "FullyApplied");
        assert_eq!(reported, Some(expected), "{share} {pods}");
    }
}
