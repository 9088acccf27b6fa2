//! Replays recorded answers of the customizations that Karmada ships
//! (`interpreter_thirdparty_lua`).
//!
//! The inputs are test data of Karmada and not part of this project: they are read from the folder
//! that `MUSTER_VECTORS` names. Without it, the cases of `kinds.rs` are the test.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod typed;

use jiff::Timestamp;
use muster_interpreter::lua::{Engine, Error, thirdparty};
use muster_shared::clock::set_calendar_of_thread;
use muster_vectors::{Case, Deviation, replay_elsewhere, same};
use serde_json::{Map, Value, json};

use crate::typed::Typed;

const SUITE: &str = "interpreter_thirdparty_lua";

const UNUSED_SIDECAR_SET: &str = "a SidecarSet that runs in no member cannot be aggregated";
const HELM_CHART: &str = "the reported status of a HelmChart lacks observedGeneration";
const HELM_FAILURES: &str = "failures of a HelmRelease are added to those of the last aggregation";
const BROADCAST_JOB: &str = "a BroadcastJob that still runs counts like the member before it";
const WORKFLOW_SECRET: &str = "a Secret that a volume of a Workflow names is not found";
const RAY_WORKERS: &str = "a group of workers of a RayService gets less than no replicas";
const NO_MESSAGE: &str = "a condition without a message cannot be aggregated";
const NO_TEMPLATE: &str = "a task of a Volcano Job without a template is an error";
const TIME: &str = "a condition that stays gets a new time with every aggregation";

const fn deviation(quirk: &'static str, reason: &'static str) -> Deviation {
    Deviation {
        suite: SUITE,
        quirk,
        reason,
    }
}

const DEVIATIONS: &[Deviation] = &[
    deviation(
        UNUSED_SIDECAR_SET,
        "its counts are 0, as for the other kinds of Kruise: an error would be repeated for ever",
    ),
    deviation(
        HELM_CHART,
        "it is reported, or that of the template could never advance",
    ),
    deviation(
        HELM_FAILURES,
        "they are the sum over the members: otherwise they grow with every aggregation",
    ),
    deviation(
        BROADCAST_JOB,
        "it counts as running: otherwise the job is complete too early",
    ),
    deviation(
        WORKFLOW_SECRET,
        "the field is secretName, and the Secret goes along",
    ),
    deviation(
        RAY_WORKERS,
        "rounding never gives out more than there is: the API refuses negative numbers",
    ),
    deviation(NO_MESSAGE, "the message is empty"),
    deviation(
        NO_TEMPLATE,
        "the task has no requirements: one task must not hide the others",
    ),
    deviation(
        TIME,
        "the time stays: otherwise every aggregation is a change, and is written",
    ),
];

/// Quirks that the recording does not mark.
fn named(case: &Case) -> Option<&'static str> {
    let (input, is_error) = (&case.input, case.output.get("error").is_some());
    let operation = input["operation"].as_str()?;
    let items = || list(&input["aggregatedStatusItems"]).iter();
    let object = input.get("object").or_else(|| input.get("observed"))?;
    let lacks_message = |one: &Value| one.get("message").is_none();
    match (input["kind"].as_str()?, operation) {
        ("SidecarSet", "AggregateStatus") if items().next().is_none() => Some(UNUSED_SIDECAR_SET),
        (_, "AggregateStatus") if is_error => items()
            .flat_map(|item| list(&item["status"]["conditions"]))
            .any(lacks_message)
            .then_some(NO_MESSAGE),
        ("HelmChart", "InterpretStatus") => {
            let observed = &object["status"]["observedGeneration"];
            (!observed.is_null()).then_some(HELM_CHART)
        }
        ("HelmRelease", "AggregateStatus") => {
            let failures = ["failures", "upgradeFailures", "installFailures"];
            let before = failures.map(|name| object["status"][name].as_i64());
            let differ = failures
                .iter()
                .zip(before)
                .any(|(name, before)| match before {
                    Some(before) => before != 0,
                    None => items().any(|item| item["status"][*name].as_i64().unwrap_or(0) != 0),
                });
            differ.then_some(HELM_FAILURES)
        }
        ("BroadcastJob", "AggregateStatus") => {
            let ended: Vec<bool> = items().map(has_ended).collect();
            let differ = ended.windows(2).any(|pair| pair[0] && !pair[1]);
            differ.then_some(BROADCAST_JOB)
        }
        ("Notebook" | "TFJob", "AggregateStatus") => {
            let known = list(&object["status"]["conditions"]);
            (!known.is_empty()).then_some(TIME)
        }
        ("Workflow", "InterpretDependency") => list(&object["spec"]["volumes"])
            .iter()
            .any(|volume| volume.get("secret").is_some())
            .then_some(WORKFLOW_SECRET),
        ("RayService", "ReviseReplica") => {
            let groups = &case.output["revised"]["spec"]["rayClusterConfig"]["workerGroupSpecs"];
            let negative = |group: &Value| group["replicas"].as_i64().is_some_and(|one| one < 0);
            list(groups).iter().any(negative).then_some(RAY_WORKERS)
        }
        ("Job", "InterpretComponent") if is_error => Some(NO_TEMPLATE),
        _ => None,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns whether the job of a member is complete or has failed.
fn has_ended(item: &Value) -> bool {
    let ends = ["Complete", "Failed"];
    list(&item["status"]["conditions"]).iter().any(|one| {
        one["status"] == "True"
            && one["type"]
                .as_str()
                .is_some_and(|kind| ends.contains(&kind))
    })
}

#[test]
fn the_built_in_rules_answer_as_the_customizations_of_karmada() {
    // Second 0 of the year 2000 is the present of the recording.
    set_calendar_of_thread(|| Timestamp::from_second(946_684_800).unwrap());
    let engine = Engine::default();
    let tally = replay_elsewhere(SUITE, DEVIATIONS, named, |case| {
        let found = answer(&engine, &case.input)
            .unwrap_or_else(|_| json!({ "error": true, "kind": "Error" }));
        same(&comparable(&case.output), &comparable(&found))
    });
    if tally.unwrap().is_none() {
        println!("{SUITE}: MUSTER_VECTORS names no folder with it");
    }
}

fn answer(engine: &Engine, input: &Value) -> Result<Value, Error> {
    let rules = thirdparty::rules();
    let either = |one: &str, other: &str| {
        let found = input.get(one).or_else(|| input.get(other));
        found.cloned().unwrap()
    };
    let observed = either("observed", "object");
    let object = either("object", "observed");
    let items = input["aggregatedStatusItems"].as_array();
    let items = items.map_or(&[][..], Vec::as_slice);
    let name = |one: &Value| one["name"].to_string();
    Ok(match input["operation"].as_str().unwrap() {
        "InterpretReplica" => {
            let found = engine.interpret_replica(rules, &object)?.unwrap();
            json!({ "replica": found.replicas, "requires": found.requirements })
        }
        "InterpretComponent" => {
            let mut found = json!(engine.interpret_component(rules, &object)?.unwrap());
            found.as_array_mut().unwrap().sort_by_key(name);
            json!({ "components": found })
        }
        "ReviseReplica" => {
            let replicas = input["replicas"].as_i64().unwrap().try_into().unwrap();
            json!({ "revised": engine.revise_replica(rules, &object, replicas)?.unwrap() })
        }
        "Retain" => json!({ "retained": engine.retain(rules, &object, &observed)?.unwrap() }),
        "AggregateStatus" => {
            json!({ "aggregatedStatus": engine.aggregate_status(rules, &object, items)?.unwrap() })
        }
        "InterpretStatus" => {
            json!({ "status": engine.interpret_status(rules, &observed)?.unwrap() })
        }
        "InterpretHealth" => {
            json!({ "healthy": engine.interpret_health(rules, &observed)?.unwrap() })
        }
        "InterpretDependency" => {
            json!({ "dependencies": engine.interpret_dependency(rules, &object)?.unwrap() })
        }
        other => panic!("{other} is no operation"),
    })
}

/// Puts lists whose order says nothing in order, and writes quantities one way.
fn comparable(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(comparable).collect(),
        Value::Object(map) => {
            let field = |(key, one): (&String, &Value)| {
                let mut one = match one {
                    Value::Object(amounts) if key == "resourceRequest" => quantities(amounts),
                    other => comparable(other),
                };
                if key == "dependencies" {
                    one.as_array_mut().unwrap().sort_by_key(Value::to_string);
                }
                (key.clone(), one)
            };
            Value::Object(map.iter().map(field).collect())
        }
        other => other.clone(),
    }
}

fn quantities(amounts: &Map<String, Value>) -> Value {
    let quantity = |value: &Value| -> muster_quantity::Quantity {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        text.parse().unwrap()
    };
    let amounts = amounts.iter();
    amounts
        .map(|(name, value)| (name.clone(), json!(quantity(value).nano().to_string())))
        .collect::<Map<_, _>>()
        .into()
}
