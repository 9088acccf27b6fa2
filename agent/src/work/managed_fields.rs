//! Entries of `managedFields`, which say who owns which fields of an object. Pure.

use serde_json::Value;

use super::member::FIELD_MANAGER;

/// Returns the entries of an object.
pub fn entries(object: &Value) -> &[Value] {
    let entries = object.pointer("/metadata/managedFields");
    entries.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns whether an entry is about what this agent applied.
pub fn is_applied(entry: &Value) -> bool {
    entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply"
}

/// Returns whether an entry is about a subresource, such as the status.
pub fn is_of_subresource(entry: &Value) -> bool {
    entry.get("subresource").is_some_and(|it| it != "")
}
