//! Properties that hold for every fleet and workload: replicas add up, constraints are met, nothing
//! moves without a cause, the order of inputs does not matter, and more capacity is never worse.
//! This file has the generators of fleets and workloads.

mod constraints;
mod division;
mod room;
mod wide;

use std::collections::BTreeSet;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{aggregated, cluster, dynamic, static_weights};
use crate::scheduler::core::Decision;

fn clusters() -> impl Strategy<Value = Vec<Value>> {
    let one = (0i64..12, 0u8..4, 0u8..3, prop::bool::weighted(0.15));
    prop::collection::vec(one, 1..9).prop_map(|fleet| {
        fleet
            .into_iter()
            .enumerate()
            .map(|(number, (cores, region, zone, tainted))| {
                let mut cluster = cluster(&format!("m{number}"), cores);
                cluster["spec"] = json!({
                    "region": format!("r{region}"),
                    "provider": format!("p{}", region % 2),
                    "zones": [format!("z{region}{zone}")],
                });
                if tainted {
                    cluster["spec"]["taints"] = json!([{ "key": "x", "effect": "NoSchedule" }]);
                }
                cluster
            })
            .collect()
    })
}

fn divided() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(dynamic()),
        Just(aggregated()),
        prop::collection::vec(1i64..5, 9).prop_map(|weights| {
            let names: Vec<String> = (0..weights.len())
                .map(|number| format!("m{number}"))
                .collect();
            let list: Vec<_> = names.iter().map(String::as_str).zip(weights).collect();
            static_weights(&list)
        }),
    ]
}

fn by_room() -> impl Strategy<Value = Value> {
    prop_oneof![Just(dynamic()), Just(aggregated())]
}

fn constraints() -> impl Strategy<Value = Vec<(&'static str, usize, usize)>> {
    let field = prop::sample::select(vec!["cluster", "region", "zone", "provider"]);
    prop::collection::vec((field, 1usize..4, 0usize..3), 0..3).prop_map(|list| {
        let mut seen = BTreeSet::new();
        list.into_iter()
            .filter(|(field, ..)| seen.insert(*field))
            .map(|(field, min, more)| (field, min, min + more))
            .collect()
    })
}

fn with_constraints(mut placement: Value, list: &[(&str, usize, usize)]) -> Value {
    placement["spreadConstraints"] = list
        .iter()
        .map(|(field, min, max)| json!({ "spreadByField": field, "minGroups": min, "maxGroups": max }))
        .collect();
    placement
}

/// Returns the binding after the decision was written, and its status.
fn written(
    mut spec: ResourceBindingSpec,
    decision: Decision,
) -> (ResourceBindingSpec, ResourceBindingStatus) {
    spec.clusters = decision.clusters;
    (spec, ResourceBindingStatus::default())
}
