//! Two API servers, a fleet's and a member's, and the real agent between them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_agent::settings::Settings;
use muster_e2e::apiserver::{ApiServer, Options, Running};
use muster_e2e::harness::objects::{create, event};
use muster_e2e::harness::test_bed::{Scratch, Task};
pub use muster_e2e::harness::test_bed::{gone, until};
use muster_e2e::harness::{access, test_bed};
use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::k8s::{Api, ApiResource, Client, DynamicObject, Event, GroupVersionKind, Lease};
use muster_shared::settings::BindAddress;
use serde::Serialize;
use serde_json::{Value, json};

/// Name of the member.
pub const MEMBER: &str = "m1";
/// Namespace of its Works.
pub const WORKS: &str = "karmada-es-m1";
/// User of the agent in both APIs, so that faults can be aimed at it.
pub const AGENT: &str = "system:karmada:agent:m1";
/// The group that has the rights of the charts in both APIs.
pub const AGENTS: &str = "agents";
/// The two servers and clients of an administrator for both.
pub struct Bench {
    pub fleet: Running,
    pub member: Arc<Running>,
    pub fleet_client: Client,
    pub member_client: Client,
    scratch: Scratch,
}

impl Bench {
    /// Starts the servers; the fleet knows our kinds.
    pub async fn start() -> Self {
        Self::start_beside(Options::default()).await
    }

    /// Starts the servers with a member of another kind.
    pub async fn start_beside(member: Options) -> Self {
        muster_shared::tls::install_provider();
        let options = Options {
            name: MEMBER.into(),
            ..member
        };
        let member = ApiServer::start(options).await.unwrap();
        Self::with_member(Arc::new(member)).await
    }

    /// Starts another fleet, which has the same member under the same name.
    pub async fn another_fleet(&self) -> Self {
        Self::with_member(Arc::clone(&self.member)).await
    }

    async fn with_member(member: Arc<Running>) -> Self {
        let fleet = test_bed::fleet_api().await.unwrap();
        let (fleet_client, member_client) = (
            fleet.client().await.unwrap(),
            member.client().await.unwrap(),
        );
        access::admit_group(&fleet_client, &member_client, MEMBER, AGENTS)
            .await
            .unwrap();
        Self {
            fleet,
            member,
            fleet_client,
            member_client,
            scratch: Scratch::new("agent").unwrap(),
        }
    }

    /// Starts the servers and an agent, and waits until the agent has joined.
    pub async fn with_agent() -> (Self, Task) {
        let bench = Self::start().await;
        let agent = bench.agent();
        bench.joined().await;
        (bench, agent)
    }

    /// Starts an agent that may do what the charts let agents do.
    pub fn agent(&self) -> Task {
        self.agent_in(&[AGENTS], |_| {})
    }

    /// Starts an agent with these groups in the fleet API and with changed settings.
    pub fn agent_in(&self, groups: &[&str], edit: impl FnOnce(&mut Settings)) -> Task {
        let settings = self.settings(groups, edit);
        if time_is_simulated() {
            Task::start(|shutdown| muster_agent::run_on_one_runtime(settings, shutdown))
        } else {
            Task::start(|shutdown| muster_agent::run(settings, shutdown))
        }
    }

    /// Settings of an agent with these groups in the fleet API.
    pub fn settings(&self, groups: &[&str], edit: impl FnOnce(&mut Settings)) -> Settings {
        let (fleet, member) = self.kubeconfigs(groups);
        let mut settings = Settings {
            cluster_name: MEMBER.into(),
            karmada_kubeconfig: Some(fleet),
            kubeconfig: Some(member),
            // A probe must be over in half of it, on a loaded machine too.
            cluster_status_update_frequency: "1s".parse().unwrap(),
            cluster_lease_duration: "2s".parse().unwrap(),
            cluster_success_threshold: "300ms".parse().unwrap(),
            cluster_failure_threshold: "300ms".parse().unwrap(),
            leader_elect: false,
            // As the chart has it.
            report_secrets: "None".parse().unwrap(),
            cluster_api_qps: 0.0,
            kube_api_qps: 0.0,
            metrics_bind_address: BindAddress(None),
            health_probe_bind_address: BindAddress(None),
            ..Settings::default()
        };
        edit(&mut settings);
        settings
    }

    /// Writes the kubeconfig files of the agent for the fleet (in these groups) and for its member,
    /// and returns their paths.
    pub fn kubeconfigs(&self, groups: &[&str]) -> (PathBuf, PathBuf) {
        let fleet = self.fleet.kubeconfig(AGENT, groups).unwrap();
        let member = self.member.kubeconfig(AGENT, &[AGENTS]).unwrap();
        (self.write("fleet", &fleet), self.write("member", &member))
    }

    pub fn write(&self, name: &str, kubeconfig: &impl Serialize) -> PathBuf {
        let path = self.scratch.path().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, serde_saphyr::to_string(kubeconfig).unwrap()).unwrap();
        path
    }

    pub fn clusters(&self) -> Api<Cluster> {
        Api::all(self.fleet_client.clone())
    }

    /// Returns the signs of life of members, under their names.
    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.fleet_client.clone(), "karmada-cluster")
    }

    pub fn works(&self) -> Api<Work> {
        Api::namespaced(self.fleet_client.clone(), WORKS)
    }

    /// Objects of a kind in the member, in namespace `default`.
    pub fn objects(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.member_client.clone(), "default", &resource)
    }

    pub fn config_maps(&self) -> Api<DynamicObject> {
        self.objects("v1", "ConfigMap")
    }

    /// Creates a Work as the control plane would, with its finalizer.
    pub async fn create_work(&self, name: &str, edit: impl FnOnce(&mut Value)) -> Work {
        let mut work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": name, "namespace": WORKS, "finalizers": ["karmada.io/execution-controller"]},
            "spec": {"workload": {"manifests": [config_map(name, "1")]}},
        });
        edit(&mut work);
        create(&self.works(), work).await
    }

    /// Creates a Work of these manifests.
    pub async fn create_of(&self, name: &str, manifests: Value) -> Work {
        self.create_work(name, |work| {
            work["spec"]["workload"]["manifests"] = manifests;
        })
        .await
    }

    /// Creates a Work of these manifests, and waits until they are applied.
    pub async fn apply(&self, name: &str, manifests: Value) -> Work {
        self.create_of(name, manifests).await;
        self.applied(name, "True").await
    }

    /// Waits for an event with this reason about a Work.
    pub async fn reported(&self, work: &str, reason: &str) -> Event {
        let events = Api::namespaced(self.fleet_client.clone(), WORKS);
        let about = format!("involvedObject.name={work},reason={reason}");
        event(&events, &about, "").await
    }

    /// Waits until a Cluster has all these conditions: type, status, reason.
    pub async fn has(&self, cluster: &str, conditions: &[(&str, &str, &str)]) -> Cluster {
        let what = format!("it has {conditions:?}");
        until(&self.clusters(), cluster, &what, |it| {
            conditions
                .iter()
                .all(|(kind, status, reason)| condition(it, kind) == Some((status, reason)))
        })
        .await
    }

    /// Waits until the first object of a Work is reported with this health.
    pub async fn healthy(&self, work: &str, health: ResourceHealth) -> Work {
        until(&self.works(), work, &format!("it is {health:?}"), |it| {
            let mut all = it.status.iter().flat_map(|it| &it.manifest_statuses);
            all.next()
                .is_some_and(|it| it.health.as_ref() == Some(&health))
        })
        .await
    }

    /// Waits until the Cluster is ready.
    pub async fn joined(&self) -> Cluster {
        let what = "the cluster is ready";
        until(&self.clusters(), MEMBER, what, |cluster| {
            condition(cluster, "Ready").is_some_and(|ready| ready.0 == "True")
        })
        .await
    }

    /// Waits for a sign of life of the member that is later than this one, or for any.
    pub async fn beats(&self, last: Option<Timestamp>) -> Lease {
        until(&self.leases(), MEMBER, "it is renewed", |lease| {
            renewed(lease) > last
        })
        .await
    }

    /// Waits until a Work says this about being applied.
    pub async fn applied(&self, name: &str, status: &str) -> Work {
        until(
            &self.works(),
            name,
            &format!("Applied is {status}"),
            |work| applied(work).is_some_and(|(found, _)| found == status),
        )
        .await
    }
}

/// Returns whether the clock of this runtime stands still while time passes.
fn time_is_simulated() -> bool {
    let before = tokio::time::Instant::now();
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
    tokio::time::Instant::now() == before
}

/// Returns the manifest of a ConfigMap with one value in it.
pub fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"k": value}})
}

/// Returns the manifest of a Deployment of two replicas.
pub fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "nginx", "resources": {"requests": {"cpu": "1000m"}}}]}}}})
}

/// Returns status and reason of a Cluster's condition.
pub fn condition<'a>(cluster: &'a Cluster, kind: &str) -> Option<(&'a str, &'a str)> {
    cluster
        .condition(kind)
        .map(|found| (found.status.as_str(), found.reason.as_str()))
}

/// Returns when a lease was renewed last.
pub fn renewed(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

/// Returns status and message of the condition Applied.
pub fn applied(work: &Work) -> Option<(&str, &str)> {
    let conditions = work.status.iter().flat_map(|status| &status.conditions);
    let mut applied = conditions.filter(|condition| condition.type_ == "Applied");
    applied
        .next()
        .map(|condition| (condition.status.as_str(), condition.message.as_str()))
}

/// Returns the value in a config map.
pub fn value(object: &DynamicObject) -> &str {
    object.data["data"]["k"].as_str().unwrap_or_default()
}
