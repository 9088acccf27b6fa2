//! Replays recorded answers of the customizations that Karmada ships
//! (`interpreter_thirdparty_lua`).
//!
//! The inputs are test data of Karmada and not part of this project: they are read from the folder
//! that `MUSTER_VECTORS` names. Without it, the cases of `kinds.rs` are the test.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use muster_interpreter::{Engine, Error, Limits, thirdparty};
use muster_vectors::{Case, Deviation, replay_elsewhere, same};
use serde_json::{Map, Value, json};

const SUITE: &str = "interpreter_thirdparty_lua";

const UNUSED_SIDECAR_SET: &str = "a SidecarSet that runs in no member cannot be aggregated";
const HELM_CHART: &str = "the reported status of a HelmChart lacks observedGeneration";

const DEVIATIONS: &[Deviation] = &[
    Deviation {
        suite: SUITE,
        quirk: UNUSED_SIDECAR_SET,
        reason: "its counts are 0, as for the other kinds of Kruise: an error would be repeated for ever",
    },
    Deviation {
        suite: SUITE,
        quirk: HELM_CHART,
        reason: "it is reported, or that of the template could never advance",
    },
];

/// Quirks that the recording does not mark.
fn named(case: &Case) -> Option<&'static str> {
    let input = &case.input;
    match (input["kind"].as_str()?, input["operation"].as_str()?) {
        ("SidecarSet", "AggregateStatus") if input.get("aggregatedStatusItems").is_none() => {
            Some(UNUSED_SIDECAR_SET)
        }
        ("HelmChart", "InterpretStatus") => {
            let observed = &input["observed"]["status"]["observedGeneration"];
            (!observed.is_null()).then_some(HELM_CHART)
        }
        _ => None,
    }
}

#[test]
fn the_built_in_rules_answer_as_the_customizations_of_karmada() {
    // Second 0 of the year 2000 is the present of the recording.
    let engine = Engine::with_clock(Limits::default(), Arc::new(|| 946_684_800));
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
            let replicas = input["replicas"].as_i64().unwrap();
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
