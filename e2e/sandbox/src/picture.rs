//! The fleet at one moment, as far as the story goes: plain values, taken from what was observed.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use muster_shared::api::binding::ResourceHealth;

use super::scenario::{SETTINGS, SHOP, WEB};
use muster_test_fleet::harness::observer::View;

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Status of its condition Ready; empty when there is none.
    pub ready: String,
    /// Reason of that condition.
    pub reason: String,
    /// Its taints, as `key:effect`.
    pub taints: BTreeSet<String>,
}

/// A workload in one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Replicas that the member is to run.
    pub wanted: i64,
    /// Replicas that serve.
    pub ready: i64,
}

impl Copy {
    /// Returns whether all replicas serve.
    pub fn complete(self) -> bool {
        self.wanted > 0 && self.ready >= self.wanted
    }
}

/// A workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The clusters it is placed on with their replicas, by its binding; `None`: there is no
    /// binding yet.
    pub placed: Option<BTreeMap<String, i64>>,
    /// The clusters it is leaving.
    pub leaving: BTreeSet<String>,
    /// The clusters whose copies are reported healthy to the fleet.
    pub healthy: BTreeSet<String>,
    /// What is in the members.
    pub copies: BTreeMap<String, Copy>,
}

/// The fleet at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// The clusters by name.
    pub clusters: BTreeMap<String, ClusterView>,
    /// The workloads by name.
    pub workloads: BTreeMap<&'static str, Workload>,
}

impl Picture {
    /// Takes the picture.
    pub fn of(view: &View) -> Self {
        let mut picture = Self::default();
        for name in view.members.keys() {
            picture
                .clusters
                .insert(name.clone(), ClusterView::default());
        }
        for cluster in view.clusters.list() {
            let ready = cluster.condition("Ready");
            let seen = ClusterView {
                ready: ready
                    .map(|condition| condition.status.clone())
                    .unwrap_or_default(),
                reason: ready
                    .map(|condition| condition.reason.clone())
                    .unwrap_or_default(),
                taints: cluster
                    .spec
                    .taints
                    .iter()
                    .map(|taint| format!("{}:{}", taint.key, taint.effect))
                    .collect(),
            };
            picture.clusters.insert(cluster.name_any(), seen);
        }
        for name in [WEB, SHOP, SETTINGS] {
            let kind = if name == SETTINGS {
                "ConfigMap"
            } else {
                "Deployment"
            };
            picture.workloads.insert(name, workload(view, kind, name));
        }
        picture
    }

    /// Returns a workload of the story; an unknown name has no copies.
    pub fn workload(&self, name: &str) -> Workload {
        self.workloads.get(name).cloned().unwrap_or_default()
    }
}

/// Returns a Deployment or ConfigMap of the namespace `default`, as far as it was observed.
pub fn workload(view: &View, kind: &str, name: &str) -> Workload {
    let binding =
        view.bindings.list().into_iter().find(|binding| {
            binding.spec.resource.name == name && binding.spec.resource.kind == kind
        });
    let mut workload = Workload {
        placed: binding.as_ref().map(|binding| {
            // What another workload refers to is where that is, and where its old copy still runs.
            let referrers = binding.spec.required_by.iter();
            let theirs = referrers.flat_map(|it| &it.clusters);
            let own = binding.spec.clusters.iter();
            theirs
                .map(|cluster| (cluster.name.clone(), 0))
                .chain(own.map(|cluster| (cluster.name.clone(), i64::from(cluster.replicas))))
                .collect()
        }),
        leaving: binding
            .iter()
            .flat_map(|binding| &binding.spec.graceful_eviction_tasks)
            .map(|task| task.from_cluster.clone())
            .collect(),
        healthy: binding
            .iter()
            .flat_map(|binding| &binding.status().aggregated_status)
            .filter(|item| item.health == Some(ResourceHealth::Healthy))
            .map(|item| item.cluster_name.clone())
            .collect(),
        copies: BTreeMap::new(),
    };
    for (member, seen) in &view.members {
        let copy = if kind == "ConfigMap" {
            seen.config_maps.get(Some("default"), name).map(|_| Copy {
                wanted: 1,
                ready: 1,
            })
        } else {
            seen.deployments
                .get(Some("default"), name)
                .map(|deployment| Copy {
                    wanted: deployment
                        .spec
                        .as_ref()
                        .and_then(|spec| spec.replicas)
                        .unwrap_or(1)
                        .into(),
                    ready: deployment
                        .status
                        .as_ref()
                        .and_then(|status| status.ready_replicas)
                        .unwrap_or(0)
                        .into(),
                })
        };
        if let Some(copy) = copy {
            workload.copies.insert(member.clone(), copy);
        }
    }
    workload
}

/// Returns what changed between two pictures, a line each.
pub fn events(old: &Picture, new: &Picture) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, cluster) in &new.clusters {
        let before = old.clusters.get(name).cloned().unwrap_or_default();
        if before.ready != cluster.ready && !cluster.ready.is_empty() {
            lines.push(format!(
                "{name}: Ready is {} ({})",
                cluster.ready, cluster.reason
            ));
        }
        for taint in cluster.taints.difference(&before.taints) {
            lines.push(format!("{name}: tainted {taint}"));
        }
        for taint in before.taints.difference(&cluster.taints) {
            lines.push(format!("{name}: no longer tainted {taint}"));
        }
    }
    for (name, workload) in &new.workloads {
        let before = old.workload(name);
        if before.placed != workload.placed
            && let Some(placed) = &workload.placed
            && !placed.is_empty()
        {
            lines.push(format!("{name}: placed on {}", places(placed)));
        }
        for cluster in workload.leaving.difference(&before.leaving) {
            lines.push(format!(
                "{name}: leaving {cluster}; the old copy stays until the new one is healthy"
            ));
        }
        for cluster in before.leaving.difference(&workload.leaving) {
            if workload.copies.contains_key(cluster) {
                lines.push(format!(
                    "{name}: the old copy in {cluster} is to go; it may run until the agent there has removed it"
                ));
            }
        }
        for (member, copy) in &workload.copies {
            let was = before.copies.get(member);
            if was.is_none() {
                lines.push(format!("{name}: created in {member}"));
            }
            if copy.complete() && !was.is_some_and(|was| was.complete()) {
                lines.push(format!(
                    "{name}: healthy in {member} ({}/{})",
                    copy.ready, copy.wanted
                ));
            }
        }
        for member in before
            .copies
            .keys()
            .filter(|member| !workload.copies.contains_key(*member))
        {
            lines.push(format!("{name}: removed from {member}"));
        }
    }
    lines
}

/// Returns the places as text, such as `member1 (1), member2 (2)`; without numbers where nothing
/// has replicas.
pub fn places(placed: &BTreeMap<String, i64>) -> String {
    let place = |(name, replicas): (&String, &i64)| match replicas {
        0 => name.clone(),
        replicas => format!("{name} ({replicas})"),
    };
    placed.iter().map(place).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_copy_is_reported_to_be_gone_when_the_member_has_removed_it() {
        let picture = |leaving: &[&str], copies: &[&str]| {
            let copy = Copy {
                wanted: 1,
                ready: 1,
            };
            let copies = copies.iter().map(|it| ((*it).to_owned(), copy));
            let workload = Workload {
                leaving: leaving.iter().map(|it| (*it).to_owned()).collect(),
                copies: copies.collect(),
                ..Workload::default()
            };
            Picture {
                workloads: BTreeMap::from([(WEB, workload)]),
                ..Picture::default()
            }
        };
        let both = ["member1", "member2"];
        let leaves = picture(&["member1"], &both);
        let moved = picture(&[], &both);
        let gone = picture(&[], &["member2"]);
        assert_eq!(
            events(&leaves, &moved),
            [
                "web: the old copy in member1 is to go; it may run until the agent there has removed it"
            ]
        );
        assert_eq!(events(&moved, &gone), ["web: removed from member1"]);
        assert_eq!(events(&leaves, &gone), ["web: removed from member1"]);
    }
}
