//! Properties of fleets with dozens of regions, zones and clusters: constraints on many groups are
//! met where possible, in reasonable time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{with_constraints, written};
use crate::scheduler::core::Decision;
use crate::scheduler::tests::fixtures::{cluster, config_map, decide, deployment, dynamic};

/// A decision takes milliseconds in a release; this leaves room for a debug build on a busy
/// machine, and none for another 2^40.
const SOON: Duration = Duration::from_secs(20);

/// Returns a strategy for up to 120 clusters in up to 40 regions, some of them with a taint.
fn clusters() -> impl Strategy<Value = Vec<Value>> {
    let one = (0u8..40, 0i64..12, prop::bool::weighted(0.1));
    prop::collection::vec(one, 20..120).prop_map(|fleet| {
        let numbered = fleet.into_iter().enumerate();
        numbered
            .map(|(number, (region, cores, tainted))| {
                let mut cluster = cluster(&format!("m{number}"), cores);
                let (region, zone) = (format!("r{region}"), format!("z{}", number % 50));
                cluster["spec"] = json!({ "region": region, "zones": [zone] });
                if tainted {
                    cluster["spec"]["taints"] = json!([{ "key": "x", "effect": "NoSchedule" }]);
                }
                cluster
            })
            .collect()
    })
}

/// Returns how many clusters admit work, by region, the largest first.
fn regions(fleet: &[Value]) -> Vec<usize> {
    let mut regions: BTreeMap<&str, usize> = BTreeMap::new();
    for cluster in fleet.iter().filter(|it| it["spec"]["taints"].is_null()) {
        *regions
            .entry(cluster["spec"]["region"].as_str().unwrap())
            .or_default() += 1;
    }
    let mut sizes: Vec<usize> = regions.into_values().collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

fn chosen_regions<'f>(fleet: &'f [Value], decision: &Decision) -> BTreeSet<&'f str> {
    let targets = decision.clusters.iter();
    targets
        .map(|target| {
            let cluster = fleet
                .iter()
                .find(|it| it["metadata"]["name"] == target.name.as_str());
            cluster.unwrap()["spec"]["region"].as_str().unwrap()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn many_regions_and_clusters_are_found_where_there_are_as_many(
        fleet in clusters(), regions_min in 1usize..30, more in 0usize..30, clusters_min in 1usize..80,
    ) {
        let regions_max = regions_min + more;
        let clusters_min = clusters_min.max(regions_min);
        let list = [("region", regions_min, regions_max), ("cluster", clusters_min, 200)];
        // Without replicas, so that room is no reason to refuse.
        let spec = config_map(&with_constraints(json!({}), &list));
        let sizes = regions(&fleet);
        let most: usize = sizes.iter().take(regions_max).sum();
        let possible = sizes.len() >= regions_min && most >= clusters_min;
        let started = Instant::now();
        let decided = decide(&spec, &fleet);
        prop_assert!(started.elapsed() < SOON);
        match decided {
            Ok(decision) => {
                let regions = chosen_regions(&fleet, &decision).len();
                prop_assert!((regions_min..=regions_max).contains(&regions), "{regions} regions");
                prop_assert!(decision.clusters.len() >= clusters_min);
                // Decided again, nothing moves.
                let (spec, _) = written(spec, decision.clone());
                prop_assert_eq!(decide(&spec, &fleet).unwrap().clusters.len(), decision.clusters.len());
            }
            Err(refused) => prop_assert!(!possible, "{}", refused),
        }
    }

    #[test]
    fn replicas_over_many_regions_add_up_or_the_refusal_comes_soon(
        fleet in clusters(), regions_min in 1usize..12, zones_min in 1usize..12, clusters_min in 1usize..60, replicas in 1i32..200,
    ) {
        let list = [
            ("region", regions_min, 40), ("zone", zones_min, 50), ("cluster", clusters_min, 200),
        ];
        let spec = deployment(replicas, &with_constraints(dynamic(), &list));
        let started = Instant::now();
        let decided = decide(&spec, &fleet);
        prop_assert!(started.elapsed() < SOON);
        if let Ok(decision) = decided {
            let placed: i32 = decision.clusters.iter().map(|target| target.replicas).sum();
            prop_assert_eq!(placed, replicas);
        }
    }
}

#[test]
fn more_clusters_than_there_are_in_forty_regions_are_refused_at_once() {
    let fleet: Vec<Value> = (0..40)
        .map(|number| {
            let mut cluster = cluster(&format!("m{number}"), 10);
            cluster["spec"] = json!({ "region": format!("r{number}") });
            cluster
        })
        .collect();
    let constraints = json!([
        { "spreadByField": "region", "minGroups": 1 },
        { "spreadByField": "cluster", "minGroups": 41 },
    ]);
    let started = Instant::now();
    let refused = decide(
        &config_map(&json!({ "spreadConstraints": constraints })),
        &fleet,
    );
    assert!(started.elapsed() < SOON);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("number of clusters is less")
    );
}
