//! Conditions in the status of an object.

use serde_json::{Value, json};

/// Sets a condition (status, reason, message); its time moves only with its status.
pub fn set(
    status: &mut Value,
    kind: &str,
    (value, reason, message): (&str, &str, &str),
    now: &str,
) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else {
        return;
    };
    let mut made = json!({
        "type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    match conditions.iter_mut().find(|c| c["type"] == kind) {
        Some(old) => {
            if old["status"] == value {
                made["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = made;
        }
        None => conditions.push(made),
    }
}
