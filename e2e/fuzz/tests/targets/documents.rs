//! JSON documents: statuses of members.

use muster_fuzz::{Fuzz, Random};
use muster_shared::work_status;
use serde_json::{Value, json};

use crate::MEMORY;

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "1.0",
    "1e3",
    "-7",
    "\"\"",
    "\"a\"",
    "\"b\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"é\"",
    "{}",
    "[]",
    "{\"a\":",
    "[[",
];

/// Makes a document.
fn document(random: &mut Random) -> Value {
    value(random, 4)
}

fn value(random: &mut Random, depth: usize) -> Value {
    let keys = ["a", "b", "c", "1", "", "é"];
    match random.below(if depth == 0 { 7 } else { 11 }) {
        0 => Value::Null,
        1 => random.once_in(2).into(),
        2 => json!(random.below(3)),
        3 => json!(i64::from_le_bytes(random.bits().to_le_bytes())),
        4 => Value::from(f64::from_bits(random.bits())),
        5 => (*random.one_of(&["", "a", "\0", "\u{2028}", "1"])).into(),
        6 => (*random.one_of(&[json!({}), json!([]), json!(1.5), json!(-0.0)])).clone(),
        7 | 8 => (0..random.below(4))
            .map(|_| value(random, depth - 1))
            .collect(),
        _ => {
            let entries = (0..random.below(4))
                .map(|_| ((*random.one_of(&keys)).to_owned(), value(random, depth - 1)));
            Value::Object(entries.collect())
        }
    }
}

/// Levels of nesting, computed by recursion.
fn levels(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(levels).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

#[test]
fn a_status_that_is_carried_is_within_its_limits_and_can_be_read_again() {
    Fuzz::new("status")
        .words(WORDS)
        .generator(|random| document(random).to_string().into_bytes())
        .executions(10_000)
        .memory(MEMORY)
        .run_text(|text| {
            let Ok(status) = serde_json::from_str::<Value>(text) else {
                return "no JSON".to_owned();
            };
            let written = status.to_string();
            assert_eq!(work_status::length(&status), written.len());
            assert_eq!(work_status::depth(&status), levels(&status));
            let checked = work_status::check(&status);
            let fits = levels(&status) <= work_status::DEEPEST_STATUS
                && written.len() <= work_status::LONGEST_STATUS;
            assert_eq!(checked.is_ok(), fits);
            if fits {
                // In a Work, whose reader ends at 128 levels.
                let work = json!({ "status": { "manifestStatuses": [{ "status": status }] } });
                let read: Value = serde_json::from_str(&work.to_string()).unwrap();
                assert_eq!(read, work);
            }
            format!("{checked:?} {}", levels(&status).min(8))
        });
}
