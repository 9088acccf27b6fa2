//! Properties of capacity: more capacity is never worse, and sharing between equal clusters changes
//! no result.

use std::sync::Arc;

use muster_shared::api::binding::ResourceBindingStatus;
use muster_shared::capacity::default_models;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{by_room, clusters, divided};
use crate::scheduler::core::capacity::{Capacity, Demand, Estimate};
use crate::scheduler::core::{ClusterInfo, Options, Snapshot, schedule};
use crate::scheduler::tests::fixtures::{cluster, decide, decoded, deployment, snapshot};
use crate::settings::grade_rule::GradeRule;

/// Returns the cluster with so many nodes of each default grade.
fn graded(mut cluster: Value, counts: &[i64]) -> Value {
    let models = default_models();
    let counts = models.iter().zip(counts);
    let counts: Vec<Value> = counts
        .map(|(model, count)| json!({ "grade": model.grade, "count": count }))
        .collect();
    cluster["spec"]["resourceModels"] = serde_json::to_value(&models).unwrap();
    cluster["status"]["resourceSummary"]["allocatableModelings"] = json!(counts);
    cluster
}

/// Clusters that differ in what they have, in how their nodes are graded, and in the kinds that
/// they serve.
fn unlike_clusters() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec((0i64..12, 0u8..6), 1..9).prop_map(|fleet| {
        let one = |(number, (cores, variant)): (usize, (i64, u8))| {
            let mut cluster = cluster(&format!("m{number}"), cores);
            match variant {
                0 => cluster["status"]["resourceSummary"] = Value::Null,
                1 => cluster["status"]["resourceSummary"]["allocatable"]["memory"] = json!("8Gi"),
                2 => {
                    cluster["status"]["resourceSummary"]["allocatable"]["a.example/gpu"] =
                        json!("1");
                }
                3 => cluster = graded(cluster, &[cores, 1, 0, 2]),
                4 => cluster["status"]["apiEnablements"] = json!([]),
                _ => {
                    cluster = graded(cluster, &[1, cores, 3]);
                    cluster["spec"]["resourceModels"][1]["ranges"][0]["min"] = json!("1500m");
                }
            }
            cluster
        };
        fleet.into_iter().enumerate().map(one).collect()
    })
}

proptest! {
    #[test]
    fn more_room_never_makes_a_workload_unschedulable(
        fleet in clusters(), placement in by_room(), replicas in 1i32..60, index in 0usize..9, more in 1i64..20,
    ) {
        let spec = deployment(replicas, &placement);
        let room = |fleet: &[Value]| {
            let clusters = snapshot(fleet);
            let demand = spec.replica_requirements.as_ref().map(|it| Demand::new(&it.resource_request));
            clusters
                .iter()
                .map(|facts| facts.capacity().unwrap().replicas(demand.as_ref(), GradeRule::Minimums))
                .sum::<i64>()
        };
        let mut roomier = fleet.clone();
        let index = index % roomier.len();
        let cpu = &mut roomier[index]["status"]["resourceSummary"]["allocatable"]["cpu"];
        *cpu = json!((cpu.as_str().unwrap().parse::<i64>().unwrap() + more).to_string());
        prop_assert_eq!(room(&roomier), room(&fleet) + more);
        if decide(&spec, &fleet).is_ok() {
            prop_assert!(decide(&spec, &roomier).is_ok());
        }
    }

    #[test]
    fn a_snapshot_that_was_updated_decides_as_a_new_one(
        before in unlike_clusters(), after in unlike_clusters(), placement in divided(), replicas in 1i32..40,
    ) {
        let mut updated = snapshot(&before);
        for cluster in &after {
            updated.put(Arc::new(decoded(cluster)));
        }
        for gone in &before[after.len().min(before.len())..] {
            updated.remove(gone["metadata"]["name"].as_str().unwrap());
        }
        let spec = deployment(replicas, &placement);
        let status = ResourceBindingStatus::default();
        let decided = |clusters: &Snapshot| schedule(&spec, &status, clusters, &Options::default());
        prop_assert_eq!(decided(&updated), decided(&snapshot(&after)));
    }

    #[test]
    fn what_is_found_out_for_one_cluster_misleads_about_no_other(
        fleet in unlike_clusters(), cores in 1i64..4, gibibytes in 0i64..4,
    ) {
        let requests = json!({ "cpu": cores.to_string(), "memory": format!("{gibibytes}Gi") });
        let demand = Demand::new(&serde_json::from_value(requests).unwrap());
        let clusters = snapshot(&fleet);
        for rule in GradeRule::ALL {
            let mut estimate = Estimate::new(Some(&demand), rule);
            for capacity in clusters.iter().filter_map(ClusterInfo::capacity) {
                prop_assert_eq!(estimate.replicas(capacity), capacity.replicas(Some(&demand), rule));
            }
        }
    }

    #[test]
    fn one_more_node_never_holds_less(
        counts in prop::collection::vec(0i64..5, 9), grade in 0usize..9, cores in 1i64..9, gibibytes in 0i64..40,
    ) {
        let requests = json!({ "cpu": cores.to_string(), "memory": format!("{gibibytes}Gi") });
        let demand = Demand::new(&serde_json::from_value(requests).unwrap());
        let room = |counts: &[i64], rule| {
            let cluster = decoded(&graded(cluster("m", 900), counts));
            Capacity::of(&cluster).unwrap().replicas(Some(&demand), rule)
        };
        let mut more = counts.clone();
        more[grade] += 1;
        // By averages another node may hold less, when the sums say that all together have no more
        // than before.
        for rule in [GradeRule::Minimums, GradeRule::UpperBounds, GradeRule::Ignored] {
            prop_assert!(room(&more, rule) >= room(&counts, rule));
        }
        for rule in [GradeRule::Averages, GradeRule::UpperBounds] {
            prop_assert!(room(&counts, rule) >= room(&counts, GradeRule::Minimums));
        }
    }
}
