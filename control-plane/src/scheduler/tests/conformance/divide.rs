//! Suite `divide`: division of replicas over selected clusters.

use serde_json::{Value, json};

use super::{binding_spec, by_name, candidate, decode, flat_cluster, observed_group, replay};
use crate::scheduler::core::affinity::Affinity;
use crate::scheduler::core::cycle::{Trial, is_reschedule_requested};
use crate::scheduler::core::divide::DivideError;
use crate::scheduler::core::fit_error::FitError;
use crate::scheduler::core::{Options, Snapshot};

#[test]
fn replicas_are_divided_as_recorded() {
    replay("divide", evaluate, |_, out| {
        by_name(&mut out["clusters"]);
        out["order"] = Value::Null;
    });
}

fn evaluate(input: &Value) -> Value {
    let spec = binding_spec(&input["spec"]);
    let status = decode(&input["status"]);
    let placement = spec.placement.clone().unwrap_or_default();
    let listed = input["candidates"]
        .as_array()
        .expect("candidates are listed");
    let snapshot = Snapshot::new(
        listed
            .iter()
            .map(|candidate| flat_cluster(&candidate["cluster"])),
    );
    let candidates: Vec<_> = listed
        .iter()
        .map(|listed| {
            let candidate = candidate(listed, &spec, &snapshot);
            assert_eq!(
                Some(candidate.available()),
                listed["availableReplicas"].as_i64()
            );
            candidate
        })
        .collect();
    let group = observed_group(&status);
    let trial = Trial {
        spec: &spec,
        status: &status,
        placement: &placement,
        group,
        fresh: is_reschedule_requested(&spec, &status),
        snapshot: &snapshot,
        options: &Options::karmada(),
    };
    match trial.divide(&candidates, &Affinity::new(&spec, &placement, group)) {
        Ok(shares) => json!({
            "clusters": shares
                .iter()
                .map(|share| json!({ "name": share.cluster, "replicas": share.replicas }))
                .collect::<Vec<_>>(),
        }),
        Err(error) => json!({ "error": true, "kind": match error {
            FitError::Divide(DivideError::NoClusters) => "NoClusters",
            FitError::Divide(DivideError::Unsupported { .. }) => "UnsupportedStrategy",
            _ => "Unschedulable",
        } }),
    }
}
