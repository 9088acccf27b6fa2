//! From a user's template and policy to Works and back, against a real API: the detector, the binding controller, the
//! status controller and the scheduler together, with the test in the place of the agents.

// Helpers of tests are tests to us, if not to clippy.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::StreamExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use muster_control_plane::settings::Settings;
use muster_e2e::harness::ground::{Ground, PATIENCE, Task, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::api::work::Work;
use muster_shared::k8s::{
    Api, ConfigMap, Deployment, ListParams, Namespace, Resource, ResourceExt,
};
use muster_shared::names;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

const POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";

/// A fleet API with two members.
struct Bench {
    ground: Ground,
}

impl Bench {
    async fn start() -> Self {
        let bench = Self {
            ground: Ground::fleet("propagation").await.unwrap(),
        };
        for member in ["m1", "m2"] {
            bench.join(member).await;
        }
        bench
    }

    async fn join(&self, member: &str) {
        let namespace = json!({ "metadata": { "name": names::execution_namespace(member) } });
        create::<Namespace>(&self.all(), namespace).await;
        let cluster = json!({ "metadata": { "name": member }, "spec": { "syncMode": "Pull" } });
        create::<Cluster>(&self.all(), cluster).await;
        let status = json!({ "status": {
            "apiEnablements": [{
                "groupVersion": "apps/v1",
                "resources": [{ "name": "deployments", "kind": "Deployment" }],
            }],
            "resourceSummary": { "allocatable": { "cpu": "100", "pods": "1000" } },
        } });
        let clusters: Api<Cluster> = self.all();
        clusters
            .patch_status(member, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.ground.client.clone())
    }

    fn here<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.ground.client.clone(), "default")
    }

    fn works(&self, member: &str) -> Api<Work> {
        Api::namespaced(
            self.ground.client.clone(),
            &names::execution_namespace(member),
        )
    }

    fn control_plane(&self) -> Task {
        let controllers = "scheduler,detector,binding,bindingStatus,namespace";
        let settings = Settings {
            controllers: controllers.parse().unwrap(),
            ..Settings::default()
        };
        self.ground.control_plane(settings).unwrap()
    }

    async fn deploy(&self, name: &str) {
        create::<Deployment>(&self.here(), deployment(name)).await;
    }

    /// A policy that shares the replicas of a Deployment equally.
    async fn place(&self, name: &str, more: Value) {
        let mut spec = json!({
            "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": name }],
            "placement": { "replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            } },
        });
        let fields = spec.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let policy = json!({ "metadata": { "name": name }, "spec": spec });
        create::<PropagationPolicy>(&self.here(), policy).await;
    }

    async fn bound(&self, template: &str, what: &str, holds: impl Fn(&ResourceBinding) -> bool) {
        until(&self.here(), template, what, holds).await;
    }

    /// Waits until a member has a Work for the object, with a manifest like this.
    async fn sent(&self, member: &str, kind: &str, name: &str, holds: impl Fn(&Value) -> bool) {
        let work = names::work(kind, name, "default");
        let what = format!("the manifest of {kind} {name} for {member} is right");
        let manifest = |work: &Work| holds(&work.spec.workload.manifests[0].0);
        until(&self.works(member), &work, &what, manifest).await;
    }

    /// Waits until nothing is to be left of the object in a member, and lets it go as an agent would.
    async fn withdrawn(&self, member: &str, kind: &str, name: &str) {
        let (works, work) = (self.works(member), names::work(kind, name, "default"));
        let leaving = |work: &Work| work.metadata.deletion_timestamp.is_some();
        until(&works, &work, "it is being removed", leaving).await;
        merge(&works, &work, json!({ "metadata": { "finalizers": null } })).await;
    }

    /// Reports as an agent would.
    async fn report(&self, member: &str, name: &str, replicas: i64) {
        let status = json!({ "status": {
            "conditions": [{
                "type": "Applied", "status": "True", "reason": "AppliedSuccessful",
                "message": "Manifest has been successfully applied",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "manifestStatuses": [{
                "identifier": {
                    "ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments",
                    "namespace": "default", "name": name,
                },
                "status": { "replicas": replicas, "readyReplicas": replicas },
                "health": "Healthy",
            }],
        } });
        let work = names::work("Deployment", name, "default");
        self.works(member)
            .patch_status(&work, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
    }

    /// Versions of everything that propagation writes, but the objects with this in their name.
    async fn versions(&self, except: &str) -> BTreeMap<String, String> {
        async fn of<K>(api: Api<K>, into: &mut BTreeMap<String, String>, except: &str)
        where
            K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
        {
            for object in api.list(&ListParams::default()).await.unwrap() {
                let name = format!(
                    "{} {}/{}",
                    K::kind(&()),
                    object.namespace().unwrap_or_default(),
                    object.name_any()
                );
                if !name.contains(except) {
                    into.insert(name, object.resource_version().unwrap());
                }
            }
        }
        let mut versions = BTreeMap::new();
        of::<Deployment>(self.all(), &mut versions, except).await;
        of::<ConfigMap>(self.all(), &mut versions, except).await;
        of::<PropagationPolicy>(self.all(), &mut versions, except).await;
        of::<ResourceBinding>(self.all(), &mut versions, except).await;
        of::<Work>(self.all(), &mut versions, except).await;
        versions
    }
}

fn deployment(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": 4,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "c", "image": "nginx",
                    "resources": { "requests": { "cpu": "100m" } },
                    "envFrom": [{ "configMapRef": { "name": format!("{name}-conf") } }],
                }] },
            },
        },
    })
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

async fn merge<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let params = PatchParams::default();
    api.patch(name, &params, &Patch::Merge(patch))
        .await
        .unwrap();
}

fn shares(binding: &ResourceBinding) -> Vec<(&str, i32)> {
    let clusters = binding.spec.clusters.iter();
    clusters
        .map(|target| (target.name.as_str(), target.replicas))
        .collect()
}

#[tokio::test]
async fn a_template_waits_for_its_policy_and_then_goes_where_that_says() {
    let bench = Bench::start().await;
    let bindings: Api<ResourceBinding> = bench.here();
    let mut seen = bindings
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    for member in ["m1", "m2"] {
        let half = |manifest: &Value| {
            manifest["spec"]["replicas"] == 2
                && manifest["metadata"]["labels"]["karmada.io/managed"] == "true"
        };
        bench.sent(member, "Deployment", "web", half).await;
    }
    let policy: PropagationPolicy = bench.here().get("web").await.unwrap();
    let id = &policy.labels()[POLICY_ID];
    until::<Deployment>(&bench.here(), "web", "the policy's claim", |it| {
        it.labels().get(POLICY_ID) == Some(id)
    })
    .await;
    let binding: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    assert_eq!(&binding.labels()[POLICY_ID], id);
    assert_eq!(shares(&binding), [("m1", 2), ("m2", 2)]);
    let first = timeout(PATIENCE, seen.next()).await.unwrap();
    let Some(Ok(WatchEvent::Added(first))) = first else {
        panic!("expected the new binding, got {first:?}")
    };
    assert_eq!(
        shares(&first),
        shares(&binding),
        "nobody sees it without clusters"
    );
    // The claim comes after binding and Works, which said it from the start: it costs no second write of either. What would be written
    // again is written before another workload is carried out.
    bench.deploy("witness").await;
    bench.place("witness", json!({})).await;
    bench.sent("m2", "Deployment", "witness", |_| true).await;
    let binding: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    assert_eq!(binding.metadata.generation, Some(1));
    for member in ["m1", "m2"] {
        let works = bench.works(member).list(&ListParams::default()).await;
        for work in works.unwrap() {
            let manifest = &work.spec.workload.manifests[0].0;
            assert_eq!(work.metadata.generation, Some(1), "{manifest}");
            assert!(
                manifest["metadata"]["labels"][POLICY_ID].is_string(),
                "{manifest}"
            );
        }
    }
}

#[tokio::test]
async fn a_change_of_the_template_reaches_every_member() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    merge::<Deployment>(
        &bench.here(),
        "web",
        json!({ "spec": { "replicas": 6 }, "metadata": { "labels": { "a": "b" } } }),
    )
    .await;
    for member in ["m1", "m2"] {
        let new = |manifest: &Value| {
            manifest["spec"]["replicas"] == 3 && manifest["metadata"]["labels"]["a"] == "b"
        };
        bench.sent(member, "Deployment", "web", new).await;
    }
}

#[tokio::test]
async fn a_deleted_policy_lets_go_and_removes_nothing() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    let policies: Api<PropagationPolicy> = bench.here();
    policies
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    let free = |labels: &BTreeMap<String, String>| !labels.contains_key(POLICY_ID);
    until::<Deployment>(&bench.here(), "web", "the policy let go of it", |it| {
        free(it.labels())
    })
    .await;
    bench
        .bound("web-deployment", "the policy let go of it", |it| {
            free(it.labels())
        })
        .await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    let kept: ResourceBinding = bench.here().get("web-deployment").await.unwrap();
    assert_eq!(shares(&kept), [("m1", 2), ("m2", 2)]);
}

#[tokio::test]
async fn a_cluster_that_is_being_left_gracefully_keeps_its_work_as_it_is() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    let leaves = json!({ "spec": {
        "clusters": [{ "name": "m2", "replicas": 4 }],
        "gracefulEvictionTasks": [
            { "fromCluster": "m1", "purgeMode": "Gracefully", "reason": "Test", "producer": "test", "replicas": 2 },
        ],
    } });
    merge::<ResourceBinding>(&bench.here(), "web-deployment", leaves).await;
    bench
        .sent("m2", "Deployment", "web", |manifest| {
            manifest["spec"]["replicas"] == 4
        })
        .await;
    bench
        .sent("m1", "Deployment", "web", |manifest| {
            manifest["spec"]["replicas"] == 2
        })
        .await;
    let left = json!({ "spec": { "gracefulEvictionTasks": null } });
    merge::<ResourceBinding>(&bench.here(), "web-deployment", left).await;
    bench.withdrawn("m1", "Deployment", "web").await;
}

#[tokio::test]
async fn what_a_workload_refers_to_goes_and_comes_with_it() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({ "propagateDeps": true })).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    let conf = json!({ "metadata": { "name": "web-conf" }, "data": { "a": "1" } });
    create::<ConfigMap>(&bench.here(), conf).await;
    for member in ["m1", "m2"] {
        bench
            .sent(member, "ConfigMap", "web-conf", |manifest| {
                manifest["data"]["a"] == "1"
            })
            .await;
    }
    merge::<ConfigMap>(&bench.here(), "web-conf", json!({ "data": { "a": "2" } })).await;
    bench
        .sent("m2", "ConfigMap", "web-conf", |manifest| {
            manifest["data"]["a"] == "2"
        })
        .await;
    let templates: Api<Deployment> = bench.here();
    templates
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    for member in ["m1", "m2"] {
        bench.withdrawn(member, "ConfigMap", "web-conf").await;
    }
}

#[tokio::test]
async fn what_the_members_report_shows_on_binding_and_template() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    for member in ["m1", "m2"] {
        bench.sent(member, "Deployment", "web", |_| true).await;
        bench.report(member, "web", 2).await;
    }
    let full = |binding: &ResourceBinding| {
        let status = binding.status.clone().unwrap_or_default();
        let applied = |condition: &_| {
            let muster_shared::k8s::Condition { type_, status, .. } = condition;
            type_ == "FullyApplied" && status == "True"
        };
        status.aggregated_status.len() == 2 && status.conditions.iter().any(applied)
    };
    bench
        .bound("web-deployment", "it is applied everywhere", full)
        .await;
    let ready = |template: &Deployment| {
        template
            .status
            .as_ref()
            .and_then(|status| status.ready_replicas)
            == Some(4)
    };
    until::<Deployment>(&bench.here(), "web", "all replicas are ready", ready).await;
}

#[tokio::test]
async fn namespaces_go_to_every_member() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    create::<Namespace>(&bench.all(), json!({ "metadata": { "name": "shop" } })).await;
    for member in ["m1", "m2"] {
        let work = names::work("Namespace", "shop", "");
        until(&bench.works(member), &work, "it is there", |_| true).await;
    }
    bench.join("m3").await;
    let work = names::work("Namespace", "shop", "");
    until(&bench.works("m3"), &work, "it is there", |_| true).await;
    let default = names::work("Namespace", "default", "");
    assert!(bench.works("m1").get_opt(&default).await.unwrap().is_none());
}

#[tokio::test]
async fn a_binding_that_somebody_deletes_is_made_again() {
    let bench = Bench::start().await;
    let _control_plane = bench.control_plane();
    bench.deploy("web").await;
    bench.place("web", json!({})).await;
    bench.sent("m1", "Deployment", "web", |_| true).await;
    let bindings: Api<ResourceBinding> = bench.here();
    let first = bindings.get("web-deployment").await.unwrap().uid();
    bindings
        .delete("web-deployment", &DeleteParams::default())
        .await
        .unwrap();
    bench
        .bound("web-deployment", "it is another one", |binding| {
            binding.uid() != first
        })
        .await;
    for member in ["m1", "m2"] {
        bench.withdrawn(member, "Deployment", "web").await;
        let fresh = |work: &Work| work.metadata.deletion_timestamp.is_none();
        let work = names::work("Deployment", "web", "default");
        until(&bench.works(member), &work, "it is made again", fresh).await;
    }
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let bench = Bench::start().await;
    let control_plane = bench.control_plane();
    create::<ConfigMap>(&bench.here(), json!({ "metadata": { "name": "web-conf" } })).await;
    bench.deploy("web").await;
    bench.place("web", json!({ "propagateDeps": true })).await;
    for member in ["m1", "m2"] {
        bench.sent(member, "Deployment", "web", |_| true).await;
        bench.sent(member, "ConfigMap", "web-conf", |_| true).await;
        bench.report(member, "web", 2).await;
    }
    let ready = |template: &Deployment| {
        template
            .status
            .as_ref()
            .and_then(|status| status.ready_replicas)
            == Some(4)
    };
    until::<Deployment>(&bench.here(), "web", "all replicas are ready", ready).await;
    control_plane.stop().await.unwrap();
    let before = bench.versions("witness").await;
    let _control_plane = bench.control_plane();
    // Whatever else was to be written comes before this is done.
    bench.deploy("witness").await;
    bench.place("witness", json!({})).await;
    bench.sent("m2", "Deployment", "witness", |_| true).await;
    assert_eq!(bench.versions("witness").await, before);
}
