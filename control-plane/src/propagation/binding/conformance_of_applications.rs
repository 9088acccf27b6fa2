//! Replays recorded passes of Karmada's application failover, from the reports of members to the
//! labels of the new copy.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::binding::{
    AggregatedStatusItem, ResourceBindingSpec, ResourceBindingStatus,
};
use muster_shared::api::scope::ResourceScope;
use muster_shared::names::label;
use muster_vectors::{Case, Difference, replay, same};
use serde_json::{Value, json};

use super::render::{Origin, render_plain};
use crate::deviations::DEVIATIONS;
use crate::fleet::binding::BindingKey;
use crate::movement::application_failover::decide::{Since, decide, toleration};
use crate::movement::application_failover::evict::{failure, obstacle, producer, purge_mode};
use crate::movement::application_failover::history::History;
use crate::movement::eviction::plan::Departure;
use crate::movement::eviction::preserve;
use crate::settings::Settings;

/// The instant that the recorded seconds count from.
const START: i64 = 1_800_000_000;

fn detect(case: &Case) -> Result<(), Difference> {
    let input = &case.input;
    let mut spec: ResourceBindingSpec = serde_json::from_value(json!({
        "clusters": input["clusters"],
        "failover": {"application": input["application"]},
    }))
    .map_err(|error| error.to_string())?;
    let mut status = ResourceBindingStatus::default();
    let mut since = Since::new();
    let steps = input["steps"].as_array().expect("recorded steps");
    let expected = case.output["steps"].as_array().expect("recorded steps");
    for (step, expected) in steps.iter().zip(expected) {
        status.aggregated_status = list(&step["aggregatedStatus"]);
        if !step["setClusters"].is_null() {
            spec.clusters = list(&step["setClusters"]);
        }
        if !step["setGracefulEvictionTasks"].is_null() {
            spec.graceful_eviction_tasks = list(&step["setGracefulEvictionTasks"]);
        }
        if step["clearGracefulEvictionTasks"] == true {
            spec.graceful_eviction_tasks.clear();
        }
        let got = pass(&mut spec, &status, &mut since, step, input);
        same(expected, &got).map_err(|difference| difference.at(&step["at"]))?;
    }
    Ok(())
}

/// Plays one pass by the decisions that the controller makes, and returns what comes of it.
fn pass(
    spec: &mut ResourceBindingSpec,
    status: &ResourceBindingStatus,
    since: &mut Since,
    step: &Value,
    input: &Value,
) -> Value {
    let at = step["at"].as_f64().expect("recorded seconds");
    let now = SignedDuration::try_from_secs_f64(at)
        .ok()
        .and_then(|at| Timestamp::from_second(START).ok()?.checked_add(at).ok())
        .expect("recorded seconds in range");
    let behavior = spec.application_failover();
    let behavior = behavior.expect("a recorded policy").clone();
    let reports: &[AggregatedStatusItem] = &status.aggregated_status;
    let verdict = decide(toleration(&behavior), spec, reports, since, now);
    let mode = purge_mode(&behavior);
    let gate = format!(
        "GracefulEviction={}",
        input["gracefulEvictionGateOff"] != true
    );
    let settings = Settings {
        feature_gates: gate.parse().expect("a gate and a switch"),
        ..Settings::default()
    };
    let mut history = History::default().with_health(verdict.since, now);
    // Of every cluster that is to be left, the spec without it; there is always another one to go
    // to.
    let left: Option<Vec<_>> = verdict
        .leave
        .iter()
        .map(|cluster| {
            let heard = Some(Timestamp::UNIX_EPOCH);
            if obstacle(&mode, &history, heard, cluster, &settings, now).is_some() {
                return None;
            }
            let reason = failure(&behavior, now, producer(ResourceScope::Namespaced));
            let departure = Departure {
                preserves_state: input["statefulFailoverInjection"] == true,
                ..Departure::new(spec, status, cluster, reason, &mode)
            };
            departure.leave(now).ok().map(|(after, _)| (cluster, after))
        })
        .collect();
    let error = left.is_none();
    // There they are all left in one pass; here one after the other, each as if it were the first.
    for (cluster, after) in left.into_iter().flatten() {
        spec.clusters.retain(|target| target.name != *cluster);
        if spec.eviction_task(cluster).is_none() {
            let tasks = after.graceful_eviction_tasks.into_iter();
            spec.graceful_eviction_tasks
                .extend(tasks.filter(|task| task.from_cluster == *cluster));
        }
        history = history.after_move(cluster, now);
    }
    *since = history.since;
    // There, the seconds that are over are counted whole.
    let retry = verdict.next.map_or(0, |next| {
        let left = next.duration_since(now);
        left.as_secs() + i64::from(left.subsec_nanos() > 0)
    });
    let mut got = json!({
        "retryAfterSeconds": retry,
        "clusters": spec.clusters,
        "gracefulEvictionTasks": spec.graceful_eviction_tasks,
    });
    // Ours say more: why, and since when.
    for task in got["gracefulEvictionTasks"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        if let Some(task) = task.as_object_mut() {
            task.remove("message");
            task.remove("creationTimestamp");
            // The defaults of the policy's schema and of its admission, which the recorded input
            // did not go through.
            if behavior.purge_mode.is_none() {
                task.remove("purgeMode");
            }
            if behavior.grace_period_seconds.is_none() {
                task.remove("gracePeriodSeconds");
            }
        }
    }
    if error {
        got["error"] = json!(true);
    }
    got
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    if value.is_null() {
        return Vec::new();
    }
    serde_json::from_value(value.clone()).expect("recorded objects")
}

fn kept(case: &Case) -> Result<(), Difference> {
    let input = &case.input;
    let rules = list(&input["rules"]);
    let text = input["statusText"].as_str().unwrap_or_default();
    let Ok(status) = serde_json::from_str::<Value>(text) else {
        return same(
            &case.output,
            &json!({"error": true, "kind": "JSONPathError"}),
        );
    };
    let status = serde_json::from_value(
        json!({"aggregatedStatus": [{"clusterName": "m", "status": status}]}),
    )
    .map_err(|error: serde_json::Error| error.to_string())?;
    let got = match preserve::read(&rules, &status, "m") {
        Ok(labels) => json!({"labels": labels}),
        Err(_) => json!({"error": true, "kind": "JSONPathError"}),
    };
    same(&case.output, &got)
}

/// Compares the labels of the object that is sent to one of the targets with the recorded ones.
fn injected(case: &Case) -> Result<(), Difference> {
    let input = &case.input;
    let target = &input["targetCluster"];
    let others = input["targetClusterCount"]
        .as_u64()
        .unwrap_or(1)
        .saturating_sub(1);
    let mut clusters = vec![json!({"name": target})];
    clusters.extend((0..others).map(|other| json!({"name": format!("other-{other}")})));
    let spec = ResourceBindingSpec {
        clusters: list(&json!(clusters)),
        graceful_eviction_tasks: list(&input["gracefulEvictionTasks"]),
        ..ResourceBindingSpec::default()
    };
    let origin = Origin {
        key: BindingKey {
            namespace: Some("default".into()),
            name: "web".into(),
        },
        id: "id".into(),
    };
    let template = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "web", "namespace": "default", "labels": input["templateLabels"]},
    });
    let rendered =
        render_plain(&origin, &spec, &template, true).map_err(|error| error.to_string())?;
    let mut labels = rendered[0].manifest["metadata"]["labels"].clone();
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|key, _| ![label::MANAGED, origin.label()].contains(&key.as_str()));
    }
    same(&case.output, &json!({"labels": labels}))
}

#[test]
fn recorded_passes_and_injections() {
    let own = Path::new("tests");
    let pass = |case: &Case| match case.input["op"].as_str() {
        Some("detect") => detect(case),
        Some("preserve") => kept(case),
        other => Err(format!("unknown operation {other:?}").into()),
    };
    replay("application_failover", own, DEVIATIONS, pass).unwrap();
    replay("application_failover_injection", own, DEVIATIONS, injected).unwrap();
}
