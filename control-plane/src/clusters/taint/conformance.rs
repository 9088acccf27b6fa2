//! Replays recorded reconciles of ClusterTaintPolicies in Karmada's released form.

use std::path::Path;

use jiff::Timestamp;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::selectors::matches_affinity;
use muster_vectors::{Case, Difference, same};
use serde_json::{Value, json};

use super::decide::{Scene, decide};
use crate::deviations::DEVIATIONS;

fn replay(input: &Value) -> Value {
    let now: Timestamp = input["now"].as_str().unwrap().parse().unwrap();
    let conditions: Vec<Value> = input["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .map(|c| json!({"type": c["type"], "status": c["status"], "reason": "", "message": "", "lastTransitionTime": input["now"]}))
        .collect();
    let mut cluster: Cluster = serde_json::from_value(json!({
        "metadata": {"name": input["clusterName"], "labels": input["labels"]},
        "spec": {"syncMode": "Push", "taints": input["taints"]},
        "status": {"conditions": conditions},
    }))
    .unwrap();
    cluster.metadata.labels = serde_json::from_value(input["labels"].clone()).unwrap();
    let policies: Vec<ClusterTaintPolicy> = input["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| {
            serde_json::from_value(json!({
                "metadata": {"name": p["name"], "creationTimestamp": p["creationTimestamp"]},
                "spec": p["spec"],
            }))
            .unwrap()
        })
        .collect();
    let policies: Vec<&ClusterTaintPolicy> = policies.iter().collect();
    let selects = |affinity: &muster_shared::api::policy::ClusterAffinity| {
        matches_affinity(affinity, &cluster)
    };
    let scene = Scene {
        cluster: &cluster,
        record: None,
        policies: &policies,
        selects: &selects,
        is_gone: &|_| true,
        lacks_some: false,
        is_refused: &|_| false,
        is_first: true,
        reserves: true,
    };
    let outcome = decide(&scene, now);
    let changed = outcome.taints.is_some();
    json!({"taints": outcome.taints.unwrap_or_else(|| cluster.spec.taints.clone()), "changed": changed})
}

/// Compares the expected output of a case with that of its replay. Karmada writes the cluster when
/// taints that it added and removed in one pass turn a missing list into an empty one. To these
/// suites that is the same list, so it is no change.
fn compare(case: &Case) -> Result<(), Difference> {
    let mut expected = case.output.clone();
    if same(&case.input["taints"], &expected["taints"]).is_ok() {
        expected["changed"] = json!(false);
    }
    same(&expected, &replay(&case.input))
}

#[test]
fn recorded_reconciles() {
    muster_vectors::replay(
        "cluster_taint_policy",
        Path::new("tests"),
        DEVIATIONS,
        compare,
    )
    .unwrap();
}
