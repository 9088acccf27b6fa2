//! Nodes: their taints, and what they may not change about themselves.

use serde_json::{Value, json};

use super::Check;
use crate::wire::field_error::FieldError;

/// Checks a node. The real server reports taints below `metadata`, and so do we.
pub fn node(check: &mut Check<'_>) {
    let mut seen: Vec<(&Value, &Value)> = Vec::new();
    for (index, (_, taint)) in check.each("spec.taints").into_iter().enumerate() {
        let path = format!("metadata.taints[{index}]");
        let (key, effect) = (&taint["key"], &taint["effect"]);
        if key.as_str().is_none_or(str::is_empty) {
            let detail = "name part must be non-empty";
            check.invalid(&format!("{path}.key"), &json!(""), detail);
        }
        if check.required(&format!("{path}.effect"), effect) {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            check.one_of(&format!("{path}.effect"), effect, &effects);
        }
        if seen.contains(&(key, effect)) {
            let shown = json!({"key": key, "effect": effect});
            let mut error = FieldError::duplicate(path, &shown);
            error
                .message
                .push_str(": taints must be unique by key and effect pair");
            check.push(error);
        }
        seen.push((key, effect));
    }
    let old = check
        .was("spec.providerID")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !old.is_empty() && *check.at("spec.providerID") != old {
        let detail = "node updates may not change providerID except from \"\" to valid";
        check.push(FieldError::forbidden("spec.providerID", detail));
    }
}
