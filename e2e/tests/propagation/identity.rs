//! Whose a Work is, and Works that nobody answers for.

use kube::api::{DeleteParams, PropagationPolicy as Propagate};
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{create, merge};
use muster_e2e::harness::test_bed::{gone, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::api::work::Work;
use muster_shared::k8s::{Api, Deployment, Job, ResourceExt};
use muster_shared::names;
use serde_json::{Value, json};

use crate::propagation::bench::{Bench, POLICY_ID};

/// Returns a Work as the control plane makes it for a binding.
fn work_of(binding: &str, name: &str) -> Value {
    json!({
        "metadata": { "name": name, "annotations": {
            "resourcebinding.karmada.io/namespace": "default",
            "resourcebinding.karmada.io/name": binding,
        } },
        "spec": { "workload": { "manifests": [{
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "default" },
        }] } },
    })
}

#[tokio::test]
async fn a_work_where_its_binding_wants_none_is_removed_when_it_appears() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    let one = json!({ "placement": { "clusterAffinity": { "clusterNames": ["m1"] } } });
    bench.place("web", one).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    bench.report("m1", "web", 4).await;
    // One in another member, one of a binding that never was, one that only lies in the way.
    create::<Work>(&bench.works("m2"), work_of("web-deployment", "late")).await;
    create::<Work>(&bench.works("m1"), work_of("never-deployment", "orphan")).await;
    create::<Work>(&bench.within("default"), work_of("web-deployment", "copy")).await;
    gone(&bench.works("m2"), "late").await;
    gone(&bench.works("m1"), "orphan").await;
    let rest = names::work("Deployment", "web", "default");
    assert!(
        bench.works("m1").get(&rest).await.is_ok(),
        "what is wanted stays"
    );
    let copies: Api<Work> = bench.within("default");
    assert!(
        copies.get("copy").await.is_ok(),
        "what lies elsewhere is nobody's"
    );
}

/// Returns the identifier of the Job `once` in reports.
fn of_job() -> Value {
    json!({
        "ordinal": 0, "group": "batch", "version": "v1", "kind": "Job", "resource": "",
        "namespace": "default", "name": "once",
    })
}

/// Reports the status of a Job as an agent would.
pub async fn report(bench: &Bench, member: &str, status: &Value) {
    let reported = json!({ "status": status });
    bench.report_object(member, &of_job(), reported).await;
}

fn job(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "template": { "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }],
    } } } })
}

/// Returns the uid of the template that a manifest was made of.
fn made_of(manifest: &Value) -> Option<&str> {
    manifest["metadata"]["annotations"]["resourcetemplate.karmada.io/uid"].as_str()
}

/// Lists and watches over all namespaces, which is how caches learn of a kind.
fn cache_of(kind: &str) -> Scope {
    Scope::path(format!("/apis/{kind}"))
}

#[tokio::test]
async fn a_job_that_was_replaced_is_not_carried_out_by_the_binding_of_the_former_one() {
    let bench = Bench::start().await;
    bench.serve(&[("batch/v1", "jobs", "Job")]).await;
    let _control_plane = bench.control_plane();
    let jobs: Api<Job> = bench.here();
    for name in ["once", "witness"] {
        create(&jobs, job(name)).await;
    }
    let policy = json!({ "metadata": { "name": "jobs" }, "spec": {
        "resourceSelectors": [{ "apiVersion": "batch/v1", "kind": "Job" }],
        "placement": { "clusterAffinity": { "clusterNames": ["m1"] } },
    } });
    create::<PropagationPolicy>(&bench.here(), policy).await;
    for name in ["once", "witness"] {
        bench.sent("m1", "Job", name, |_| true).await;
        until(&jobs, name, "it is claimed", |it| {
            it.labels().contains_key(POLICY_ID)
        })
        .await;
    }
    let before = jobs.get("once").await.unwrap();
    // The deletion is seen by nobody, and that of the binding neither.
    bench
        .faults()
        .inject_for(cache_of("batch/v1/jobs"), Effect::Hang);
    let bindings = cache_of("work.karmada.io/v1alpha2/resourcebindings");
    bench.faults().inject_for(bindings.clone(), Effect::Hang);
    let at_once = DeleteParams::background();
    jobs.delete("once", &at_once).await.unwrap();
    // From a file that was read from the API, claim and all.
    let mut again = job("once");
    again["metadata"]["labels"] = json!(before.labels());
    again["metadata"]["annotations"] = json!(before.annotations());
    create(&jobs, again).await;
    let after = jobs.get("once").await.unwrap().uid().unwrap();
    bench.compact();
    bench.faults().heal();
    bench.faults().inject_for(bindings, Effect::Hang);
    // What was to be written for the first of these changes has been written before the second.
    for step in ["one", "two"] {
        let change = json!({ "metadata": { "labels": { "step": step } } });
        merge::<Job>(&bench.here(), "witness", change).await;
        let carried = |manifest: &Value| manifest["metadata"]["labels"]["step"] == step;
        bench.sent("m1", "Job", "witness", carried).await;
    }
    let work = names::work("Job", "once", "default");
    let held = bench.works("m1").get(&work).await.unwrap();
    assert_eq!(
        made_of(&held.spec.workload.manifests[0].0),
        before.metadata.uid.as_deref()
    );
    // Its own binding carries it out.
    bench.faults().heal();
    bench.withdrawn("m1", "Job", "once").await;
    let own = |work: &Work| {
        work.metadata.deletion_timestamp.is_none()
            && work.labels()[names::label::RESOURCE_BINDING_ID] == after
            && made_of(&work.spec.workload.manifests[0].0) == Some(&after)
    };
    until(&bench.works("m1"), &work, "it is made again", own).await;
}

#[tokio::test]
async fn a_binding_that_outlived_its_template_is_taken_over_by_the_next_one() {
    let (bench, _control_plane) = Bench::with_web(json!({})).await;
    let bindings: Api<ResourceBinding> = bench.here();
    let before = bindings.get("web-deployment").await.unwrap();
    let deployments: Api<Deployment> = bench.here();
    let orphaning = DeleteParams {
        propagation_policy: Some(Propagate::Orphan),
        ..DeleteParams::default()
    };
    deployments.delete("web", &orphaning).await.unwrap();
    gone(&deployments, "web").await;
    bench.deploy("web").await;
    let template = deployments.get("web").await.unwrap().uid();
    for member in ["m1", "m2"] {
        let new = |manifest: &Value| made_of(manifest) == template.as_deref();
        bench.sent(member, "Deployment", "web", new).await;
    }
    let after = bindings.get("web-deployment").await.unwrap();
    assert_eq!(after.uid(), before.uid(), "it is the same");
    assert_eq!(after.spec.resource.uid, template);
    assert_eq!(
        after.owner_references().first().map(|it| it.uid.clone()),
        template
    );
}

#[tokio::test]
async fn a_binding_that_is_there_before_its_template_is_carried_out_when_that_appears() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("witness").await;
    let binding = |name: &str| {
        json!({ "metadata": { "name": format!("{name}-deployment") }, "spec": {
            "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name },
            "clusters": [{ "name": "m1", "replicas": 1 }],
        } })
    };
    for name in ["web", "witness"] {
        create::<ResourceBinding>(&bench.here(), binding(name)).await;
    }
    // By then Deployments have been listed.
    bench.sent("m1", "Deployment", "witness", |_| true).await;
    bench.deploy("web").await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
}
