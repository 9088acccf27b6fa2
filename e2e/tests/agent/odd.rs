//! What becomes of Works and objects that are not as they should be.

use http::StatusCode;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{delete, merge, merge_status};
use muster_shared::k8s::ResourceExt;
use serde_json::{Value, json};

use crate::agent::bench::{
    AGENT, Bench, WORKS, applied, config_map, deployment, gone, until, value,
};
use crate::agent::meter::Meter;

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("x"), |inner, _| json!({ "a": inner }))
}

#[tokio::test]
async fn a_work_and_an_object_that_cannot_be_read_are_reported_and_harm_no_other() {
    let bench = Bench::start().await;
    let meter = Meter::install();
    let _agent = bench.agent();
    bench.joined().await;
    for name in ["web", "odd"] {
        bench.apply(name, json!([deployment(name)])).await;
    }
    // The status of one object grows deeper in the member than can be read.
    let seeds = bench.member.seeds("apps", "v1", "deployments").unwrap();
    let mut object = seeds.get("default", "odd").unwrap();
    object["status"] = json!({ "odd": nested(130) });
    seeds.put(object).unwrap();
    bench.reported("odd", "ReflectStatusFailed").await;

    // And a Work is none: whoever may write Works directly is not asked what they are.
    let works = bench
        .fleet
        .seeds("work.karmada.io", "v1alpha1", "works")
        .unwrap();
    let mut work = works.get(WORKS, "web").unwrap();
    work["metadata"]["name"] = json!("broken");
    work["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000001");
    work["spec"]["workload"]["manifests"] = json!({"a": 1});
    work["status"] = json!({});
    works.put(work).unwrap();
    let refused = bench
        .reported("broken", "SyncFailed")
        .await
        .message
        .unwrap();
    assert!(refused.contains("cannot be read"), "{refused}");

    let lists = || {
        meter.sum(
            "muster_api_requests_total",
            &["api=\"member\"", "method=\"GET\""],
        )
    };
    let before = lists();
    let status = json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
        "availableReplicas": 2});
    patch_status(&bench, "web", &status).await;
    until(&bench.works(), "web", "it is reported healthy", |work| {
        let mut statuses = work
            .status
            .iter()
            .flat_map(|status| &status.manifest_statuses);
        statuses.any(|status| {
            let status = status.status.as_ref();
            status.is_some_and(|status| status.0["availableReplicas"] == 2)
        })
    })
    .await;
    assert!(
        lists() < before + 50.0,
        "the watches did not start anew\n{}",
        meter.text()
    );
}

async fn patch_status(bench: &Bench, name: &str, status: &Value) {
    let deployments = bench.objects("apps/v1", "Deployment");
    let patch = json!({ "status": status });
    merge_status(&deployments, name, patch).await;
}

#[tokio::test]
async fn an_object_that_cannot_be_removed_keeps_no_other_and_is_reported() {
    let (bench, _agent) = Bench::with_agent().await;
    bench
        .apply(
            "a",
            json!([config_map("first", "1"), config_map("second", "1")]),
        )
        .await;
    let scope = Scope::user(AGENT).at("/configmaps/first");
    let refused = Effect::Answer(StatusCode::INTERNAL_SERVER_ERROR);
    bench.member.faults().inject_for(scope, refused);
    delete(&bench.works(), "a").await;
    gone(&bench.config_maps(), "second").await;
    let reported = bench.reported("a", "SyncFailed").await.message.unwrap();
    assert!(reported.contains("ConfigMap default/first"), "{reported}");
    bench.member.faults().heal();
    gone(&bench.works(), "a").await;
    gone(&bench.config_maps(), "first").await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_does_not_answer_keeps_no_other_from_being_removed() {
    let (bench, _agent) = Bench::with_agent().await;
    bench
        .apply("a", json!([deployment("web"), config_map("a", "1")]))
        .await;
    let scope = Scope::user(AGENT).at("/deployments/");
    bench.member.faults().inject_for(scope, Effect::Hang);
    delete(&bench.works(), "a").await;
    gone(&bench.config_maps(), "a").await;
    bench.member.faults().heal();
    gone(&bench.works(), "a").await;
}

#[tokio::test]
async fn an_object_of_two_works_stays_while_one_of_them_wants_it() {
    let (bench, _agent) = Bench::with_agent().await;
    bench.apply("first", json!([config_map("a", "1")])).await;
    bench.apply("second", json!([config_map("a", "2")])).await;
    until(&bench.config_maps(), "a", "the second has it", |it| {
        value(it) == "2"
    })
    .await;
    delete(&bench.works(), "second").await;
    gone(&bench.works(), "second").await;
    until(&bench.config_maps(), "a", "the first has it", |it| {
        value(it) == "1"
    })
    .await;
}

#[tokio::test]
async fn an_object_that_gets_another_name_in_its_work_and_stays_the_same_is_not_removed() {
    let (bench, _agent) = Bench::with_agent().await;
    let mut nameless = config_map("a", "1");
    nameless["metadata"] = json!({"name": "a"});
    bench.apply("a", json!([nameless])).await;
    until(&bench.works(), "a", "it is reported", |work| {
        let status = work.status.as_ref();
        status.is_some_and(|status| !status.manifest_statuses.is_empty())
    })
    .await;
    let maps = bench.config_maps();
    let before = maps.get("a").await.unwrap();
    let named = json!({"spec": {"workload": {"manifests": [config_map("a", "2")]}}});
    merge(&bench.works(), "a", &named).await;
    until(
        &bench.works(),
        "a",
        "the other name has no report any more",
        |work| {
            let status = work.status.as_ref().unwrap();
            status.manifest_statuses.len() == 1
                && status.manifest_statuses[0].identifier.namespace.as_deref() == Some("default")
        },
    )
    .await;
    let after = maps.get("a").await.unwrap();
    assert_eq!(after.uid(), before.uid());
    assert_eq!(value(&after), "2");
}

#[tokio::test]
async fn two_manifests_of_one_object_are_refused_and_the_first_counts() {
    let (bench, _agent) = Bench::with_agent().await;
    bench
        .create_of("a", json!([config_map("a", "1"), config_map("a", "2")]))
        .await;
    let work = bench.applied("a", "False").await;
    let message = applied(&work).unwrap().1;
    assert!(
        message.contains("manifest 1 of the work names ConfigMap default/a"),
        "{message}"
    );
    assert_eq!(value(&bench.config_maps().get("a").await.unwrap()), "1");
}
