//! The recorded behaviour of Karmada's scheduler, replayed. One file a suite.

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
use muster_shared::vectors::{self, Case, Deviation, same};
use serde_json::{Value, json};

/// Behaviour of Karmada's scheduler that we do not copy.
const DEVIATIONS: &[Deviation] = &[
    Deviation {
        suite: "divide",
        quirk: "sum of allocatable replicas exceeds 32 bit and wraps upstream",
        reason: "sums do not wrap, so a large fleet is not taken for a full one",
    },
    Deviation {
        suite: "divide",
        quirk: "more than 12 candidates: upstream orders them by available replicas with an unstable sort, ties may fall differently",
        reason: "ties go to the more preferred cluster, whatever the number of candidates",
    },
    Deviation {
        suite: "schedule_end_to_end",
        quirk: "zero replicas: every cluster counts as having 2147483647 free, the 32-bit sum wraps negative and a triggered reschedule fails",
        reason: "sums do not wrap, so nothing fits as easily as something",
    },
    Deviation {
        suite: "select_clusters",
        quirk: "region minGroups 0 together with cluster minGroups 0 accepts the empty set of regions and so always ends in an error",
        reason: "no regions are never what is wanted: 0 counts as 1, as admission writes it",
    },
    Deviation {
        suite: "estimator_general",
        quirk: "component estimate mixes milli units (decimal notation) and whole units (binary notation) of the same resource",
        reason: "the notation of a quantity does not change the amount",
    },
    Deviation {
        suite: "estimator_general",
        quirk: "result above 31 bits is truncated to 32 bits",
        reason: "an estimate stops at the largest number of replicas that the API can express",
    },
    Deviation {
        suite: "schedule_binding",
        quirk: "an unreadable applied-placement annotation counts as unchanged",
        reason: "a change of the placement must not be lost because nobody knows what was applied before",
    },
];

/// Replays a suite; `evaluate` gives our output for an input, `comparable` takes from both what does not count.
fn replay(suite: &str, evaluate: impl Fn(&Value) -> Value, comparable: impl Fn(&Case, &mut Value)) {
    let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors"));
    let report = vectors::replay(suite, own, DEVIATIONS, |case| {
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
fn binding_spec(spec: &Value) -> ResourceBindingSpec {
    let mut spec = spec.clone();
    if let Some(uid) = spec.as_object_mut().and_then(|spec| spec.remove("uid")) {
        spec["resource"] = json!({ "uid": uid });
    }
    decode(&spec)
}
