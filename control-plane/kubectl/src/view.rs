//! The members of a fleet as a report reads them.

use std::collections::BTreeMap;

use futures::join;
use jiff::{SignedDuration, Timestamp};
use muster_control_plane::fleet::availability::concern;
use muster_control_plane::fleet::pause;
use muster_control_plane::settings::Settings;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Api, Client, Condition, ConfigMap, Lease, ResourceExt as _};
use muster_shared::names::{CLUSTER_NAMESPACE, SYSTEM_NAMESPACE, condition};
use muster_shared::taints::is_of_command;
use muster_shared::{client, conditions};
use serde::Serialize;

use super::leader::{SILENT, renewed};
use super::list::all;
use super::running;

/// What was read of the members. A part that could not be read is an error of its own.
#[derive(Debug)]
pub(super) struct View {
    /// Lease of the control plane's leader; `None` if there is none.
    pub leader: Result<Option<Lease>, String>,
    /// The clusters.
    pub clusters: Result<Vec<Cluster>, String>,
    /// Leases of members, by name of the cluster.
    pub leases: Result<BTreeMap<String, Lease>, String>,
}

impl View {
    /// Reads them at once. The settings say where the lease of the leader is.
    pub async fn read(client: &Client, settings: &Settings) -> Self {
        let (leader, clusters, leases) = join!(
            running::lease(client, settings),
            all::<Cluster>(Api::all(client.clone())),
            all::<Lease>(Api::namespaced(client.clone(), CLUSTER_NAMESPACE)),
        );
        let by_name = |leases: Vec<Lease>| {
            let named = leases.into_iter().map(|it| (it.name_any(), it));
            named.collect()
        };
        Self {
            leader,
            clusters,
            leases: leases.map(by_name),
        }
    }
}

/// Reads the record of a pause of the fleet.
pub(super) async fn pause(client: &Client) -> Result<Option<ConfigMap>, String> {
    let (namespace, name) = (SYSTEM_NAMESPACE, pause::NAME);
    let records: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let record = client::get_opt(&records, name).await;
    record.map_err(|error| {
        format!(
            "get configmap {namespace}/{name}: {}",
            client::brief(&error)
        )
    })
}

/// Reads the record of a pause of the fleet, and returns it, and a sentence if it is not known
/// whether movement is paused. Whoever may not read it gets all else.
pub(super) async fn pause_if_read(client: &Client) -> (Option<ConfigMap>, Option<String>) {
    let record = pause(client).await;
    let unread = pause_unread(&record);
    (record.ok().flatten(), unread)
}

/// Returns a sentence if it is not known whether movement is paused.
pub(super) fn pause_unread(record: &Result<Option<ConfigMap>, String>) -> Option<String> {
    let why = record.as_ref().err()?;
    Some(format!("it is not known whether movement is paused: {why}"))
}

/// A cluster as a table reports it.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Member {
    pub name: String,
    pub state: State,
    /// Status of condition Ready.
    pub ready: String,
    pub reason: String,
    /// Condition by which a cluster that is ready needs attention.
    pub concern: Option<String>,
    /// Message of the condition by which a cluster that is ready needs attention. In `status` also
    /// what further conditions say, and who put on its taints.
    pub why: Option<String>,
    pub since: Option<Timestamp>,
    /// Last renewal of its lease, by the clock of the member.
    pub last_heard: Option<Timestamp>,
    /// Begin of the state; of a cluster that is silent, its last word.
    pub begun: Option<Timestamp>,
    pub taints: Vec<String>,
}

/// State of a cluster, but for a person's orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum State {
    Silent,
    /// The cluster has not reported yet.
    New,
    NotReady,
    /// The cluster is ready, and something else is wrong with it.
    Attention,
    Ready,
}

/// Time at most that passes between a cluster's last word and the moment in which it counts as
/// silent.
const JUDGED_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// Time within which clusters count as having fallen silent for one cause.
pub(super) const TOGETHER: SignedDuration = SignedDuration::from_mins(2);

/// Returns whether a cluster that fell silent did so together with the last one.
pub(super) fn is_with_last(time: Timestamp, last: Timestamp) -> bool {
    last.duration_since(time) <= TOGETHER
}

/// Returns when a silent cluster renewed its lease last, or since when it counts as silent if its
/// clock, by which the former is dated, is ahead or slow.
fn last_word(heard: Option<Timestamp>, since: Option<Timestamp>) -> Option<Timestamp> {
    let is_true = |heard: &Timestamp| {
        since.is_none_or(|since| {
            let passed = since.duration_since(*heard);
            (SignedDuration::ZERO..=JUDGED_WITHIN).contains(&passed)
        })
    };
    heard.filter(is_true).or(since)
}

/// Conditions by which a cluster that is ready needs attention for what is found there, each with
/// the status that says so.
const FAULTS: [(&str, &str); 6] = [
    (condition::WORKLOADS_HEALTHY, conditions::FALSE),
    (condition::NODES_READY, conditions::FALSE),
    (condition::RESPONSIVE, conditions::FALSE),
    (condition::NAMES_RESOLVE, conditions::FALSE),
    (condition::EGRESS_READY, conditions::FALSE),
    (condition::OBJECTS_WITHOUT_WORK, conditions::TRUE),
];

/// Returns the conditions of a cluster that is ready by which checks fail, or objects were found
/// that the store does not know.
pub(super) fn faults(cluster: &Cluster) -> impl Iterator<Item = &Condition> {
    FAULTS.iter().filter_map(move |(kind, status)| {
        let found = cluster.condition(kind)?;
        (found.status == *status).then_some(found)
    })
}

/// Returns the first of them in a cluster whose taints are those of commands. Any other taint says
/// more.
fn fault(cluster: &Cluster) -> Option<&Condition> {
    let is_tainted = !cluster.spec.taints.iter().all(is_of_command);
    faults(cluster).next().filter(|_| !is_tainted)
}

impl Member {
    /// Describes a cluster. `is_silent`: it is silent, and no leader acts to say so.
    pub fn of(cluster: &Cluster, lease: Option<&Lease>, is_silent: bool) -> Self {
        let condition = cluster.condition(condition::READY);
        let is_ready = condition.is_some_and(|it| it.status == conditions::TRUE);
        let is_silent = is_ready && is_silent;
        let concern = concern(cluster).or_else(|| fault(cluster));
        let concern = concern.filter(|_| is_ready && !is_silent);
        let (ready, reason) = match condition {
            _ if is_silent => (conditions::UNKNOWN, SILENT),
            Some(it) => (&*it.status, &*it.reason),
            None => (conditions::UNKNOWN, "NeverReported"),
        };
        let taints = &cluster.spec.taints;
        let state = match ready {
            conditions::TRUE if concern.is_none() && taints.iter().all(is_of_command) => {
                State::Ready
            }
            conditions::TRUE => State::Attention,
            conditions::FALSE => State::NotReady,
            _ if condition.is_none() => State::New,
            _ => State::Silent,
        };
        let since = concern.or(condition).filter(|_| !is_silent);
        let since = since.map(|it| it.last_transition_time.0);
        let last_heard = lease.and_then(renewed);
        let heard = last_heard.filter(|_| state == State::Silent);
        Self {
            name: cluster.name_any(),
            state,
            ready: ready.to_owned(),
            reason: reason.to_owned(),
            concern: concern.map(|it| format!("{}={}", it.type_, it.status)),
            why: concern.map(|it| it.message.clone()),
            since,
            last_heard,
            begun: last_word(heard, since),
            taints: taints
                .iter()
                .map(|it| format!("{}:{}", it.key, it.effect))
                .collect(),
        }
    }
}
