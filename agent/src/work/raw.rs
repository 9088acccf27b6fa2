//! Objects of any kind, as unparsed values.

use muster_shared::k8s::{DynamicObject, ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// An object of any kind, with all of its fields.
#[derive(Clone, Debug)]
pub struct Raw {
    metadata: ObjectMeta,
    /// The whole object; only the metadata if the rest cannot be read.
    pub object: Value,
    /// Reason why the object cannot be read, which is nested too deep; `None` if it was read.
    pub unreadable: Option<String>,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str(text.get()) {
            Ok(object) => Ok(Self::of(object, None)),
            Err(error) => {
                let head: Head = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
                let object = json!({ "metadata": head.metadata });
                Ok(Self::of(object, Some(error.to_string())))
            }
        }
    }
}

/// Returns a field of the metadata of an object that is a text.
pub fn text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.as_str()
}

/// Metadata of an object that cannot be read as a whole, without `managedFields`, which is as deep
/// as the object.
#[derive(Deserialize)]
struct Head {
    metadata: HeadMeta,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct HeadMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    #[serde(default)]
    labels: Value,
    #[serde(default)]
    annotations: Value,
}

impl Raw {
    pub(super) fn of(object: Value, unreadable: Option<String>) -> Self {
        let text = |field| text(&object, field).map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        Self {
            metadata,
            object,
            unreadable,
        }
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(serializer)
    }
}

muster_shared::resource_as!(Raw as DynamicObject);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_too_deep_is_known_by_its_metadata() {
        for levels in [1, 100, 126, 127, 128, 200] {
            let text = format!(
                r#"{{"metadata":{{"name":"a","annotations":{{"k":"v"}}}},"status":{}1{}}}"#,
                r#"{"a":"#.repeat(levels),
                "}".repeat(levels),
            );
            let raw: Raw = serde_json::from_str(&text).unwrap();
            assert_eq!(raw.metadata.name.as_deref(), Some("a"), "{levels}");
            assert_eq!(raw.object["metadata"]["annotations"]["k"], "v", "{levels}");
            let whole = raw.object.get("status").is_some();
            assert_eq!(raw.unreadable.is_none(), whole, "{levels}");
            assert_eq!(whole, levels < 127, "{levels}");
        }
        assert!(serde_json::from_str::<Raw>("[]").is_ok_and(|raw| raw.metadata.name.is_none()));
    }
}
