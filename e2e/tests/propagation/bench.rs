//! A fleet API with two members, and the test in the place of their agents.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Deref;

use muster_control_plane::settings::Settings;
use muster_e2e::apiserver::audit::Audit;
use muster_e2e::apiserver::faults::Faults;
use muster_e2e::harness::objects::{create, event, list, merge, merge_status};
use muster_e2e::harness::test_bed::{Task, TestBed, until};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::policy::PropagationPolicy;
use muster_shared::api::work::Work;
use muster_shared::k8s::{Api, ConfigMap, Deployment, Event, Resource, ResourceExt};
use muster_shared::names;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub const POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";

/// A fleet API with two members.
pub struct Bench {
    test_bed: TestBed,
}

impl Deref for Bench {
    type Target = TestBed;

    fn deref(&self) -> &TestBed {
        &self.test_bed
    }
}

impl Bench {
    pub async fn start() -> Self {
        let bench = Self {
            test_bed: TestBed::fleet("propagation").await.unwrap(),
        };
        for member in ["m1", "m2"] {
            bench.join(member).await;
        }
        bench
    }

    /// Starts a bench with a control plane, and with a Deployment `web` that has arrived at `m1`;
    /// its policy also has these fields.
    pub async fn with_web(more: Value) -> (Self, Task) {
        let bench = Self::start().await;
        let control_plane = bench.control_plane();
        bench.deploy("web").await;
        bench.place("web", more).await;
        bench.sent("m1", "Deployment", "web", |_| true).await;
        (bench, control_plane)
    }

    pub async fn join(&self, member: &str) {
        let status = json!({
            "apiEnablements": enablements(&[]),
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "cluster is healthy",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "resourceSummary": { "allocatable": { "cpu": "100", "pods": "1000" } },
        });
        self.test_bed.join(member, &status).await;
    }

    /// Returns what goes wrong with requests to the fleet API.
    pub fn faults(&self) -> &Faults {
        self.server.faults()
    }

    /// Forgets the history, so that watches which are behind have to list anew.
    pub fn compact(&self) {
        self.server.store().forget_history();
    }

    /// Waits for an event about an object, and gives its message.
    pub async fn reported(&self, kind: &str, name: &str, reason: &str) -> String {
        self.reported_of(kind, name, (reason, "")).await
    }

    /// Waits for an event about an object whose message contains a text, and returns its message.
    pub async fn reported_of(
        &self,
        kind: &str,
        name: &str,
        (reason, part): (&str, &str),
    ) -> String {
        let events: Api<Event> = self.all();
        let about =
            format!("involvedObject.name={name},involvedObject.kind={kind},reason={reason}");
        let said = event(&events, &about, part).await;
        said.message.unwrap_or_default()
    }

    /// Lets both members say that they have these kinds beside Deployments: group and version,
    /// plural, kind.
    pub async fn serve(&self, kinds: &[(&str, &str, &str)]) {
        let status = json!({ "status": { "apiEnablements": enablements(kinds) } });
        for member in ["m1", "m2"] {
            merge_status(&self.clusters(), member, &status).await;
        }
    }

    pub fn control_plane(&self) -> Task {
        self.control_plane_with(Settings::default())
    }

    /// Starts a control plane with these settings, except for the controllers: those that watch
    /// clusters and taints have no part here.
    pub fn control_plane_with(&self, settings: Settings) -> Task {
        let controllers = "*,-cluster,-clustertaintpolicy,-taintmanager";
        let settings = Settings {
            controllers: controllers.parse().unwrap(),
            ..settings
        };
        self.test_bed.control_plane(settings).unwrap()
    }

    /// Starts a control plane with these settings, with failover on and with the taint manager: the
    /// taints are those of the test.
    pub fn evicting_control_plane(&self, settings: Settings) -> Task {
        let controllers = "*,-cluster,-clustertaintpolicy";
        let gates = format!("Failover=true,{}", settings.feature_gates);
        let settings = Settings {
            controllers: controllers.parse().unwrap(),
            feature_gates: gates.parse().unwrap(),
            resource_eviction_rate: 50.0,
            ..settings
        };
        self.test_bed.control_plane(settings).unwrap()
    }

    /// Starts a control plane that consists of these controllers.
    pub fn control_plane_of(&self, controllers: &str) -> Task {
        let settings = Settings {
            preview_cluster_taint_policies: true,
            controllers: controllers.parse().unwrap(),
            ..Settings::default()
        };
        self.test_bed.control_plane(settings).unwrap()
    }

    /// Returns what is written to the fleet API.
    pub fn audit(&self) -> &Audit {
        self.server.audit()
    }

    pub async fn deploy(&self, name: &str) {
        create::<Deployment>(&self.here(), deployment(name)).await;
    }

    /// Creates a Deployment with a ConfigMap that goes where it goes, and waits until that has
    /// arrived.
    pub async fn deploy_with_map(&self, name: &str) {
        let map = format!("{name}-conf");
        create::<ConfigMap>(&self.here(), json!({ "metadata": { "name": map } })).await;
        self.deploy(name).await;
        self.place(name, json!({ "propagateDeps": true })).await;
        for member in ["m1", "m2"] {
            self.sent(member, "ConfigMap", &map, |_| true).await;
        }
    }

    /// Sends another Deployment, and waits until it has arrived: what was to be written before has
    /// been by then.
    pub async fn witness(&self) {
        self.deploy("witness").await;
        self.place("witness", json!({})).await;
        self.sent("m2", "Deployment", "witness", |_| true).await;
    }

    /// Waits until a policy has claimed a Deployment.
    pub async fn claimed(&self, name: &str) {
        until(&self.here(), name, "it is claimed", |it: &Deployment| {
            it.labels().contains_key(POLICY_ID)
        })
        .await;
    }

    /// Creates a policy that shares the replicas of a Deployment equally.
    pub async fn place(&self, name: &str, more: Value) {
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

    /// Waits until the template of a Deployment shows so many ready replicas.
    pub async fn shows_ready(&self, name: &str, replicas: i32) {
        let what = format!("{replicas} replicas are ready");
        until::<Deployment>(&self.here(), name, &what, |template| {
            let status = template.status.as_ref();
            status.and_then(|status| status.ready_replicas) == Some(replicas)
        })
        .await;
    }

    /// Runs a Deployment `web` in one cluster, which reports it; gives that cluster and the other.
    pub async fn in_one_cluster(&self, more: Value) -> (&'static str, &'static str) {
        self.deploy("web").await;
        let mut spec = json!({ "placement": {
            "clusterAffinity": { "clusterNames": ["m1", "m2"] },
            "spreadConstraints": [{ "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 }],
            "replicaScheduling": { "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated" },
        } });
        let fields = spec.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        self.place("web", spec).await;
        let binding = until(
            &self.here(),
            "web-deployment",
            "it is placed",
            |binding: &ResourceBinding| binding.spec.clusters.len() == 1,
        )
        .await;
        let (here, there) = if shares(&binding)[0].0 == "m1" {
            ("m1", "m2")
        } else {
            ("m2", "m1")
        };
        self.sent(here, "Deployment", "web", |_| true).await;
        self.report(here, "web", 4).await;
        (here, there)
    }

    pub async fn bound(
        &self,
        template: &str,
        what: &str,
        holds: impl Fn(&ResourceBinding) -> bool,
    ) {
        until(&self.here(), template, what, holds).await;
    }

    /// Waits until a member has a Work for the object, with a manifest like this.
    pub async fn sent(&self, member: &str, kind: &str, name: &str, holds: impl Fn(&Value) -> bool) {
        let work = names::work(kind, name, "default");
        let what = format!("the manifest of {kind} {name} for {member} is right");
        let manifest = |work: &Work| holds(&work.spec.workload.manifests[0].0);
        until(&self.works(member), &work, &what, manifest).await;
    }

    /// Waits until nothing is to be left of the object in a member, and lets it go as an agent
    /// would.
    pub async fn withdrawn(&self, member: &str, kind: &str, name: &str) {
        let (works, work) = (self.works(member), names::work(kind, name, "default"));
        let leaving = |work: &Work| work.metadata.deletion_timestamp.is_some();
        until(&works, &work, "it is being removed", leaving).await;
        merge(&works, &work, json!({ "metadata": { "finalizers": null } })).await;
    }

    /// Reports as an agent would.
    pub async fn report(&self, member: &str, name: &str, replicas: i64) {
        let status = json!({ "replicas": replicas, "readyReplicas": replicas });
        self.report_that(member, name, "Healthy", status).await;
    }

    /// Reports a health and a status.
    pub async fn report_that(&self, member: &str, name: &str, health: &str, status: Value) {
        let identifier = json!({
            "ordinal": 0, "group": "apps", "version": "v1", "kind": "Deployment", "resource": "deployments",
            "namespace": "default", "name": name,
        });
        let reported = json!({ "status": status, "health": health });
        self.report_object(member, &identifier, reported).await;
    }

    /// Reports an object as an agent would: applied, with what is reported of it.
    pub async fn report_object(&self, member: &str, identifier: &Value, mut reported: Value) {
        let part = |key: &str| identifier[key].as_str().unwrap_or_default();
        let work = names::work(part("kind"), part("name"), part("namespace"));
        reported["identifier"] = identifier.clone();
        let status = json!({ "status": {
            "conditions": [{
                "type": "Applied", "status": "True", "reason": "AppliedSuccessful",
                "message": "Manifest has been successfully applied",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "manifestStatuses": [reported],
        } });
        merge_status(&self.works(member), &work, &status).await;
    }

    /// Versions of everything that propagation writes, but the objects with this in their name and
    /// the status of policies.
    pub async fn versions(&self, except: &str) -> BTreeMap<String, String> {
        async fn of<K>(api: Api<K>, into: &mut BTreeMap<String, String>, except: &str)
        where
            K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
        {
            for object in list(&api).await {
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
        of::<ResourceBinding>(self.all(), &mut versions, except).await;
        of::<Work>(self.all(), &mut versions, except).await;
        // The status of a policy follows what becomes of its resources, some seconds later.
        let policies: Api<PropagationPolicy> = self.all();
        for mut policy in list(&policies).await {
            let name = format!("PropagationPolicy {}", policy.name_any());
            policy.status = None;
            policy.metadata.resource_version = None;
            policy.metadata.managed_fields = None;
            if !name.contains(except) {
                versions.insert(name, serde_json::to_string(&policy).unwrap());
            }
        }
        versions
    }
}

/// Returns what a cluster says that it serves: Deployments, and these kinds.
fn enablements(kinds: &[(&str, &str, &str)]) -> Value {
    let all = [("apps/v1", "deployments", "Deployment")];
    let all = all.iter().chain(kinds).map(|(version, plural, kind)| {
        json!({ "groupVersion": version, "resources": [{ "name": plural, "kind": kind }] })
    });
    all.collect()
}

pub fn deployment(name: &str) -> Value {
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

pub fn shares(binding: &ResourceBinding) -> Vec<(&str, i32)> {
    let clusters = binding.spec.clusters.iter();
    clusters
        .map(|target| (target.name.as_str(), target.replicas))
        .collect()
}
