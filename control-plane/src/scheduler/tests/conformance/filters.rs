//! Suite `filters`: each filter alone.

use std::sync::Arc;

use muster_shared::api::binding::ResourceBindingStatus;
use serde_json::{Map, Value, json};

use super::{binding_spec, decode, replay};
use crate::scheduler::core::affinity::Affinity;
use crate::scheduler::core::filter::Filters;
use crate::scheduler::core::{Options, Snapshot};

#[test]
fn clusters_are_filtered_as_recorded() {
    replay("filters", evaluate, |_, _| {});
}

fn evaluate(input: &Value) -> Value {
    let spec = binding_spec(&input["spec"]);
    let placement = spec.placement.clone().unwrap_or_default();
    let snapshot = Snapshot::new([Arc::new(decode(&input["cluster"]))]);
    let cluster = snapshot.iter().next().expect("there is one cluster");
    let observed = input["status"]["schedulerObservingAffinityName"]
        .as_str()
        .unwrap_or_default();
    let affinity = Affinity::new(&spec, &placement, observed);
    let options = Options::karmada();
    let needed = snapshot.data().needed(&spec);
    let status = ResourceBindingStatus::default();
    let filters = Filters::new((&spec, &status), &placement, &affinity, needed, &options);
    let placed = spec.target(cluster.name()).is_some();
    let rejections = filters.all(cluster, placed);
    assert_eq!(
        filters.admit(cluster, placed).err(),
        rejections.first().copied()
    );
    if rejections.is_empty() {
        json!({ "fits": true })
    } else {
        let rejected: Map<_, _> = rejections
            .iter()
            .map(|rejection| {
                (
                    rejection.filter().name().to_owned(),
                    json!(rejection.to_string()),
                )
            })
            .collect();
        json!({ "fits": false, "rejected": rejected })
    }
}
