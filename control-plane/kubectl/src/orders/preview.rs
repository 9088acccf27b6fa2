//! What a drain would move where, by the scheduler's own code and without a write.
//!
//! Each workload is asked about by itself, on the fleet as it is now: the room that one takes is
//! not missing for the next.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use jiff::Timestamp;
use muster_control_plane::clusters::taint::default_tolerations::DefaultTolerations;
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::fleet::budget::rate::{Band, Rates};
use muster_control_plane::movement::eviction::execute::plan_whole;
use muster_control_plane::movement::eviction::explain::has_completed;
use muster_control_plane::movement::eviction::inputs;
use muster_control_plane::movement::eviction::judge::{
    Judgement, Stay, Switches, judge, purge_mode,
};
use muster_control_plane::movement::eviction::plan::{Departure, suspended};
use muster_control_plane::movement::eviction::reason::EvictionReason;
use muster_control_plane::scheduler::core::{DataPlaces, Options, Snapshot};
use muster_control_plane::settings::names_scheduler;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::policy::PurgeMode;
use muster_shared::k8s::ResourceExt;
use muster_shared::names::DEFAULT_SCHEDULER;
use serde::Serialize;

use super::drain;
use crate::dependencies::{After, Needs, Partings, parted};
use crate::jobs::Jobs;
use crate::pace::Pace;
use crate::standstill::Standstill;
use crate::table::{Workload, indented};

/// Returns the switches of a drain: it is an order whatever they are.
pub(super) fn switches() -> Switches {
    Switches {
        failover: false,
        no_execute: false,
        purge_mode: PurgeMode::Gracefully,
        tolerations: DefaultTolerations::default(),
    }
}

/// What a drain comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preview {
    /// Clusters that are drained.
    pub clusters: Vec<String>,
    /// Copies that can leave now.
    pub leave: Vec<Line>,
    /// Copies that leave when a toleration of their workload has run out.
    pub later: Vec<Line>,
    /// Copies that stay because they may.
    pub stay: Vec<Line>,
    /// Copies that have to leave, and stay because their workloads have nowhere to go.
    pub stranded: Vec<Line>,
    /// Copies whose replacements are being started already.
    pub leaving: Vec<Line>,
    /// A reason why workloads would leave slowly or not at all, by the state of the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Whether nothing leaves until fewer clusters have failed.
    pub is_stopped: bool,
    /// Reasons why nothing would be moved now, whatever the state of the fleet.
    #[serde(flatten)]
    pub standstill: Standstill,
    /// Workloads that would be parted from what they refer to.
    #[serde(flatten)]
    pub partings: Partings,
    /// Clusters after the move.
    #[serde(skip)]
    pub after: After,
}

/// One copy of a workload: the workload on one cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    #[serde(flatten)]
    pub workload: Workload,
    /// Cluster that is drained.
    pub from: String,
    /// Clusters after the move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Reason to stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Line {
    pub fn new(binding: &AnyBinding, from: &str) -> Self {
        Self {
            workload: Workload::of(&binding.spec),
            from: from.to_owned(),
            to: None,
            why: None,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.workload, self.from)?;
        match (&self.to, &self.why) {
            (Some(to), _) => write!(f, " -> {to}"),
            (None, Some(why)) => write!(f, ": {why}"),
            (None, None) => Ok(()),
        }
    }
}

/// Looks at a fleet of which some clusters are to be drained.
pub(super) fn preview(
    clusters: impl IntoIterator<Item = Cluster>,
    bindings: &[Arc<AnyBinding>],
    needs: &Needs,
    jobs: &Jobs,
    drained: &[String],
    (rates, options): (&Rates, &Options),
    now: Timestamp,
) -> Preview {
    let order = drain::order(None);
    let clusters: Vec<Arc<Cluster>> = clusters
        .into_iter()
        .map(|mut cluster| {
            if drained.contains(&cluster.name_any()) {
                order.put_on(&mut cluster.spec.taints, now);
            }
            Arc::new(cluster)
        })
        .collect();
    let pace = Pace::of(clusters.iter().map(Arc::as_ref), rates);
    let mut preview = Preview {
        clusters: drained.to_vec(),
        warning: pace.warning(),
        is_stopped: pace.band == Band::Stopped,
        ..Preview::default()
    };
    let snapshot = Snapshot::new(clusters).with_data(DataPlaces::among(bindings));
    for binding in bindings {
        if binding.metadata.deletion_timestamp.is_some() {
            continue;
        }
        for from in drained {
            preview.check(binding, from, (&snapshot, options), jobs, now);
        }
    }
    preview.partings = parted(bindings, needs, &preview.after);
    preview
}

impl Preview {
    /// Returns whether something stays that has to leave.
    pub fn is_stranded(&self) -> bool {
        !self.stranded.is_empty() || (self.is_stopped && !self.leave.is_empty())
    }

    fn check(
        &mut self,
        binding: &AnyBinding,
        from: &str,
        (snapshot, options): (&Snapshot, &Options),
        jobs: &Jobs,
        now: Timestamp,
    ) {
        let line = Line::new(binding, from);
        let spec = &binding.spec;
        if spec.target(from).is_none() {
            let mut tasks = spec.graceful_eviction_tasks.iter();
            if tasks.any(|task| task.from_cluster == from) {
                self.leaving.push(line);
            }
            return;
        }
        let because = |why: String| Line {
            why: Some(why),
            ..line.clone()
        };
        let taints = snapshot
            .get(from)
            .map(|it| it.cluster().spec.taints.clone());
        let taints = taints.unwrap_or_default();
        let placement = inputs::placement(binding);
        if placement.is_none() && !spec.required_by.is_empty() {
            // It follows what needs it.
            return;
        }
        let switches = switches();
        let (due, cause) = match judge(&taints, spec, placement.as_deref(), &switches, now) {
            Judgement::Stay(why) => return self.stay.push(because(why.to_string())),
            Judgement::Leave { .. } if has_completed(binding, from) => {
                return self.stay.push(because(Stay::Completed.to_string()));
            }
            Judgement::Leave { due, cause } => (due, cause),
        };
        let mode = purge_mode(spec, &switches, &cause);
        let reason = EvictionReason::Taint(&cause);
        // Pauses are left out, because they end.
        let departure = Departure {
            ours: names_scheduler(spec.scheduler_name.as_deref(), DEFAULT_SCHEDULER),
            // What the Works of the clusters tell of their delivery is not read here.
            obstacle: &|name| suspended(spec, name),
            ..Departure::new(spec, binding.status(), from, reason, &mode)
        };
        let plan = plan_whole(&departure, snapshot, options, now, &|after| {
            jobs.leaves_undone(binding, after)
        });
        match plan {
            Err(nowhere) => self.stranded.push(because(nowhere.to_string())),
            Ok(_) if due > now => {
                let why = format!("it tolerates the taint until {due:.0}");
                self.later.push(because(why));
            }
            Ok(plan) => {
                let mut plan = plan;
                // Of several clusters that are drained each is planned by itself.
                let drained = &self.clusters;
                plan.clusters.retain(|it| !drained.contains(&it.name));
                let clusters = plan.clusters.iter().map(|it| it.name.clone());
                let after = self.after.entry(BindingKey::of(binding)).or_default();
                after.extend(clusters);
                self.leave.push(Line {
                    to: Some(plan.destination()),
                    ..line
                });
            }
        }
    }

    /// Returns the preview as text.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let names = self.clusters.join(", ");
        if self.count() == 0 {
            let _ = writeln!(text, "{names}: no workload is there");
        }
        let leave = if self.is_stopped {
            "could leave, and stays until fewer clusters have failed"
        } else if self.standstill.is_whole {
            "can leave when movement goes on"
        } else {
            "can leave"
        };
        for (list, one, many) in [
            (
                &self.leaving,
                "is being moved already",
                "are being moved already",
            ),
            (&self.leave, leave, leave.replace("stays", "stay").as_str()),
            (&self.later, "leaves later", "leave later"),
            (&self.stay, "stays", "stay"),
            (
                &self.stranded,
                "has nowhere to go, and stays until it has",
                "have nowhere to go, and stay until they have",
            ),
        ] {
            let workloads: BTreeSet<&Workload> = list.iter().map(|it| &it.workload).collect();
            let count = workloads.len();
            let (workloads, does) = match count {
                0 => continue,
                1 => ("1 workload".to_owned(), one),
                _ => (format!("{count} workloads"), many),
            };
            let copies = match list.len() {
                copies if copies == count => String::new(),
                copies => format!(", with {copies} copies,"),
            };
            let _ = writeln!(text, "{names}: {workloads}{copies} {does}");
            text.push_str(&indented(list));
        }
        text.push_str(&self.partings.warning());
        if let Some(warning) = &self.warning {
            let _ = writeln!(text, "Warning: {warning}");
        }
        for reason in &self.standstill.reasons {
            let _ = writeln!(text, "Warning: nothing moves now: {reason}");
        }
        text
    }

    fn count(&self) -> usize {
        let lists = [
            &self.leave,
            &self.later,
            &self.stay,
            &self.stranded,
            &self.leaving,
        ];
        lists.into_iter().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests;
