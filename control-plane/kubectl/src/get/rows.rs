//! Tables of clusters and of workloads. Pure.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::Timestamp;
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::fleet::pause::Pause;
use muster_control_plane::movement::application_failover::explain::CONDITION as APPLICATION;
use muster_control_plane::movement::eviction::explain;
use muster_control_plane::propagation::binding::references;
use muster_control_plane::propagation::binding::render::Scope;
use muster_control_plane::scheduler::controller::waits_to_move;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::conditions;
use muster_shared::names::condition;
use serde::Serialize;

use crate::cluster_row::ClusterRow;
use crate::held_back::held_back;
use crate::leader::unjudged;
use crate::old_copies::{OldCopies, UNTIL_RELEASED};
use crate::rows::Named;
use crate::table::{NOT_READY, Table, ago};

/// State of a workload in clusters that are silent.
const UNKNOWN: &str = "Unknown";

/// Returns the table, with the pause of the fleet, and what its marks mean.
pub(super) fn clusters(
    rows: &[ClusterRow],
    pause: Option<&Pause>,
    wide: bool,
    now: Timestamp,
) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut table = Table::new([
        "NAME",
        "READY",
        "REASON",
        "SINCE",
        "HEARD",
        "NODES",
        "WORKLOADS",
        "OLD COPIES",
        "MODE",
        "REGION",
        "KUBERNETES",
        "AGENT",
        "TAINTS",
    ]);
    let wide_only: &[&str] = if wide {
        &[]
    } else {
        &["MODE", "REGION", "KUBERNETES", "AGENT"]
    };
    for row in rows {
        let member = &row.member;
        let ready = if row.paused {
            format!("{},Paused", member.ready)
        } else {
            member.ready.clone()
        };
        let nodes = row.ready_nodes.zip(row.nodes);
        let mark = if member.ready == conditions::TRUE {
            ""
        } else {
            "?"
        };
        let taints = Some(member.taints.join(",")).filter(|it| !it.is_empty());
        table.row([
            member.name.clone(),
            ready,
            member.concern.as_ref().unwrap_or(&member.reason).clone(),
            ago(member.since, now),
            ago(member.last_heard, now),
            or_none(nodes.map(|(ready, all)| format!("{ready}/{all}{mark}"))),
            or_none(row.workloads.map(|it| it.to_string())),
            or_none(row.old_copies.map(|it| it.to_string())),
            row.sync_mode.clone(),
            or_none(row.region.clone()),
            or_none(row.kubernetes.clone()),
            or_none(row.agent.clone()),
            or_none(taints),
        ]);
    }
    let mut text = table.without(wide_only);
    if let Some(pause) = pause {
        let _ = write!(text, "\nPAUSED: {pause}\n");
    }
    if rows
        .iter()
        .any(|it| it.member.ready != conditions::TRUE && it.nodes.is_some())
    {
        let _ = writeln!(text, "{NOT_READY}");
    }
    text
}

/// A workload.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkloadRow {
    namespace: Option<String>,
    kind: String,
    name: String,
    clusters: Vec<String>,
    /// Clusters whose copies are being replaced, or are not confirmed gone.
    leaving: Vec<String>,
    /// Clusters among `leaving` that are silent, so that their copies are not reported.
    not_heard: Vec<String>,
    /// `Placed`, `Moving`, `Unplaced`, `Unknown`, `DependenciesMissing`, or the reason of a pending
    /// eviction, of a failing application that is to leave, of a new copy that is not created yet,
    /// or of a new placement that waits.
    state: String,
    since: Option<Timestamp>,
    message: String,
    binding: String,
}

/// What is left of workloads in clusters where they are not placed any more.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Copies that are not confirmed gone.
    pub copies: OldCopies,
    /// Clusters that are silent.
    pub not_heard: BTreeSet<String>,
    /// Silent clusters that nobody calls silent, because no control plane leads.
    pub unjudged: BTreeSet<String>,
}

impl WorkloadRow {
    pub fn of(binding: &AnyBinding, left: &Left) -> Self {
        let (spec, status) = (&binding.spec, binding.status());
        let holds = |kind: &str, wanted: &str| {
            conditions::get(&status.conditions, kind).filter(|it| it.status == wanted)
        };
        let pending = holds(explain::CONDITION, conditions::TRUE);
        let pending = pending.or_else(|| holds(APPLICATION, conditions::TRUE));
        let unplaced = holds(condition::SCHEDULED, conditions::FALSE);
        let unknown = holds(condition::FULLY_APPLIED, conditions::UNKNOWN);
        let held = held_back(&status.conditions).next();
        let lacks = holds(references::CONDITION, conditions::TRUE);
        let anew = holds(condition::SCHEDULED, conditions::TRUE).filter(|_| waits_to_move(status));
        // What follows others is placed where they are.
        let targets = Scope::of(spec).targets;
        let old = left
            .copies
            .get(&BindingKey::of(binding))
            .into_iter()
            .flatten();
        let mut leaving: Vec<String> = spec
            .graceful_eviction_tasks
            .iter()
            .map(|it| it.from_cluster.clone())
            .collect();
        for cluster in old {
            if !leaving.contains(cluster) {
                leaving.push(cluster.clone());
            }
        }
        let not_heard = leaving.iter().filter(|it| left.not_heard.contains(*it));
        let not_heard: Vec<String> = not_heard.cloned().collect();
        let silent = spec.copies().map(|it| it.name.as_str());
        let silent: Vec<&str> = silent.filter(|it| left.unjudged.contains(*it)).collect();
        let mut tasks = spec.graceful_eviction_tasks.iter();
        let kept = tasks.clone().find(|it| it.is_kept());
        let task = tasks.find(|it| !it.is_kept());
        let created = task.and_then(|it| it.creation_timestamp.as_ref());
        let (state, reported) = match (pending, unplaced, unknown) {
            (Some(pending), ..) => (pending.reason.clone(), Some(pending)),
            (_, Some(unplaced), _) => ("Unplaced".to_owned(), Some(unplaced)),
            _ if held.is_some() => (held.map(|it| it.reason.clone()).unwrap_or_default(), held),
            _ if task.is_some() => ("Moving".to_owned(), None),
            (_, _, Some(unknown)) => (UNKNOWN.to_owned(), Some(unknown)),
            _ if !silent.is_empty() => (UNKNOWN.to_owned(), None),
            _ if targets.is_empty() => ("Unplaced".to_owned(), None),
            _ if anew.is_some() => (anew.map(|it| it.reason.clone()).unwrap_or_default(), anew),
            _ if lacks.is_some() => (references::CONDITION.to_owned(), lacks),
            _ => ("Placed".to_owned(), None),
        };
        let since = reported.map(|it| it.last_transition_time.0);
        let kept = kept.map(|it| format!("the old copy in {} {UNTIL_RELEASED}", it.from_cluster));
        let message = match reported {
            Some(reported) => reported.message.clone(),
            None if state == UNKNOWN => unjudged(&silent),
            None => kept.unwrap_or_default(),
        };
        let each = |name: &str, replicas: i32| match replicas {
            0 => name.to_owned(),
            _ => format!("{name}({replicas})"),
        };
        let resource = &spec.resource;
        Self {
            namespace: resource.namespace.clone().filter(|it| !it.is_empty()),
            kind: resource.kind.clone(),
            name: resource.name.clone(),
            clusters: targets
                .iter()
                .map(|it| {
                    each(
                        &it.name,
                        spec.target(&it.name).map_or(0, |own| own.replicas),
                    )
                })
                .collect(),
            leaving,
            not_heard,
            state,
            since: since.or_else(|| created.map(|it| it.0)),
            message,
            binding: BindingKey::of(binding).to_string(),
        }
    }

    /// Returns the clusters that the workload leaves, as the table shows them.
    fn leaving(&self) -> Vec<String> {
        let reported = self.leaving.iter().map(|it| {
            if self.not_heard.contains(it) {
                format!("{it} (silent)")
            } else {
                it.clone()
            }
        });
        reported.collect()
    }

    /// Returns whether the workload is on a cluster or leaves it.
    pub fn concerns(&self, cluster: &str) -> bool {
        let placed = self.clusters.iter().filter_map(|it| it.split('(').next());
        let leaving = self.leaving.iter().map(String::as_str);
        placed.chain(leaving).any(|it| it == cluster)
    }
}

impl Named for WorkloadRow {
    fn name(&self) -> String {
        format!("{}/{}", self.kind.to_lowercase(), self.name)
    }
}

pub(super) fn workloads(rows: &[WorkloadRow], wide: bool, now: Timestamp) -> String {
    let mut table = Table::new([
        "NAMESPACE",
        "WORKLOAD",
        "CLUSTERS",
        "LEAVING",
        "STATE",
        "SINCE",
        "WHY",
    ]);
    let list = |names: &[String]| match names {
        [] => "-".to_owned(),
        names => names.join(","),
    };
    for row in rows {
        table.row([
            row.namespace.clone().unwrap_or_else(|| "-".to_owned()),
            row.name(),
            list(&row.clusters),
            list(&row.leaving()),
            row.state.clone(),
            ago(row.since, now),
            row.message.clone(),
        ]);
    }
    table.without(if wide { &[] } else { &["WHY"] })
}

#[cfg(test)]
mod tests;
