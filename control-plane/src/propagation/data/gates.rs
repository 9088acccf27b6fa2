//! Holds a workload's copy back in a cluster until its data is there.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::Api;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::api::data_replication::{DataGate, DataReference, DataRole, TIMEOUT_SECONDS};
use muster_shared::client;
use muster_shared::clock::later;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::names::{condition::DATA_PENDING, execution_namespace, work};

use super::check::{Words, holds};
use super::facts::is_shared;
use super::mark::{Mark, Reported, Step, generation};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::availability::is_ready;
use crate::fleet::binding::BindingKey;
use crate::fleet::copy::WorkState;
use crate::fleet::followers::object_key;
use crate::fleet::works::{CachedWork, cluster_of};

/// Reason why a copy is not created yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Reason, which says what the copy waits for.
    pub why: String,
    /// Seconds after which a wait is reported as stuck.
    pub timeout: SignedDuration,
    /// Whether the copy is created then.
    pub starts: bool,
    /// When the roles were settled that it waited for before, so that its own time began.
    pub after: Option<Timestamp>,
}

/// Copies of a workload that wait, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Clusters without a copy of their own yet, and why; some after their time is over.
    pub closed: Vec<(String, Closed)>,
    /// Whether one of them has waited for too long.
    pub is_stuck: bool,
    /// Time at which the next of them has waited for too long.
    pub due: Option<Timestamp>,
}

/// Judges what is closed by how long it has been waited for. `since` is the beginning.
pub fn judge(closed: Vec<(String, Closed)>, since: Timestamp, now: Timestamp) -> Waiting {
    let end = |it: &Closed| {
        let since = it.after.map_or(since, |after| after.max(since));
        later(since, it.timeout)
    };
    let is_over = |it: &Closed| end(it) <= now;
    let closed = closed
        .into_iter()
        .filter(|(_, it)| !(it.starts && is_over(it)));
    let closed: Vec<_> = closed.collect();
    Waiting {
        is_stuck: closed.iter().any(|(_, it)| is_over(it)),
        due: closed
            .iter()
            .map(|(_, it)| end(it))
            .filter(|it| *it > now)
            .min(),
        closed,
    }
}

/// Clusters whose times are distinguished: the message of a condition has room for so many.
const MOST_NAMED: usize = 32;

/// Returns since when copies of a binding wait for their data; `None` if the condition does not
/// report all of them. What has waited in other clusters says nothing of them.
pub fn since(before: &[Condition], closed: &[(String, Closed)]) -> Option<Timestamp> {
    let known = conditions::get(before, DATA_PENDING)?;
    let mut named = closed.iter().take(MOST_NAMED);
    let is_reported = known.status == conditions::TRUE
        && named.all(|(cluster, _)| known.message.contains(&not_created(cluster)));
    is_reported.then_some(known.last_transition_time.0)
}

/// Returns the beginning of what the condition says of the copy in a cluster.
pub fn not_created(cluster: &str) -> String {
    format!("its copy in {cluster} is not created yet: ")
}

/// Returns what a role says against a copy in a cluster. `work` is that of the object there.
fn of_role(
    role: &DataRole,
    cluster: &str,
    work: Option<&CachedWork>,
    wait: &str,
) -> Option<Closed> {
    let object = &role.object;
    let mark = work.and_then(Mark::on);
    let reported = work
        .zip(mark.as_ref())
        .map(|(work, mark)| mark.reported(role, &work.status()));
    let why = match (work, mark) {
        (None, _) => format!("{object} is not propagated to {cluster}"),
        (_, Some(mark)) if mark.step == Step::Primary => {
            if reported == Some(Reported::Promoted) {
                return None;
            }
            format!(
                "{object} has not become primary in {cluster} yet: {} is waited for",
                Words(&role.promoted)
            )
        }
        _ if wait.is_empty() => format!("{object} is not primary in {cluster} yet"),
        _ => format!("{object} is not primary in {cluster} yet: {wait}"),
    };
    Some(Closed {
        why,
        timeout: SignedDuration::from_secs(TIMEOUT_SECONDS.into()),
        starts: false,
        after: None,
    })
}

/// Returns what a gate says against a copy in a cluster. `work` is that of the object there.
fn of_gate(gate: &DataGate, cluster: &str, work: Option<&CachedWork>) -> Option<Closed> {
    let object = &gate.object;
    let status = work.map(CachedWork::status);
    let said = status
        .as_ref()
        .and_then(|it| it.manifest_statuses.first()?.status.as_ref());
    let why = match (work, said) {
        (None, _) => format!("{object} is not propagated to {cluster}"),
        (_, Some(said)) if holds(&gate.ready, &said.0, generation(&said.0)) => return None,
        _ => format!("{object} in {cluster} does not say {}", Words(&gate.ready)),
    };
    Some(Closed {
        why,
        timeout: SignedDuration::from_secs(gate.timeout_seconds().into()),
        starts: gate.starts_on_timeout(),
        after: None,
    })
}

/// Returns the Work of an object of a workload in a cluster.
fn place(workload: &BindingKey, object: &DataReference, cluster: &str) -> (String, String) {
    let namespace = workload.namespace.as_deref().unwrap_or_default();
    let name = work(&object.kind, &object.name, namespace);
    (execution_namespace(cluster), name)
}

/// Returns that Work as the cache has it.
fn cached(
    fleet: &Fleet,
    workload: &BindingKey,
    object: &DataReference,
    cluster: &str,
) -> Option<Arc<CachedWork>> {
    let (namespace, name) = place(workload, object, cluster);
    fleet.works.get(Some(&namespace), &name)
}

/// Returns the first thing that keeps the copy of a workload in a cluster from being created.
///
/// # Errors
/// The API does not say whether the object is still primary there.
pub async fn closed(
    fleet: &Fleet,
    client: &Client,
    key: &BindingKey,
    spec: &ResourceBindingSpec,
    cluster: &str,
) -> Result<Option<Closed>, ApiError> {
    let Some(data) = &spec.data_replication else {
        return Ok(None);
    };
    let mut after = None;
    for role in &data.roles {
        let binding = fleet.bindings.get(&object_key(key, &role.object));
        let conditions = binding.as_ref().map(|it| &*it.status().conditions);
        let reported = conditions.and_then(|it| conditions::get(it, DATA_PENDING));
        after = after.max(reported.map(|it| it.last_transition_time.0));
        let wait = reported.filter(|it| it.status == conditions::TRUE);
        let wait = wait.map_or("", |it| &*it.message);
        let work = cached(fleet, key, &role.object, cluster);
        if let Some(closed) = of_role(role, cluster, work.as_deref(), wait) {
            return Ok(Some(closed));
        }
    }
    for gate in &data.gates {
        let work = cached(fleet, key, &gate.object, cluster);
        if let Some(closed) = of_gate(gate, cluster, work.as_deref()) {
            return Ok(Some(Closed { after, ..closed }));
        }
    }
    for role in &data.roles {
        // The role may have been taken away a moment ago, which the cache does not show yet.
        let (namespace, name) = place(key, &role.object, cluster);
        let api: Api<CachedWork> = Api::namespaced(client.clone(), &namespace);
        let work = client::get_opt(&api, &name).await;
        let work = work.map_err(ApiError::of("read the work of", &role.object))?;
        if let Some(closed) = of_role(role, cluster, work.as_ref(), "") {
            return Ok(Some(closed));
        }
    }
    Ok(None)
}

/// Returns why the old copies of a workload stay: its data cannot follow it to the clusters that it
/// is placed in. `left` are the Works of old copies.
pub fn keeps_copies<'a>(
    fleet: &Fleet,
    key: &BindingKey,
    spec: &ResourceBindingSpec,
    targets: &[TargetCluster],
    left: &(impl Iterator<Item = &'a Arc<CachedWork>> + Clone),
) -> Option<String> {
    let data = spec.data_replication.as_ref()?;
    let left = left.clone().filter_map(|work| cluster_of(work));
    left.clone().next()?;
    let targets = targets.iter().map(|it| &*it.name);
    // Where it is to be nowhere, nothing follows it.
    targets.clone().next()?;
    for role in &data.roles {
        let object = &role.object;
        if targets.len() > 1 {
            return Some("it is placed in several clusters".to_owned());
        }
        if is_shared(fleet, key, object) {
            return Some(format!("several workloads give {object} a role"));
        }
        // What is in a silent cluster is fenced, or given up.
        let mut left = left.clone().filter(|it| is_ready(fleet, it));
        let is_running = left.clone().next().is_some();
        let of_left = |cluster: &str| {
            let work = cached(fleet, key, object, cluster)?;
            let mark = Mark::on(&work)?;
            let why = unfit(object, cluster, Some(&work));
            why.or_else(|| unreported(&mark, object, &work, cluster))
        };
        let of_target = |cluster: &str| {
            let work = cached(fleet, key, object, cluster);
            if let Some(why) = unfit(object, cluster, work.as_deref()) {
                return Some(why);
            }
            let work = work?;
            let Some(mark) = Mark::on(&work) else {
                return Some(format!("{object} in {cluster} has no role yet"));
            };
            if let Some(why) = unreported(&mark, object, &work, cluster) {
                return Some(why);
            }
            // It was primary at another time, and may lack what was written since. Where nothing
            // else runs, it is better than nothing.
            let is_behind = is_running
                && mark.step == Step::Demoting
                && mark.reported(role, &work.status()) != Reported::Demoted;
            is_behind.then(|| format!("{object} in {cluster} has not said yet that it is demoted"))
        };
        let why = targets.clone().find_map(of_target);
        if let Some(why) = why.or_else(|| left.find_map(of_left)) {
            return Some(why);
        }
    }
    let mut gates = data.gates.iter().filter(|it| !it.starts_on_timeout());
    gates.find_map(|gate| {
        let object = &gate.object;
        targets.clone().find_map(|cluster| {
            let work = cached(fleet, key, object, cluster);
            unfit(object, cluster, work.as_deref())
        })
    })
}

/// Returns why nothing becomes of an order for an object in a cluster, if so.
fn unfit(object: &DataReference, cluster: &str, work: Option<&CachedWork>) -> Option<String> {
    let Some(work) = work else {
        return Some(format!("{object} is not propagated to {cluster}"));
    };
    if work.suspend_dispatching == Some(true) {
        return Some(format!("dispatching of {object} to {cluster} is suspended"));
    }
    let is_applied = WorkState::said(&work.status()) == WorkState::Applied;
    (!is_applied).then(|| format!("{object} is not applied in {cluster}"))
}

/// Returns why it will not be known whether an object gets another role in a cluster, if so.
fn unreported(
    mark: &Mark,
    object: &DataReference,
    work: &CachedWork,
    cluster: &str,
) -> Option<String> {
    (!mark.is_reported(&work.status())).then(|| {
        format!(
            "the status of {object} in {cluster} does not say yet which role it has (the agent there is Karmada's or an \
             older one, or the status is too long)"
        )
    })
}

/// Returns how long until a binding whose copies wait is reconciled again, if no change is seen
/// earlier.
pub fn pause(due: Option<Timestamp>, now: Timestamp, longest: Duration) -> Duration {
    let due = due.and_then(|it| Duration::try_from(it.duration_since(now)).ok());
    due.unwrap_or(longest)
        .clamp(Duration::from_millis(100), longest)
}
