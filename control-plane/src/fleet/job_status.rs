//! What the status of a Job says.

use serde_json::Value;

/// Conditions of a Job that has succeeded, or certainly will: `SuccessCriteriaMet` comes first, and
/// `Complete` when the last pods have ended (KEP-3998).
const ENDS: [&str; 2] = ["Complete", "SuccessCriteriaMet"];

/// Returns whether the status of a Job says that it has completed.
pub fn is_complete(status: &Value) -> bool {
    says_any(status, &ENDS)
}

/// Returns whether the status of a Job says that it has completed or failed: no more of it runs.
pub fn is_over(status: &Value) -> bool {
    is_complete(status) || says_any(status, &["Failed"])
}

fn says_any(status: &Value, ends: &[&str]) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        condition["status"] == "True" && ends.iter().any(|end| condition["type"] == *end)
    })
}
