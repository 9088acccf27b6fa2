//! Objects whose stored form differs from what was applied, because the server normalises it.
//!
//! Some servers normalise what is applied (another spelling of a duration, added zero values). Such
//! an object would seem changed after every apply, and would be applied again. The answer of the
//! server is therefore stored with what was sent: while both stay the same, nothing is applied.

use std::collections::HashMap;

use muster_shared::names::annotation;
use serde_json::Value;
use tokio::time::Instant;

use super::ObjectKey;
use super::scaled::scaled_field;
use crate::digest::digest;

/// What was sent, and what the server answered: an object before and after normalisation. Digests,
/// so that no object is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    sent: u64,
    answer: u64,
    left_out: Option<LeftOut>,
}

/// Fields that the member does not know and has left out of its answer.
#[derive(Clone, Copy, Debug)]
struct LeftOut {
    /// Digest of the words of the member about them.
    words: u64,
    /// Time from which the object is applied again.
    due: Instant,
}

impl Pair {
    /// Makes the pair of an apply.
    pub(super) fn of(desired: &Value, answer: &Value) -> Self {
        Self {
            sent: digest(desired),
            answer: digest_of_content(answer, desired),
            left_out: None,
        }
    }

    /// Notes the words of the member about fields that it has left out, and the time from which the
    /// object is applied again.
    pub(super) fn leaving_out(self, words: &str, due: Instant) -> Self {
        let words = digest(words);
        Self {
            left_out: Some(LeftOut { words, due }),
            ..self
        }
    }

    /// Returns whether the same apply would be sent, and the object is as the server answered it.
    pub(super) fn is_unchanged(self, desired: &Value, observed: &Value) -> bool {
        let now = Self::of(desired, observed);
        (self.sent, self.answer) == (now.sent, now.answer)
    }

    /// Returns whether the member has left fields out with the same words.
    pub(super) fn leaves_out(self, words: &str) -> bool {
        self.left_out.is_some_and(|it| it.words == digest(words))
    }

    /// Returns the time from which the object is applied again although it is unchanged; `None` if
    /// no field was left out.
    pub(super) fn due(self) -> Option<Instant> {
        self.left_out.map(|it| it.due)
    }
}

/// The last apply of each object whose answer did not look settled, or lacks fields.
#[derive(Debug, Default)]
pub(super) struct Normalized {
    pairs: HashMap<ObjectKey, Pair>,
    /// Words of the member about the fields that it has left out, of each object of which it has.
    words: HashMap<ObjectKey, Box<str>>,
}

impl Normalized {
    /// Returns the last apply of an object; `None` if its answer looked settled.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Pair> {
        self.pairs.get(key).copied()
    }

    /// Returns the words of the member about the fields of an object that it has left out.
    pub(super) fn words(&self, key: &ObjectKey) -> Option<&str> {
        self.words.get(key).map(|words| &**words)
    }

    /// Records an apply of which the member has left fields out, with its words about them. Returns
    /// the former one.
    pub(super) fn set_partial(&mut self, key: &ObjectKey, pair: Pair, words: &str) -> Option<Pair> {
        let before = self.set(key, Some(pair));
        self.words.insert(key.clone(), words.into());
        before
    }

    /// Records an apply; `None` for one whose answer looks settled. Returns the former one.
    pub(super) fn set(&mut self, key: &ObjectKey, pair: Option<Pair>) -> Option<Pair> {
        self.words.remove(key);
        match pair {
            Some(pair) => self.pairs.insert(key.clone(), pair),
            None => self.pairs.remove(key),
        }
    }

    /// Returns the number of objects that are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }
}

/// Returns the digest of an object without the fields that change although no writer changes the
/// content (status, versions and `managedFields`), and without what others write beside what was
/// sent: labels, annotations, and the number that is left to an autoscaler. The mark of a stop
/// counts.
fn digest_of_content(object: &Value, sent: &Value) -> u64 {
    let mut content = object.clone();
    let scaled = scaled_field(sent, object).filter(|it| sent["spec"].get(it).is_none());
    if let Some(object) = content.as_object_mut() {
        object.remove("status");
    }
    if let Some(field) = scaled
        && let Some(spec) = content.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove(&field);
    }
    if let Some(metadata) = content.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["generation", "managedFields", "resourceVersion"] {
            metadata.remove(key);
        }
        for field in ["labels", "annotations"] {
            let sent = &sent["metadata"][field];
            let Some(held) = metadata.get_mut(field).and_then(Value::as_object_mut) else {
                continue;
            };
            held.retain(|key, _| sent.get(key).is_some() || key == annotation::STOPPED);
            if held.is_empty() {
                metadata.remove(field);
            }
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

    #[test]
    fn what_others_write_beside_what_was_sent_is_no_change() {
        let sent = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "annotations": {"of": "w"}}, "spec": {"paused": false}});
        let mut answer = sent.clone();
        answer["spec"]["replicas"] = json!(2);
        let pair = Pair::of(&sent, &answer);
        let changed = |path: &str, value: Value| {
            let mut object = answer.clone();
            object["metadata"]["annotations"]["revision"] = json!("1");
            object["metadata"]["labels"]["team"] = json!("a");
            *object.pointer_mut(path).unwrap() = value;
            object
        };
        for (path, value, is_unchanged) in [
            ("/metadata/annotations/revision", json!("2"), true),
            ("/spec/replicas", json!(5), true),
            ("/metadata/annotations/of", json!("other"), false),
            (
                "/metadata/annotations",
                json!({"of": "w", (annotation::STOPPED): "{}"}),
                false,
            ),
            ("/spec/paused", json!(true), false),
        ] {
            let object = changed(path, value);
            assert_eq!(pair.is_unchanged(&sent, &object), is_unchanged, "{path}");
        }
        let mut scaled = sent.clone();
        scaled["spec"]["replicas"] = json!(2);
        let pair = Pair::of(&scaled, &answer);
        let object = changed("/spec/replicas", json!(5));
        assert!(
            !pair.is_unchanged(&scaled, &object),
            "a number that was sent"
        );
    }
}
