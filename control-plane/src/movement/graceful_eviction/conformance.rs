//! Replays recorded assessments of Karmada.

use std::path::Path;

use jiff::Timestamp;
use muster_shared::api::binding::{GracefulEvictionTask, TargetCluster};
use serde_json::{Value, json};

use super::assess::{Facts, assess};
use crate::deviations::DEVIATIONS;
use crate::fleet::copy::WorkState;
use crate::fleet::place_state::PlaceState;
use crate::movement::eviction::conformance::read;
use crate::settings::evict_plugin::EvictPlugins;

fn replay(input: &Value) -> Value {
    let now: Timestamp = input["now"].as_str().unwrap().parse().unwrap();
    let (clusters, reports): (Vec<_>, Vec<_>) =
        (read(&input["clusters"]), read(&input["aggregatedStatus"]));
    let chosen = clusters.clone();
    let state = |name: &str| {
        let is_chosen = chosen
            .iter()
            .any(|target: &TargetCluster| target.name == name);
        if is_chosen {
            PlaceState::Sound
        } else {
            PlaceState::Left
        }
    };
    let facts = Facts {
        clusters: &clusters,
        reports: &reports,
        work: &|_| WorkState::Applied,
        awaits: &|_| false,
        scheduled: input["generation"] == input["schedulerObservedGeneration"],
        cluster: &state,
        plugins: EvictPlugins::default(),
        least: &|_, share| share,
        has_rule: true,
        counts_replicas: false,
        restores: true,
        is_over: &|_| false,
        asks_for_none: false,
    };
    let given: Vec<GracefulEvictionTask> = read(&input["gracefulEvictionTasks"]);
    // Karmada's time-out is the grace period of each task that has none of its own.
    let timeout = input["gracefulTimeoutSeconds"].as_i64();
    let timeout = timeout.and_then(|it| i32::try_from(it).ok());
    let tasks = given.iter().map(|task| GracefulEvictionTask {
        grace_period_seconds: task.grace_period_seconds.or(timeout),
        ..task.clone()
    });
    let mut out = assess(&tasks.collect::<Vec<_>>(), &facts, now);
    for kept in &mut out.kept {
        let mut given = given.iter();
        let own = given.find(|it| it.from_cluster == kept.from_cluster);
        kept.grace_period_seconds = own.and_then(|it| it.grace_period_seconds);
    }
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
