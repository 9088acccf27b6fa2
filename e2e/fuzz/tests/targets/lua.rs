//! Scripts and customizations of any bytes.

use std::time::Duration;

use muster_fuzz::{Fuzz, Memory, sentence};
use muster_interpreter::lua::{Customization, Engine, Error, Limits, Rules};
use muster_interpreter::{Answer, Operation, Question};
use serde_json::{Value, json};

use crate::MEMORY;

/// Lua itself allocates in C, where nothing is counted, and has a limit of its own.
const LIMITS: Limits = Limits {
    memory: 8 << 20,
    instructions: 100_000,
    time: Duration::from_secs(5),
};

fn rules(operation: Operation, script: &str) -> Rules {
    Rules::new(&[Customization {
        name: "widgets".to_owned(),
        api_version: "example.com/v1".to_owned(),
        kind: "Widget".to_owned(),
        scripts: [(operation, script.to_owned())].into(),
    }])
}

/// Returns the status that the rules report for an object.
fn reported(engine: &Engine, rules: &Rules, object: &Value) -> Result<Option<Value>, Error> {
    let question = Question::new(Operation::InterpretStatus, object);
    Ok(match engine.answer(rules, &question)? {
        Some(Answer::Status(status)) => status,
        _ => None,
    })
}

fn widget(status: &Value) -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "metadata": { "name": "w" },
        "spec": { "replicas": 2 }, "status": status })
}

const LUA: &[&str] = &[
    "function ReflectStatus(object)\n",
    "return ",
    "object",
    ".status",
    "end ",
    "if ",
    "then ",
    "else ",
    "while true do ",
    "for i = 1, 10 do ",
    "for k, v in pairs(object) do ",
    "local x = ",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "[[",
    "]]",
    "--",
    "--[[",
    "\"",
    "'",
    "..",
    "...",
    "#",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "==",
    "~=",
    "<=",
    "nil",
    "true",
    "x",
    "1",
    "1e308",
    "0x7f",
    "repeat ",
    "until ",
    "break ",
    "string.find(",
    "string.format(",
    "string.rep(",
    "table.concat(",
    "table.insert(",
    "table.sort(",
    "table.remove(",
    "pcall(",
    "error(",
    "require(\"kube\")",
    ".resourceAdd(",
    ".getResourceQuantity(",
    ".accuratePodRequirements(",
    ".getPodDependencies(",
    "tostring(",
    "tonumber(",
    "math.huge",
    "math.random(",
    "os.date(",
    "os.time(",
    "select(",
    "unpack(",
    "setmetatable(",
    "getfenv(",
    "loadstring(",
    "_G",
    "\\",
    "\u{1b}Lua",
    ";",
    "= ",
    ", ",
    "function() ",
    "goto ",
    "string.char(",
    "string.byte(",
    "string.sub(",
    "\"%s\"",
    "\"*!t\"",
];

#[test]
fn a_script_of_any_bytes_ends_within_its_limits() {
    let engine = Engine::new(LIMITS);
    let object = widget(&json!({ "a": [1, 2, { "b": "x" }], "cpu": "100m" }));
    Fuzz::new("lua-script")
        .words(LUA)
        .generator(|random| {
            let mut body = b"function ReflectStatus(object)\n".to_vec();
            body.extend(sentence(LUA, random));
            body.extend(b"\nend");
            body
        })
        .executions(3_000)
        .longest_time(Duration::from_secs(2))
        .memory(Memory {
            base: 32 << 20,
            ..MEMORY
        })
        .run_text(|script| {
            let rules = rules(Operation::InterpretStatus, script);
            match reported(&engine, &rules, &object) {
                Ok(Some(status)) => {
                    // What a script returns can be written and read again.
                    let text = status.to_string();
                    let read: Value = serde_json::from_str(&text).unwrap();
                    assert_eq!(read.to_string(), text);
                    format!("returns {text}")
                }
                Ok(None) => "no rule".to_owned(),
                Err(error @ Error::Limit { .. }) => error.to_string(),
                Err(error) => {
                    let message = error.to_string();
                    assert!(message.chars().count() <= 1_200, "{message}");
                    message
                }
            }
        });
}

#[test]
fn an_object_is_a_customization_or_refused() {
    Fuzz::new("customization")
        .words(&[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "null",
            "\"metadata\"",
            "\"name\"",
            "\"spec\"",
            "\"target\"",
            "\"apiVersion\"",
            "\"kind\"",
            "\"customizations\"",
            "\"luaScript\"",
            "\"retention\"",
            "\"\"",
            "\"x\"",
            "1",
        ])
        .executions(2_000)
        .memory(Memory {
            base: 16 << 20,
            ..MEMORY
        })
        .run_text(|text| {
            let Ok(object) = serde_json::from_str::<Value>(text) else {
                return "no JSON".to_owned();
            };
            match serde_json::from_value(object) {
                Ok(object) => {
                    let customization = Customization::of(&object);
                    let checked = muster_interpreter::lua::check(&customization, LIMITS);
                    format!(
                        "{} {:?}",
                        customization.scripts.len(),
                        checked.err().map(|it| it.len())
                    )
                }
                Err(error) => error.to_string(),
            }
        });
}
