//! JSONPath templates of users, on documents of members.

use muster_fuzz::{Fuzz, sentence};
use muster_shared::jsonpath::{Error, OUTPUT, Template};
use serde_json::{Value, json};

use crate::MEMORY;

const WORDS: &[&str] = &[
    "{",
    "}",
    "{.",
    "{range ",
    "{end}",
    ".",
    "..",
    "*",
    "[",
    "]",
    "[*]",
    "[0]",
    "[-1]",
    "[1:2]",
    "[::2]",
    "[0,1]",
    "['a']",
    "[?(@",
    ")]",
    "@",
    "$",
    "==",
    "!=",
    "<",
    ">=",
    "\"x\"",
    "'x'",
    "\\",
    ".items",
    ".a",
    ".b",
    ".name",
    "name",
    "true",
    "1",
    "1.5",
    "-",
    ":",
    ",",
    " ",
    "\n",
    "(",
    ")",
    "[?(@.a==1.0)]",
    "[?(@.name=='x')]",
    "{range .items[*]}{.name}{end}",
    ".\\.x",
];

fn document() -> Value {
    json!({
        "a": { "b": [1, 2.5, "x", null, true], "name": "x", ".x": 1 },
        "items": [
            { "name": "x", "a": 1 }, { "name": "y", "a": 1.5, "b": {} }, { "a": [[], [1]] },
        ],
        "name": "<&>\u{2028}é",
        "n": [0, -1, 1e21, 1e-7, 18_446_744_073_709_551_615_u64],
    })
}

#[test]
fn a_template_has_a_bounded_result_or_a_short_error() {
    let document = document();
    Fuzz::new("jsonpath")
        .words(WORDS)
        .generator(|random| sentence(WORDS, random))
        .executions(20_000)
        .memory(MEMORY)
        .run_text(|text| {
            let template = match Template::parse(text) {
                Ok(template) => template,
                Err(error) => return short(&error),
            };
            match template.render(&document) {
                Ok(result) => {
                    assert!(result.len() <= OUTPUT);
                    if !text.contains('{') {
                        assert_eq!(result, text);
                    }
                    format!("renders {result}")
                }
                Err(error) => short(&error),
            }
        });
}

/// Returns the message of an error, which must fit into a condition.
fn short(error: &Error) -> String {
    let message = error.to_string();
    assert!(message.chars().count() <= 250, "{message}");
    message
}
