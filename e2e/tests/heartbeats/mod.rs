//! Shared parts of the scenarios of silences and evictions: a fleet of heartbeats in a directory of
//! its own, and views of it.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::ResourceExt as _;
use muster_e2e::harness::heartbeat_fleet::{BEAT, HeartbeatFleet, Plan};
use muster_e2e::harness::observer::View;
use muster_e2e::harness::process::last_lines;
use muster_shared::api::binding::ResourceBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use tokio::time::Instant;

use crate::support::Place;

/// Silence after which a cluster's condition becomes Unknown here.
pub const GRACE: Duration = Duration::from_secs(4);
/// The least silence that is noticed: a whole grace, of which the cluster may have beaten at the
/// very beginning.
pub const AT_LEAST: Duration = GRACE.saturating_sub(BEATS);
/// The last heartbeat before a cut may be so old already, and be known so late.
pub const BEATS: Duration = BEAT.saturating_mul(2);
/// How long anything may take that is to happen: many times what it takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Settings of a scenario.
pub struct Setting {
    name: &'static str,
    clusters: usize,
    metrics: Option<u16>,
    flags: Vec<String>,
}

impl Setting {
    /// Makes a setting with so many clusters, Failover on, and intervals of seconds.
    pub fn named(name: &'static str, clusters: usize) -> Self {
        let flags = [
            "--feature-gates=Failover=true",
            "--controllers=cluster,clustertaintpolicy,taintmanager,gracefulEviction,failoverHistory,scheduler",
            "--leader-elect-lease-duration=5s",
            "--leader-elect-renew-deadline=4s",
            "--leader-elect-retry-period=500ms",
        ];
        let mut flags = flags.map(str::to_owned).to_vec();
        flags.push(format!(
            "--cluster-monitor-grace-period={}s",
            GRACE.as_secs()
        ));
        Self {
            name,
            clusters,
            metrics: None,
            flags,
        }
    }

    /// Returns the setting with Failover off.
    pub fn without_failover(mut self) -> Self {
        self.flags
            .retain(|flag| !flag.starts_with("--feature-gates"));
        self.flag("--feature-gates=Failover=false")
    }

    /// Returns the setting with `/metrics` of the control plane on this port.
    pub fn with_metrics(mut self, port: u16) -> Self {
        self.metrics = Some(port);
        self
    }

    /// Returns the setting with one flag more.
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }
}

/// Runs a scenario from the moment when the control plane listens to all clusters.
pub async fn run(setting: Setting, steps: impl AsyncFnOnce(&HeartbeatFleet) -> anyhow::Result<()>) {
    muster_shared::tls::install_provider();
    let place = Place::new(setting.name);
    let clusters = setting.clusters;
    let fleet = HeartbeatFleet::start(Plan {
        binary: env!("CARGO_BIN_EXE_sandbox").into(),
        directory: place.to_path_buf(),
        clusters,
        metrics: setting.metrics,
        control_plane: setting.flags,
    })
    .await
    .expect("a fleet call on this machine");
    let outcome = async {
        until(&fleet, "every cluster is in order", |view| {
            in_order(view, clusters)
        })
        .await?;
        steps(&fleet).await
    }
    .await;
    if let Err(failure) = outcome {
        let log = last_lines(&place.join("control-plane.log"), 60).join("\n");
        panic!("{log}\n{failure:#}");
    }
}

/// Waits until something is seen.
pub async fn until(
    fleet: &HeartbeatFleet,
    what: &str,
    seen: impl FnMut(&View) -> Result<(), String>,
) -> anyhow::Result<()> {
    Ok(fleet.observer.await_that(what, PATIENCE, seen).await?)
}

/// Sees that something stays so.
pub async fn holds(
    fleet: &HeartbeatFleet,
    what: &str,
    time: Duration,
    seen: impl FnMut(&View) -> Result<(), String>,
) -> anyhow::Result<()> {
    Ok(fleet.observer.holds_for(what, time, seen).await?)
}

/// Checks that the control plane has dealt with every cluster, so that it listens to it.
fn in_order(view: &View, clusters: usize) -> Result<(), String> {
    let all = view.clusters.list();
    let missing = all
        .iter()
        .find(|cluster| status(cluster) != "True" || cluster.finalizers().is_empty());
    match missing {
        Some(cluster) => Err(format!(
            "{} is {:?}, finalizers {:?}",
            cluster.name_any(),
            status(cluster),
            cluster.finalizers()
        )),
        None if all.len() < clusters => Err(format!("{} clusters", all.len())),
        None => Ok(()),
    }
}

fn status(cluster: &Cluster) -> String {
    cluster
        .condition("Ready")
        .map(|ready| ready.status.clone())
        .unwrap_or_default()
}

/// Checks that the cluster's silence was noticed.
pub fn silent(view: &View, name: &str) -> Result<(), String> {
    let cluster = view.clusters.get(None, name);
    let is = cluster.map_or_else(|| "not there".to_owned(), |cluster| status(&cluster));
    if is == "Unknown" {
        Ok(())
    } else {
        Err(format!("{name} is {is:?}"))
    }
}

/// Checks that no silence was noticed.
pub fn nobody_silent(view: &View) -> Result<(), String> {
    nobody_silent_but(view, "")
}

/// Checks that no silence was noticed of any cluster but one.
pub fn nobody_silent_but(view: &View, except: &str) -> Result<(), String> {
    let all = view.clusters.list();
    let silent = all
        .iter()
        .find(|cluster| cluster.name_any() != except && status(cluster) == "Unknown");
    silent.map_or(Ok(()), |cluster| {
        Err(format!("{} was taken for silent", cluster.name_any()))
    })
}

/// Clusters that have a taint that evicts.
pub fn tainted(view: &View) -> usize {
    let evicts = |cluster: &Cluster| {
        let mut taints = cluster.spec.taints.iter();
        taints.any(|taint| taint.effect == "NoExecute")
    };
    let all = view.clusters.list();
    all.iter().filter(|cluster| evicts(cluster)).count()
}

/// Workloads that have left a cluster.
pub fn left(view: &View) -> usize {
    let leaving = |binding: &ResourceBinding| !binding.spec.graceful_eviction_tasks.is_empty();
    let all = view.bindings.list();
    all.iter().filter(|binding| leaving(binding)).count()
}

/// Returns the number of workloads that have left a cluster by now.
pub fn leaving(fleet: &HeartbeatFleet) -> usize {
    left(&fleet.observer.view)
}

/// Returns the clusters that a workload is placed on.
pub fn placed(view: &View, workload: &str) -> Vec<String> {
    let binding = view.bindings.get(Some("default"), workload);
    let targets = binding.map(|binding| binding.spec.clusters.clone());
    let targets = targets.into_iter().flatten();
    targets.map(|target| target.name).collect()
}

/// Checks a count, such as that of workloads that have left.
pub fn exactly(expected: usize, what: &str, count: usize) -> Result<(), String> {
    if count == expected {
        Ok(())
    } else {
        Err(format!("{count} {what}, not {expected}"))
    }
}

/// Returns the condition of this type of the binding of a workload.
fn condition(view: &View, workload: &str, kind: &str) -> Option<Condition> {
    let binding = view.bindings.get(Some("default"), workload)?;
    conditions::get(&binding.status().conditions, kind).cloned()
}

/// Checks that the binding of a workload says so of its eviction.
pub fn is_pending(view: &View, workload: &str, status: &str, reason: &str) -> Result<(), String> {
    let condition = condition(view, workload, "EvictionPending");
    let found = condition
        .as_ref()
        .map(|it| (it.status.as_str(), it.reason.as_str()));
    let expected = (status, reason);
    if found == Some(expected) {
        Ok(())
    } else {
        Err(format!("{workload}: {found:?}, not {expected:?}"))
    }
}

/// Waits until the binding of a workload says so of its eviction, and gives the message.
pub async fn says(
    fleet: &HeartbeatFleet,
    workload: &str,
    status: &str,
    reason: &str,
) -> anyhow::Result<String> {
    until(fleet, "the condition", |view| {
        is_pending(view, workload, status, reason)
    })
    .await?;
    let condition = condition(&fleet.observer.view, workload, "EvictionPending");
    Ok(condition.map(|it| it.message).unwrap_or_default())
}

/// Waits for events about an object: they are written after everything else.
pub async fn reported(fleet: &HeartbeatFleet, about: &str, reasons: &[&str]) -> anyhow::Result<()> {
    let wanted: BTreeSet<String> = reasons.iter().map(|reason| (*reason).to_owned()).collect();
    let begun = Instant::now();
    loop {
        let said = fleet.events(about).await?;
        if wanted.is_subset(&said) {
            return Ok(());
        }
        anyhow::ensure!(
            begun.elapsed() < 3 * GRACE,
            "{about}: {said:?}, but not all of {wanted:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
