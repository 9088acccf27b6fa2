//! A fleet API, members that are only said to be there, and a control plane that does nothing but
//! schedule.

use kube::api::{Patch, PatchParams, PostParams};
use muster_control_plane::settings::Settings;
pub use muster_e2e::harness::test_bed::{PATIENCE, until};
use muster_e2e::harness::test_bed::{Task, TestBed};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Api, Client, Event, ListParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

/// A fleet API with an administrator's client.
pub struct Bench {
    test_bed: TestBed,
    pub client: Client,
}

impl Bench {
    /// Starts a fleet with members of so many free cores each.
    pub async fn with_members(members: &[(&str, u32)]) -> Self {
        let test_bed = TestBed::fleet("scheduler").await.unwrap();
        let client = test_bed.client.clone();
        let bench = Self { test_bed, client };
        for (name, cores) in members {
            bench.join(name, *cores).await;
        }
        bench
    }

    pub fn clusters(&self) -> Api<Cluster> {
        Api::all(self.client.clone())
    }

    pub fn bindings(&self) -> Api<ResourceBinding> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub async fn join(&self, name: &str, cores: u32) {
        let cluster: Cluster = from(json!({
            "metadata": { "name": name }, "spec": { "syncMode": "Pull" },
        }));
        self.clusters()
            .create(&PostParams::default(), &cluster)
            .await
            .unwrap();
        self.report(name, cores).await;
    }

    pub async fn report(&self, name: &str, cores: u32) {
        let status = json!({ "status": {
            "apiEnablements": [{
                "groupVersion": "apps/v1",
                "resources": [{ "name": "deployments", "kind": "Deployment" }],
            }],
            "resourceSummary": { "allocatable": { "cpu": cores.to_string(), "pods": "1000" } },
        } });
        let params = PatchParams::default();
        self.clusters()
            .patch_status(name, &params, &Patch::Merge(&status))
            .await
            .unwrap();
    }

    /// Creates the binding of a Deployment whose replicas ask for a core each.
    pub async fn bind(&self, name: &str, replicas: u32, placement: Value) {
        let binding: ResourceBinding = from(binding(name, replicas, &placement));
        self.bindings()
            .create(&PostParams::default(), &binding)
            .await
            .unwrap();
    }

    pub async fn patch(&self, name: &str, patch: Value) {
        let params = PatchParams::default();
        self.bindings()
            .patch(name, &params, &Patch::Merge(&patch))
            .await
            .unwrap();
    }

    /// Waits until the binding has this result, such as `m1:2 m2:1`, and all of it is reported.
    pub async fn placed(&self, name: &str, result: &str) -> ResourceBinding {
        until(
            &self.bindings(),
            name,
            &format!("it is on {result}"),
            |binding| {
                shown(binding) == result && verdict(binding).0 == "Success" && is_observed(binding)
            },
        )
        .await
    }

    /// Starts a control plane that does nothing but schedule.
    pub fn scheduler(&self) -> Task {
        self.scheduler_with(Settings::default())
    }

    /// Starts a control plane that does nothing but schedule, with these settings.
    pub fn scheduler_with(&self, settings: Settings) -> Task {
        let settings = Settings {
            controllers: "scheduler".parse().unwrap(),
            ..settings
        };
        self.test_bed.control_plane(settings).unwrap()
    }
}

pub fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub fn binding(name: &str, replicas: u32, placement: &Value) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": name },
            "replicas": replicas,
            "replicaRequirements": { "resourceRequest": { "cpu": "1" } },
            "placement": placement,
        },
    })
}

pub fn aggregated() -> Value {
    json!({ "replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
    } })
}

pub fn shown(binding: &ResourceBinding) -> String {
    let mut parts: Vec<String> = binding
        .spec
        .clusters
        .iter()
        .map(|target| format!("{}:{}", target.name, target.replicas))
        .collect();
    parts.sort();
    parts.join(" ")
}

/// Returns the reason and message of the condition `Scheduled`.
pub fn verdict(binding: &ResourceBinding) -> (&str, &str) {
    let conditions = binding.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| condition.type_ == "Scheduled")
        .map(|condition| (condition.reason.as_str(), condition.message.as_str()))
        .next()
        .unwrap_or_default()
}

pub fn is_observed(binding: &ResourceBinding) -> bool {
    binding
        .status
        .as_ref()
        .map(|status| status.scheduler_observed_generation)
        == binding.metadata.generation
}

/// Waits until an event with this text is published.
pub async fn until_event(events: &Api<Event>, note: &str) {
    let found = async {
        loop {
            let listed = events.list(&ListParams::default()).await.unwrap();
            if listed
                .iter()
                .any(|event| event.message.as_deref() == Some(note))
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, found)
        .await
        .expect("the event is published");
}
