//! Suite `schedule_end_to_end`: filters, selection and division together, one affinity group at a
//! time.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{binding_spec, by_name, decode, observed_group, replay, select};
use crate::scheduler::core::affinity::Affinity;
use crate::scheduler::core::cycle::{Trial, is_reschedule_requested};
use crate::scheduler::core::divide::DivideError;
use crate::scheduler::core::fit_error::FitError;
use crate::scheduler::core::step_timer::StepTimer;
use crate::scheduler::core::{Options, Snapshot};

#[test]
fn placements_are_decided_as_recorded() {
    replay("schedule_end_to_end", evaluate, |case, out| {
        by_name(&mut out["clusters"]);
        out["order"] = Value::Null;
        if case.output["message"].is_null() {
            // Not recorded where it depended on chance.
            out["message"] = Value::Null;
        }
    });
}

fn evaluate(input: &Value) -> Value {
    let spec = binding_spec(&input["spec"]);
    let status: muster_shared::api::binding::ResourceBindingStatus = decode(&input["status"]);
    let placement = spec.placement.clone().unwrap_or_default();
    let clusters = input["clusters"].as_array().cloned().unwrap_or_default();
    let snapshot = Snapshot::new(clusters.iter().map(|cluster| Arc::new(decode(cluster))));
    let options = Options {
        keep_empty: input["enableEmptyWorkloadPropagation"]
            .as_bool()
            .unwrap_or(false),
        ..Options::karmada()
    };
    let group = observed_group(&status);
    let trial = Trial {
        spec: &spec,
        status: &status,
        placement: &placement,
        group,
        fresh: is_reschedule_requested(&spec, &status),
        snapshot: &snapshot,
        options: &options,
    };
    let error = match trial.place(&StepTimer::start()) {
        Ok(clusters) => return json!({ "clusters": clusters }),
        Err(error) => error,
    };
    let kind = match &error {
        FitError::NoClusterFit(_) => "FitError",
        FitError::Select(error) => select::kind(*error),
        FitError::Divide(DivideError::NoClusters) => "NoClusters",
        FitError::Divide(DivideError::Unsupported { .. }) => "UnsupportedStrategy",
        FitError::Divide(_) => "Unschedulable",
        FitError::Unknown(_) | FitError::NoPlacement => "ours alone",
    };
    let mut out = json!({ "error": true, "kind": kind, "message": error.to_string() });
    if kind == "FitError" {
        let affinity = Affinity::new(&spec, &placement, group);
        let filters = trial.filters(&affinity);
        for cluster in snapshot.iter().filter(|cluster| !cluster.is_deleting()) {
            for rejection in filters.all(cluster, spec.target(cluster.name()).is_some()) {
                out["rejected"][cluster.name()][rejection.filter().name()] =
                    json!(rejection.to_string());
            }
        }
    }
    out
}
