//! How many entries the lists of a report have, whatever is printed of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_control_plane::propagation::binding::companions::runs_nothing;
use muster_control_plane::propagation::binding::render::Scope;
use muster_shared::api::any_binding::AnyBinding;
use serde::Serialize;

use super::{Moving, Report};
use crate::status::summary::{count, either};

/// Flows that are reported; of more, those of the most workloads.
const FLOWS: usize = 100;

impl Report {
    /// Returns the numbers of entries of the lists, by the names that these have in JSON, and
    /// `stuck`: that of the failing applications which have to leave already.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, usize> {
        BTreeMap::from([
            ("notWell", self.not_well.len()),
            ("ordered", self.ordered.len()),
            ("moving", self.moving.len()),
            ("kept", self.kept.len()),
            ("waiting", self.waiting.len()),
            ("stranded", self.stranded.len()),
            ("unheard", self.unheard.len()),
            ("unplaced", self.unplaced.len()),
            ("applications", self.applications.len()),
            ("stuck", self.stuck().count()),
            ("heldBack", self.held_back.len()),
            ("withoutDependencies", self.without_dependencies.len()),
            ("unpublished", self.unpublished.len()),
        ])
    }

    /// Returns what an empty queue says: what starts or comes later is no member of it.
    pub(super) fn idle(&self) -> String {
        let starting = self.service.starting.count;
        let returning: usize = self.left.iter().map(|it| it.returning).sum();
        let old: usize = self.old_copies.iter().flatten().map(|it| it.copies).sum();
        let anew = self.held_moves.count;
        let words = |(number, thing, one, more): (usize, &str, &'static str, &'static str)| {
            let verb = either(number, one, more);
            (number > 0).then(|| format!("{} {verb}", count(number, thing)))
        };
        let starts = words((starting, "workload", "starts", "start"));
        let later = [
            (anew, "workload", "is placed anew", "are placed anew"),
            (returning, "workload", "returns", "return"),
            (old, "old copy", "is removed", "are removed"),
        ];
        let later: Vec<String> = later.into_iter().filter_map(words).collect();
        let later = match &later[..] {
            [] => None,
            later => Some(format!("later {}: see Next above", later.join(", "))),
        };
        let parts: Vec<String> = starts.into_iter().chain(later).collect();
        match &parts[..] {
            [] => "nothing moves or waits".to_owned(),
            parts => format!("nothing has to move now; {}", parts.join("; ")),
        }
    }

    /// Keeps so many entries of each list.
    pub fn limit(&mut self, most: usize) {
        self.not_well.truncate(most);
        self.ordered.truncate(most);
        self.moving.truncate(most);
        self.kept.truncate(most);
        self.waiting.truncate(most);
        self.left.truncate(most);
        self.stranded.truncate(most);
        self.unheard.truncate(most);
        self.unplaced.truncate(most);
        self.applications.truncate(most);
        self.held_back.truncate(most);
        self.without_dependencies.truncate(most);
        self.unpublished.truncate(most);
    }
}

/// Workloads that leave one cluster and are placed on another one.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(in super::super) struct Flow {
    pub from: String,
    pub to: String,
    pub workloads: usize,
}

/// Returns the flows of what moves, the largest first.
pub(super) fn flows(moving: &[Moving]) -> Vec<Flow> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for it in moving {
        for to in it.to.iter().filter(|to| **to != it.from) {
            *counts.entry((&it.from, to)).or_default() += 1;
        }
    }
    let mut flows: Vec<Flow> = counts
        .into_iter()
        .map(|((from, to), workloads)| Flow {
            from: from.to_owned(),
            to: to.to_owned(),
            workloads,
        })
        .collect();
    flows.sort_by_key(|it| std::cmp::Reverse(it.workloads));
    flows.truncate(FLOWS);
    flows
}

/// Returns what is said of workloads in several clusters, which count in each tile and arrow of the
/// map; `None` without any.
pub(super) fn spread(bindings: &[Arc<AnyBinding>]) -> Option<String> {
    let workloads = bindings.iter().filter(|it| !runs_nothing(&it.spec));
    let copies = workloads.map(|it| Scope::of(&it.spec).targets.len());
    let copies: Vec<usize> = copies.filter(|it| *it > 0).collect();
    let (workloads, all) = (copies.len(), copies.iter().sum::<usize>());
    let has = either(workloads, "has", "have");
    let (who, what) = (count(workloads, "workload"), count(all, "copy"));
    (all > workloads)
        .then(|| format!("{who} {has} {what}: tiles and arrows count each copy, one a cluster."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::old_copies::InCluster;
    use crate::status::decide::{Group, Left, Service};

    #[test]
    fn an_empty_queue_says_what_starts_and_what_comes_later() {
        for ((starting, anew, returning, old), expected) in [
            ((0, 0, 0, 0), "nothing moves or waits"),
            ((1, 0, 0, 0), "nothing has to move now; 1 workload starts"),
            (
                (0, 1, 0, 0),
                "nothing has to move now; later 1 workload is placed anew: see Next above",
            ),
            (
                (2, 3, 1, 2),
                "nothing has to move now; 2 workloads start; later 3 workloads are placed anew, 1 workload returns, 2 old copies are removed: see Next above",
            ),
        ] {
            let group = |count| Group {
                count,
                names: Vec::new(),
            };
            let copies = InCluster {
                cluster: "m1".to_owned(),
                copies: old,
                names: Vec::new(),
                state: None,
            };
            let left = Left {
                returning,
                ..Left::default()
            };
            let report = Report {
                service: Service {
                    starting: group(starting),
                    ..Service::default()
                },
                held_moves: group(anew),
                left: vec![left],
                old_copies: Some(vec![copies]),
                ..Report::default()
            };
            assert_eq!(report.idle(), expected);
        }
    }
}
