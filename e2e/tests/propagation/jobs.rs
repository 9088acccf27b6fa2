//! Jobs that have completed: nothing makes them run again in another cluster.

use http::StatusCode;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{create, delete, merge};
use muster_e2e::harness::test_bed::{gone, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::k8s::Job;
use serde_json::json;

use crate::propagation::bench::{Bench, shares};
use crate::propagation::identity::report;

/// Creates a Job `once` that is placed in one cluster, and returns that cluster and the other.
async fn placed(bench: &Bench) -> (&'static str, &'static str) {
    bench.serve(&[("batch/v1", "jobs", "Job")]).await;
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
    let (here, there) = match shares(&placed)[0].0 {
        "m1" => ("m1", "m2"),
        _ => ("m2", "m1"),
    };
    bench.sent(here, "Job", "once", |_| true).await;
    (here, there)
}

#[tokio::test]
async fn a_job_that_has_completed_does_not_run_again_when_its_cluster_leaves_the_fleet() {
    let bench = Bench::start().await;
    let control_plane = bench.control_plane_of("*");
    let (here, there) = placed(&bench).await;
    complete(&bench, here).await;
    // It is emptied first, which the Job withstands; its report goes before the cluster does.
    let clusters = bench.all::<Cluster>();
    let drain = json!({ "spec": { "taints": [
        { "key": muster_shared::names::taint::DRAIN, "effect": "NoExecute" },
    ] } });
    merge::<Cluster>(&bench.all(), here, drain).await;
    let stays = |binding: &ResourceBinding| {
        let conditions = &binding.status().conditions;
        let said = muster_shared::conditions::get(conditions, "EvictionPending");
        said.is_some_and(|it| it.reason == "JobCompleted")
    };
    bench.bound("once-job", "it stays", stays).await;
    delete(&clusters, here).await;
    bench.withdrawn(here, "Job", "once").await;
    gone::<Cluster>(&bench.all(), here).await;
    is_nowhere(&bench, there, "witness").await;
    bench
        .bound("once-job", "that is confirmed", confirmed)
        .await;

    // A process that starts does not know the template at first.
    control_plane.stop().await.unwrap();
    let jobs = Scope::path("/apis/batch/v1/jobs");
    let unavailable = Effect::Answer(StatusCode::SERVICE_UNAVAILABLE);
    bench.faults().inject_for(jobs, unavailable);
    let _again = bench.control_plane_of("*");
    is_nowhere(&bench, there, "second").await;
    bench.faults().heal();
    is_nowhere(&bench, there, "third").await;
}

/// Checks that the Job is in no cluster that is gone, and in no other. Another workload has then
/// been placed in the cluster that is left, so the Job has been reconciled.
async fn is_nowhere(bench: &Bench, there: &str, witness: &str) {
    bench.deploy(witness).await;
    bench.place(witness, json!({})).await;
    bench.sent(there, "Deployment", witness, |_| true).await;
    let binding = bench.here::<ResourceBinding>().get("once-job").await;
    assert_eq!(shares(&binding.unwrap()), [], "{witness}");
    let work = muster_shared::names::work("Job", "once", "default");
    let work = bench.works(there).get_opt(&work).await.unwrap();
    assert!(work.is_none(), "{witness}");
}

/// Returns whether the scheduler has dealt with a binding as it is.
fn confirmed(binding: &ResourceBinding) -> bool {
    Some(binding.status().scheduler_observed_generation) == binding.metadata.generation
}

/// Has the Job complete in its only cluster, and waits until the template says so.
async fn complete(bench: &Bench, here: &str) {
    let time = "2026-01-01T00:00:00Z";
    let complete = json!({ "succeeded": 1, "startTime": time, "completionTime": time, "conditions": [
        { "type": "SuccessCriteriaMet", "status": "True" }, { "type": "Complete", "status": "True" },
    ] });
    report(bench, here, &complete).await;
    until::<Job>(&bench.here(), "once", "the template has completed", |job| {
        job.status
            .as_ref()
            .is_some_and(|it| it.completion_time.is_some())
    })
    .await;
}
