//! JSON encoding of lists and watches, decoded object by object.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{INITIAL_EVENTS_END, Line, ListMeta, Rejected};

#[derive(Deserialize)]
struct RawLine<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The few fields of a bookmark that following needs.
#[derive(Deserialize, Default)]
struct Head {
    #[serde(default)]
    metadata: HeadMeta,
}

#[derive(Deserialize, Default)]
struct HeadMeta {
    #[serde(rename = "resourceVersion", default)]
    resource_version: Option<String>,
    #[serde(default)]
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

/// What an object is called, of whatever types the rest of it is: one odd annotation must not take
/// its name away.
#[derive(Deserialize, Default)]
struct Identity {
    #[serde(default)]
    metadata: IdentityMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct IdentityMeta {
    name: Value,
    namespace: Value,
    uid: Value,
    resource_version: Value,
    deletion_timestamp: Value,
}

#[derive(Deserialize, Default)]
struct RawStatus {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

/// Returns an element of a list.
pub(in crate::watch) fn object<K: DeserializeOwned>(text: &[u8]) -> Result<K, Rejected> {
    decode(text).map_err(|error| reject(text, &error))
}

/// Reads an object. Where that fails it is read without `managedFields`, whose times whoever writes
/// the object may choose, and the API takes more of them than can be read; nobody here needs them.
fn decode<K: DeserializeOwned>(text: &[u8]) -> Result<K, serde_json::Error> {
    serde_json::from_slice(text).or_else(|error| {
        let Ok(mut object) = serde_json::from_slice::<Value>(text) else {
            return Err(error);
        };
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        if metadata.and_then(|it| it.remove("managedFields")).is_none() {
            return Err(error);
        }
        serde_json::from_value(object)
    })
}

/// Returns what the text of a list's metadata says.
pub(in crate::watch) fn list_meta(metadata: &[u8]) -> Result<ListMeta, serde_json::Error> {
    let mut meta: ListMeta = serde_json::from_slice(metadata)?;
    meta.resource_version.take_if(|text| text.is_empty());
    meta.continue_token.take_if(|text| text.is_empty());
    Ok(meta)
}

pub(in crate::watch) fn line<K: DeserializeOwned + kube::Resource>(
    bytes: &[u8],
) -> Result<Line<K>, serde_json::Error> {
    let raw: RawLine<'_> = serde_json::from_slice(bytes)?;
    Ok(match raw.kind {
        "BOOKMARK" => {
            let head: Head = serde_json::from_str(raw.object.get())?;
            Line::Bookmark {
                resource_version: head.metadata.resource_version.unwrap_or_default(),
                ends_initial_list: head
                    .metadata
                    .annotations
                    .is_some_and(|annotations| annotations.contains_key(INITIAL_EVENTS_END)),
            }
        }
        "ERROR" => {
            let (code, message) = status(raw.object.get().as_bytes());
            Line::Error { code, message }
        }
        kind => match decode::<K>(raw.object.get().as_bytes()) {
            Ok(object) => Line::Object {
                object,
                is_deleted: kind == "DELETED",
            },
            Err(error) => Line::Rejected(Rejected {
                deleted: kind == "DELETED",
                ..reject(raw.object.get().as_bytes(), &error)
            }),
        },
    })
}

/// Reads the code and message of a `Status`; what is none has code 0.
pub(in crate::watch) fn status(body: &[u8]) -> (u16, String) {
    let status: RawStatus = serde_json::from_slice(body).unwrap_or_default();
    (status.code, status.message)
}

fn reject(object: &[u8], error: &serde_json::Error) -> Rejected {
    let head: Identity = serde_json::from_slice(object).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Rejected {
        namespace: text(&head.metadata.namespace).unwrap_or_default(),
        name: text(&head.metadata.name).unwrap_or_default(),
        uid: text(&head.metadata.uid).map(Into::into),
        error: error.to_string(),
        resource_version: text(&head.metadata.resource_version),
        deleting: !head.metadata.deletion_timestamp.is_null(),
        deleted: false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn a_malformed_watch_object_is_named_and_keeps_our_place() {
        let bytes = br#"{"type":"MODIFIED","object":{"metadata":{"name":"bad","uid":"u","resourceVersion":"9"},"data":5}}"#;
        let Line::Rejected(rejected) = line::<ConfigMap>(bytes).unwrap() else {
            panic!("not rejected")
        };
        assert_eq!(
            (rejected.name.as_str(), rejected.resource_version.as_deref()),
            ("bad", Some("9"))
        );
        assert_eq!(rejected.uid.as_deref(), Some("u"));
    }

    #[test]
    fn an_object_that_does_not_decode_keeps_its_name_whatever_else_is_odd() {
        for (metadata, deleting) in [
            (
                r#"{"name":"bad","resourceVersion":"9","annotations":{"a":null}}"#,
                false,
            ),
            (
                r#"{"name":"bad","resourceVersion":"9","labels":[],"generation":"x"}"#,
                false,
            ),
            (
                r#"{"name":"bad","resourceVersion":"9","deletionTimestamp":"2024-01-01T00:00:00Z","uid":7}"#,
                true,
            ),
        ] {
            let text = format!(r#"{{"metadata":{metadata},"data":5}}"#);
            let rejected = object::<ConfigMap>(text.as_bytes()).err().unwrap();
            assert_eq!(
                (rejected.name.as_str(), rejected.deleting),
                ("bad", deleting),
                "{metadata}"
            );
            assert_eq!(rejected.resource_version.as_deref(), Some("9"));
        }
    }

    #[test]
    fn the_bookmark_that_ends_a_streaming_list_is_recognised() {
        let bytes = br#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"12","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert!(matches!(
            line::<ConfigMap>(bytes).unwrap(),
            Line::Bookmark { ends_initial_list: true, resource_version } if resource_version == "12"
        ));
    }

    #[test]
    fn an_error_line_carries_its_code() {
        let bytes = br#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#;
        assert!(matches!(
            line::<ConfigMap>(bytes).unwrap(),
            Line::Error { code: 410, .. }
        ));
    }
}
