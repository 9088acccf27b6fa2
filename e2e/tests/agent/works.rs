//! What becomes of Works.

use std::time::Duration;

use kube::api::PostParams;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{create, delete, merge, merge_status};
use muster_shared::api::binding::ResourceHealth;
use muster_shared::k8s::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

use crate::agent::bench::{AGENT, Bench, applied, config_map, deployment, gone, until, value};

#[tokio::test]
async fn a_work_is_applied_and_its_status_comes_back_within_a_second() {
    let (bench, _agent) = Bench::with_agent().await;
    let work = bench.apply("web", json!([deployment("web")])).await;
    assert_eq!(
        applied(&work).unwrap().1,
        "Manifest has been successfully applied"
    );

    let deployments = bench.objects("apps/v1", "Deployment");
    let object = deployments.get("web").await.unwrap();
    assert_eq!(object.labels()["karmada.io/managed"], "true");
    assert_eq!(object.annotations()["work.karmada.io/name"], "web");
    bench.healthy("web", ResourceHealth::Unhealthy).await;

    let rolled_out = json!({"status": {"observedGeneration": object.metadata.generation, "replicas": 2,
        "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}});
    let changed = Instant::now();
    merge_status(&deployments, "web", &rolled_out).await;
    let work = bench.healthy("web", ResourceHealth::Healthy).await;
    assert!(
        changed.elapsed() < Duration::from_secs(1),
        "{:?}",
        changed.elapsed()
    );
    let reported = &work.status.unwrap().manifest_statuses[0];
    assert_eq!(
        (
            reported.identifier.kind.as_str(),
            reported.identifier.name.as_str()
        ),
        ("Deployment", "web")
    );
    assert_eq!(reported.status.as_ref().unwrap().0["availableReplicas"], 2);
}

#[tokio::test]
async fn an_object_follows_its_work_is_repaired_and_keeps_what_is_the_members() {
    let (bench, _agent) = Bench::with_agent().await;
    bench.apply("a", json!([config_map("a", "1")])).await;
    let maps = bench.config_maps();
    merge(
        &maps,
        "a",
        &json!({"metadata": {"annotations": {"theirs": "1"}}, "data": {"more": "x"}}),
    )
    .await;
    merge(
        &bench.works(),
        "a",
        &json!({"spec": {"workload": {"manifests": [config_map("a", "2")]}}}),
    )
    .await;
    let object = until(&maps, "a", "it has the new value", |object| {
        value(object) == "2"
    })
    .await;
    assert_eq!(object.annotations()["theirs"], "1");
    assert_eq!(object.data["data"]["more"], "x");

    merge(&maps, "a", &json!({"data": {"k": "drifted"}})).await;
    until(&maps, "a", "the value is back", |object| {
        value(object) == "2"
    })
    .await;
    let unmarked = json!({"metadata": {"annotations": {"work.karmada.io/name": null}}});
    merge(&maps, "a", &unmarked).await;
    let before = until(&maps, "a", "it names its work again", |object| {
        object.annotations().contains_key("work.karmada.io/name")
    })
    .await;
    delete(&maps, "a").await;
    until(&maps, "a", "it is back", |object| {
        object.uid() != before.uid()
    })
    .await;
}

#[tokio::test]
async fn a_deleted_work_takes_its_object_along_unless_it_is_to_be_preserved() {
    let (bench, _agent) = Bench::with_agent().await;
    bench.create_work("goes", |_| {}).await;
    bench
        .create_work("stays", |work| {
            work["spec"]["preserveResourcesOnDeletion"] = json!(true);
        })
        .await;
    for name in ["goes", "stays"] {
        bench.applied(name, "True").await;
        delete(&bench.works(), name).await;
        gone(&bench.works(), name).await;
    }
    let maps = bench.config_maps();
    gone(&maps, "goes").await;
    let stays = maps.get("stays").await.unwrap();
    assert!(stays.labels().is_empty(), "{:?}", stays.labels());
    assert!(stays.annotations().is_empty(), "{:?}", stays.annotations());
}

/// Checks that what every API server takes with a warning, and Karmada's agent applies, is applied
/// and changed, and that what the template drops goes: a server-side apply refuses two entries of
/// one key in a list.
#[tokio::test]
async fn a_workload_that_names_a_variable_or_a_port_twice_is_applied_and_changed() {
    let (bench, _agent) = Bench::with_agent().await;
    let mut manifest = deployment("web");
    let pod = &mut manifest["spec"]["template"]["spec"];
    pod["containers"][0]["env"] = json!([
        {"name": "FLAGS", "value": "-a"},
        {"name": "FLAGS", "value": "$(FLAGS) -b"},
    ]);
    pod["containers"][0]["ports"] = json!([
        {"containerPort": 93, "hostPort": 9376},
        {"containerPort": 93, "hostPort": 7693},
    ]);
    pod["nodeSelector"] = json!({"disk": "ssd"});
    bench.apply("web", json!([manifest.clone()])).await;
    let pod = &mut manifest["spec"]["template"]["spec"];
    pod["containers"][0]["env"][1]["value"] = json!("$(FLAGS) -c");
    pod.as_object_mut().unwrap().remove("nodeSelector");
    let change = json!({"spec": {"workload": {"manifests": [manifest]}}});
    merge(&bench.works(), "web", &change).await;
    let deployments = bench.objects("apps/v1", "Deployment");
    let what = "it has the new value, and needs no node with that disk";
    until(&deployments, "web", what, |it| {
        let pod = &it.data["spec"]["template"]["spec"];
        let env = &pod["containers"][0]["env"];
        env[1]["value"] == "$(FLAGS) -c"
            && env.as_array().is_some_and(|it| it.len() == 2)
            && pod["nodeSelector"].is_null()
    })
    .await;
}

#[tokio::test]
async fn a_workload_that_is_overwritten_runs_what_its_template_says_and_nothing_of_before() {
    let (bench, _agent) = Bench::with_agent().await;
    let deployments = bench.objects("apps/v1", "Deployment");
    let mut theirs = deployment("web");
    let before = &mut theirs["spec"]["template"]["spec"];
    before["containers"] = json!([{"name": "legacy", "image": "httpd"}]);
    before["hostNetwork"] = json!(true);
    create(&deployments, theirs).await;
    bench
        .create_work("web", |work| {
            work["metadata"]["annotations"] =
                json!({"work.karmada.io/conflict-resolution": "overwrite"});
            work["spec"]["workload"]["manifests"] = json!([deployment("web")]);
        })
        .await;
    bench.applied("web", "True").await;
    let after = deployments.get("web").await.unwrap();
    let after = &after.data["spec"]["template"]["spec"];
    let containers = after["containers"].as_array().unwrap().iter();
    let names: Vec<_> = containers.map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["web"]);
    assert_ne!(after["hostNetwork"], json!(true));
}

/// Checks that what karmada-agent set and the template has no longer goes, as if karmada-agent,
/// which writes whole objects, were still there.
#[tokio::test]
async fn an_object_of_karmadas_agent_is_taken_over_with_everything_it_had_set() {
    let bench = Bench::start().await;
    let mut theirs = config_map("a", "1");
    theirs["data"]["gone"] = json!("x");
    theirs["metadata"]["labels"] = json!({"karmada.io/managed": "true", "old": "1"});
    theirs["metadata"]["annotations"] = json!({"work.karmada.io/namespace": "karmada-es-m1",
        "work.karmada.io/name": "a", "resourcetemplate.karmada.io/managed-labels": "karmada.io/managed,old"});
    let params = PostParams {
        field_manager: Some("karmada-agent".into()),
        ..PostParams::default()
    };
    let maps = bench.config_maps();
    let before = maps
        .create(&params, &serde_json::from_value(theirs).unwrap())
        .await
        .unwrap();

    let _agent = bench.agent();
    bench.joined().await;
    bench.apply("a", json!([config_map("a", "1")])).await;
    let after = maps.get("a").await.unwrap();
    assert_eq!(after.uid(), before.uid());
    assert_eq!(after.data["data"], json!({"k": "1"}));
    assert_eq!(
        after.labels().keys().collect::<Vec<_>>(),
        ["karmada.io/managed"]
    );
}

#[tokio::test]
async fn an_object_that_another_work_takes_over_while_it_is_removed_stays_as_it_is() {
    let (bench, _agent) = Bench::with_agent().await;
    let scope = Scope::user(AGENT).at("/default/configmaps/");
    for preserve in [false, true] {
        let name = format!("preserved-{preserve}");
        bench
            .create_work(&name, |work| {
                work["spec"]["preserveResourcesOnDeletion"] = json!(preserve);
            })
            .await;
        bench.applied(&name, "True").await;
        let faults = bench.member.faults();
        faults.inject_for(scope.clone(), Effect::Hold);
        delete(&bench.works(), &name).await;
        faults.has_held(1).await;
        let taken_over = json!({"metadata": {"annotations": {"work.karmada.io/name": "second"}}});
        let before = merge(&bench.config_maps(), &name, &taken_over).await;
        faults.heal();
        gone(&bench.works(), &name).await;
        let now = bench.config_maps().get_opt(&name).await.unwrap();
        let version = now.and_then(|it| it.resource_version());
        assert_eq!(version, before.resource_version(), "{name}");
    }
}
