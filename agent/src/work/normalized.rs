//! Objects whose stored form differs from what was applied, because the server normalises it.
//!
//! Some servers normalise what is applied (another spelling of a duration, added zero values). Such
//! an object would look changed after every apply, and would be applied again. The answer of the
//! server is therefore stored with what was sent: while both stay the same, nothing is applied.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::desired::ObjectKey;
use super::member::FIELD_MANAGER;
use super::settled::settled;
use crate::digest::digest;

/// What was sent and what came back, as hashes, by object. Only objects that do not look settled
/// are remembered.
#[derive(Debug, Default)]
pub struct ServerNormalization {
    known: Mutex<HashMap<ObjectKey, (u64, u64)>>,
}

impl ServerNormalization {
    /// Returns whether applying `desired` would leave `observed` as it is, as far as can be told.
    pub fn settled(&self, key: &ObjectKey, desired: &Value, observed: &Value) -> bool {
        settled(desired, observed, FIELD_MANAGER)
            || self.lock().get(key) == Some(&(digest(desired), digest_of_content(observed)))
    }

    /// Notes what the server made of an apply.
    pub fn applied(&self, key: &ObjectKey, desired: &Value, answer: &Value) {
        if settled(desired, answer, FIELD_MANAGER) {
            self.lock().remove(key);
        } else {
            let echo = (digest(desired), digest_of_content(answer));
            self.lock().insert(key.clone(), echo);
        }
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// Number of objects that are remembered.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, (u64, u64)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything but what changes without anybody wanting it: status, versions, the record of who set
/// what.
fn digest_of_content(object: &Value) -> u64 {
    let mut content = object.clone();
    if let Some(object) = content.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["generation", "managedFields", "resourceVersion"] {
            metadata.remove(key);
        }
    }
    digest(&content)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a server that writes durations its own way.
    fn answer(timeout: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a", "resourceVersion": "1", "managedFields": [
            {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": {"f:timeout": {}}}}]},
            "spec": {"timeout": timeout}})
    }

    fn desired(timeout: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"timeout": timeout}})
    }

    #[test]
    fn what_came_back_once_is_not_sent_again_until_one_side_changes() {
        let echoes = ServerNormalization::default();
        let (wanted, found) = (desired("60s"), answer("1m0s"));
        let key = ObjectKey::of(&wanted, 0).unwrap();
        assert!(
            !echoes.settled(&key, &wanted, &found),
            "nothing was sent yet"
        );
        echoes.applied(&key, &wanted, &found);
        assert!(echoes.settled(&key, &wanted, &found));

        let mut busy = found.clone();
        busy["metadata"]["resourceVersion"] = json!("2");
        busy["status"] = json!({"phase": "Running"});
        assert!(
            echoes.settled(&key, &wanted, &busy),
            "a status is no difference"
        );
        assert!(!echoes.settled(&key, &wanted, &answer("2m0s")), "drift");
        assert!(
            !echoes.settled(&key, &desired("90s"), &found),
            "another wish"
        );
    }
}
