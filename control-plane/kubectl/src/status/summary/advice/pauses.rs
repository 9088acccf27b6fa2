//! What the summary advises while movement is paused.

use std::collections::BTreeSet;

use muster_control_plane::fleet::budget::rate::Band;

use crate::status::decide::{NotWell, Report, Waiting};
use crate::status::summary::{Lost, count, either};

/// The fleet or the cluster in which a pause holds workloads.
#[derive(Clone, Copy)]
pub(super) enum Whose<'a> {
    Fleet,
    Cluster(&'a str),
}

impl<'a> Whose<'a> {
    /// Returns what the pause of a cluster holds, or that of the fleet where it has none.
    pub fn of(cluster: Option<&'a str>) -> Self {
        cluster.map_or(Self::Fleet, Self::Cluster)
    }
}

/// Returns the command that ends a pause.
pub(super) fn resume(whose: Whose<'_>) -> String {
    match whose {
        Whose::Fleet => "kubectl muster resume".to_owned(),
        Whose::Cluster(name) => format!("kubectl muster resume {name}"),
    }
}

/// Returns the first pause that keeps something where it is; that of a cluster keeps nothing in
/// others.
pub(super) fn in_the_way<'a>(
    report: &'a Report,
    down: &[&NotWell],
    lost: Lost,
) -> Option<Whose<'a>> {
    let waiting = report.waiting.iter().flat_map(|it| &it.clusters);
    let waiting: BTreeSet<&str> = waiting.map(String::as_str).collect();
    let mut pauses = report
        .paused_clusters
        .iter()
        .map(|it| Whose::of(it.as_deref()));
    pauses.find(|it| match it {
        Whose::Fleet => lost != Lost::No || !report.waiting.is_empty() || !down.is_empty(),
        Whose::Cluster(name) => waiting.contains(name) || down.iter().any(|it| it.name == *name),
    })
}

/// Returns what happens when movement is resumed.
pub(super) fn effect(report: &Report, whose: Whose<'_>) -> String {
    if report.pace.band == Band::Stopped {
        return ", by which nothing moves before fewer clusters have failed".to_owned();
    }
    let is_here = |it: &&Waiting| match whose {
        Whose::Fleet => true,
        Whose::Cluster(name) => it.clusters.first().is_some_and(|it| it == name),
    };
    let (fenced, others): (Vec<&Waiting>, Vec<&Waiting>) = report
        .waiting
        .iter()
        .filter(is_here)
        .partition(|it| it.stops_seconds.is_some());
    let leave = match others.len() {
        0 => None,
        1 => Some("1 workload that waits leaves its cluster, at the pace of the fleet".to_owned()),
        more => Some(format!(
            "{more} workloads that wait leave their clusters, at the pace of the fleet"
        )),
    };
    let last = fenced.iter().filter_map(|it| it.stops_seconds).max();
    let start = last.map(|seconds| {
        let (who, is, once) = match &fenced[..] {
            [only] => (only.workload.clone(), "is", " once its copy has stopped"),
            more => (
                count(more.len(), "workload"),
                "are",
                " once their copies have stopped",
            ),
        };
        let once = if seconds == 0 { "" } else { once };
        format!("{who} {is} started elsewhere{once}")
    });
    let anew = match (whose, report.held_moves.count) {
        (Whose::Cluster(_), _) | (Whose::Fleet, 0) => None,
        (Whose::Fleet, number) => {
            let (who, verb) = (count(number, "workload"), either(number, "is", "are"));
            Some(format!(
                "{who} {verb} placed anew where nothing else holds that back"
            ))
        }
    };
    let effects: Vec<String> = leave.into_iter().chain(start).chain(anew).collect();
    if effects.is_empty() {
        return String::new();
    }
    format!(", by which {}", effects.join(", and "))
}
