//! Tests that a copy stays until others have taken its place.

use http::Method;
use muster_shared::names;
use serde_json::{Value, json};

use super::leaving_tests::{bound, moved, work_of};
use super::{keeping, start};
use crate::fleet::testing::{Bench, cluster, deleting, deployment, only_condition, pass};

/// Returns a binding with two replicas in each of some clusters.
pub(super) fn to(clusters: &[&str], generation: i64) -> Value {
    let mut binding = moved("web-deployment", "apps/v1", "Deployment");
    let targets = clusters.iter().map(|it| json!({"name": it, "replicas": 2}));
    binding["spec"]["clusters"] = json!(targets.collect::<Vec<_>>());
    binding["metadata"]["generation"] = json!(generation);
    binding
}

/// Plays the agent of a cluster, which applies its Works.
pub(super) fn apply(bench: &Bench, cluster: &str) {
    let lies_in = names::execution_namespace(cluster);
    for mut work in bench.api.all("works") {
        if work["metadata"]["namespace"] == json!(lies_in) {
            work["status"] = json!({"conditions": only_condition("Applied", "True")});
            bench.api.put("works", work);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_once_the_target_is_known_to_have_its_own_although_its_deletion_was_asked_for()
{
    for fails in [false, true] {
        let (clusters, binding) = (["m1", "m2"].map(cluster), to(&["m1", "m2"], 1));
        let mut bench = bound(clusters, deployment(2), binding, []);
        bench.follow_for(10).await;
        // Works that nobody has asked to be deleted.
        let staying = || {
            let works = bench.api.all("works").into_iter();
            let works = works.filter(|it| it["metadata"]["deletionTimestamp"].is_null());
            let places = works.map(|it| it["metadata"]["namespace"].clone());
            places.collect::<Vec<_>>()
        };
        apply(&bench, "m2");
        let (m1, m2) = (json!("karmada-es-m1"), json!("karmada-es-m2"));
        assert_eq!(staying(), [m1.clone(), m2.clone()]);
        if fails {
            // The API does not delete the copy in m2 for a moment, and that is withdrawn.
            let name = names::work("Deployment", "web", "shop");
            let path = format!("/karmada-es-m2/works/{name}");
            bench.api.cut(Method::DELETE, &path);
            bench.api.put("resourcebindings", to(&["m1"], 2));
            pass(1).await;
            bench.api.answer_truly();
            bench.api.serve_deployments();
            assert_eq!(staying(), [m1, m2.clone()]);
        }
        bench.api.put("resourcebindings", to(&["m2"], 3));
        pass(60 * 60).await;
        let left = staying();
        assert_eq!(left, [m2], "{fails}: the workload moved an hour ago");
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_in_a_cluster_that_leaves_stands_for_no_replica_elsewhere() {
    // A person takes m2 out of the fleet, to which most replicas were to go.
    let mut leaving = deleting(cluster("m2"));
    leaving["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
    let mut binding = moved("web-deployment", "apps/v1", "Deployment");
    binding["spec"]["replicas"] = json!(4);
    binding["spec"]["clusters"] =
        json!([{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 3}]);
    let ready = [("m1", 4), ("m2", 3)];
    let name = names::work("Deployment", "web", "shop");
    let works = ready.map(|(cluster, ready)| {
        let mut work = work_of(&binding, cluster);
        work["metadata"]["name"] = json!(name);
        work["spec"]["workload"]["manifests"][0]["spec"] = json!({"replicas": ready});
        work["status"]["manifestStatuses"][0]["status"] =
            json!({"replicas": ready, "readyReplicas": ready});
        work
    });
    let reports = ready.map(|(cluster, ready)| {
        json!({
            "clusterName": cluster, "health": "Healthy",
            "status": {"replicas": ready, "readyReplicas": ready},
        })
    });
    binding["status"] = json!({"aggregatedStatus": reports});
    let mut bench = bound([cluster("m1"), leaving], deployment(4), binding, works);
    bench.follow_for(60).await;
    let work = bench.api.object("works", "karmada-es-m1", &name).unwrap();
    let asked = &work["spec"]["workload"]["manifests"][0]["spec"]["replicas"];
    assert_eq!(*asked, json!(4), "those in m2 are about to be removed");
    let (plural, binding) = ("resourcebindings", "web-deployment");
    let kept = bench.api.condition(plural, binding, keeping::CONDITION);
    let message = kept["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("m1: ready replicas"), "{kept}");
    assert_eq!(kept["status"], "True", "{kept}");
}

#[tokio::test(start_paused = true)]
async fn a_work_that_cannot_be_read_keeps_no_other_cluster_from_what_the_template_says() {
    let template = |image: &str| {
        let mut template = deployment(2);
        template["spec"]["template"] =
            json!({"spec": {"containers": [{"name": "c", "image": image}]}});
        template
    };
    for fails in [false, true] {
        let (clusters, binding) = (["m1", "m2"].map(cluster), to(&["m1", "m2"], 1));
        let mut bench = bound(clusters, template("a"), binding, []);
        bench.follow_for(10).await;
        let name = names::work("Deployment", "web", "shop");
        // The copy in m1 is deselected, and selected again before the API has deleted its Work.
        let path = format!("/karmada-es-m1/works/{name}");
        bench.api.cut(Method::DELETE, &path);
        bench.api.put("resourcebindings", to(&["m2"], 2));
        pass(1).await;
        bench.api.answer_truly();
        bench.api.serve_deployments();
        if fails {
            bench.api.refuse(Method::GET, &path, 500, &name);
        }
        bench.api.put("resourcebindings", to(&["m1", "m2"], 3));
        pass(5).await;
        bench.api.forget();
        bench.api.put("deployments", template("b"));
        pass(60 * 60).await;
        let work = bench.api.object("works", "karmada-es-m2", &name).unwrap();
        let pod = &work["spec"]["workload"]["manifests"][0]["spec"]["template"]["spec"];
        let is_reported = !bench.api.reported().await.is_empty();
        let image = &pod["containers"][0]["image"];
        assert!(
            *image == json!("b"),
            "{fails}: m2 has {image} after an hour; reported: {is_reported}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_is_reported_where_the_api_does_not_delete_a_work_for_an_hour_whatever_it_answers()
{
    for code in [500, 409, 429, 503] {
        let binding = moved("web", "apps/v1", "Deployment");
        let works = ["m1", "m2"].map(|cluster| ("works", work_of(&binding, cluster)));
        let clusters = ["m1", "m2"].map(|name| ("clusters", cluster(name)));
        let objects = clusters.into_iter().chain(works);
        let mut bench = Bench::new(objects.chain([("resourcebindings", binding)]));
        bench
            .api
            .refuse(Method::DELETE, "/karmada-es-m1/works/web", code, "web");
        bench.run(start, 60 * 60).await;
        let reported = bench.api.reported().await;
        let reported = reported.iter().any(|it| it.1 == "SyncWorkFailed");
        assert!(reported, "{code}: two copies run, and nothing says why");
    }
}
