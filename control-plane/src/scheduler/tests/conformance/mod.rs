//! Replays recorded decisions of Karmada's scheduler, one file per suite.

mod binding;
mod divide;
mod end_to_end;
mod estimator;
mod filters;
mod select;

use std::path::Path;
use std::sync::Arc;

use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::cluster::Cluster;
use muster_vectors::{Case, same};
use serde_json::{Value, json};

use crate::deviations::DEVIATIONS;

/// Replays a suite; `evaluate` gives our output for an input, `comparable` takes from both what
/// does not count.
fn replay(suite: &str, evaluate: impl Fn(&Value) -> Value, comparable: impl Fn(&Case, &mut Value)) {
    let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"));
    let report = muster_vectors::replay(suite, own, DEVIATIONS, |case| {
        let (mut expected, mut actual) = (case.output.clone(), evaluate(&case.input));
        comparable(case, &mut expected);
        comparable(case, &mut actual);
        same(&expected, &actual)
    });
    if let Err(report) = report {
        panic!("{report}");
    }
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

/// Decodes a part of an input; one that is absent is the zero value.
fn decode<T: serde::de::DeserializeOwned + Default>(value: &Value) -> T {
    if value.is_null() {
        T::default()
    } else {
        serde_json::from_value(value.clone()).expect("the input decodes")
    }
}

/// Returns the cluster of a flat description {name, labels, provider, region, zone, zones}.
fn flat_cluster(flat: &Value) -> Arc<Cluster> {
    Arc::new(decode(&json!({
        "metadata": { "name": flat["name"], "labels": flat["labels"] },
        "spec": {
            "provider": flat["provider"], "region": flat["region"],
            "zone": flat["zone"], "zones": flat["zones"].as_array().cloned().unwrap_or_default(),
        },
    })))
}

/// Returns the binding spec of an input, in which the template's UID stands beside the rest.
fn binding_spec(spec: &Value) -> ResourceBindingSpec {
    let mut spec = spec.clone();
    if let Some(uid) = spec.as_object_mut().and_then(|spec| spec.remove("uid")) {
        spec["resource"] = json!({ "uid": uid });
    }
    decode(&spec)
}
