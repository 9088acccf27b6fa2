//! Replays recorded decisions of Karmada's scheduler, one file per suite.

mod binding;
mod divide;
mod end_to_end;
mod estimator;
mod filters;
mod select;

use std::path::Path;
use std::sync::Arc;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use muster_shared::api::cluster::Cluster;
use muster_vectors::{Case, same};
use serde_json::{Value, json};

use crate::deviations::DEVIATIONS;
use crate::scheduler::core::Snapshot;
use crate::scheduler::core::candidate::{Candidate, Held};

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

/// Returns the candidate for a workload that is listed with its flat description and its values.
fn candidate<'a>(
    listed: &Value,
    spec: &ResourceBindingSpec,
    snapshot: &'a Snapshot,
) -> Candidate<'a> {
    let name = listed["cluster"]["name"].as_str();
    let name = name.expect("a cluster has a name");
    let order = snapshot.position(name);
    let mut targets = spec.clusters.iter().enumerate();
    let target = targets.find(|(_, target)| target.name == name);
    Candidate {
        cluster: snapshot.get(name).expect("the cluster is in the snapshot"),
        order: order.expect("the cluster is in the snapshot"),
        score: listed["score"].as_i64().unwrap_or(0),
        tier: decode(&listed["overflowOrder"]),
        allocatable: listed["allocatableReplicas"].as_i64().unwrap_or(0),
        held: target.map(|(position, target)| Held {
            position,
            replicas: target.replicas.into(),
        }),
        closed: false,
    }
}

/// Returns the affinity group that was in use when a binding was scheduled last.
fn observed_group(status: &ResourceBindingStatus) -> &str {
    let group = status.scheduler_observed_affinity_name.as_deref();
    group.unwrap_or_default()
}

/// Returns the binding spec of an input, in which the template's UID stands beside the rest.
fn binding_spec(spec: &Value) -> ResourceBindingSpec {
    let mut spec = spec.clone();
    if let Some(uid) = spec.as_object_mut().and_then(|spec| spec.remove("uid")) {
        spec["resource"] = json!({ "uid": uid });
    }
    decode(&spec)
}
