//! Where new placements would put workloads, by the scheduler's own code. Pure.
//!
//! Each workload is asked about by itself, on the fleet as it is now: the room that one takes is
//! not missing for the next.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::movement::eviction::explain::has_completed;
use muster_control_plane::movement::rebalance::request::moved;
use muster_control_plane::scheduler::core::{Options, Snapshot};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::TargetCluster;
use muster_shared::api::rebalancer::WorkloadReference;
use serde::Serialize;

use super::follow::workload_of;
use crate::dependencies::{After, Partings};
use crate::table::{indented, title};

/// Preview of workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Preview {
    /// Workloads that a new placement moves.
    pub moves: Vec<Line>,
    /// Workloads that stay where they are, with the reason.
    pub stay: Vec<Line>,
    /// Workloads that cannot be placed anew, with the reason.
    pub refused: Vec<Line>,
    /// Workloads that would be separated from what they refer to.
    #[serde(flatten)]
    pub partings: Partings,
    /// Reasons why nothing would be moved now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nothing_moves: Vec<String>,
    /// Clusters after the move.
    #[serde(skip)]
    pub after: After,
}

/// One workload of the preview.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line {
    /// The workload.
    pub workload: WorkloadReference,
    /// Present clusters, each with its replicas.
    pub from: Vec<Share>,
    /// Clusters after a new placement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<Share>,
    /// Reason to stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Replicas in a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Share {
    /// Name of the cluster.
    pub cluster: String,
    /// Replicas; 0 for a workload without any.
    pub replicas: i32,
}

/// Computes the preview of workloads. With a cluster only those matter that it would get more of.
pub(super) fn preview(
    bindings: &[Arc<AnyBinding>],
    cluster: Option<&str>,
    snapshot: &Snapshot,
    options: &Options,
) -> Preview {
    let mut preview = Preview::default();
    for binding in bindings {
        let (spec, status) = (&binding.spec, binding.status());
        let line = |to: &[TargetCluster], why: Option<String>| Line {
            workload: workload_of(&spec.resource),
            from: shares(&spec.clusters),
            to: shares(to),
            why,
        };
        let stays = |why: &str| line(&[], Some(why.to_owned()));
        if binding.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if spec.placement.is_none() {
            preview
                .stay
                .push(stays("it goes where the workloads that refer to it go"));
            continue;
        }
        if spec.clusters.is_empty() {
            preview.stay.push(stays("it has not been placed yet"));
            continue;
        }
        if spec
            .clusters
            .iter()
            .all(|it| has_completed(binding, &it.name))
        {
            preview.stay.push(stays("it has completed"));
            continue;
        }
        if spec.scheduling_suspended() {
            let why = "spec.suspension.scheduling of its binding is true";
            preview.stay.push(stays(why));
            continue;
        }
        match moved(spec, status, snapshot, options) {
            Err(error) => preview.refused.push(line(&[], Some(error.to_string()))),
            Ok(None) => preview
                .stay
                .push(stays("a new placement leaves it where it is")),
            Ok(Some(decision)) => {
                let to = &decision.clusters;
                // A share of zero replicas brings nothing.
                let held = |list: &[TargetCluster], name: &str| {
                    let mut copies = list.iter().filter(|it| spec.is_copy(it));
                    let target = copies.find(|it| it.name == name);
                    target.map(|it| it.replicas)
                };
                match cluster {
                    Some(name) if held(to, name) <= held(&spec.clusters, name) => {
                        let why = format!("a new placement brings nothing to {name}");
                        preview.stay.push(line(to, Some(why)));
                    }
                    _ => {
                        let clusters = to.iter().map(|it| it.name.clone());
                        preview
                            .after
                            .insert(BindingKey::of(binding), clusters.collect());
                        preview.moves.push(line(to, None));
                    }
                }
            }
        }
    }
    preview
}

fn shares(targets: &[TargetCluster]) -> Vec<Share> {
    let mut shares: Vec<Share> = targets
        .iter()
        .map(|target| Share {
            cluster: target.name.clone(),
            replicas: target.replicas,
        })
        .collect();
    shares.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    shares
}

/// Shares as text, such as `member1 (2), member2`.
fn listed(shares: &[Share]) -> String {
    let each = shares.iter().map(|share| match share.replicas {
        0 => share.cluster.clone(),
        replicas => format!("{} ({replicas})", share.cluster),
    });
    each.collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkloadReference {
            kind,
            namespace,
            name,
            ..
        } = &self.workload;
        let workload = title(kind, namespace.as_deref(), name);
        f.write_str(&workload)?;
        if !self.from.is_empty() {
            write!(f, ": {}", listed(&self.from))?;
        }
        match &self.why {
            Some(why) => write!(f, ": {why}"),
            None => write!(f, " -> {}", listed(&self.to)),
        }
    }
}

impl Preview {
    /// Clusters that workloads are moved out of.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        let shares = self.moves.iter().flat_map(|it| &it.from);
        shares.map(|it| it.cluster.as_str())
    }

    /// Returns the preview as text. It has the reasons of the workloads that stay if they were
    /// asked for by name, and so many lines of each list at most.
    pub fn table(&self, is_named: bool, most: usize) -> String {
        let mut text = String::new();
        for (list, one, many, is_reported) in [
            (&self.moves, "moves", "move", true),
            (&self.stay, "stays", "stay", is_named),
            (
                &self.refused,
                "cannot be placed anew, and stays",
                "cannot be placed anew, and stay",
                true,
            ),
        ] {
            let _ = match list.len() {
                0 => continue,
                1 => writeln!(text, "1 workload {one}"),
                count => writeln!(text, "{count} workloads {many}"),
            };
            if !is_reported {
                continue;
            }
            text.push_str(&indented(list, most));
        }
        text.push_str(&self.partings.warning(most));
        if text.is_empty() {
            text.push_str("There is no workload\n");
        }
        for reason in &self.nothing_moves {
            let _ = writeln!(text, "Warning: nothing moves now: {reason}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use std::sync::Arc;

    use super::*;
    use crate::fixtures::{self, cluster, snapshot};

    fn binding(name: &str, on: &str, placement: &Value) -> Arc<AnyBinding> {
        let clusters = if on.is_empty() {
            json!([])
        } else {
            json!([{"name": on, "replicas": 2}])
        };
        let changes = json!({
            "spec": {"replicas": 2, "clusters": clusters, "placement": placement},
            "status": {"schedulerObservingAffinityName": "away", "lastScheduledTime": "2026-01-01T00:00:00Z"},
        });
        fixtures::binding("shop", name, &changes)
    }

    fn groups(home: &str) -> Value {
        json!({
            "clusterAffinities": [
                {"affinityName": "home", "clusterNames": [home]},
                {"affinityName": "away", "clusterNames": ["m2"]},
            ],
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
        })
    }

    #[test]
    fn workloads_that_a_new_placement_moves_are_reported_with_where_they_go() {
        let fleet = snapshot(&[cluster("m1", "100"), cluster("m2", "100")]);
        let bindings = [
            binding("web", "m2", &groups("m1")),
            binding("db", "m2", &groups("m9")),
            binding("new", "", &groups("m1")),
            binding("config", "m2", &Value::Null),
            binding(
                "lost",
                "m2",
                &json!({"clusterAffinity": {"clusterNames": ["m9"]}}),
            ),
        ];
        let check = |cluster| preview(&bindings, cluster, &fleet, &Options::default());
        let reported = check(None);
        assert_eq!(
            reported.table(true, usize::MAX),
            "1 workload moves\n  Deployment shop/web: m2 (2) -> m1 (2)\n\
             3 workloads stay\n  Deployment shop/db: m2 (2): a new placement leaves it where it is\n\
             \x20 Deployment shop/new: it has not been placed yet\n\
             \x20 Deployment shop/config: m2 (2): it goes where the workloads that refer to it go\n\
             1 workload cannot be placed anew, and stays\n\
             \x20 Deployment shop/lost: m2 (2): 0/2 clusters are available: 2 cluster(s) did not match \
             the placement cluster affinity constraint.\n"
        );
        let after: Vec<_> = reported.after.values().flatten().collect();
        assert_eq!(after, ["m1"]);
        assert_eq!(check(Some("m1")).moves, reported.moves);
        assert_eq!(check(Some("m2")).moves, []);
        assert_eq!(Preview::default().table(false, 0), "There is no workload\n");
    }

    #[test]
    fn a_share_of_zero_replicas_brings_nothing_to_a_cluster() {
        let clusters = ["m1", "m2", "m3"].map(|name| cluster(name, "100"));
        let mut placement = groups("m1");
        placement["clusterAffinities"][0]["clusterNames"] = json!(["m1", "m3"]);
        let bindings = [binding("web", "m2", &placement)];
        let options = Options {
            keep_empty: true,
            ..Options::default()
        };
        let check = |cluster| preview(&bindings, cluster, &snapshot(&clusters), &options);
        let shares = check(None).moves.remove(0).to;
        let replicas = ["m1", "m3"].map(|name| {
            let share = shares.iter().find(|it| it.cluster == name);
            (name, share.unwrap().replicas)
        });
        let all: i32 = replicas.iter().map(|it| it.1).sum();
        assert_eq!(all, 2);
        assert!(replicas.iter().any(|it| it.1 == 0), "{replicas:?}");
        for (name, replicas) in replicas {
            let moves = check(Some(name)).moves;
            assert_eq!(moves.is_empty(), replicas == 0, "{name}");
        }
    }
}
