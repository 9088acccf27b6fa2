//! Objects whose stored form differs from what was applied, because the server normalises it.
//!
//! Some servers normalise what is applied (another spelling of a duration, added zero values). Such
//! an object would look changed after every apply, and would be applied again. The answer of the
//! server is therefore stored with what was sent: while both stay the same, nothing is applied.

use std::collections::HashMap;

use serde_json::Value;

use super::ObjectKey;
use crate::digest::digest;

/// What was sent, and what the server answered: an object before and after normalisation. Digests,
/// so that no object is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    sent: u64,
    answer: u64,
}

impl Pair {
    /// Makes the pair of an apply.
    pub(super) fn of(desired: &Value, answer: &Value) -> Self {
        Self {
            sent: digest(desired),
            answer: digest_of_content(answer),
        }
    }

    /// Returns whether the same apply would be sent, and the object is as the server answered it.
    pub(super) fn is_unchanged(self, desired: &Value, observed: &Value) -> bool {
        self == Self::of(desired, observed)
    }
}

/// The last apply of each object whose answer did not look settled.
#[derive(Debug, Default)]
pub(super) struct Normalized {
    pairs: HashMap<ObjectKey, Pair>,
}

impl Normalized {
    /// Returns the last apply of an object; `None` if its answer looked settled.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Pair> {
        self.pairs.get(key).copied()
    }

    /// Records an apply; `None` for one whose answer looks settled.
    pub(super) fn set(&mut self, key: &ObjectKey, pair: Option<Pair>) {
        match pair {
            Some(pair) => _ = self.pairs.insert(key.clone(), pair),
            None => _ = self.pairs.remove(key),
        }
    }

    /// Returns the number of objects that are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }
}

/// Returns the digest of an object without the fields that change although no writer changes the
/// content: status, versions and `managedFields`.
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

    fn object(timeout: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"timeout": timeout}})
    }

    #[test]
    fn an_apply_would_be_the_same_until_what_is_sent_or_the_content_changes() {
        let pair = Pair::of(&object("60s"), &object("1m0s"));
        assert!(pair.is_unchanged(&object("60s"), &object("1m0s")));
        assert!(!pair.is_unchanged(&object("60s"), &object("2m0s")), "drift");
        assert!(!pair.is_unchanged(&object("90s"), &object("1m0s")), "sent");

        let mut busy = object("1m0s");
        busy["metadata"]["resourceVersion"] = json!("2");
        busy["status"] = json!({"phase": "Running"});
        assert!(pair.is_unchanged(&object("60s"), &busy), "a status");
    }
}
