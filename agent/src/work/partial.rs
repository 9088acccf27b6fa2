//! Reads parts of objects: the fields that a decision needs, and no more.
//!
//! Users of the member decide how large an object is and what is in its other fields, so that those
//! are neither kept nor decoded.

use std::cell::Cell;
use std::fmt;
use std::sync::LazyLock;

use muster_shared::names::{annotation, label};
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The most that the fields of one object may have as JSON, in bytes. What a stop changes has to be
/// remembered in an annotation, and an object has 256 KiB of annotations.
const LONGEST: usize = 256 * 1024;

/// Returns the fields of an object that a shape has, whose objects name fields and whose other
/// values stand for whole ones.
///
/// # Errors
/// When the text is no JSON, or the fields are too long.
pub fn fields(text: &str, shape: &Value) -> Result<Value, serde_json::Error> {
    let whole: &RawValue = serde_json::from_str(text)?;
    read(whole, shape, &Cell::new(LONGEST))
}

/// Reads the fields of a value that a shape has; a value that is no object has none. `left` are the
/// bytes that further fields may have.
fn read(value: &RawValue, shape: &Value, left: &Cell<usize>) -> Result<Value, serde_json::Error> {
    let text = value.get();
    if shape.is_object() {
        if !text.starts_with('{') {
            return Ok(Value::Null);
        }
        let mut object = serde_json::Deserializer::from_str(text);
        return Deserializer::deserialize_map(&mut object, Fields { shape, left });
    }
    let Some(rest) = left.get().checked_sub(text.len()) else {
        return Err(serde_json::Error::custom(format_args!(
            "its fields have more than {LONGEST} bytes"
        )));
    };
    left.set(rest);
    serde_json::from_str(text)
}

/// An object that may run on although its owner is stopped. Holds the fields that say whether it
/// belongs to the owner, whether it runs, and whether it was stopped.
#[derive(Clone, Debug)]
pub struct Dependent(pub Value);

impl<'de> Deserialize<'de> for Dependent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static SHAPE: LazyLock<Value> = LazyLock::new(|| {
            json!({
                "metadata": {
                    "name": true, "namespace": true, "uid": true, "deletionTimestamp": true,
                    "ownerReferences": true, "annotations": { annotation::STOPPED: true },
                    "labels": { label::KUEUE_QUEUE: true },
                },
                "spec": { "suspend": true },
                "status": { "phase": true, "conditions": true },
            })
        });
        let whole = <&RawValue>::deserialize(deserializer)?;
        let fields = read(whole, &SHAPE, &Cell::new(LONGEST));
        fields.map(Self).map_err(D::Error::custom)
    }
}

/// Decoder of the fields that a shape has of an object.
struct Fields<'a> {
    shape: &'a Value,
    /// Bytes that further fields may have.
    left: &'a Cell<usize>,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = serde_json::Map::new();
        while let Some(name) = map.next_key::<String>()? {
            match self.shape.get(&name) {
                Some(shape) => {
                    let value = map.next_value::<&RawValue>()?;
                    let field = read(value, shape, self.left).map_err(A::Error::custom)?;
                    fields.insert(name, field);
                }
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_shape_are_read_and_no_others() {
        let deep = format!("{}1{}", "[".repeat(300), "]".repeat(300));
        let text = format!(
            r#"{{"a":{{"b":[1,{{"c":2}}],"other":{deep}}},"n":null,"x":1.5e3,"s":"t","l":[{deep}],"other":{deep}}}"#
        );
        let shape = json!({"a": {"b": 0, "gone": 0}, "n": {"y": 0}, "x": {"y": 0}, "s": {"y": 0},
            "l": {"y": 0}});
        let expected =
            json!({"a": {"b": [1, {"c": 2}]}, "n": null, "x": null, "s": null, "l": null});
        assert_eq!(fields(&text, &shape).unwrap(), expected);
        assert!(fields("[", &shape).is_err());
    }

    #[test]
    fn fields_that_are_too_long_are_refused_and_others_may_be_of_any_length() {
        let half = "a".repeat(LONGEST / 2);
        let text = json!({"a": half, "b": half, "c": half}).to_string();
        assert!(fields(&text, &json!({"a": 0})).is_ok());
        let error = fields(&text, &json!({"a": 0, "c": null})).unwrap_err();
        assert!(
            error.to_string().contains("more than 262144 bytes"),
            "{error}"
        );
    }

    #[test]
    fn a_dependent_is_read_whatever_its_other_fields_are() {
        let object = json!({
            "metadata": {"name": "a", "creationTimestamp": "9999-12-31T23:59:59Z", "managedFields": 7,
                "labels": {"app": "a", "kueue.x-k8s.io/queue-name": "team"},
                "ownerReferences": [{"uid": "u", "controller": true}]},
            "status": {"phase": "Running", "startTime": 1},
        });
        let Dependent(read) = serde_json::from_str(&object.to_string()).unwrap();
        assert_eq!(read["status"], json!({"phase": "Running"}));
        assert_eq!(read["metadata"]["ownerReferences"][0]["uid"], "u");
        let labels = json!({"kueue.x-k8s.io/queue-name": "team"});
        assert_eq!(read["metadata"]["labels"], labels);
    }
}
