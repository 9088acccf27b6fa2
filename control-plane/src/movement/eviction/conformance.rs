//! Replays recorded decisions of Karmada's NoExecute evictor, and recorded removals from a
//! schedule.

use std::path::Path;

use jiff::Timestamp;
use muster_shared::api::binding::{GracefulEvictionTask, ResourceBindingSpec};
use muster_shared::api::policy::PurgeMode;
use muster_vectors::{Case, Difference, replay, same};
use serde_json::{Value, json};

use super::judge::{Judgement, Stay, Switches, judge};
use crate::clusters::taint::default_tolerations::DefaultTolerations;
use crate::deviations::DEVIATIONS;

pub(in crate::movement) fn read<T: serde::de::DeserializeOwned + Default>(value: &Value) -> T {
    if value.is_null() {
        T::default()
    } else {
        serde_json::from_value(value.clone()).unwrap()
    }
}

/// The longest time in seconds that the reference counts: it has nanoseconds in 64 bits, so that a
/// longer toleration wraps and may count as over.
const LONGEST: i64 = i64::MAX / 1_000_000_000;

/// Returns whether a toleration is longer than the longest time that the reference counts.
fn is_uncounted(input: &Value) -> bool {
    let mut tolerations = input["tolerations"].as_array().into_iter().flatten();
    tolerations.any(|it| it["tolerationSeconds"].as_i64() > Some(LONGEST))
}

fn decision(case: &Case) -> Result<(), Difference> {
    let got = decide(&case.input);
    if is_uncounted(&case.input) && got["decision"] != "evictNow" {
        return Ok(());
    }
    same(&case.output, &got)
}

fn decide(input: &Value) -> Value {
    let now: Timestamp = input["now"].as_str().unwrap().parse().unwrap();
    let placement =
        serde_json::from_value(json!({"clusterTolerations": input["tolerations"]})).unwrap();
    let placement = (input["placementMissing"] != true).then_some(placement);
    let switches = Switches {
        failover: true,
        no_execute: input["noExecuteEvictionEnabled"] == true,
        purge_mode: PurgeMode::Gracefully,
        tolerations: DefaultTolerations::default(),
    };
    let taints: Vec<_> = if input["clusterMissing"] == true {
        Vec::new()
    } else {
        read(&input["taints"])
    };
    match judge(
        &taints,
        &ResourceBindingSpec::default(),
        placement.as_ref(),
        &switches,
        now,
    ) {
        Judgement::Leave { due, .. } if due <= now => json!({"decision": "evictNow"}),
        Judgement::Leave { due, .. } => {
            json!({"decision": "evictAfter", "afterSeconds": due.duration_since(now).as_secs()})
        }
        Judgement::Stay(Stay::NoPlacement) => json!({"error": true, "kind": "PlacementMissing"}),
        Judgement::Stay(_) => json!({"decision": "never"}),
    }
}

fn moved(case: &Case) -> Result<(), Difference> {
    let mut spec: ResourceBindingSpec = read(&case.input["spec"]);
    let mut task: GracefulEvictionTask = read(&case.input["options"]);
    task.from_cluster = case.input["cluster"].as_str().unwrap().to_owned();
    spec.take_out(task);
    same(
        &case.output,
        &json!({"clusters": spec.clusters, "gracefulEvictionTasks": spec.graceful_eviction_tasks}),
    )
}

#[test]
fn recorded_decisions_and_moves() {
    let own = Path::new("tests");
    replay("tolerations", own, DEVIATIONS, decision).unwrap();
    replay("graceful_evict_cluster", own, DEVIATIONS, moved).unwrap();
}

#[test]
fn a_toleration_that_is_longer_than_the_reference_counts_holds() {
    let input = |seconds: i64| {
        json!({
            "now": "2024-01-01T12:00:00Z", "noExecuteEvictionEnabled": true,
            "taints": [{"key": "a", "effect": "NoExecute", "timeAdded": "2024-01-01T11:58:20Z"}],
            "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": seconds}],
        })
    };
    for (seconds, uncounted) in [(1 << 40, true), (LONGEST + 1, true), (LONGEST, false)] {
        assert_eq!(is_uncounted(&input(seconds)), uncounted, "{seconds}");
        assert_ne!(decide(&input(seconds))["decision"], "evictNow", "{seconds}");
    }
}
