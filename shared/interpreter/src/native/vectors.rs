//! Replays recorded decisions of Karmada's default interpreter (`interpreter_native`, `prune`).

use std::path::Path;

use jiff::Timestamp;
use muster_quantity::Quantity;
use muster_shared::api::binding::AggregatedStatusItem;
use muster_shared::k8s::RawExtension;
use muster_vectors::{Case, Deviation, replay, replay_naming, same};
use serde_json::{Map, Value, json};

use super::{
    Error, Operation, aggregate_status, dependencies, health, hook_enabled, interpret_replica,
    prune, retain, revise_replica, status,
};

const NATIVE: &str = "interpreter_native";
const PRUNE: &str = "prune";

/// What the recording does not mark: one entry of `tls` without a secret is an error for all of
/// them.
const NAMELESS: &str =
    "an entry of tls without secretName makes the dependencies of an Ingress an error";

fn unmarked(case: &Case) -> Option<&'static str> {
    let object = &case.input["object"];
    let asks = case.input["operation"] == "InterpretDependency" && object["kind"] == "Ingress";
    let mut entries = object["spec"]["tls"].as_array().into_iter().flatten();
    let nameless = |entry: &Value| entry["secretName"].as_str().unwrap_or_default().is_empty();
    (asks && entries.any(nameless)).then_some(NAMELESS)
}

/// Recorded behaviour that we do not copy.
const DEVIATIONS: &[Deviation] = &[
    Deviation {
        suite: NATIVE,
        quirk: "names, images and restart counts of containers are dropped",
        reason: "a container without a name says nothing to whoever looks at the template",
    },
    Deviation {
        suite: NATIVE,
        quirk: "the template generation test compares the member's two own numbers instead of the template's generation, unlike the other kinds",
        reason: "all kinds alike: the template is observed when all members have observed a copy of its present generation",
    },
    Deviation {
        suite: NATIVE,
        quirk: "a missing or non-numeric template generation annotation makes the status unreadable (error) instead of counting as 0",
        reason: "it counts as 0: a bad annotation must not hide a running workload",
    },
    Deviation {
        suite: NATIVE,
        quirk: "observedGeneration is left out of the reflected status",
        reason: "it is reported, or the template's could never advance",
    },
    Deviation {
        suite: NATIVE,
        quirk: NAMELESS,
        reason: "the field is optional: such an entry needs nothing, and the secrets of the others go along",
    },
    Deviation {
        suite: PRUNE,
        quirk: "of two adjacent generated tokens the second survives",
        reason: "every generated token is dropped",
    },
];

#[test]
fn the_native_rules_answer_as_karmada_does() {
    replay_naming(NATIVE, &own(), DEVIATIONS, unmarked, |case| {
        let found =
            interpret(&case.input).unwrap_or_else(|_| json!({ "error": true, "kind": "Error" }));
        let aggregates = case.input["operation"] == "AggregateStatus";
        same(
            &comparable(&case.output, aggregates, false),
            &comparable(&found, aggregates, false),
        )
    })
    .unwrap();
}

#[test]
fn a_case_of_an_aggregation_that_has_no_rule_may_have_neither_items_nor_a_time() {
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    for items in [json!(null), json!([]), json!([{}])] {
        let input = json!({
            "operation": "AggregateStatus", "object": config_map, "aggregatedStatusItems": items,
        });
        let found = interpret(&input);
        assert!(matches!(found, Err(Error::Unsupported { .. })), "{found:?}");
    }
}

#[test]
fn server_populated_fields_are_pruned_as_karmada_does() {
    replay(PRUNE, &own(), DEVIATIONS, |case: &Case| {
        let mut object = case.input["object"].clone();
        prune(&mut object);
        same(&case.output["object"], &object)
    })
    .unwrap();
}

fn own() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn interpret(input: &Value) -> Result<Value, Error> {
    let object = &input["object"];
    let hook = |operation| {
        hook_enabled(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
            operation,
        )
    };
    let operation = input["operation"].as_str().unwrap();
    let unsupported = || Error::Unsupported {
        operation: Operation::InterpretReplica,
        kind: operation.to_owned(),
    };
    Ok(match operation {
        "HookEnabled" => Operation::ALL
            .iter()
            .map(|operation| (operation.to_string(), Value::Bool(hook(*operation))))
            .collect(),
        "InterpretReplica" => {
            let found = interpret_replica(object)?.ok_or_else(unsupported)?;
            json!({ "replicas": found.replicas, "requirements": found.requirements })
        }
        "ReviseReplica" => {
            json!({ "object": revise_replica(object.clone(), input["replicas"].as_i64().unwrap())? })
        }
        "Retain" => json!({ "object": retain(object.clone(), &input["observed"])? }),
        "InterpretHealth" => json!({ "healthy": health(object)?.ok_or_else(unsupported)? }),
        "InterpretStatus" => json!({ "status": status(object)? }),
        "InterpretDependency" => {
            let mut found = json!(dependencies(object)?.ok_or_else(unsupported)?);
            let order =
                |one: &Value| ["apiVersion", "kind", "name"].map(|key| one[key].to_string());
            found.as_array_mut().unwrap().sort_by_key(order);
            json!({ "dependencies": found })
        }
        "AggregateStatus" => {
            let items = input["aggregatedStatusItems"]
                .as_array()
                .map_or(&[][..], Vec::as_slice);
            let members: Vec<_> = items
                .iter()
                .map(|item| AggregatedStatusItem {
                    cluster_name: item["clusterName"].as_str().unwrap_or_default().to_owned(),
                    status: item.get("status").cloned().map(RawExtension),
                    ..AggregatedStatusItem::default()
                })
                .collect();
            let now = input["now"].as_str();
            let now = now.map_or(Timestamp::UNIX_EPOCH, |now| now.parse().unwrap());
            json!({ "status": aggregate_status(object, &members, now)?.unwrap_or_else(|| object["status"].clone()) })
        }
        // Nothing native consists of several pod templates.
        _ => return Err(unsupported()),
    })
}

/// Writes quantities one way and drops what Go's encoding of most types leaves out: empty texts
/// and, in aggregated statuses, zeros.
fn comparable(value: &Value, aggregates: bool, quantity: bool) -> Value {
    match value {
        Value::String(text) if text.is_empty() => Value::Null,
        Value::String(text) if quantity => json!(text.parse::<Quantity>().unwrap().to_string()),
        Value::Number(number) if aggregates && number.as_f64() == Some(0.0) => Value::Null,
        Value::Array(list) => list
            .iter()
            .map(|one| comparable(one, aggregates, quantity))
            .collect(),
        Value::Object(map) => {
            let quantities = ["requests", "limits", "overhead", "resourceRequest"];
            let field = |(key, one): (&String, &Value)| {
                (
                    key.clone(),
                    comparable(
                        one,
                        aggregates,
                        quantity || quantities.contains(&key.as_str()),
                    ),
                )
            };
            Value::Object(map.iter().map(field).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}
