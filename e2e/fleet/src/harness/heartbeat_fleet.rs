//! Fleet of which only the heartbeats are played: clusters that renew leases and post a status,
//! without members behind them.
//!
//! It shows what the control plane makes of silences, for many clusters at a time, at the cost of
//! two processes. The control plane is the real one, behind a network path of its own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use muster_shared::client::{self, Profile};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fleet::config;
use super::observer::Observer;
use super::process::{Launch, Process, Program};
use super::route::Route;
use super::test_bed::fleet_api;
use super::{access, kubeconfig};
use muster_test_apiserver::Running;
use muster_test_apiserver::seed::Seeds;

/// Pause between two heartbeats of a cluster.
pub const BEAT: Duration = Duration::from_millis(300);

/// Settings of the fleet.
pub struct Plan {
    /// The sandbox binary, which becomes the control plane.
    pub binary: PathBuf,
    /// Where kubeconfig and log go.
    pub directory: PathBuf,
    /// How many clusters answer: `member1`, `member2`, ...
    pub clusters: usize,
    /// Port of the control plane's `/metrics` on this machine; without one it has none.
    pub metrics: Option<u16>,
    /// Flags of the control plane beside the kubeconfig.
    pub control_plane: Vec<String>,
}

/// Fleet whose clusters send heartbeats until it is dropped.
pub struct HeartbeatFleet {
    /// The fleet API, on a path that no fault touches.
    pub client: Client,
    /// Kubeconfig of its administrator, on the same path.
    pub kubeconfig: PathBuf,
    /// What is seen in it.
    pub observer: Observer,
    /// The control plane.
    pub control_plane: Process,
    /// Between the control plane and the fleet API.
    pub to_fleet: Route,
    players: Players,
    bindings: Seeds,
    _api: Running,
    _guard: DropGuard,
}

/// Plays the agents.
#[derive(Clone)]
struct Players {
    clusters: Arc<Seeds>,
    leases: Arc<Seeds>,
    answering: Arc<Mutex<BTreeSet<String>>>,
}

impl HeartbeatFleet {
    /// Starts everything; all clusters are ready before the control plane sees them.
    pub async fn start(plan: Plan) -> anyhow::Result<Self> {
        let api = fleet_api().await?;
        let namespaces = api.seeds("", "v1", "namespaces")?;
        let names: Vec<String> = (1..=plan.clusters).map(name).collect();
        let spaces = names.iter().map(|name| format!("karmada-es-{name}"));
        for name in ["karmada-system", "karmada-cluster", "default"]
            .map(str::to_owned)
            .into_iter()
            .chain(spaces)
        {
            namespaces.put(
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            )?;
        }
        let players = Players {
            clusters: Arc::new(api.seeds("cluster.karmada.io", "v1alpha1", "clusters")?),
            leases: Arc::new(api.seeds("coordination.k8s.io", "v1", "leases")?),
            answering: Arc::default(),
        };
        for name in &names {
            players.join(name)?;
        }
        let shutdown = CancellationToken::new();
        tokio::spawn({
            let (players, shutdown) = (players.clone(), shutdown.clone());
            async move {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = players.play() => {}
                }
            }
        });

        let direct = config(api.admin_kubeconfig()?).await?;
        let observer = Observer::new(&client::connect(&direct, Profile::Watch)?, []);
        observer.start().await;
        let client = client::connect(&direct, Profile::Write)?;
        let account = access::admit_control_plane(&client).await?;
        let administrator = api.admin_kubeconfig()?;
        let to_fleet = Route::open(&administrator).await?;
        let own = plan.directory.join("fleet.kubeconfig");
        kubeconfig::write(&administrator, &own)?;
        let identity = access::kubeconfig(&client, administrator, &account).await?;
        let path = plan.directory.join("control-plane.kubeconfig");
        kubeconfig::write(&to_fleet.kubeconfig(identity), &path)?;
        let mut arguments = vec![
            format!("--kubeconfig={}", path.display()),
            plan.metrics.map_or_else(
                || "--metrics-bind-address=0".to_owned(),
                |port| format!("--metrics-bind-address=127.0.0.1:{port}"),
            ),
            "--health-probe-bind-address=0".to_owned(),
        ];
        arguments.extend(plan.control_plane);
        let control_plane = Process::start(Launch {
            binary: plan.binary,
            program: Program::ControlPlane,
            arguments,
            log: plan.directory.join("control-plane.log"),
        })?;
        Ok(Self {
            client,
            kubeconfig: own,
            observer,
            control_plane,
            to_fleet,
            players,
            bindings: api.seeds("work.karmada.io", "v1alpha2", "resourcebindings")?,
            _api: api,
            _guard: shutdown.drop_guard(),
        })
    }

    /// Makes these clusters fall silent.
    pub fn cut<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut answering = self.players.answering();
        for name in names {
            answering.remove(name);
        }
    }

    /// Makes these clusters answer again.
    pub fn heal<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let names = names.into_iter().map(str::to_owned);
        self.players.answering().extend(names);
    }

    /// Puts a workload on a cluster, as the scheduler would have left it; `more` is merged into the
    /// binding's spec.
    pub fn place(&self, workload: &str, cluster: &str, more: &Value) -> anyhow::Result<()> {
        let mut binding = binding(workload, cluster);
        for (key, value) in more.as_object().into_iter().flatten() {
            binding["spec"][key] = value.clone();
        }
        // The scheduler takes it for settled only if this is the placement that it applied last.
        let applied = binding["spec"]["placement"].to_string();
        binding["metadata"]["annotations"] =
            json!({"policy.karmada.io/applied-placement": applied});
        self.bindings.put(binding).context("placing a workload")
    }

    /// Returns the reasons of all events about an object, by its name.
    pub async fn events(&self, about: &str) -> anyhow::Result<BTreeSet<String>> {
        let all = Api::<Event>::all(self.client.clone())
            .list(&ListParams::default())
            .await?;
        let of = all
            .items
            .into_iter()
            .filter(|event| event.involved_object.name.as_deref() == Some(about));
        Ok(of.filter_map(|event| event.reason).collect())
    }
}

/// Returns the name of a cluster by its number, from 1.
pub fn name(number: usize) -> String {
    format!("member{number}")
}

impl Players {
    fn answering(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.answering.lock()
    }

    fn join(&self, name: &str) -> anyhow::Result<()> {
        self.clusters.put(cluster(name))?;
        self.beat(name)?;
        self.answering().insert(name.to_owned());
        Ok(())
    }

    async fn play(self) {
        let mut beats = tokio::time::interval(BEAT);
        loop {
            beats.tick().await;
            let answering = self.answering().clone();
            for name in &answering {
                // An error is a write that somebody else won: the next beat repeats it.
                let _ = self.beat(name);
            }
        }
    }

    fn beat(&self, name: &str) -> anyhow::Result<()> {
        self.leases.put(lease(name))?;
        let mut cluster = self.clusters.get("", name).context("the cluster is gone")?;
        let ready = cluster["status"]["conditions"][0]["status"] == "True";
        if !ready {
            let room = json!({"cpu": "1000", "memory": "4000Gi", "pods": "10000"});
            cluster["status"] = ready_with(&json!({ "allocatable": room }));
            self.clusters.put(cluster)?;
        }
        Ok(())
    }
}

/// Returns a Pull cluster without a status.
pub fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "creationTimestamp": now(), "generation": 1},
        "spec": {"syncMode": "Pull", "apiEndpoint": format!("https://{name}.invalid"), "id": name},
    })
}

/// Returns the status of a ready cluster that serves Deployments and has these resources.
pub fn ready_with(resources: &Value) -> Value {
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now()});
    json!({
        "kubernetesVersion": "v1.33.0",
        "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment", "name": "deployments"}]}],
        "conditions": [
            condition("Ready", "ClusterReady"),
            condition("CompleteAPIEnablements", "FullAPIEnablementsDiscovered"),
        ],
        "resourceSummary": resources,
    })
}

/// Returns the lease of a cluster, renewed now.
pub fn lease(cluster: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "karmada-cluster", "name": cluster},
        "spec": {"holderIdentity": cluster, "leaseDurationSeconds": 40, "renewTime": format!("{:.6}", Timestamp::now())},
    })
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn binding(workload: &str, cluster: &str) -> Value {
    let scheduled = json!({
        "type": "Scheduled", "status": "True", "reason": "Success",
        "message": "Binding has been scheduled successfully.", "lastTransitionTime": now(),
    });
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"namespace": "default", "name": workload, "generation": 2},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": workload},
            "replicas": 2, "schedulerName": "default-scheduler",
            "replicaRequirements": {"resourceRequest": {"cpu": "100m"}},
            "clusters": [{"name": cluster, "replicas": 2}],
            "placement": {
                "clusterAffinity": {},
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                    "weightPreference": {"dynamicWeight": "AvailableReplicas"},
                },
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
            },
        },
        "status": {"schedulerObservedGeneration": 2, "lastScheduledTime": now(), "conditions": [scheduled]},
    })
}
