//! Objects that are scaled: what their scale subresource would show has to make sense.

use serde_json::Value;

use crate::registry::Scale;
use crate::wire::field_error::FieldError;

/// Removes the time from what is owned through the scale, and lists it first, as the real server
/// does.
pub fn forget_time(object: &mut Value) {
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        for entry in entries.iter_mut().filter(|e| e["subresource"] == "scale") {
            entry.as_object_mut().map(|e| e.remove("time"));
        }
        entries.sort_by_key(|e| e.get("time").is_some());
    }
}

/// Returns what is wrong with the values in a custom resource that its scale subresource shows.
pub fn check(scale: &Scale, object: &Value) -> Vec<FieldError> {
    let mut at = object;
    let mut errors = Vec::new();
    let mut wrong = |value: &Value, expected: &str| {
        let detail = format!("{} accessor error: {value} is no {expected}", scale.spec);
        errors.push(FieldError::invalid(scale.spec.as_str(), &0.into(), detail));
    };
    for part in scale.spec.split('.').filter(|p| !p.is_empty()) {
        if !at.is_object() {
            wrong(at, "object");
            return errors;
        }
        match at.get(part) {
            Some(next) => at = next,
            None => return errors,
        }
    }
    match at.as_i64() {
        None => wrong(at, "whole number"),
        Some(count) if count < 0 => errors.push(FieldError::invalid(
            scale.spec.as_str(),
            at,
            "should be a non-negative integer",
        )),
        Some(_) => {}
    }
    errors
}
