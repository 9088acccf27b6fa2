//! Each operation, and the check of what it returns.

use std::thread;

use crate::typed::Typed;
use muster_interpreter::Operation;
use muster_interpreter::lua::{Customization, Engine, Error, Rules};
use serde_json::{Value, json};

use super::{rules, widget};

#[test]
fn each_operation_checks_what_its_function_returns() {
    let engine = Engine::default();
    let object = widget(&json!({}));
    let path = |operation: Operation, result: &str| {
        let text = format!("function {}() return {result} end", operation.function());
        let rules = rules(&[(operation, &text)]);
        let error = match operation {
            Operation::InterpretReplica => engine.interpret_replica(&rules, &object).map(drop),
            Operation::InterpretComponent => engine.interpret_component(&rules, &object).map(drop),
            Operation::ReviseReplica => engine.revise_replica(&rules, &object, 1).map(drop),
            Operation::Retain => engine.retain(&rules, &object, &object).map(drop),
            Operation::AggregateStatus => engine.aggregate_status(&rules, &object, &[]).map(drop),
            Operation::InterpretDependency => {
                engine.interpret_dependency(&rules, &object).map(drop)
            }
            Operation::InterpretStatus => engine.interpret_status(&rules, &object).map(drop),
            Operation::InterpretHealth => engine.interpret_health(&rules, &object).map(drop),
        };
        match error {
            Err(Error::Result { path, .. }) => path,
            other => panic!("{operation} {result}: {other:?}"),
        }
    };
    let selector = "1, { nodeClaim = { nodeSelector = { a = 1 } } }";
    let of_selector = "requires.nodeClaim.nodeSelector";
    let cpu = "1, { resourceRequest = { cpu = true } }";
    let of_cpu = "requires.resourceRequest.cpu";
    let tolerations = "1, { nodeClaim = { tolerations = { a = 1 } } }";
    let of_tolerations = "requires.nodeClaim.tolerations";
    let much = "1, { resourceRequest = { cpu = 'much' } }";
    let claim = "1, { nodeClaim = 3 }";
    let named = "{ { name = 'a', replicas = 'x' } }";
    let second = "{ { name = 'a' }, { replicas = 1.5 } }";
    let kind = "{ { kind = 'Secret' } }";
    let no_kind = "{ { apiVersion = 'v1', name = 'a' } }";
    let no_name = "{ { apiVersion = 'v1', kind = 'Secret' } }";
    let gadget = "{ apiVersion = 'example.com/v1', kind = 'Gadget' }";
    for (operation, result, expected) in [
        (Operation::InterpretReplica, "'3'", "replicas"),
        (Operation::InterpretReplica, "nil", "replicas"),
        (Operation::InterpretReplica, "-1", "replicas"),
        (Operation::InterpretReplica, "0 / 0", "replicas"),
        (Operation::InterpretReplica, "1, 'x'", "requires"),
        (Operation::InterpretReplica, selector, of_selector),
        (Operation::InterpretReplica, cpu, of_cpu),
        (Operation::InterpretReplica, much, of_cpu),
        (Operation::InterpretReplica, claim, "requires.nodeClaim"),
        (Operation::InterpretReplica, tolerations, of_tolerations),
        (Operation::InterpretComponent, "1", "result"),
        (Operation::InterpretComponent, named, "result[1].replicas"),
        (Operation::InterpretComponent, second, "result[2].replicas"),
        (Operation::ReviseReplica, "nil", "result"),
        (Operation::ReviseReplica, "{ a = 1 }", "result.apiVersion"),
        (Operation::Retain, "true", "result"),
        (Operation::Retain, gadget, "result.kind"),
        (Operation::AggregateStatus, "{}", "result.apiVersion"),
        (Operation::InterpretStatus, "nil", "result"),
        (Operation::InterpretHealth, "1", "result"),
        (Operation::InterpretHealth, "nil", "result"),
        (Operation::InterpretDependency, "nil", "result"),
        (Operation::InterpretDependency, kind, "result[1].apiVersion"),
        (Operation::InterpretDependency, no_kind, "result[1].kind"),
        (Operation::InterpretDependency, no_name, "result[1]"),
    ] {
        assert_eq!(path(operation, result), expected, "{operation} {result}");
    }
}

#[test]
fn operations_without_a_script_have_no_answer() {
    let engine = Engine::default();
    let none = Rules::default();
    let object = widget(&json!({}));
    assert_eq!(engine.interpret_health(&none, &object), Ok(None));
    assert_eq!(engine.interpret_dependency(&none, &object), Ok(None));
    assert_eq!(engine.interpret_health(&none, &Value::Null), Ok(None));
}

#[test]
fn dependencies_of_all_scripts_go_together() {
    let engine = Engine::default();
    let customization = |name: &str, refs: &str| {
        let script = format!("function GetDependencies() return {refs} end");
        let scripts = [(Operation::InterpretDependency, script.as_str())];
        Customization::new(name, ("example.com/v1", "Widget"), &scripts)
    };
    let secret = |name: &str| format!("{{ apiVersion = 'v1', kind = 'Secret', name = '{name}' }}");
    let config = secret("y").replace("Secret", "ConfigMap");
    let rules = Rules::new(&[
        customization("b", &format!("{{ {}, {} }}", secret("z"), secret("a"))),
        customization("a", &format!("{{ {}, {config} }}", secret("z"))),
        customization("c", "{}"),
    ]);
    let found = engine
        .interpret_dependency(&rules, &widget(&json!({})))
        .unwrap()
        .unwrap();
    let names: Vec<_> = found.iter().map(|one| one.name.clone().unwrap()).collect();
    assert_eq!(names, ["y", "a", "z"]);
}

#[test]
fn replicas_and_components_are_read_with_their_requirements() {
    let engine = Engine::default();
    let needs = "{ resourceRequest = { cpu = 0.5, memory = '1024Mi' }, nodeClaim = {}, priorityClassName = 'high' }";
    let replicas = format!("function GetReplicas() return 2.9, {needs} end");
    let components = format!(
        "function GetComponents() return {{ {{ name = 'a', replicas = 1, replicaRequirements = {needs} }} }} end"
    );
    let rules = rules(&[
        (Operation::InterpretReplica, &replicas),
        (Operation::InterpretComponent, &components),
    ]);
    let object = widget(&json!({}));
    let found = engine.interpret_replica(&rules, &object).unwrap().unwrap();
    let expected = json!({ "resourceRequest": { "cpu": "500m", "memory": "1Gi" }, "priorityClassName": "high" });
    assert_eq!(
        (found.replicas, json!(found.requirements)),
        (2, expected.clone())
    );
    let found = engine.interpret_component(&rules, &object).unwrap();
    assert_eq!(
        json!(found),
        json!([{ "name": "a", "replicas": 1, "replicaRequirements": expected }])
    );
}

#[test]
fn a_script_that_returns_nothing_finds_no_components() {
    let text = "function GetComponents() end";
    let rules = rules(&[(Operation::InterpretComponent, text)]);
    let found = Engine::default().interpret_component(&rules, &widget(&json!({})));
    assert_eq!(found, Ok(Some(Vec::new())));
}

#[test]
fn many_threads_share_one_engine() {
    let engine = Engine::default();
    let text = "function InterpretHealth(o) return o.status.number % 2 == 0 end";
    let rules = rules(&[(Operation::InterpretHealth, text)]);
    thread::scope(|scope| {
        for number in 0..8 {
            let (engine, rules) = (&engine, &rules);
            scope.spawn(move || {
                let object = widget(&json!({ "number": number }));
                for _ in 0..50 {
                    let found = engine.interpret_health(rules, &object);
                    assert_eq!(found, Ok(Some(number % 2 == 0)));
                }
            });
        }
    });
}
