//! How many entries the lists of a report have, whatever is printed of them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Moving, Report};

/// Flows that are told; of more, those of the most workloads.
const FLOWS: usize = 100;

/// Numbers of what the lists of a report hold.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Counts {
    pub not_well: usize,
    pub ordered: usize,
    pub moving: usize,
    pub waiting: usize,
    pub stranded: usize,
    pub unheard: usize,
    pub unplaced: usize,
    pub without_dependencies: usize,
}

impl Counts {
    pub fn of(report: &Report) -> Self {
        Self {
            not_well: report.not_well.len(),
            ordered: report.ordered.len(),
            moving: report.moving.len(),
            waiting: report.waiting.len(),
            stranded: report.stranded.len(),
            unheard: report.unheard.len(),
            unplaced: report.unplaced.len(),
            without_dependencies: report.without_dependencies.len(),
        }
    }
}

impl Report {
    /// Keeps so many entries of each list.
    pub fn limit(&mut self, most: usize) {
        self.not_well.truncate(most);
        self.ordered.truncate(most);
        self.moving.truncate(most);
        for list in [
            &mut self.waiting,
            &mut self.stranded,
            &mut self.unheard,
            &mut self.unplaced,
            &mut self.without_dependencies,
        ] {
            list.truncate(most);
        }
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
