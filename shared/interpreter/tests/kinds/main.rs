//! The built-in rules for kinds of other projects, each said in a case.
//!
//! `third_party.rs` replays recorded answers to them; these cases need no recording.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used)]
// Cases are literals.
#![allow(clippy::needless_pass_by_value)]

mod flux;
mod jobs;
mod kruise;
mod services;
#[path = "../typed/mod.rs"]
mod typed;

use jiff::Timestamp;
use muster_interpreter::lua::{Engine, Error, thirdparty};
use muster_shared::clock::set_calendar_of_thread;
use serde_json::{Value, json};

use crate::typed::Typed;

/// Makes the engine of all scripts here, whose present is 1970-01-01T00:00:00Z.
fn engine() -> Engine {
    set_calendar_of_thread(|| Timestamp::UNIX_EPOCH);
    Engine::default()
}

const NOW: &str = "1970-01-01T00:00:00Z";

/// Returns an object in generation 2, which the agent made of generation 2 of the template.
fn object(kind: (&str, &str), spec: &Value, status: Value) -> Value {
    let mut object = json!({
        "apiVersion": kind.0,
        "kind": kind.1,
        "metadata": {
            "name": "o", "namespace": "n", "generation": 2,
            "annotations": { "resourcetemplate.karmada.io/generation": "2" },
        },
        "spec": spec,
    });
    if !status.is_null() {
        object["status"] = status;
    }
    object
}

fn health(kind: (&str, &str), spec: Value, status: Value) -> Result<bool, Error> {
    let object = object(kind, &spec, status);
    let health = engine().interpret_health(thirdparty::rules(), &object)?;
    Ok(health.unwrap())
}

fn healthy(kind: (&str, &str), status: Value) -> bool {
    health(kind, json!({}), status).unwrap()
}

fn reported(kind: (&str, &str), status: Value) -> Value {
    let object = object(kind, &json!({}), status);
    let status = engine().interpret_status(thirdparty::rules(), &object);
    status.unwrap().unwrap()
}

/// Returns the status of a template, with this status before, of members `m1`, `m2`, ...; null is a
/// status that was not collected.
fn aggregated(kind: (&str, &str), before: Value, members: &[Value]) -> Value {
    let template = object(kind, &json!({}), before);
    let item = |(at, status): (usize, &Value)| {
        let mut item = json!({ "clusterName": format!("m{at}") });
        if !status.is_null() {
            item["status"] = status.clone();
        }
        item
    };
    let items: Vec<Value> = (1..).zip(members).map(item).collect();
    let found = engine().aggregate_status(thirdparty::rules(), &template, &items);
    found.unwrap().unwrap()["status"].clone()
}

fn retained(kind: (&str, &str), desired: Value, observed: Value) -> Value {
    let [desired, observed] = [desired, observed].map(|spec| object(kind, &spec, Value::Null));
    let found = engine().retain(thirdparty::rules(), &desired, &observed);
    found.unwrap().unwrap()["spec"].clone()
}

fn revised(kind: (&str, &str), spec: Value, replicas: i32) -> Value {
    let object = object(kind, &spec, Value::Null);
    let found = engine().revise_replica(thirdparty::rules(), &object, replicas);
    found.unwrap().unwrap()["spec"].clone()
}

/// Returns the number of replicas and the resources that each asks for.
fn replicas(kind: (&str, &str), spec: Value) -> (i32, Value) {
    let object = object(kind, &spec, Value::Null);
    let found = engine().interpret_replica(thirdparty::rules(), &object);
    let found = found.unwrap().unwrap();
    let needs = found.requirements.unwrap_or_default();
    (found.replicas, json!(needs.resource_request))
}

/// Returns the name, number of replicas and resources of each component.
fn components(kind: (&str, &str), spec: Value) -> Vec<(String, i32, Value)> {
    let object = object(kind, &spec, Value::Null);
    let found = engine().interpret_component(thirdparty::rules(), &object);
    let component = |one: muster_shared::api::binding::Component| {
        let needs = one.replica_requirements.unwrap_or_default();
        (one.name, one.replicas, json!(needs.resource_request))
    };
    found.unwrap().unwrap().into_iter().map(component).collect()
}

/// Dependencies as `Kind/name`.
fn dependencies(kind: (&str, &str), spec: Value) -> Vec<String> {
    let object = object(kind, &spec, Value::Null);
    let found = engine().interpret_dependency(thirdparty::rules(), &object);
    let found = found.unwrap().unwrap().into_iter();
    found
        .map(|one| {
            assert_eq!(one.namespace.as_deref(), Some("n"));
            format!("{}/{}", one.kind, one.name.unwrap())
        })
        .collect()
}

/// Returns a pod template that asks for CPU, mounts a Secret and reads a ConfigMap.
fn template(cpu: &str) -> Value {
    json!({ "spec": {
        "containers": [{
            "name": "c",
            "resources": { "requests": { "cpu": cpu } },
            "envFrom": [{ "configMapRef": { "name": "settings" } }],
        }],
        "volumes": [{ "name": "v", "secret": { "secretName": "key" } }],
    } })
}

const OF_TEMPLATE: [&str; 2] = ["ConfigMap/settings", "Secret/key"];

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason })
}
