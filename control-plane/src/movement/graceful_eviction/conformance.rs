//! Replays recorded assessments of Karmada.

use std::path::Path;

use jiff::Timestamp;
use muster_shared::api::binding::TargetCluster;
use serde_json::{Value, json};

use super::assess::{Facts, assess};
use crate::deviations::DEVIATIONS;
use crate::fleet::copy::WorkState;
use crate::fleet::standing::Standing;
use crate::movement::eviction::conformance::read;
use crate::settings::evict_plugin::EvictPlugins;

fn replay(input: &Value) -> Value {
    let now: Timestamp = input["now"].as_str().unwrap().parse().unwrap();
    let (clusters, reports): (Vec<_>, Vec<_>) =
        (read(&input["clusters"]), read(&input["aggregatedStatus"]));
    let chosen = clusters.clone();
    let standing = |name: &str| {
        let is_chosen = chosen
            .iter()
            .any(|target: &TargetCluster| target.name == name);
        if is_chosen {
            Standing::Sound
        } else {
            Standing::Left
        }
    };
    let facts = Facts {
        clusters: &clusters,
        reports: &reports,
        work: &|_| WorkState::Applied,
        scheduled: input["generation"] == input["schedulerObservedGeneration"],
        cluster: &standing,
        plugins: EvictPlugins::default(),
        least: &|_, share| share,
        has_rule: true,
        counts_replicas: false,
        restores: true,
        is_over: &|_| false,
        asks_for_none: false,
        timeout: input["gracefulTimeoutSeconds"]
            .as_u64()
            .map(std::time::Duration::from_secs),
    };
    let tasks: Vec<_> = read(&input["gracefulEvictionTasks"]);
    let out = assess(&tasks, &facts, now);
    let evicted: Vec<&str> = out.done.iter().map(|(name, _)| name.as_str()).collect();
    let again = out
        .again
        .map_or(0, |again| again.duration_since(now).as_secs());
    json!({"kept": out.kept, "evicted": evicted, "requeueAfterSeconds": again})
}

#[test]
fn recorded_assessments() {
    let own = Path::new("tests");
    muster_vectors::replay("graceful_eviction", own, DEVIATIONS, |case| {
        muster_vectors::same(&case.output, &replay(&case.input))
    })
    .unwrap();
}
