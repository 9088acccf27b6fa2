//! Judges what the status of an object says. Pure.

use std::fmt;

use muster_shared::api::data_replication::DataCheck;
use serde_json::Value;

/// Returns whether a status says what is asked for. `generation` is that of the object, if it is
/// known: a statement about an older one does not count.
pub fn holds(check: &DataCheck, status: &Value, generation: Option<i64>) -> bool {
    let is_older = |observed: &Value| {
        let observed = observed.as_i64().filter(|it| *it > 0);
        observed
            .zip(generation)
            .is_some_and(|(observed, generation)| observed < generation)
    };
    if is_older(&status["observedGeneration"]) {
        return false;
    }
    if let Some(wanted) = &check.condition {
        let conditions = status["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|it| it["type"] == *wanted.type_);
        return found.is_some_and(|it| {
            it["status"] == *wanted.status() && !is_older(&it["observedGeneration"])
        });
    }
    let Some((path, value)) = check.path.as_ref().zip(check.value.as_ref()) else {
        return false;
    };
    let path = path.strip_prefix("status.").unwrap_or(path);
    let found = path.split('.').try_fold(status, |at, name| at.get(name));
    match found {
        Some(Value::String(text)) => text == value,
        Some(other @ (Value::Number(_) | Value::Bool(_))) => {
            let text = other.to_string();
            text == *value
        }
        _ => false,
    }
}

/// Writes a statement as people read it.
pub struct Words<'a>(pub &'a DataCheck);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(condition) = &self.0.condition {
            return write!(f, "condition {}={}", condition.type_, condition.status());
        }
        let path = self.0.path.as_deref().unwrap_or_default();
        write!(f, "{path}={}", self.0.value.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_says_what_is_asked_for_by_a_condition_or_a_field_of_the_present_generation() {
        let condition = json!({"condition": {"type": "DataReady"}});
        let is_false = json!({"condition": {"type": "DataReady", "status": "False"}});
        let field = json!({"path": "status.a.state", "value": "Primary"});
        let number = json!({"path": "status.count", "value": "3"});
        let said = |status: &str, generation: Option<i64>| {
            let it =
                json!({"type": "DataReady", "status": status, "observedGeneration": generation});
            json!({"conditions": [{"type": "Other", "status": "True"}, it]})
        };
        let counted = |seen: i64| json!({"count": 3, "observedGeneration": seen});
        for (check, status, generation, expected) in [
            (&condition, said("True", None), Some(3), true),
            (&condition, said("True", Some(3)), Some(3), true),
            (&condition, said("True", Some(2)), Some(3), false),
            (&condition, said("True", Some(2)), None, true),
            (&condition, said("False", None), None, false),
            (&condition, json!({}), None, false),
            (&is_false, said("False", None), None, true),
            (&field, json!({"a": {"state": "Primary"}}), None, true),
            (&field, json!({"a": {"state": "Unknown"}}), None, false),
            (&field, json!({"a": "Primary"}), None, false),
            (&number, json!({"count": 3}), None, true),
            (&number, counted(1), Some(2), false),
            (&number, counted(0), Some(2), true),
            (&json!({}), json!({"count": 3}), None, false),
        ] {
            let read: DataCheck = serde_json::from_value(check.clone()).unwrap();
            let found = holds(&read, &status, generation);
            assert_eq!(found, expected, "{check} {status}");
        }
    }
}
