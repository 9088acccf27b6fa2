//! Room of clusters, from which a forecast takes what moves there.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::api::cluster::{Cluster, ResourceSummary};
use muster_shared::quantity::Quantity;

/// Resources whose room is shown.
pub const SHOWN: [&str; 3] = ["cpu", "memory", "pods"];

/// Free amount of a resource in a cluster, before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Room {
    /// The cluster.
    pub cluster: String,
    /// Free before and after, by resource.
    pub free: BTreeMap<&'static str, (Quantity, Quantity)>,
}

/// Room that is free in each cluster.
pub(super) struct Rooms {
    before: BTreeMap<String, Free>,
    free: BTreeMap<String, Free>,
}

impl Rooms {
    pub fn of(clusters: &[Cluster]) -> Self {
        let free = free(clusters);
        Self {
            before: free.clone(),
            free,
        }
    }

    /// Compares what is free in some clusters with what was free before.
    pub fn compared(&self, is_meant: impl Fn(&str) -> bool) -> Vec<Room> {
        let clusters = self.free.iter().filter(|(name, _)| is_meant(name));
        let room = clusters.map(|(name, after)| Room {
            cluster: name.clone(),
            free: SHOWN
                .into_iter()
                .filter_map(|resource| {
                    let before = *self.before[name].get(resource)?;
                    Some((resource, (before, after[resource])))
                })
                .collect(),
        });
        room.collect()
    }

    /// Takes the room of new replicas off a cluster. A workload with components has no replicas of
    /// its own, and takes what all its components take.
    pub fn occupy(&mut self, spec: &ResourceBindingSpec, gain: &TargetCluster) {
        let Some(free) = self.free.get_mut(&gain.name) else {
            return;
        };
        let components = spec.components.iter().map(|it| {
            let needs = it.replica_requirements.as_ref();
            let requests = needs.map(|needs| &needs.resource_request);
            (requests, it.replicas.max(0))
        });
        let needs = spec.replica_requirements.as_ref();
        let own = (needs.map(|needs| &needs.resource_request), gain.replicas);
        let own = spec.components.is_empty().then_some(own);
        for (requests, replicas) in components.chain(own) {
            let each = requests.into_iter().flatten().filter_map(|(name, wire)| {
                let amount = Quantity::from_wire(wire).ok()?;
                Some((name.as_str(), amount))
            });
            let pod = spec
                .is_workload()
                .then_some(("pods", Quantity::units(1, Quantity::ZERO.format())));
            for (name, amount) in each.chain(pod) {
                if let Some(free) = free.get_mut(name) {
                    let more = amount.nano().saturating_mul(replicas.into());
                    *free -= Quantity::from_nano(more, amount.format());
                }
            }
        }
    }
}

type Free = BTreeMap<String, Quantity>;

/// Returns what is free of each resource, by cluster.
fn free(clusters: &[Cluster]) -> BTreeMap<String, Free> {
    let unused = |summary: &ResourceSummary| -> Free {
        let read = |amounts: &BTreeMap<String, muster_shared::k8s::Quantity>, name: &str| {
            let wire = amounts.get(name);
            wire.and_then(|wire| Quantity::from_wire(wire).ok())
                .unwrap_or_default()
        };
        let names = summary.allocatable.keys();
        names
            .map(|name| {
                let used = read(&summary.allocated, name) + read(&summary.allocating, name);
                (name.clone(), read(&summary.allocatable, name) - used)
            })
            .collect()
    };
    clusters
        .iter()
        .map(|cluster| {
            let summary = cluster
                .status
                .as_ref()
                .and_then(|it| it.resource_summary.as_ref());
            (cluster.name_any(), summary.map(unused).unwrap_or_default())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_moves_takes_the_room_of_its_replicas_or_of_all_its_components() {
        let summary = json!({"allocatable": {"cpu": "8", "pods": "20"}});
        let cluster = json!({
            "metadata": {"name": "m1"},
            "status": {"resourceSummary": summary},
        });
        let clusters: [Cluster; 1] = [serde_json::from_value(cluster).unwrap()];
        let needs = |cpu: &str| json!({"resourceRequest": {"cpu": cpu}});
        let component = |name: &str, replicas: i32, cpu: &str| {
            let needs = needs(cpu);
            json!({"name": name, "replicas": replicas, "replicaRequirements": needs})
        };
        let set = json!([
            component("job", 1, "1"),
            component("task", 2, "2"),
            {"name": "bare", "replicas": 1},
        ]);
        let plain = json!({"replicas": 3, "replicaRequirements": needs("1")});
        for (what, spec, replicas, expected) in [
            ("two replicas more", plain, 2, ["6", "18"]),
            ("components", json!({"components": set}), 0, ["3", "16"]),
            ("what runs no pods", json!({}), 0, ["8", "20"]),
        ] {
            let spec: ResourceBindingSpec = serde_json::from_value(spec).unwrap();
            let gain = TargetCluster {
                name: "m1".to_owned(),
                replicas,
                ..TargetCluster::default()
            };
            let mut rooms = Rooms::of(&clusters);
            rooms.occupy(&spec, &gain);
            let room = &rooms.compared(|_| true)[0];
            let free = ["cpu", "pods"].map(|it| room.free[it].1.to_string());
            assert_eq!(free, expected, "{what}");
        }
    }
}
