//! What is reported of objects that are gone, or going, and what is done about them.

use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{create, delete, merge};
use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::work::{ManifestStatus, Work};
use muster_shared::k8s::ResourceExt;
use serde_json::json;

use crate::agent::bench::{AGENT, Bench, applied, config_map, deployment, gone, until, value};

/// Returns the first object of a report.
fn reported(work: &Work) -> Option<&ManifestStatus> {
    work.status.as_ref()?.manifest_statuses.first()
}

/// Returns status and reason of the condition Applied.
fn reason(work: &Work) -> Option<(&str, &str)> {
    let mut conditions = work.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.find(|it| it.type_ == "Applied")?;
    Some((found.status.as_str(), found.reason.as_str()))
}

fn is_lost(work: &Work) -> bool {
    let lost = reported(work)
        .is_some_and(|it| it.health == Some(ResourceHealth::Unhealthy) && it.status.is_none());
    lost && reason(work) == Some(("False", "ObjectsMissing"))
}

async fn suspend(bench: &Bench, name: &str, suspended: bool) {
    let suspension = json!({"spec": {"suspendDispatching": suspended}});
    merge(&bench.works(), name, &suspension).await;
    let expected = if suspended { "False" } else { "True" };
    until(&bench.works(), name, "it says so", |work| {
        let mut conditions = work.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|it| it.type_ == "Dispatching" && it.status == expected)
    })
    .await;
}

async fn healthy(bench: &Bench, name: &str) {
    until(&bench.works(), name, "it is reported healthy", |work| {
        reported(work).is_some_and(|it| it.health == Some(ResourceHealth::Healthy))
    })
    .await;
}

#[tokio::test]
async fn an_object_that_goes_while_its_work_is_suspended_is_reported_and_comes_back_afterwards() {
    let (bench, agent) = Bench::with_agent().await;
    let maps = bench.config_maps();
    for name in ["seen", "unseen"] {
        bench.apply(name, json!([config_map(name, "1")])).await;
        healthy(&bench, name).await;
        suspend(&bench, name, true).await;
    }
    delete(&maps, "seen").await;
    until(&bench.works(), "seen", "its loss is said", is_lost).await;
    bench.reported("seen", "ObjectsMissing").await;
    agent.stop().await.unwrap();
    delete(&maps, "unseen").await;
    let _agent = bench.agent();
    let work = until(&bench.works(), "unseen", "its loss is said", is_lost).await;
    let message = applied(&work).unwrap().1;
    assert!(message.contains("ConfigMap default/unseen"), "{message}");
    for name in ["seen", "unseen"] {
        suspend(&bench, name, false).await;
        bench.applied(name, "True").await;
        healthy(&bench, name).await;
        assert_eq!(value(&maps.get(name).await.unwrap()), "1");
    }
}

#[tokio::test]
async fn an_object_that_somebody_else_makes_in_the_place_of_a_suspended_one_is_no_copy() {
    let (bench, _agent) = Bench::with_agent().await;
    let maps = bench.config_maps();
    bench.apply("a", json!([config_map("a", "1")])).await;
    healthy(&bench, "a").await;
    suspend(&bench, "a", true).await;
    let theirs = json!({"metadata": {"annotations": {"work.karmada.io/name": "other"}}});
    merge(&maps, "a", &theirs).await;
    until(&bench.works(), "a", "its loss is said", is_lost).await;
    let ours = json!({"metadata": {"annotations": {"work.karmada.io/name": "a"}}});
    merge(&maps, "a", &ours).await;
    healthy(&bench, "a").await;
    bench.applied("a", "True").await;
}

#[tokio::test]
async fn an_object_that_a_work_had_for_a_moment_is_removed() {
    let (bench, _agent) = Bench::with_agent().await;
    let maps = bench.config_maps();
    for number in 0..5 {
        let (one, other) = (format!("a{number}"), format!("b{number}"));
        let both = json!([config_map(&one, "1"), config_map(&other, "1")]);
        bench.create_of(&one, both).await;
        until(&maps, &one, "it is made", |object| value(object) == "1").await;
        let rest = json!({"spec": {"workload": {"manifests": [config_map(&other, "1")]}}});
        merge(&bench.works(), &one, &rest).await;
        gone(&maps, &one).await;
        delete(&bench.works(), &one).await;
        gone(&maps, &other).await;
    }
}

#[tokio::test]
async fn an_object_that_an_agent_made_before_it_died_is_removed_by_the_next_one() {
    let (bench, agent) = Bench::with_agent().await;
    let maps = bench.config_maps();
    let scope = Scope::user(AGENT).at("/configmaps/b");
    bench.member.faults().inject_for(scope, Effect::Hold);
    let both = json!([config_map("a", "1"), config_map("b", "1")]);
    bench.create_of("w", both).await;
    until(&maps, "a", "it is made", |object| value(object) == "1").await;
    drop(agent);
    bench.member.faults().heal();
    let rest = json!({"spec": {"workload": {"manifests": [config_map("b", "1")]}}});
    merge(&bench.works(), "w", &rest).await;
    let _agent = bench.agent();
    gone(&maps, "a").await;
    bench.applied("w", "True").await;
}

#[tokio::test]
async fn a_work_goes_when_its_object_and_the_pods_of_it_are_gone() {
    let (bench, _agent) = Bench::with_agent().await;
    bench.apply("web", json!([deployment("web")])).await;
    let deployments = bench.objects("apps/v1", "Deployment");
    let owner = deployments.get("web").await.unwrap();
    let pods = bench.objects("v1", "Pod");
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-1", "namespace": "default", "finalizers": ["example.com/slow"], "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": owner.uid(), "controller": true,
                "blockOwnerDeletion": true}]},
        "spec": {"containers": [{"name": "web", "image": "nginx"}]}});
    create(&pods, pod).await;

    delete(&bench.works(), "web").await;
    let work = until(&bench.works(), "web", "it says what it waits for", |work| {
        reason(work) == Some(("False", "Terminating"))
    })
    .await;
    let message = applied(&work).unwrap().1;
    let begins = "Deployment default/web is being deleted in the member since ";
    assert!(message.starts_with(begins), "{message}");
    // Another Work that comes and goes meanwhile shows that this one is not written again.
    bench.apply("z", json!([config_map("z", "1")])).await;
    let now = bench.works().get("web").await.unwrap();
    assert_eq!(now.resource_version(), work.resource_version());
    merge(&pods, "web-1", &json!({"metadata": {"finalizers": null}})).await;
    gone(&bench.works(), "web").await;
    assert!(pods.get_opt("web-1").await.unwrap().is_none());
}

#[tokio::test]
async fn an_object_that_is_being_deleted_is_made_again_when_it_is_gone() {
    let (bench, _agent) = Bench::with_agent().await;
    bench.apply("a", json!([config_map("a", "1")])).await;
    let maps = bench.config_maps();
    let held = json!({"metadata": {"finalizers": ["example.com/slow"]}});
    let before = merge(&maps, "a", &held).await;
    delete(&maps, "a").await;
    let work = bench.applied("a", "False").await;
    let message = applied(&work).unwrap().1;
    assert!(
        message.contains("ConfigMap default/a is being deleted in the member since "),
        "{message}"
    );
    merge(&maps, "a", &json!({"metadata": {"finalizers": null}})).await;
    until(&maps, "a", "it is made again", |object| {
        object.uid() != before.uid()
    })
    .await;
    bench.applied("a", "True").await;
}
