//! Estimates the memory that an answer takes once it is parsed: many times that of its text. Pure.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::context::Answer;

/// Bytes of a value without its content, and of an allocation.
const NODE: usize = 48;
/// Bytes of a map with few fields: its first node is as large as one of eleven.
const MAP: usize = 640;
/// Bytes of a field in it.
const FIELD: usize = 64;
/// Bytes of a typed answer for each byte of its text: the types have many fields that are absent.
const TYPED: usize = 16;

/// Bytes of an answer whose text had this length.
pub(super) fn of(answer: &Answer, text: usize) -> usize {
    NODE + match answer {
        Answer::Object(patch, asked) => {
            patched(patch) + asked.as_ref().map_or(0, bytes::Bytes::len)
        }
        Answer::Status(status) => value(status),
        Answer::Replicas(..) | Answer::Components(_) | Answer::Dependencies(_) => text * TYPED,
        Answer::Health(_) => 0,
    }
}

fn patched(patch: &Patch) -> usize {
    let operation = |operation: &PatchOperation| {
        let (pointers, placed) = match operation {
            PatchOperation::Add(it) => (it.path.as_str().len(), value(&it.value)),
            PatchOperation::Replace(it) => (it.path.as_str().len(), value(&it.value)),
            PatchOperation::Test(it) => (it.path.as_str().len(), value(&it.value)),
            PatchOperation::Remove(it) => (it.path.as_str().len(), 0),
            PatchOperation::Move(it) => (it.path.as_str().len() + it.from.as_str().len(), 0),
            PatchOperation::Copy(it) => (it.path.as_str().len() + it.from.as_str().len(), 0),
        };
        size_of::<PatchOperation>() + 2 * NODE + pointers + placed
    };
    patch.0.iter().map(operation).sum()
}

/// Bytes of a value. Parsed values are at most 128 levels deep.
fn value(value: &Value) -> usize {
    let (mut bytes, mut open) = (0, vec![value]);
    while let Some(value) = open.pop() {
        bytes += NODE;
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(list) => open.extend(list),
            Value::Object(map) => {
                bytes += if map.is_empty() { 0 } else { MAP };
                bytes += map.keys().map(|key| FIELD + key.len()).sum::<usize>();
                open.extend(map.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_weighs_what_its_tree_takes_and_not_its_text() {
        let small: Vec<Value> = vec![json!({ "a": 0 }); 1000];
        let (text, status) = (
            json!({ "all": small }).to_string().len(),
            json!({ "all": small }),
        );
        let weight = of(&Answer::Status(status), text);
        assert!(weight > 50 * text, "{weight} of {text}");
        let long = json!({ "text": "x".repeat(100_000) });
        let weight = of(&Answer::Status(long), 100_010);
        assert!((100_000..102_000).contains(&weight), "{weight}");
        assert!(of(&Answer::Health(true), 60_000) < 100);
        let patch = json!([{ "op": "add", "path": "/a", "value": [1, 2, 3] }]);
        let patch: Patch = serde_json::from_value(patch).unwrap();
        let asked = bytes::Bytes::from(vec![b'x'; 1000]);
        let with = of(&Answer::Object(patch.clone(), Some(asked)), 10);
        assert_eq!(with - of(&Answer::Object(patch, None), 10), 1000);
    }
}
