//! How many entries the lists of a report have, whatever is printed of them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Moving, Report};

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
