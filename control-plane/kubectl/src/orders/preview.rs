//! What a drain would move where, by the forecast of `kubectl muster simulate` and without a write.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use jiff::Timestamp;
use muster_control_plane::fleet::budget::rate::Band;
use muster_control_plane::settings::Settings;
use muster_shared::api::any_binding::AnyBinding;
use serde::Serialize;

use crate::dependencies::Partings;
use crate::forecast::{Disaster, Fleet, Forecast, Left, Move, forecast};
use crate::standstill::Standstill;
use crate::table::{Workload, indented};

/// Result that a drain would have.
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
    /// Copies that have to leave and cannot.
    pub stranded: Vec<Line>,
    /// Copies whose replacements are being started already.
    pub leaving: Vec<Line>,
    /// A reason why workloads would leave slowly or not at all, by the state of the fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Whether nothing leaves, because too many clusters have failed, or at a rate of 0.
    pub is_stopped: bool,
    /// End of what keeps everything there, in words.
    #[serde(skip)]
    pub until: &'static str,
    /// Reasons why nothing would be moved now, whatever the state of the fleet.
    #[serde(flatten)]
    pub standstill: Standstill,
    /// Workloads that would be separated from what they refer to.
    #[serde(flatten)]
    pub partings: Partings,
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

impl From<Move> for Line {
    fn from(moved: Move) -> Self {
        Self {
            workload: moved.workload,
            from: moved.from,
            to: Some(moved.destination),
            why: None,
        }
    }
}

impl From<Left> for Line {
    fn from(left: Left) -> Self {
        Self {
            workload: left.workload,
            from: left.cluster,
            to: None,
            why: Some(left.reason),
        }
    }
}

/// Reads a fleet of which some clusters are to be drained.
pub(super) fn preview(
    fleet: &Fleet,
    drained: &[String],
    settings: &Settings,
    now: Timestamp,
) -> Preview {
    let disaster = Disaster {
        drained: drained.iter().cloned().collect(),
        ..Disaster::default()
    };
    let Forecast {
        pace,
        moves,
        stranded,
        held,
        stays,
        partings,
        ..
    } = forecast(fleet, &disaster, settings, now);
    let (leave, later): (Vec<_>, Vec<_>) = moves.into_iter().partition(|it| it.due <= now);
    let later = later.into_iter().map(|it| Line {
        to: None,
        why: Some(format!("it tolerates the taint until {:.0}", it.due)),
        ..Line::from(it)
    });
    let held = held.into_iter().map(|it| Line {
        // The warning says it of all of them.
        why: None,
        ..Line::from(it)
    });
    Preview {
        clusters: drained.to_vec(),
        leave: leave.into_iter().map(Line::from).chain(held).collect(),
        later: later.collect(),
        stay: stays.into_iter().map(Line::from).collect(),
        stranded: stranded.into_iter().map(Line::from).collect(),
        leaving: leaving(fleet, drained),
        warning: pace.warning(),
        is_stopped: pace.halted().is_some(),
        until: match pace.band {
            Band::Stopped => "until fewer clusters have failed",
            Band::Primary | Band::Secondary => "while the rate is 0",
        },
        partings,
        standstill: Standstill::default(),
    }
}

/// Returns the copies whose replacements are being started already.
fn leaving(fleet: &Fleet, drained: &[String]) -> Vec<Line> {
    let mut leaving = Vec::new();
    for binding in &fleet.bindings {
        if binding.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let spec = &binding.spec;
        let goes =
            |from: &&String| spec.target(from).is_none() && spec.eviction_task(from).is_some();
        let clusters = drained.iter().filter(goes);
        leaving.extend(clusters.map(|from| Line::new(binding, from)));
    }
    leaving
}

impl Preview {
    /// Returns whether something stays that has to leave.
    pub fn is_stranded(&self) -> bool {
        !self.stranded.is_empty() || (self.is_stopped && !self.leave.is_empty())
    }

    /// Returns the preview as text.
    /// Of each list it has so many lines at most.
    pub fn table(&self, most: usize) -> String {
        let mut text = String::new();
        let names = self.clusters.join(", ");
        if self.count() == 0 {
            let _ = writeln!(text, "{names}: no workload is there");
        }
        let stopped = format!("could leave, and stays {}", self.until);
        let leave = if self.is_stopped {
            stopped.as_str()
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
                "is stranded: it has to leave and cannot",
                "are stranded: they have to leave and cannot",
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
            text.push_str(&indented(list, most));
        }
        text.push_str(&self.partings.warning(most));
        if let Some(warning) = &self.warning {
            let _ = writeln!(text, "Warning: {warning}");
        }
        if let Some(why) = &self.standstill.unread {
            let _ = writeln!(text, "Warning: {why}");
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
