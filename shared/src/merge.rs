//! Merge patches (RFC 7386) that contain only what differs, so that a write changes no other field.
//!
//! ```
//! use muster_shared::merge::{apply, difference};
//! use serde_json::json;
//!
//! let old = json!({ "replicas": 2, "paused": true, "labels": { "a": "1", "b": "2" } });
//! let new = json!({ "replicas": 3, "labels": { "a": "1" } });
//!
//! let patch = difference(&old, &new).unwrap();
//! assert_eq!(patch, json!({ "replicas": 3, "paused": null, "labels": { "b": null } }));
//!
//! let mut patched = old;
//! apply(&mut patched, &patch);
//! assert_eq!(patched, new);
//! assert_eq!(difference(&patched, &new), None);
//! ```

/// Applies a merge patch.
pub use json_patch::merge as apply;
use serde_json::{Map, Value, json};

/// Returns the field of an object, or of a patch, that has to be an object: what else is there is
/// replaced. Whoever may change an object decides what its labels and annotations are.
pub fn object_in<'a>(object: &'a mut Value, field: &str) -> &'a mut Value {
    let value = &mut object[field];
    if !value.is_object() {
        *value = json!({});
    }
    value
}

/// Returns the merge patch that turns `old` into `new`, or `None` if nothing differs.
///
/// Absent and null are the same on both sides, and so are an absent and an empty object at the
/// root. Lists are replaced as a whole. A field of `old` that `new` does not have is removed, so
/// both must contain only fields that the caller owns.
pub fn difference(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut patch = Map::new();
            for (key, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                if let Some(change) = difference(old.get(key).unwrap_or(&Value::Null), value) {
                    patch.insert(key.clone(), change);
                }
            }
            for (key, _) in old.iter().filter(|(_, value)| !value.is_null()) {
                if new.get(key).is_none_or(Value::is_null) {
                    patch.insert(key.clone(), Value::Null);
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (old, new) => (old != new).then(|| new.clone()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_names_only_what_differs() {
        for (old, new, patch) in [
            (json!({}), json!({}), None),
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": null}), json!({}), None),
            (
                json!({"a": 1, "b": 2}),
                json!({"a": 1, "b": 3}),
                Some(json!({"b": 3})),
            ),
            (
                json!({"a": {"x": 1, "y": 2}}),
                json!({"a": {"y": 2}}),
                Some(json!({"a": {"x": null}})),
            ),
            (json!({"a": {"x": 1}}), json!({}), Some(json!({"a": null}))),
            (
                json!({"a": [1, 2]}),
                json!({"a": [2]}),
                Some(json!({"a": [2]})),
            ),
            (
                json!({"a": 1}),
                json!({"a": {"x": 1}}),
                Some(json!({"a": {"x": 1}})),
            ),
            (json!({}), json!({"a": {}}), Some(json!({"a": {}}))),
        ] {
            assert_eq!(difference(&old, &new), patch, "from {old} to {new}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u8>().prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Returns a document without nulls, which merge patches do not know.
    fn without_nulls(value: &Value) -> Value {
        let Value::Object(map) = value else {
            return value.clone();
        };
        let kept = map.iter().filter(|(_, value)| !value.is_null());
        Value::Object(
            kept.map(|(key, value)| (key.clone(), without_nulls(value)))
                .collect(),
        )
    }

    proptest! {
        #[test]
        fn a_patch_leads_where_it_should(from in value(), to in value()) {
            let mut patched = from.clone();
            if let Some(patch) = difference(&from, &to) {
                apply(&mut patched, &patch);
            }
            prop_assert_eq!(without_nulls(&patched), without_nulls(&to));
            prop_assert_eq!(difference(&patched, &to), None);
        }
    }
}
