//! Properties of the division of replicas, and of what a second schedule or a failover moves.

use proptest::prelude::*;
use serde_json::json;

use super::{by_room, clusters, constraints, divided, with_constraints, written};
use crate::scheduler::core::need::need;
use crate::scheduler::core::{Decision, Options, schedule};
use crate::scheduler::tests::fixtures::{cluster, decide, deployment, leaving, snapshot};

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
    fn nothing_moves_without_cause(
        fleet in clusters(), placement in by_room(), replicas in 1i32..40, cores in 0i64..50,
    ) {
        let spec = deployment(replicas, &placement);
        let Ok(decision) = decide(&spec, &fleet) else { return Ok(()) };
        let (spec, status) = written(spec, decision.clone());
        // Neither a second decision nor a new, roomier cluster is a cause.
        let mut grown = fleet;
        grown.push(cluster("newcomer", cores));
        let clusters = snapshot(&grown);
        let applied = serde_json::to_string(&spec.placement).unwrap();
        prop_assert_eq!(need(&spec, &status, Some(&applied), &applied, &clusters), None);
        let again = schedule(&spec, &status, &clusters, &Options::default()).unwrap();
        prop_assert_eq!(again.clusters, decision.clusters);
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
}
