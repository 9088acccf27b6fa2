//! Replays recorded choices between policies by Karmada (`policy_selection`).

use std::path::Path;
use std::sync::Arc;

use muster_vectors::{replay, same};
use serde_json::{Map, Value, json};

use super::select::{implicit_priority, winner};
use crate::fleet::policy::Policy;
use crate::fleet::selection::{Subject, strength};
use crate::fleet::template::{Kind, Template, TemplateKey};

#[test]
fn the_policy_that_wins_is_the_one_that_karmada_lets_win() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    replay("policy_selection", &own, &[], |case| {
        same(&case.output, &decide(&case.input))
    })
    .unwrap();
}

fn decide(input: &Value) -> Value {
    let object = &input["object"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let key = TemplateKey {
        kind: Arc::new(Kind::new(
            object["apiVersion"].as_str().unwrap(),
            object["kind"].as_str().unwrap(),
        )),
        namespace: text(&object["metadata"]["namespace"]).filter(|namespace| !namespace.is_empty()),
        name: text(&object["metadata"]["name"]).unwrap(),
    };
    let template = Template::new(object.clone()).unwrap();
    let subject = Subject::of(&key.kind, &template);
    let near = policies(&input["propagationPolicies"]);
    let wide = policies(&input["clusterPropagationPolicies"]);
    let own = near
        .iter()
        .filter(|policy| policy.key().namespace() == key.namespace.as_deref());
    let near_winner = key.namespace.as_ref().and_then(|_| winner(own, subject));
    let wide_winner = winner(&wide, subject);
    let name = |policy: &Policy| match policy.key().namespace() {
        Some(namespace) => format!("{namespace}/{}", policy.key().name()),
        None => policy.key().name().to_owned(),
    };
    let kind = |policy: &Policy| policy.0.reference().kind;
    let chosen = near_winner.or(wide_winner);
    let implicit: Map<_, _> = near
        .iter()
        .chain(&wide)
        .map(|policy| {
            let strength = implicit_priority(policy.spec(), subject) as u8;
            (
                format!("{}/{}", kind(policy).unwrap(), name(policy)),
                json!(strength),
            )
        })
        .collect();
    let strengths = |policies: &[Policy]| -> Value {
        let of = |policy: &Policy| -> Value {
            policy
                .spec()
                .resource_selectors
                .iter()
                .map(|selector| json!(strength(selector, subject) as u8))
                .collect()
        };
        policies.iter().map(of).collect()
    };
    json!({
        "propagationPolicyWinner": near_winner.map(name),
        "clusterPropagationPolicyWinner": wide_winner.map(name),
        "winner": chosen.map(name),
        "winnerKind": chosen.map(kind),
        "implicitPriority": implicit,
        "selectorStrengthPropagationPolicies": strengths(&near),
        "selectorStrengthClusterPropagationPolicies": strengths(&wide),
    })
}

fn policies(list: &Value) -> Vec<Policy> {
    let object = |policy: &Value| {
        let mut metadata = json!({ "namespace": policy["namespace"], "name": policy["name"] });
        if policy["deleting"] == true {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        json!({ "metadata": metadata, "spec": { "priority": policy["priority"], "resourceSelectors": policy["resourceSelectors"] } })
    };
    let parse = |policy: &Value| Policy(serde_json::from_value(object(policy)).unwrap());
    list.as_array().into_iter().flatten().map(parse).collect()
}
