//! A fleet API, members that are only said to be there, and a control plane that does nothing but schedule.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use muster_control_plane::settings::Settings;
use muster_e2e::apiserver::{ApiServer, Options, Running};
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Api, Client, Event, ListParams, Resource};
use muster_shared::settings::BindAddress;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long anything may take. The real times are well below a second; a loaded machine takes longer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A fleet API with an administrator's client.
pub struct Bench {
    server: Running,
    pub client: Client,
    folder: PathBuf,
}

impl Bench {
    /// A fleet with members of so many free cores each.
    pub async fn with_members(members: &[(&str, u32)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        muster_shared::tls::install_provider();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("muster-scheduler-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let crds = muster_shared::api::crds();
        let crds = crds
            .iter()
            .map(|crd| serde_json::to_value(crd).unwrap())
            .collect();
        let server = ApiServer::start(Options {
            crds,
            ..Options::default()
        })
        .await
        .unwrap();
        let client = server.client().await.unwrap();
        let bench = Self {
            server,
            client,
            folder,
        };
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
    pub fn scheduler(&self) -> Scheduler {
        self.scheduler_with(Settings::default())
    }

    /// The same with these settings.
    pub fn scheduler_with(&self, settings: Settings) -> Scheduler {
        let kubeconfig = self
            .server
            .kubeconfig("scheduler", &["system:masters"])
            .unwrap();
        let path = self.folder.join("fleet.kubeconfig");
        std::fs::write(&path, serde_saphyr::to_string(&kubeconfig).unwrap()).unwrap();
        let settings = Settings {
            kubeconfig: Some(path),
            controllers: "scheduler".parse().unwrap(),
            leader_elect: false,
            metrics_bind_address: BindAddress(None),
            health_probe_bind_address: BindAddress(None),
            ..settings
        };
        let shutdown = CancellationToken::new();
        let run = muster_control_plane::run(settings, None, shutdown.clone());
        Scheduler {
            shutdown,
            task: tokio::spawn(run),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// A running scheduler; it stops when it is dropped.
pub struct Scheduler {
    shutdown: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Scheduler {
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        timeout(PATIENCE, &mut self.task)
            .await
            .expect("it ends")
            .unwrap()
            .unwrap();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.task.abort();
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

/// Reason and message of the condition `Scheduled`.
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

pub async fn until<K>(api: &Api<K>, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let waiting = await_condition(api.clone(), name, |object: Option<&K>| {
        object.is_some_and(&holds)
    });
    if let Ok(found) = timeout(PATIENCE, waiting).await {
        return found.unwrap().unwrap();
    }
    let last = api.get_opt(name).await;
    panic!("{name}: waited {PATIENCE:?} until {what}; it is {last:?}")
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
