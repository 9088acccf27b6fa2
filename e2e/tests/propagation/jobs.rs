//! Jobs that have completed: nothing makes them run again in another cluster.

use kube::api::DeleteParams;
use muster_control_plane::settings::Settings;
use muster_e2e::harness::test_bed::{gone, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::k8s::Job;
use serde_json::json;

use crate::bench::{Bench, create, shares};
use crate::identity::report;

#[tokio::test]
async fn a_job_that_has_completed_does_not_run_again_when_its_cluster_leaves_the_fleet() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane_with(Settings::default());
    bench.serve_jobs().await;
    let job = json!({ "metadata": { "name": "once" }, "spec": { "template": { "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }],
    } } } });
    create::<Job>(&bench.here(), job).await;
    let policy = json!({ "metadata": { "name": "once" }, "spec": {
        "resourceSelectors": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "once" }],
        "placement": {
            "clusterAffinity": { "clusterNames": ["m1", "m2"] },
            "spreadConstraints": [{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }],
            "replicaScheduling": { "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated" },
        },
    } });
    create::<PropagationPolicy>(&bench.here(), policy).await;
    let placed = until::<ResourceBinding>(&bench.here(), "once-job", "it is placed", |binding| {
        binding.spec.clusters.len() == 1
    })
    .await;
    let here = shares(&placed)[0].0.to_owned();
    let there = if here == "m1" { "m2" } else { "m1" };
    bench.sent(&here, "Job", "once", |_| true).await;
    let time = "2026-01-01T00:00:00Z";
    let complete = json!({ "succeeded": 1, "startTime": time, "completionTime": time, "conditions": [
        { "type": "SuccessCriteriaMet", "status": "True" }, { "type": "Complete", "status": "True" },
    ] });
    report(&bench, &here, &complete).await;
    until::<Job>(&bench.here(), "once", "the template has completed", |job| {
        job.status
            .as_ref()
            .is_some_and(|it| it.completion_time.is_some())
    })
    .await;
    let clusters = bench.all::<Cluster>();
    let left = clusters.delete(&here, &DeleteParams::default()).await;
    left.unwrap();
    gone::<Cluster>(&bench.all(), &here).await;
    // Another workload has been placed in the cluster that is left, so the Job has been looked at.
    bench.deploy("witness").await;
    bench.place("witness", json!({})).await;
    bench.sent(there, "Deployment", "witness", |_| true).await;
    let binding = bench.here::<ResourceBinding>().get("once-job").await;
    assert_eq!(shares(&binding.unwrap())[0].0, here);
    let work = muster_shared::names::work("Job", "once", "default");
    assert!(bench.works(there).get_opt(&work).await.unwrap().is_none());
}
