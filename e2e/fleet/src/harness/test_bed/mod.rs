//! Builds what a scenario in the test's own process needs: a fleet API, APIs of members, clusters
//! that are only said to be there, and control planes and agents as tasks of the test; and waits
//! that report what was missing. For whole fleets with processes and members see
//! [`fleet`](super::fleet).
//!
//! ```no_run
//! use muster_control_plane::settings::Settings;
//! use muster_test_fleet::harness::test_bed::{TestBed, until};
//! use muster_shared::api::cluster::Cluster;
//! use muster_shared::k8s::Api;
//!
//! # async fn example() -> anyhow::Result<()> {
//! let test_bed = TestBed::fleet("readme").await?;
//! let _control_plane = test_bed.control_plane(Settings {
//!     controllers: "cluster".parse()?,
//!     ..Settings::default()
//! })?;
//! let clusters: Api<Cluster> = Api::all(test_bed.client.clone());
//! let is_tainted = |cluster: &Cluster| !cluster.spec.taints.is_empty();
//! until(&clusters, "m1", "it is tainted", is_tainted).await;
//! # Ok(()) }
//! ```

mod waits;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::config::Kubeconfig;
use kube::{Client, Resource};
use muster_agent::settings::Settings as AgentSettings;
use muster_control_plane::settings::Settings;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::names;
use muster_shared::settings::{self, BindAddress};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(super) use self::waits::failed;
pub use self::waits::{PATIENCE, awaited, eventually, gone, until};
use super::objects::{create, merge_status};
use super::{access, kubeconfig};
use muster_test_apiserver::{ApiServer, Options, Running, Snapshot};

/// A directory of one test's own, removed with it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one; the name is for people who find directories that were left behind.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("muster-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now the system removes some day.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An embedded fleet API with what an installation brings.
pub struct TestBed {
    /// The server.
    pub server: Running,
    /// Everything's access.
    pub client: Client,
    /// The control plane's access, with the rights of its chart.
    identity: Kubeconfig,
    scratch: Scratch,
}

impl TestBed {
    /// Starts the API, with the project's kinds, namespaces and accounts.
    pub async fn fleet(name: &str) -> anyhow::Result<Self> {
        muster_shared::tls::install_provider();
        let server = fleet_api().await?;
        let client = server.client().await?;
        let account = access::admit_control_plane(&client).await?;
        let administrator = server.admin_kubeconfig()?;
        Ok(Self {
            identity: access::kubeconfig(&client, administrator, &account).await?,
            server,
            client,
            scratch: Scratch::new(name)?,
        })
    }

    /// Starts another fleet API from a snapshot of this one's store, as the standby of a fleet is
    /// started. Credentials of this one are valid there.
    pub async fn restored(&self, name: &str, snapshot: &Snapshot) -> anyhow::Result<Self> {
        let server = ApiServer::restore(fleet_options()?, snapshot).await?;
        let mut identity = self.identity.clone();
        let clusters = identity.clusters.iter_mut();
        for cluster in clusters.filter_map(|it| it.cluster.as_mut()) {
            cluster.server = Some(server.url());
        }
        Ok(Self {
            client: server.client().await?,
            server,
            identity,
            scratch: Scratch::new(name)?,
        })
    }

    /// Starts a control plane as a task: without election and without ports of its own, otherwise
    /// with these settings.
    pub fn control_plane(&self, settings: Settings) -> anyhow::Result<Task> {
        self.elected_control_plane(Settings {
            leader_elect: false,
            ..settings
        })
    }

    /// Starts a control plane as a task: without ports of its own, otherwise with these settings.
    pub fn elected_control_plane(&self, settings: Settings) -> anyhow::Result<Task> {
        let settings = Settings {
            kubeconfig: Some(self.file("control-plane", &self.identity)?),
            metrics_bind_address: BindAddress(None),
            health_probe_bind_address: BindAddress(None),
            ..settings
        };
        Ok(Task::start(|shutdown| {
            muster_control_plane::run(settings, None, shutdown)
        }))
    }

    /// Starts an agent of a member as a task: with the rights of its chart in the member, without
    /// ports of its own, and with quick reports. `edit` says how it reaches the fleet, and whatever
    /// else differs from the defaults.
    pub async fn agent(
        &self,
        member: &MemberApi,
        edit: impl FnOnce(&mut AgentSettings),
    ) -> anyhow::Result<Task> {
        let account = access::admit_agent(&member.client).await?;
        let administrator = member.server.admin_kubeconfig()?;
        let own = access::kubeconfig(&member.client, administrator, &account).await?;
        let mut settings = AgentSettings {
            cluster_name: member.name.clone(),
            kubeconfig: Some(self.file(&format!("agent-{}", member.name), &own)?),
            cluster_status_update_frequency: settings::Duration(Duration::from_secs(1)),
            cluster_success_threshold: settings::Duration(Duration::from_millis(300)),
            metrics_bind_address: BindAddress(None),
            health_probe_bind_address: BindAddress(None),
            ..AgentSettings::default()
        };
        edit(&mut settings);
        Ok(Task::start(|shutdown| {
            muster_agent::run(settings, shutdown)
        }))
    }

    /// Makes a cluster that is only said to be there: its Cluster with this status, and the
    /// namespace of its Works.
    pub async fn join(&self, name: &str, status: &Value) {
        let namespace = json!({ "metadata": { "name": names::execution_namespace(name) } });
        create(&self.all::<Namespace>(), namespace).await;
        let cluster = json!({ "metadata": { "name": name }, "spec": { "syncMode": "Pull" } });
        create(&self.clusters(), cluster).await;
        merge_status(&self.clusters(), name, json!({ "status": status })).await;
    }

    /// Writes a kubeconfig to a file of this name, which goes with the test bed, and returns its
    /// path.
    pub fn file(&self, name: &str, config: &Kubeconfig) -> anyhow::Result<PathBuf> {
        let path = self.scratch.path().join(format!("{name}.kubeconfig"));
        kubeconfig::write(config, &path)?;
        Ok(path)
    }

    /// Writes an administrator's access to the fleet API to a file, and returns its path.
    pub fn administrator(&self) -> anyhow::Result<PathBuf> {
        self.file("administrator", &self.server.admin_kubeconfig()?)
    }

    /// Returns the directory of the test bed's files, which goes with it.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the objects of a kind, those of all namespaces.
    pub fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Returns the objects of a kind in a namespace.
    pub fn within<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Returns the objects of a kind in the namespace `default`.
    pub fn here<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.within("default")
    }

    /// Returns the clusters of the fleet.
    pub fn clusters(&self) -> Api<Cluster> {
        self.all()
    }

    /// Returns the Works of a member.
    pub fn works(&self, member: &str) -> Api<Work> {
        self.within(&names::execution_namespace(member))
    }

    /// Waits until the condition `Ready` of a cluster has this status.
    pub async fn ready(&self, cluster: &str, status: &str) -> Cluster {
        let is = |it: &Cluster| it.condition("Ready").is_some_and(|it| it.status == status);
        until(&self.clusters(), cluster, &format!("Ready={status}"), is).await
    }
}

/// An embedded API of a member, with an administrator's client.
pub struct MemberApi {
    /// Name of the member.
    pub name: String,
    /// The server.
    pub server: Running,
    /// Everything's access.
    pub client: Client,
}

impl MemberApi {
    /// Starts one.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        Self::start_with(name, Options::default()).await
    }

    /// Starts one with these options.
    pub async fn start_with(name: &str, options: Options) -> anyhow::Result<Self> {
        muster_shared::tls::install_provider();
        let name = name.to_owned();
        let options = Options {
            name: name.clone(),
            ..options
        };
        let server = ApiServer::start(options).await?;
        Ok(Self {
            client: server.client().await?,
            name,
            server,
        })
    }

    /// Returns the objects of a kind in the namespace `default`.
    pub fn here<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }
}

/// Starts an embedded API that knows the project's kinds.
pub async fn fleet_api() -> anyhow::Result<Running> {
    ApiServer::start(fleet_options()?).await
}

fn fleet_options() -> anyhow::Result<Options> {
    let crds = muster_shared::api::crds();
    let crds = crds.iter().map(serde_json::to_value);
    Ok(Options {
        name: "fleet".to_owned(),
        crds: crds.collect::<Result<_, _>>()?,
        ..Options::default()
    })
}

/// A part of the product that runs as a task of the test. It ends when it is dropped.
pub struct Task {
    /// Asks it to end.
    pub shutdown: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Task {
    /// Starts one; it is given the token that asks it to end.
    pub fn start<F>(run: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(run(shutdown.clone()));
        Self { shutdown, task }
    }

    /// Returns whether it ended, by itself or because it was asked to.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Waits for its own end.
    pub async fn ended(mut self) -> anyhow::Result<()> {
        timeout(PATIENCE, &mut self.task)
            .await
            .context("it does not end")??
    }

    /// Stops it and waits until it is gone.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        self.ended().await
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.task.abort();
    }
}
