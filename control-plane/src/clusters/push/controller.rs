//! Starts and ends the tasks of each member that the control plane manages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::Api;
use kube::{Config, ResourceExt};
use muster_agent::Hosted;
use muster_agent::settings::Settings as AgentSettings;
use muster_shared::api::cluster::{Cluster, ClusterSyncMode};
use muster_shared::client::{self, Gateway, Limits, Profile};
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::fleet_epoch;
use muster_shared::k8s::{Secret, ServiceAccount};
use muster_shared::names::{CLUSTER_NAMESPACE, condition};
use muster_shared::queue::{Next, backoff, jittered};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Doubt, Presence};
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{connection, is_same_server, secret_key};
use super::renewal;
use crate::clusters::cluster::monitored::{Monitoring, note};
use crate::clusters::cluster::{failed, write_if_changed};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::memory::Since;
use crate::fleet::write::{Written, merge};
use crate::settings::{PUSH_CONTROLLERS, Settings};

/// Name of the queue.
const NAME: &str = "push clusters";
/// Members that are reconciled at a time.
const WORKERS: usize = 4;
/// Pause between two readings of the Secret of a member, whose changes are not watched.
const CHECK_AGAIN: Duration = Duration::from_secs(30);
/// Longest time of a renewal of a token.
const RENEWAL: Duration = Duration::from_secs(15);
/// Name of the controller that reports the status of members.
const STATUS: &str = "clusterStatus";

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    Controller::new(fleet, NAME)
        .watches(&fleet.clusters, |_, change| [change.object().name_any()])
        .run(
            tasks,
            WORKERS,
            Arc::<Hosts>::default(),
            |fleet, hosts, name: String| async move { reconcile(&fleet, &hosts, &name).await },
        );
}

/// Members whose tasks run, and members without a connection.
#[derive(Default)]
struct Hosts {
    running: Mutex<HashMap<String, Host>>,
    /// Since when a member has had no connection.
    unconnected: Since<String>,
}

/// Tasks of one member.
struct Host {
    config: Config,
    /// Resource version of the Secret with the credentials.
    version: Option<String>,
    gateway: Arc<Gateway>,
    /// Runs the tasks of the member.
    task: JoinHandle<()>,
    /// Renews the token of the member's account.
    renewal: Option<JoinHandle<()>>,
    stop: CancellationToken,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Hosts {
    /// Ends the tasks of a member.
    fn stop(&self, name: &str) {
        self.running.lock().remove(name);
        self.unconnected.forget(name);
        let count = self.running.lock().len();
        metrics::gauge!("muster_push_clusters").set(u32::try_from(count).unwrap_or(u32::MAX));
    }
}

async fn reconcile(fleet: &Arc<Fleet>, hosts: &Hosts, name: &str) -> Result<Next, ApiError> {
    let cluster = match fleet.clusters.presence(None, name) {
        Presence::There(cluster) => cluster,
        // What cannot be read may be the Cluster as it was: its member goes on.
        Presence::Unknown(Doubt::Unreadable { .. } | Doubt::Unlisted) => return Ok(Next::Done),
        Presence::Gone | Presence::Unknown(_) => {
            hosts.stop(name);
            return Ok(Next::Done);
        }
    };
    if cluster.spec.sync_mode != ClusterSyncMode::Push {
        hosts.stop(name);
        return Ok(Next::Done);
    }
    let secret = match secret(fleet, &cluster).await {
        Ok(secret) => secret,
        Err(error) if hosts.running.lock().contains_key(name) => return Err(error),
        Err(error) => {
            let words = client::brief(&error.source);
            let secret = error.object;
            let problem = format!("Secret {secret} of spec.secretRef cannot be read: {words}");
            return unconnected(fleet, hosts, &cluster, &problem).await;
        }
    };
    let config = match connection(&cluster, secret.as_ref()).await {
        Ok(config) => config,
        Err(problem) => return unconnected(fleet, hosts, &cluster, &problem).await,
    };
    hosts.unconnected.forget(name);
    let version = secret.as_ref().and_then(ResourceExt::resource_version);
    let gateway = host(fleet, hosts, &cluster, (config, version));
    let monitoring = if fleet.settings.runs(STATUS) {
        Monitoring::Connected
    } else {
        Monitoring::Off
    };
    note(fleet, &cluster, monitoring).await?;
    if let Some(secret) = secret {
        renew(fleet, hosts, &cluster, secret, gateway);
    }
    Ok(Next::After(jittered(CHECK_AGAIN)))
}

/// Reads the Secret that a Cluster names.
async fn secret(fleet: &Fleet, cluster: &Cluster) -> Result<Option<Secret>, ApiError> {
    let Some((namespace, name)) = secret_key(cluster) else {
        return Ok(None);
    };
    let secrets: Api<Secret> = Api::namespaced(fleet.client.clone(), &namespace);
    client::get_opt(&secrets, &name)
        .await
        .map_err(ApiError::of("read", &format!("{namespace}/{name}")))
}

/// Starts the tasks of a member, or gives them other credentials; returns its connection.
fn host(
    fleet: &Arc<Fleet>,
    hosts: &Hosts,
    cluster: &Cluster,
    (config, version): (Config, Option<String>),
) -> Arc<Gateway> {
    let name = cluster.name_any();
    let mut running = hosts.running.lock();
    if let Some(host) = running.get_mut(&name)
        && is_same_server(&host.config, &config)
        && !host.task.is_finished()
    {
        if host.version != version {
            tracing::info!(cluster = name, "the credentials of the member changed");
            host.gateway.take(config.clone());
            (host.config, host.version) = (config, version);
        }
        return Arc::clone(&host.gateway);
    }
    // Another server may be another cluster: its identity is compared before anything is applied.
    let gateway = fleet.gateway.beside("member", config.clone());
    let stop = fleet.shutdown.child_token();
    let task = muster_shared::clock::spawn(run(
        Arc::clone(fleet),
        name.clone(),
        Arc::clone(&gateway),
        stop.clone(),
    ));
    let host = Host {
        config,
        version,
        task,
        renewal: None,
        gateway: Arc::clone(&gateway),
        stop,
    };
    running.insert(name, host);
    let count = u32::try_from(running.len()).unwrap_or(u32::MAX);
    metrics::gauge!("muster_push_clusters").set(count);
    gateway
}

/// Runs the tasks of a member until they are to stop. If one of them ends, all are started anew.
async fn run(fleet: Arc<Fleet>, name: String, member: Arc<Gateway>, stop: CancellationToken) {
    let mut failures = 0;
    while !stop.is_cancelled() {
        let hosted = Hosted {
            settings: settings(&fleet.settings, &name),
            fleet: Arc::clone(&fleet.gateway),
            member: Arc::clone(&member),
            leadership: fleet.leadership.clone(),
            interpreters: Arc::clone(&fleet.interpreters),
            epoch: epoch(&fleet),
        };
        let begun = Instant::now();
        // A token of its own: the tasks cancel it if one of them ends.
        if let Err(error) = hosted.run(stop.child_token()).await {
            tracing::error!(cluster = name, %error, "the tasks of a push cluster ended; they are started anew");
        }
        failures = if begun.elapsed() > Duration::from_mins(10) {
            1
        } else {
            failures + 1
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(jittered(backoff(failures))) => {}
        }
    }
}

/// Returns the epoch of the store. The process ends when it changes.
fn epoch(fleet: &Fleet) -> u64 {
    let namespace = fleet.namespaces.get(None, CLUSTER_NAMESPACE);
    let epoch = namespace.and_then(|it| fleet_epoch::of(&it.metadata).ok());
    epoch.unwrap_or_default()
}

/// Returns the settings of the agent's tasks for a member.
fn settings(ours: &Settings, name: &str) -> AgentSettings {
    let chosen: Vec<&str> = PUSH_CONTROLLERS
        .into_iter()
        .filter(|controller| ours.runs(controller))
        .collect();
    AgentSettings {
        cluster_name: name.to_owned(),
        controllers: chosen
            .join(",")
            .parse()
            .unwrap_or_else(|never| match never {}),
        cluster_status_update_frequency: ours.cluster_status_update_frequency,
        cluster_success_threshold: ours.cluster_success_threshold,
        cluster_failure_threshold: ours.cluster_failure_threshold,
        enable_cluster_resource_modeling: ours.enable_cluster_resource_modeling,
        feature_gates: ours.feature_gates.clone(),
        leader_elect: false,
        ..AgentSettings::default()
    }
}

/// Reports that a member cannot be reached for want of an address or credentials. Tasks that run go
/// on with what they have. A member without any becomes `Ready`=Unknown after the grace period,
/// because nothing is known of it.
async fn unconnected(
    fleet: &Fleet,
    hosts: &Hosts,
    cluster: &Cluster,
    problem: &str,
) -> Result<Next, ApiError> {
    let name = cluster.name_any();
    note(fleet, cluster, Monitoring::Unconnected(problem)).await?;
    if hosts.running.lock().contains_key(&name) {
        return Ok(Next::After(jittered(CHECK_AGAIN)));
    }
    let grace = *fleet.settings.cluster_monitor_grace_period;
    let rest = hosts.unconnected.rest(&name, (), grace);
    // Without the reporter of this control plane, `Ready` is another one's.
    if !fleet.settings.runs(STATUS) {
        return Ok(Next::After(jittered(CHECK_AGAIN)));
    }
    if let Some(rest) = rest {
        return Ok(Next::After(rest.min(CHECK_AGAIN)));
    }
    let message = format!("The control plane cannot connect to the member: {problem}");
    let ready = conditions::new(
        condition::READY,
        conditions::UNKNOWN,
        condition::SILENT,
        &message,
        fleet.clock.now(),
    );
    let answer = write_if_changed(&fleet.client, cluster, ready).await;
    match Written::of(answer).map_err(failed("write the status of", cluster))? {
        Written::Done(_) => Ok(Next::After(jittered(CHECK_AGAIN))),
        late => Ok(late.next()),
    }
}

/// Renews the token of a member's account if it is due, in a task of the member's own: a member
/// that does not answer keeps no other waiting. A failure is reported by an event; the token is
/// good for as long again.
fn renew(
    fleet: &Arc<Fleet>,
    hosts: &Hosts,
    cluster: &Arc<Cluster>,
    secret: Secret,
    member: Arc<Gateway>,
) {
    let data = secret.data.as_ref().and_then(|data| data.get("token"));
    let text = data.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
    let Some(token) = text.as_deref().and_then(renewal::read) else {
        return;
    };
    if !renewal::due(&token, fleet.clock.now()).is_zero() {
        return;
    }
    let mut running = hosts.running.lock();
    let Some(host) = running.get_mut(&cluster.name_any()) else {
        return;
    };
    if host.renewal.as_ref().is_some_and(|it| !it.is_finished()) {
        return;
    }
    let (fleet, cluster) = (Arc::clone(fleet), Arc::clone(cluster));
    host.renewal = Some(muster_shared::clock::spawn(async move {
        let renewed = timeout(RENEWAL, renewed(&fleet, &secret, &token, &member)).await;
        let Err(problem) = client::in_time(renewed) else {
            return;
        };
        let note = format!(
            "The token of the member's account {}/{} is not renewed, and expires at {}: {problem}",
            token.namespace, token.account, token.expires
        );
        tracing::warn!(cluster = cluster.name_any(), "{note}");
        fleet.events.warn(&*cluster, "TokenNotRenewed", note);
    }));
}

async fn renewed(
    fleet: &Fleet,
    secret: &Secret,
    token: &renewal::Token,
    member: &Arc<Gateway>,
) -> Result<(), kube::Error> {
    let client = member
        .client(Profile::Write, Limits::NONE)
        .map_err(|error| kube::Error::Service(Box::new(error)))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &token.namespace);
    let renewed = renewal::ask(&accounts, &token.account).await?;
    let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
    let secrets: Api<Secret> = Api::namespaced(fleet.client.clone(), &namespace);
    let patch = json!({
        "metadata": { "resourceVersion": secret.resource_version() },
        "data": { "token": STANDARD.encode(renewed) },
    });
    merge(&secrets, &name, &patch).await?;
    tracing::info!(
        secret = name,
        "the token of the member's account was renewed"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::{self, Bench, pass};

    #[tokio::test(start_paused = true)]
    async fn a_member_without_credentials_is_reported_and_unknown_after_the_grace_period() {
        let mut cluster = testing::cluster("m1");
        cluster["spec"] = json!({
            "syncMode": "Push", "apiEndpoint": "https://192.0.2.1",
            "secretRef": {"namespace": CLUSTER_NAMESPACE, "name": "m1"},
        });
        let mut bench = Bench::new([("clusters", cluster)]);
        start(&bench.fleet, &mut bench.tasks);
        bench.follow().await;
        for (seconds, expected) in [(30, conditions::TRUE), (20, conditions::UNKNOWN)] {
            pass(seconds).await;
            let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
            let monitored = cluster.condition(condition::MONITORED).unwrap();
            assert_eq!(monitored.status, conditions::FALSE);
            let ready = cluster.condition(condition::READY).unwrap();
            assert_eq!(ready.status, expected, "{}", ready.message);
            let says_why = ready.message.contains("spec.secretRef does not exist");
            assert_eq!(says_why, expected == conditions::UNKNOWN);
        }
    }

    #[test]
    fn the_flags_and_gates_of_the_control_plane_hold_for_its_push_clusters() {
        let of = |ours: &Settings| settings(ours, "m1");
        assert!(of(&Settings::default()).models_enabled());
        let ours = Settings {
            cluster_status_update_frequency: "7s".parse().unwrap(),
            cluster_success_threshold: "8s".parse().unwrap(),
            cluster_failure_threshold: "9s".parse().unwrap(),
            feature_gates: "CustomizedClusterResourceModeling=false".parse().unwrap(),
            ..Settings::default()
        };
        let theirs = of(&ours);
        assert_eq!(theirs.cluster_name, "m1");
        assert_eq!(
            [
                theirs.cluster_status_update_frequency,
                theirs.cluster_success_threshold,
                theirs.cluster_failure_threshold,
            ],
            [
                ours.cluster_status_update_frequency,
                ours.cluster_success_threshold,
                ours.cluster_failure_threshold,
            ]
        );
        assert!(theirs.enable_cluster_resource_modeling && !theirs.models_enabled());
        let unwatched = Settings {
            enable_cluster_resource_modeling: false,
            ..Settings::default()
        };
        assert!(!of(&unwatched).enable_cluster_resource_modeling);
    }
}
