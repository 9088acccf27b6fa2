//! Prints how many calls a second one core makes of two scripts that report a status: a short one
//! of a user, and the built-in one for a CloneSet of Kruise.
//!
//! `cargo run --release -p muster-interpreter --example rate`

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use muster_interpreter::lua::{Customization, Engine, Error, Rules, thirdparty};
use muster_interpreter::{Operation, Question};
use serde_json::{Value, json};

/// Time that each script is called for.
const TIME: Duration = Duration::from_secs(2);

fn main() -> Result<(), Error> {
    let text = "function ReflectStatus(object)
        local status = object.status
        return {
            phase = status.phase,
            ready = status.readyReplicas == object.spec.replicas,
            replicas = status.replicas,
        }
    end";
    let rules = Rules::new(&[Customization {
        name: "widgets".to_owned(),
        api_version: "example.com/v1".to_owned(),
        kind: "Widget".to_owned(),
        scripts: vec![(Operation::InterpretStatus, text.to_owned())],
    }]);
    let engine = Engine::default();
    measure(
        &engine,
        "customization",
        &rules,
        &object("example.com/v1", "Widget"),
    )?;
    let clone_set = object("apps.kruise.io/v1alpha1", "CloneSet");
    measure(&engine, "built-in rule", thirdparty::rules(), &clone_set)
}

#[allow(clippy::disallowed_methods)] // what is measured is real
fn measure(engine: &Engine, what: &str, rules: &Rules, object: &Value) -> Result<(), Error> {
    let start = Instant::now();
    let mut calls = 0_u32;
    let question = Question::new(Operation::InterpretStatus, object);
    while start.elapsed() < TIME {
        for _ in 0..100 {
            black_box(engine.answer(rules, &question)?);
        }
        calls += 100;
    }
    let rate = f64::from(calls) / start.elapsed().as_secs_f64();
    let bytes = object.to_string().len();
    println!("{what}: {rate:.0} calls a second of an object of {bytes} bytes");
    Ok(())
}

/// Returns a workload as a member has it, with a pod template, managed fields and conditions.
fn object(api_version: &str, kind: &str) -> Value {
    let managed = |manager: &str| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": api_version,
            "fieldsV1": { "f:spec": { "f:replicas": {}, "f:template": { "f:spec": {} } } },
        })
    };
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "AsWanted", "message": "All is as wanted.",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z",
        })
    };
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": "shop", "namespace": "default", "generation": 3, "resourceVersion": "4711",
            "uid": "0ba3cb3c-f39b-4e2f-8d5d-2c4b8b0f6f55",
            "labels": { "app": "shop", "tier": "web" },
            "annotations": { "resourcetemplate.karmada.io/generation": "3" },
            "managedFields": [managed("agent"), managed("controller")],
        },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "shop" } },
            "template": {
                "metadata": { "labels": { "app": "shop" } },
                "spec": { "containers": [{
                    "name": "shop", "image": "registry.example.com/shop:1.2.3",
                    "ports": [{ "containerPort": 8080 }],
                    "env": [{ "name": "LEVEL", "value": "info" }],
                    "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
                }] },
            },
        },
        "status": {
            "phase": "Running", "observedGeneration": 3, "replicas": 3, "readyReplicas": 3,
            "updatedReplicas": 3, "availableReplicas": 3, "updatedReadyReplicas": 3,
            "currentRevision": "shop-7d9f", "updateRevision": "shop-7d9f",
            "conditions": [condition("Ready"), condition("Progressing")],
        },
    })
}
