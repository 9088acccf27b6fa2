//! JSON merge patch, RFC 7386.

use serde_json::{Map, Value};

/// `live` with `patch` laid over it: objects merge, `null` removes, anything else replaces.
pub fn merge(live: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else {
        return patch.clone();
    };
    let mut merged = match live {
        Value::Object(fields) => fields.clone(),
        _ => Map::new(),
    };
    for (name, change) in changes {
        if change.is_null() {
            merged.remove(name);
        } else {
            let before = merged.remove(name).unwrap_or(Value::Null);
            merged.insert(name.clone(), merge(&before, change));
        }
    }
    Value::Object(merged)
}
