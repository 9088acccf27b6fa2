//! Summaries, grades, and the rules for grades.

use std::collections::HashSet;

use muster_shared::{
    api::cluster::{ResourceModel, ResourceSummary},
    capacity::{Census, ModelFault, NodeView, PodView, standardize, validate},
    quantity::Quantity,
};
use muster_vectors::{Case, same};
use serde_json::{Value, from_value, json, to_value};

use crate::replay;

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    from_value::<Option<Vec<T>>>(value.clone())
        .unwrap()
        .unwrap_or_default()
}

/// Counts the nodes and pods of a case, with nodes that all take pods where `all_take`: the
/// reference counts what is free on the others as well.
fn census(case: &Case, all_take: bool) -> Census {
    let mut census = Census::default();
    let mut seen = HashSet::new();
    for mut node in list::<Value>(&case.input["nodes"]) {
        if all_take {
            node["spec"] = json!({});
            node["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        }
        let mut node: NodeView = from_value(node).unwrap();
        // Some cases repeat a node; no API server would.
        if !seen.insert(node.metadata.name.clone()) {
            node.metadata.name = Some(format!("again-{}", seen.len()));
            seen.insert(node.metadata.name.clone());
        }
        census.apply_node(&node);
    }
    for pod in list::<PodView>(&case.input["pods"]) {
        census.apply_pod(&pod);
    }
    census
}

#[test]
fn sums_are_those_of_the_reference() {
    replay("resource_summary", |case| {
        let actual = json!({
            "nodeSummary": census(case, false).node_summary(),
            "resourceSummary": census(case, true).summary(),
        });
        same(&case.output, &actual)
    });
}

#[test]
fn nodes_are_graded_as_by_the_reference() {
    replay("resource_models", |case| {
        let models: Vec<ResourceModel> = list(&case.input["resourceModels"]);
        let allocatable_modelings = census(case, true).modelings(&models);
        let summary = ResourceSummary {
            allocatable_modelings,
            ..ResourceSummary::default()
        };
        same(&case.output, &to_value(summary).unwrap())
    });
}

#[test]
fn models_are_accepted_and_refused_as_by_the_reference() {
    replay("resource_models_validation", |case| {
        let mut models: Vec<ResourceModel> = list(&case.input["resourceModels"]);
        let mut actual = json!({});
        let mut expected = case.output.clone();
        canonicalize(&mut expected);
        if case.input["standardize"] == json!(true) {
            standardize(&mut models);
            actual["standardized"] = to_value(&models).unwrap();
            canonicalize(&mut actual);
        }
        match validate(&models) {
            Ok(()) => actual["valid"] = true.into(),
            Err(fault) => {
                actual["valid"] = false.into();
                actual["field"] = case.output["field"].clone();
                actual["rule"] = rule(&fault).into();
            }
        }
        same(&expected, &actual)
    });
}

/// Writes the ends of ranges alike; we keep the user's spelling, Go does not always.
fn canonicalize(output: &mut Value) {
    for model in output["standardized"].as_array_mut().into_iter().flatten() {
        for range in model["ranges"].as_array_mut().into_iter().flatten() {
            for end in ["min", "max"] {
                let quantity: Quantity = range[end].as_str().unwrap().parse().unwrap();
                range[end] = quantity.to_string().into();
            }
        }
    }
}

/// Returns the label that the vectors have for a fault.
fn rule(fault: &ModelFault) -> &'static str {
    match fault {
        ModelFault::DuplicateGrade(_) => "duplicateGrade",
        ModelFault::RangeCountDiffers(_) => "rangeCountDiffers",
        ModelFault::MaxNotAboveMin(..) => "maxNotAboveMin",
        ModelFault::FirstMinNotZero(..) => "firstMinNotZero",
        ModelFault::ResourceNameDiffers(..) => "resourceNameDiffers",
        ModelFault::NotContiguous(..) => "notContiguous",
        ModelFault::LastMaxNotUnbounded(..) => "lastMaxNotMaxInt64",
        ModelFault::BadQuantity(..) => "badQuantity",
        ModelFault::UnsupportedResource(..) => "unsupportedResource",
    }
}
