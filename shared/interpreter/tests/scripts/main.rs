//! Scripts of users, good and bad: what they can do, and what they cannot.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // how long scripts really run

mod errors;
mod kube;
mod limits;
mod operations;
mod sandbox;
#[path = "../typed/mod.rs"]
mod typed;
mod values;

use std::time::Duration;

use muster_interpreter::Operation;
use muster_interpreter::lua::{Customization, Engine, Error, Limit, Limits, Rules};
use serde_json::{Value, json};

use crate::typed::Typed;

fn rules(scripts: &[(Operation, &str)]) -> Rules {
    let widgets = ("example.com/v1", "Widget");
    Rules::new(&[Customization::new("widgets", widgets, scripts)])
}

fn widget(status: &Value) -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": { "name": "w", "namespace": "n" },
        "spec": {},
        "status": status,
    })
}

/// Returns what a script with this body of `ReflectStatus` reports.
fn reported(body: &str, status: &Value) -> Result<Value, Error> {
    // Long, so that a slow machine makes no difference.
    let engine = Engine::new(Limits {
        time: Duration::from_secs(100),
        ..Limits::default()
    });
    reported_with(&engine, body, status)
}

fn reported_with(engine: &Engine, body: &str, status: &Value) -> Result<Value, Error> {
    let text = format!("function ReflectStatus(object)\n{body}\nend");
    let rules = rules(&[(Operation::InterpretStatus, &text)]);
    Ok(engine.interpret_status(&rules, &widget(status))?.unwrap())
}

/// Returns the value of an expression.
fn value(expression: &str) -> Value {
    let found = reported(&format!("return {{ value = {expression} }}"), &json!({}));
    found.unwrap_or_else(|error| panic!("{expression}: {error}"))["value"].clone()
}

/// Returns the line and message of the error that a body raises.
fn raised(body: &str) -> (u32, String) {
    match reported(body, &json!({})) {
        Err(Error::Script { line, message, .. }) => (line, message),
        other => panic!("{body}: {other:?}"),
    }
}

/// Returns the place and finding of the complaint about what a body returns.
fn refused(body: &str) -> (String, String) {
    match reported(body, &json!({})) {
        Err(Error::Result { path, found, .. }) => (path, found),
        other => panic!("{body}: {other:?}"),
    }
}

fn small() -> Limits {
    Limits {
        memory: 4 << 20,
        instructions: 1_000_000,
        // Long, so that the other limits are met first, however slow the machine is.
        time: Duration::from_secs(100),
    }
}

fn limit(limits: Limits, body: &str) -> Limit {
    match reported_with(&Engine::new(limits), body, &json!({})) {
        Err(Error::Limit { limit, .. }) => limit,
        other => panic!("{body}: {other:?}"),
    }
}
