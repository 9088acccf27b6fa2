//! The recorded behaviour of Karmada's scheduler, replayed. One file a suite.

mod binding;
mod divide;
mod end_to_end;
mod estimator;
mod filters;
mod select;

use std::path::PathBuf;
use std::sync::Arc;

use muster_shared::api::cluster::Cluster;
use serde_json::{Value, json};

/// Quirks of the reference that we do not copy, each by the beginning of its text, with the reason.
const DEVIATIONS: &[(&str, &str)] = &[
    (
        "sum of allocatable replicas exceeds 32 bit",
        "sums are computed without wrapping, so a large fleet is not full",
    ),
    (
        "more than 12 candidates: upstream orders them",
        "ties go to the more preferred cluster, as they do below 12 candidates",
    ),
    (
        "region minGroups 0",
        "a placement on no region is never wanted: 0 counts as 1, as admission writes it",
    ),
    (
        "component estimate mixes milli units",
        "one unit for each resource, whatever notation it is written in",
    ),
    (
        "result above 31 bits is truncated",
        "an estimate stops at the largest number of replicas that the API can express",
    ),
    (
        "zero replicas: every cluster counts as having 2147483647 free",
        "sums are computed without wrapping",
    ),
    (
        "an unreadable applied-placement annotation counts as unchanged",
        "a placement of which nobody knows that it was applied is applied",
    ),
];

/// Replays a suite; `evaluate` gives our output for an input, normalised by `normal` as the recorded one is.
fn replay(suite: &str, evaluate: impl Fn(&Value) -> Value, normal: impl Fn(&mut Value)) {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut folders = vec![own];
    folders.extend(std::env::var_os("MUSTER_VECTORS").map(PathBuf::from));
    let (mut passed, mut differs, mut failed) = (0, 0, Vec::new());
    for folder in folders {
        let Ok(text) = std::fs::read_to_string(folder.join(format!("{suite}.jsonl"))) else {
            continue;
        };
        for line in text.lines() {
            let case: Value = serde_json::from_str(line).expect("a vector is JSON");
            let mut expected = case["out"].clone();
            let mut actual = evaluate(&case["in"]);
            normal(&mut expected);
            normal(&mut actual);
            let quirk = case["quirk"].as_str().unwrap_or_default();
            if expected == actual {
                passed += 1;
            } else if DEVIATIONS.iter().any(|(text, _)| quirk.starts_with(text)) {
                differs += 1;
            } else {
                failed.push(format!(
                    "{} [{quirk}]\n  in:       {}\n  expected: {expected}\n  actual:   {actual}",
                    case["case"], case["in"]
                ));
            }
        }
    }
    println!(
        "{suite}: passed {passed}, differs {differs}, failed {}",
        failed.len()
    );
    assert!(passed > 0, "{suite}: no vectors found");
    assert!(
        failed.is_empty(),
        "{}",
        failed
            .iter()
            .take(5)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
}

/// Sorts a list of objects by `name`, and takes away what stands for zero.
fn by_name(list: &mut Value) {
    if let Some(list) = list.as_array_mut() {
        for item in list.iter_mut() {
            if item["replicas"] == json!(0) {
                item.as_object_mut()
                    .expect("a target is an object")
                    .remove("replicas");
            }
        }
        list.sort_by_key(|item| item["name"].as_str().unwrap_or_default().to_owned());
    }
}

/// A part of an input, decoded; absent is the zero value.
fn decode<T: serde::de::DeserializeOwned + Default>(value: &Value) -> T {
    if value.is_null() {
        T::default()
    } else {
        serde_json::from_value(value.clone()).expect("the input decodes")
    }
}

/// The cluster of a flat description {name, labels, provider, region, zone, zones}.
fn flat_cluster(flat: &Value) -> Arc<Cluster> {
    Arc::new(decode(&json!({
        "metadata": { "name": flat["name"], "labels": flat["labels"] },
        "spec": {
            "provider": flat["provider"], "region": flat["region"],
            "zone": flat["zone"], "zones": flat["zones"].as_array().cloned().unwrap_or_default(),
        },
    })))
}

/// The binding spec of an input, in which the template's UID stands beside the rest.
fn binding_spec(spec: &Value) -> muster_shared::api::binding::ResourceBindingSpec {
    let mut spec = spec.clone();
    if let Some(uid) = spec.as_object_mut().and_then(|spec| spec.remove("uid")) {
        spec["resource"] = json!({ "uid": uid });
    }
    decode(&spec)
}
