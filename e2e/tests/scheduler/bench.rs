//! A fleet API, members that are only said to be there, and a control plane that does nothing but
//! schedule.

use std::ops::Deref;

use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::{create, merge, merge_status};
pub use muster_e2e::harness::test_bed::{PATIENCE, until};
use muster_e2e::harness::test_bed::{Task, TestBed};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::k8s::Api;
use serde_json::{Value, json};

/// A fleet API with members.
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
    /// Starts a fleet with members of so many free cores each.
    pub async fn with_members(members: &[(&str, u32)]) -> Self {
        let test_bed = TestBed::fleet("scheduler").await.unwrap();
        let bench = Self { test_bed };
        for (name, cores) in members {
            bench.join(name, *cores).await;
        }
        bench
    }

    pub fn bindings(&self) -> Api<ResourceBinding> {
        self.here()
    }

    pub async fn join(&self, name: &str, cores: u32) {
        self.test_bed.join(name, &status(cores)).await;
    }

    pub async fn report(&self, name: &str, cores: u32) {
        let status = json!({ "status": status(cores) });
        merge_status(&self.clusters(), name, &status).await;
    }

    /// Creates the binding of a Deployment whose replicas ask for a core each.
    pub async fn bind(&self, name: &str, replicas: u32, placement: Value) {
        let binding = binding(name, replicas, &placement);
        create(&self.bindings(), binding).await;
    }

    pub async fn patch(&self, name: &str, patch: Value) {
        merge(&self.bindings(), name, &patch).await;
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

/// Returns what a member of so many free cores says.
fn status(cores: u32) -> Value {
    json!({
        "apiEnablements": [{
            "groupVersion": "apps/v1",
            "resources": [{ "name": "deployments", "kind": "Deployment" }],
        }],
        "resourceSummary": { "allocatable": { "cpu": cores.to_string(), "pods": "1000" } },
    })
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
