//! JSONPath templates of users, on documents of members.

use muster_fuzz::{Fuzz, Random, sentence};
use muster_shared::jsonpath::{Error, OUTPUT, Template};
use serde_json::{Value, json};

use crate::MEMORY;
use crate::documents::same;

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

/// Returns a path of fields and indices that can be written as a template and as a JSON pointer.
fn plain_path(random: &mut Random) -> Vec<u8> {
    let parts = ["a", "b", "items", "name", "n", "0", "1", "2", "5"];
    let path: Vec<&str> = (0..=random.below(4))
        .map(|_| *random.one_of(&parts))
        .collect();
    path.join("/").into_bytes()
}

#[test]
fn a_path_of_fields_and_indices_leads_where_a_json_pointer_leads() {
    let document = document();
    Fuzz::new("jsonpath-plain")
        .words(&["/", "a", "b", "items", "name", "n", "0", "1", "2", "9"])
        .generator(plain_path)
        .executions(5_000)
        .longest(100)
        .memory(MEMORY)
        .run_text(|text| {
            if !text
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || b"/0123456789".contains(&byte))
            {
                return "other".to_owned();
            }
            let (mut template, mut pointer) = (String::from("{"), String::new());
            for part in text.split('/').filter(|part| !part.is_empty()) {
                // An index of JSON pointers has no zeros in front, and names are no numbers.
                let is_index = part
                    .parse::<u8>()
                    .is_ok_and(|index| index.to_string() == part);
                match is_index {
                    true => template.extend(["[", part, "]"]),
                    false if part.starts_with(|c: char| c.is_ascii_lowercase()) => {
                        template.extend([".", part]);
                    }
                    false => return "other".to_owned(),
                }
                pointer.extend(["/", part]);
            }
            template.push('}');
            let expected = document.pointer(&pointer);
            let result = Template::parse(&template).unwrap().render(&document);
            match (&result, expected) {
                (Ok(text), Some(Value::String(expected))) => assert_eq!(text, expected),
                (Ok(text), Some(expected)) => {
                    let read: Value = serde_json::from_str(text).unwrap();
                    assert!(same(&read, expected), "{template}: {text}");
                }
                // Nothing is at an index of null, and the first field of nothing is no error.
                (Ok(text), None) => {
                    assert!(text.is_empty() && template.contains('['), "{template}");
                }
                (Err(_), None) => {}
                (Err(error), Some(_)) => panic!("{template}: {error}"),
            }
            format!("{} {pointer}", result.is_ok())
        });
}
