//! What holds for every fleet and every workload: replicas add up, constraints hold, nothing moves without cause, the
//! order of the input does not matter, and more room never makes things worse.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use muster_shared::capacity::default_models;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::capacity::{Capacity, Demand, Estimate, GradeRule};
use super::fixtures::{
    aggregated, cluster, config_map, decide, decoded, deployment, dynamic, leaving, snapshot,
    static_weights,
};
use super::need::need;
use super::{Decision, Facts, Options, Snapshot, schedule};

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

/// The group of a cluster by a field.
fn group_of(cluster: &Value, field: &str) -> String {
    match field {
        "cluster" => cluster["metadata"]["name"].to_string(),
        "zone" => cluster["spec"]["zones"].to_string(),
        field => cluster["spec"][field].to_string(),
    }
}

/// Whether a choice of clusters keeps the constraints.
fn keeps_all(constraints: &[(&str, usize, usize)], chosen: &[&Value]) -> bool {
    constraints.iter().all(|(field, min, max)| {
        let groups: BTreeSet<String> = chosen.iter().map(|it| group_of(it, field)).collect();
        (*min..=*max).contains(&groups.len())
    })
}

/// The cluster with so many nodes of each default grade.
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

/// Clusters that differ in what they have, in how their nodes are graded, and in the kinds that they serve.
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

/// The binding after the decision was written, and its status.
fn written(
    mut spec: ResourceBindingSpec,
    decision: Decision,
) -> (ResourceBindingSpec, ResourceBindingStatus) {
    spec.clusters = decision.clusters;
    (spec, ResourceBindingStatus::default())
}

fn total(decision: &Decision) -> i32 {
    decision.clusters.iter().map(|target| target.replicas).sum()
}

proptest! {
    #[test]
    fn divided_replicas_add_up(fleet in clusters(), placement in divided(), replicas in 1i32..60) {
        if let Ok(decision) = decide(&deployment(replicas, &placement), &fleet) {
            prop_assert_eq!(total(&decision), replicas);
        }
    }

    #[test]
    fn duplicated_replicas_go_to_each_cluster(fleet in clusters(), replicas in 1i32..60) {
        if let Ok(decision) = decide(&deployment(replicas, &json!({})), &fleet) {
            prop_assert!(decision.clusters.iter().all(|target| target.replicas == replicas));
        }
    }

    #[test]
    fn nothing_new_lands_where_a_taint_or_a_lack_of_room_forbids_it(
        fleet in clusters(), placement in by_room(), replicas in 1i32..60,
    ) {
        if let Ok(decision) = decide(&deployment(replicas, &placement), &fleet) {
            for target in decision.clusters {
                let cluster = fleet.iter().find(|it| it["metadata"]["name"] == target.name.as_str());
                let cluster = cluster.unwrap();
                let cores = &cluster["status"]["resourceSummary"]["allocatable"]["cpu"];
                prop_assert!(cluster["spec"]["taints"].is_null());
                prop_assert!(i64::from(target.replicas) <= cores.as_str().unwrap().parse().unwrap());
            }
        }
    }

    #[test]
    fn constraints_hold(
        fleet in clusters(), list in constraints(), replicas in 0i32..20, divide: bool,
    ) {
        let placement = if divide { dynamic() } else { json!({}) };
        let mut spec = deployment(replicas, &with_constraints(placement, &list));
        if replicas == 0 {
            spec.replica_requirements = None;
        }
        let Ok(decision) = decide(&spec, &fleet) else { return Ok(()) };
        for (field, min, max) in list {
            let groups: BTreeSet<String> = decision
                .clusters
                .iter()
                .map(|target| {
                    let cluster = fleet.iter().find(|it| it["metadata"]["name"] == target.name.as_str());
                    let cluster = cluster.unwrap();
                    group_of(cluster, field)
                })
                .collect();
            prop_assert!(groups.len() <= max, "{} {:?}", field, groups);
            // A divided workload may leave a chosen cluster without replicas.
            prop_assert!(divide || groups.len() >= min, "{} {:?}", field, groups);
        }
    }

    #[test]
    fn nothing_moves_without_cause(
        fleet in clusters(), placement in by_room(), replicas in 1i32..40, cores in 0i64..50,
    ) {
        let spec = deployment(replicas, &placement);
        let Ok(decision) = decide(&spec, &fleet) else { return Ok(()) };
        let (spec, status) = written(spec, decision.clone());
        // Neither a second look nor a new, roomier cluster is a cause.
        let mut grown = fleet;
        grown.push(cluster("newcomer", cores));
        let clusters = snapshot(&grown);
        let applied = serde_json::to_string(&spec.placement).unwrap();
        prop_assert_eq!(need(&spec, &status, Some(&applied), &clusters), None);
        let again = schedule(&spec, &status, &clusters, &Options::default()).unwrap();
        prop_assert_eq!(again.clusters, decision.clusters);
    }

    #[test]
    fn what_is_not_divided_loses_no_copy_when_it_is_looked_at_again(
        fleet in clusters(), list in constraints(), replicas in 0i32..20,
    ) {
        let placement = with_constraints(json!({}), &list);
        let spec = if replicas == 0 { config_map(&placement) } else { deployment(replicas, &placement) };
        let Ok(decision) = decide(&spec, &fleet) else { return Ok(()) };
        let (spec, _) = written(spec, decision.clone());
        let names = |decision: &Decision| -> BTreeSet<String> {
            decision.clusters.iter().map(|target| target.name.clone()).collect()
        };
        let again = decide(&spec, &fleet).unwrap();
        // It may gain copies up to the maxima: regions are scored with what they hold (Karmada behaviour), so that a second look can
        // find room which the first one left.
        prop_assert!(names(&again).is_superset(&names(&decision)), "{again:?}");
    }

    #[test]
    fn a_failover_under_constraints_keeps_the_survivors_where_that_is_possible(
        mut fleet in clusters(), list in constraints(), failed in 0usize..9,
    ) {
        fleet.truncate(6);
        let spec = config_map(&with_constraints(json!({}), &list));
        let Ok(decision) = decide(&spec, &fleet) else { return Ok(()) };
        let (spec, _) = written(spec, decision.clone());
        let failed = decision.clusters[failed % decision.clusters.len()].name.clone();
        for cluster in &mut fleet {
            if cluster["metadata"]["name"] == failed.as_str() {
                cluster["spec"]["taints"] = json!([{ "key": "gone", "effect": "NoExecute" }]);
            }
        }
        let moved = leaving(spec, &failed, "TaintUntolerated");
        let survives = |it: &Value| moved.clusters.iter().any(|target| it["metadata"]["name"] == target.name.as_str());
        let admitting: Vec<&Value> = fleet.iter().filter(|it| it["spec"]["taints"].is_null()).collect();
        let possible = (1u32..1 << admitting.len()).any(|set| {
            let is_chosen = |bit: usize| set >> bit & 1 == 1;
            let all = || admitting.iter().copied().enumerate();
            let left = all().any(|(bit, it)| survives(it) && !is_chosen(bit));
            let chosen: Vec<&Value> = all().filter(|(bit, _)| is_chosen(*bit)).map(|(_, it)| it).collect();
            !left && keeps_all(&list, &chosen)
        });
        if possible {
            let after = decide(&moved, &fleet).unwrap();
            for survivor in moved.clusters {
                prop_assert!(after.clusters.iter().any(|it| it.name == survivor.name), "{}", survivor.name);
            }
        }
    }

    #[test]
    fn a_failover_moves_only_what_was_on_the_failed_cluster(
        fleet in clusters(), placement in by_room(), replicas in 1i32..40, failed in 0usize..9,
    ) {
        let spec = deployment(replicas, &placement);
        let Ok(decision) = decide(&spec, &fleet) else { return Ok(()) };
        let (spec, _) = written(spec, decision.clone());
        let failed = decision.clusters[failed % decision.clusters.len()].name.clone();
        let mut fleet = fleet;
        for cluster in &mut fleet {
            if cluster["metadata"]["name"] == failed.as_str() {
                cluster["spec"]["taints"] = json!([{ "key": "gone", "effect": "NoExecute" }]);
            }
        }
        let moved = leaving(spec, &failed, "TaintUntolerated");
        if let Ok(after) = decide(&moved, &fleet) {
            prop_assert_eq!(total(&after), replicas);
            for target in moved.clusters {
                let kept = after.clusters.iter().find(|it| it.name == target.name);
                prop_assert!(kept.is_some_and(|kept| kept.replicas >= target.replicas));
            }
            prop_assert!(after.clusters.iter().all(|target| target.name != failed));
        }
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(
        (fleet, shuffled) in clusters().prop_flat_map(|fleet| (Just(fleet.clone()), Just(fleet).prop_shuffle())),
        placement in divided(), list in constraints(), replicas in 0i32..40,
    ) {
        let spec = deployment(replicas, &with_constraints(placement, &list));
        prop_assert_eq!(decide(&spec, &fleet), decide(&spec, &shuffled));
    }

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
    fn constraints_that_can_be_met_are_met(
        mut fleet in clusters(), list in constraints(),
    ) {
        fleet.truncate(6);
        // Without replicas, so that room is no reason to refuse.
        let spec = config_map(&with_constraints(json!({}), &list));
        let admitting: Vec<&Value> = fleet.iter().filter(|it| it["spec"]["taints"].is_null()).collect();
        let possible = (1u32..1 << admitting.len()).any(|set| {
            let chosen = admitting.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
            keeps_all(&list, &chosen.map(|(_, it)| *it).collect::<Vec<_>>())
        });
        match decide(&spec, &fleet) {
            Ok(decision) => {
                let is_chosen = |it: &&Value| decision.clusters.iter().any(|target| it["metadata"]["name"] == target.name.as_str());
                let chosen: Vec<&Value> = admitting.iter().copied().filter(is_chosen).collect();
                prop_assert_eq!(chosen.len(), decision.clusters.len());
                prop_assert!(keeps_all(&list, &chosen));
            }
            Err(refused) => prop_assert!(!possible, "{}", refused),
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
            for capacity in clusters.iter().filter_map(Facts::capacity) {
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
        // By averages another node may hold less, when the sums say that all together have no more than before.
        for rule in [GradeRule::Minimums, GradeRule::UpperBounds, GradeRule::Ignored] {
            prop_assert!(room(&more, rule) >= room(&counts, rule));
        }
        for rule in [GradeRule::Averages, GradeRule::UpperBounds] {
            prop_assert!(room(&counts, rule) >= room(&counts, GradeRule::Minimums));
        }
    }
}
