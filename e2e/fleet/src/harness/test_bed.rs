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

use std::fmt::{Debug, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use kube::runtime::wait::await_condition;
use kube::{Client, Resource};
use muster_agent::settings::Settings as AgentSettings;
use muster_control_plane::settings::Settings;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::names;
use muster_shared::settings::{self, BindAddress};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::objects::{create, merge_status};
use super::observer::Missing;
use super::{access, kubeconfig};
use muster_test_apiserver::{ApiServer, Options, Running};

/// How long anything may take. The real times are well below a second; a loaded machine takes
/// longer.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A directory of one test's own, removed with it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one; the name is for people who look at directories that were left behind.
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
    let crds = muster_shared::api::crds();
    let crds = crds.iter().map(serde_json::to_value);
    let options = Options {
        name: "fleet".to_owned(),
        crds: crds.collect::<Result<_, _>>()?,
        ..Options::default()
    };
    Ok(ApiServer::start(options).await?)
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

    /// Returns whether it ended, by itself or because it was told to.
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

/// Waits, change by change, until an object is as described, and gives it. Panics when it is not so
/// in time, with the object and the events about it.
pub async fn until<K>(api: &Api<K>, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let found = awaited(api, name, what, |object: Option<&K>| {
        object.is_some_and(&holds)
    });
    match found.await {
        Ok(Some(object)) => object,
        Ok(None) => failed("it went while it was looked at"),
        Err(missing) => failed(&missing.to_string()),
    }
}

/// Waits until an object is gone. Panics when it is not in time.
pub async fn gone<K>(api: &Api<K>, name: &str)
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let gone = awaited(api, name, "it is gone", |object: Option<&K>| {
        object.is_none()
    });
    if let Err(missing) = gone.await {
        failed(&missing.to_string());
    }
}

/// First and longest pause between two questions of [`eventually`].
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Asks until there is an answer, for effects that no watch shows: metrics, other programs, rules
/// that a server learns of a moment later. The error of a question is what is missing. Panics with
/// the last one when there is no answer in time.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    let (mut pause, longest) = PAUSES;
    loop {
        let missing = match timeout(PATIENCE, ask()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(missing)) => missing,
            Err(_) => "the question is not answered".to_owned(),
        };
        if begun.elapsed() >= PATIENCE {
            failed(&format!("{what}: {missing}"));
        }
        sleep(pause).await;
        pause = longest.min(pause * 2);
    }
}

#[expect(clippy::panic, reason = "how a test says that it failed")]
pub(super) fn failed(missing: &str) -> ! {
    panic!("{missing}")
}

/// Waits, change by change, until an object is as described or gone, and returns what it found. It
/// does not panic: an error tells what there was instead.
pub async fn awaited<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    holds: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>, Missing>
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    let begun = Instant::now();
    let waiting = await_condition(api.clone(), name, |object: Option<&K>| holds(object));
    let trouble = match timeout(PATIENCE, waiting).await {
        Ok(Ok(found)) => return Ok(found),
        Ok(Err(error)) => format!("the watch failed: {error}"),
        Err(_) => String::new(),
    };
    Err(Missing {
        what: format!("{name}: {what}"),
        waited: begun.elapsed(),
        lacking: format!("{trouble}{}", described(api, name).await),
    })
}

/// Returns an object and the events about it, as text.
async fn described<K>(api: &Api<K>, name: &str) -> String
where
    K: Resource + Clone + Debug + DeserializeOwned + Serialize,
{
    let mut text = match api.get_opt(name).await {
        Ok(None) => "there is no such object".to_owned(),
        Ok(Some(mut object)) => {
            object.meta_mut().managed_fields = None;
            let yaml = serde_saphyr::to_string(&object);
            format!("it is\n{}", yaml.unwrap_or_else(|_| format!("{object:#?}")))
        }
        Err(error) => format!("it cannot be read: {error}"),
    };
    let events: Api<Event> = Api::all(api.clone().into_client());
    let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
    for event in events.list(&about).await.into_iter().flatten() {
        let (reason, message) = (event.reason, event.message);
        let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "event {reason}: {message}");
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::PostParams;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_missing_is_told_with_the_object() {
        muster_shared::tls::install_provider();
        let server = ApiServer::for_test().await;
        let api: Api<ConfigMap> = Api::default_namespaced(server.client().await.unwrap());
        let map: ConfigMap = serde_json::from_value(
            serde_json::json!({ "metadata": { "name": "a" }, "data": { "colour": "red" } }),
        )
        .unwrap();
        api.create(&PostParams::default(), &map).await.unwrap();
        let missing = awaited(&api, "a", "it is green", |_| false)
            .await
            .unwrap_err();
        let text = missing.to_string();
        assert!(text.contains("a: it is green"), "{text}");
        assert!(text.contains("colour: red"), "{text}");
        assert!(!text.contains("managedFields"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_until_it_is_answered() {
        let mut asked = 0;
        let answer = eventually("the third", async || {
            asked += 1;
            (asked == 3)
                .then_some("yes")
                .ok_or_else(|| asked.to_string())
        });
        assert_eq!(answer.await, "yes");
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the answer: nothing yet")]
    async fn what_is_missing_after_all_is_told() {
        eventually("the answer", async || {
            Err::<(), _>("nothing yet".to_owned())
        })
        .await;
    }
}
