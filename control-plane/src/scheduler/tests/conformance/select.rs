//! Suite `select_clusters`: selection of clusters under spread constraints.

use muster_shared::api::binding::ResourceBindingStatus;
use serde_json::{Value, json};

use super::{binding_spec, candidate, flat_cluster, replay};
use crate::scheduler::core::affinity::{Affinity, term};
use crate::scheduler::core::candidate::Candidate;
use crate::scheduler::core::cycle::Trial;
use crate::scheduler::core::fit_error::FitError;
use crate::scheduler::core::select::SelectError;
use crate::scheduler::core::{ClusterInfo, Options, Snapshot};

#[test]
fn clusters_are_selected_as_recorded() {
    replay("select_clusters", evaluate, |_, out| {
        out["regions"] = Value::Null;
    });
}

fn evaluate(input: &Value) -> Value {
    let spec = binding_spec(&input["spec"]);
    let placement = spec.placement.clone().unwrap_or_default();
    let listed = input["clusters"].as_array().expect("clusters are listed");
    let snapshot = Snapshot::new(listed.iter().map(|listed| flat_cluster(&listed["cluster"])));
    let observed = input["status"]["schedulerObservingAffinityName"]
        .as_str()
        .unwrap_or_default();
    let tier = |cluster: &ClusterInfo| {
        let affinity = Affinity::new(&spec, &placement, observed);
        let unknown =
            !placement.cluster_affinities.is_empty() && term(&placement, observed).is_none();
        // The reference marks clusters outside all tiers by 1000; here they never become
        // candidates.
        affinity.tier(cluster).filter(|_| !unknown).unwrap_or(1000)
    };
    let candidates: Vec<_> = listed
        .iter()
        .map(|listed| {
            let candidate = candidate(listed, &spec, &snapshot);
            let tier = tier(candidate.cluster);
            Candidate { tier, ..candidate }
        })
        .collect();
    let trial = Trial {
        spec: &spec,
        status: &ResourceBindingStatus::default(),
        placement: &placement,
        group: "",
        fresh: false,
        snapshot: &snapshot,
        options: &Options::karmada(),
    };
    match trial.select(candidates) {
        Ok(selected) => json!({
            "selected": selected
                .iter()
                .map(|candidate| json!({
                    "name": candidate.name(),
                    "score": candidate.score,
                    "overflowOrder": candidate.tier,
                    "availableReplicas": candidate.available(),
                    "allocatableReplicas": candidate.allocatable,
                }))
                .collect::<Vec<_>>(),
        }),
        Err(error) => json!({ "error": true, "kind": match error {
            FitError::Select(error) => kind(error),
            _ => "not an error of selection",
        } }),
    }
}

/// Returns the label that the vectors give to an error.
pub(super) fn kind(error: SelectError) -> &'static str {
    match error {
        SelectError::TooFewClusters => "ClustersBelowMinGroups",
        SelectError::NotEnoughCapacity(_) => "NotEnoughCapacity",
        SelectError::TooFewGroups(_) => "RegionsBelowMinGroups",
        SelectError::TooFewClustersInGroups => "ClustersBelowClusterMinGroups",
        SelectError::Unsupported => "UnsupportedSpreadConstraint",
        SelectError::Conflicting(_) => "none in the reference",
    }
}
