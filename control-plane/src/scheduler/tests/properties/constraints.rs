//! Properties of selection under spread constraints.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{clusters, constraints, divided, with_constraints, written};
use crate::scheduler::core::Decision;
use crate::scheduler::tests::fixtures::{
    cluster, config_map, decide, deployment, dynamic, leaving,
};

/// Returns the group of a cluster by a field.
fn group_of(cluster: &Value, field: &str) -> String {
    match field {
        "cluster" => cluster["metadata"]["name"].to_string(),
        "zone" => cluster["spec"]["zones"].to_string(),
        field => cluster["spec"][field].to_string(),
    }
}

/// Returns whether a choice of clusters keeps the constraints.
fn keeps_all(constraints: &[(&str, usize, usize)], chosen: &[&Value]) -> bool {
    constraints.iter().all(|(field, min, max)| {
        let groups: BTreeSet<String> = chosen.iter().map(|it| group_of(it, field)).collect();
        (*min..=*max).contains(&groups.len())
    })
}

fn any_division() -> impl Strategy<Value = Value> {
    prop_oneof![Just(json!({})), divided()]
}

fn names_and_replicas(decision: &Decision) -> BTreeSet<(&str, i32)> {
    let targets = decision.clusters.iter();
    targets
        .map(|target| (target.name.as_str(), target.replicas))
        .collect()
}

proptest! {
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
    fn nothing_moves_under_constraints_when_it_is_looked_at_again(
        fleet in clusters(), placement in any_division(), list in constraints(), replicas in 0i32..20, failed in 0usize..9,
    ) {
        let placement = with_constraints(placement, &list);
        let mut spec = if replicas == 0 { config_map(&placement) } else { deployment(replicas, &placement) };
        // At first, and after a failover.
        for _ in 0..2 {
            let Ok(decision) = decide(&spec, &fleet) else { return Ok(()) };
            spec = written(spec, decision.clone()).0;
            let again = decide(&spec, &fleet).unwrap();
            prop_assert_eq!(names_and_replicas(&again), names_and_replicas(&decision));
            let failed = decision.clusters[failed % decision.clusters.len()].name.clone();
            spec = leaving(spec, &failed, "ApplicationFailure");
        }
    }

    #[test]
    fn a_cluster_that_joins_takes_no_copy_from_another(
        fleet in clusters(), list in constraints(), cores in 0i64..50, region in 0u8..5,
    ) {
        let spec = config_map(&with_constraints(json!({}), &list));
        let Ok(decision) = decide(&spec, &fleet) else { return Ok(()) };
        let (spec, _) = written(spec, decision.clone());
        let mut newcomer = cluster("newcomer", cores);
        newcomer["spec"] = json!({ "region": format!("r{region}"), "provider": "p0", "zones": [format!("z{region}0")] });
        let mut grown = fleet;
        grown.push(newcomer);
        let again = decide(&spec, &grown).unwrap();
        for target in decision.clusters {
            prop_assert!(again.clusters.contains(&target), "{} {:?}", target.name, again);
        }
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
}
