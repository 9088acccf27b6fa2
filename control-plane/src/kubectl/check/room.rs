//! Checks whether the fleet has room for the loss of any one cluster, with the scheduler's own
//! decisions. Nothing is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_shared::api::binding::{Binding, ResourceBindingSpec, TargetCluster};
use muster_shared::check::{Category, MOST, Verdict, listed};
use muster_shared::conditions::TRUE;
use muster_shared::k8s::ResourceExt as _;
use muster_shared::names::condition::READY;

use super::facts::Facts;
use crate::scheduler::core::capacity::amount;
use crate::scheduler::core::{ClusterInfo, Options, Snapshot, schedule};

/// Workloads and resources that one line names.
const NAMED: usize = 3;

pub(super) fn check(facts: &Facts) -> Vec<Verdict> {
    let mut category = Category::new("Room for the loss of a cluster");
    let (clusters, bindings, wide) =
        match (&facts.clusters, &facts.bindings, &facts.cluster_bindings) {
            (Ok(clusters), Ok(bindings), Ok(wide)) => (clusters, bindings, wide),
            (Err(refusal), ..) | (_, Err(refusal), _) | (.., Err(refusal)) => {
                category.unknown("room", "clusters and bindings", refusal);
                return category.into_verdicts();
            }
        };
    if clusters.len() < 2 {
        let message = "there is no other cluster to take over";
        category.skipped("room", message);
        return category.into_verdicts();
    }
    let snapshot = Snapshot::new(clusters.iter().cloned().map(Arc::new));
    for cluster in clusters {
        let name = cluster.name_any();
        if cluster.condition(READY).is_none_or(|it| it.status != TRUE) {
            category.skipped("room", format!("{name} is lost already"));
            continue;
        }
        let mut loss = Loss::new(&name, &snapshot);
        for binding in bindings {
            loss.consider(binding);
        }
        for binding in wide {
            loss.consider(binding);
        }
        loss.judge(&mut category);
    }
    if bindings.len() >= MOST {
        category.skipped("room", format!("of further bindings than {MOST}"));
    }
    category.into_verdicts()
}

/// Loss of one cluster.
struct Loss<'a> {
    cluster: &'a str,
    /// The clusters without it.
    rest: Snapshot,
    /// Workloads that it has.
    workloads: usize,
    /// Workloads without another place, each with the reason.
    stranded: Vec<String>,
    /// Amounts of resources that each other cluster would have to take.
    growth: BTreeMap<String, BTreeMap<String, i64>>,
}

impl<'a> Loss<'a> {
    fn new(cluster: &'a str, all: &Snapshot) -> Self {
        let mut rest = all.clone();
        rest.depart(cluster);
        Self {
            cluster,
            rest,
            workloads: 0,
            stranded: Vec::new(),
            growth: BTreeMap::new(),
        }
    }

    fn consider(&mut self, binding: &impl Binding) {
        let spec = binding.spec();
        if spec.target(self.cluster).is_none() || binding.meta().deletion_timestamp.is_some() {
            return;
        }
        self.workloads += 1;
        let mut after = spec.clone();
        after.clusters.retain(|it| it.name != self.cluster);
        let options = Options::default().for_departure();
        match schedule(&after, binding.status(), &self.rest, &options) {
            // What is everywhere loses a copy and needs no other.
            Ok(decision) if decision.clusters.is_empty() => {
                self.strand(binding, "no cluster is left");
            }
            Ok(decision) => self.grow(spec, &decision.clusters),
            Err(error) => self.strand(binding, &error.to_string()),
        }
    }

    fn strand(&mut self, binding: &impl Binding, why: &str) {
        let place = binding
            .namespace()
            .map_or_else(String::new, |it| format!("{it}/"));
        self.stranded
            .push(format!("{place}{} ({why})", binding.name_any()));
    }

    fn grow(&mut self, before: &ResourceBindingSpec, clusters: &[TargetCluster]) {
        let Some(requirements) = &before.replica_requirements else {
            return;
        };
        for target in clusters {
            let had = before.target(&target.name).map_or(0, |it| it.replicas);
            let more = i64::from(target.replicas.saturating_sub(had).max(0));
            let growth = self.growth.entry(target.name.clone()).or_default();
            for (resource, wire) in &requirements.resource_request {
                let each = amount::of(resource, wire).unwrap_or(0);
                let sum = growth.entry(resource.clone()).or_default();
                *sum = sum.saturating_add(each.saturating_mul(more));
            }
        }
    }

    /// Returns the resources that the moves would overfill, which one by one each would fit.
    fn overfilled(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (cluster, growth) in &self.growth {
            let info = self.rest.get(cluster).map(ClusterInfo::cluster);
            let summary = info.and_then(|it| it.status.as_ref()?.resource_summary.as_ref());
            let Some(summary) = summary else { continue };
            for (resource, needed) in growth {
                let free = amount::free(summary, resource);
                if *needed > free {
                    let unit = if resource == "cpu" { "m" } else { "" };
                    found.push(format!(
                        "{cluster} would need {needed}{unit} of {resource} and has {}{unit}",
                        free.max(0)
                    ));
                }
            }
        }
        found
    }

    fn judge(&self, category: &mut Category) {
        let (cluster, workloads) = (self.cluster, self.workloads);
        let hint = "kubectl muster explain binding NAME -n NAMESPACE shows why. Add capacity or clusters, or allow more clusters in the placement.";
        let overfilled = self.overfilled();
        if !self.stranded.is_empty() {
            let number = self.stranded.len();
            let message = format!(
                "without {cluster}, {number} of its {workloads} workloads have no other place: {}",
                listed(&self.stranded, NAMED)
            );
            category.warning("room", message, hint);
        } else if !overfilled.is_empty() {
            let message = format!(
                "without {cluster}, each of its {workloads} workloads fits elsewhere, but not all together: {}",
                listed(&overfilled, NAMED)
            );
            category.warning("room", message, hint);
        } else if workloads == 0 {
            category.ok("room", format!("{cluster} has no workloads"));
        } else {
            let message = format!("without {cluster}, its {workloads} workloads fit elsewhere");
            category.ok("room", message);
        }
    }
}
