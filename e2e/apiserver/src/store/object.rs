//! A stored object: its JSON once, laid out so that a watch event, a list item and a plain answer
//! are all slices of it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It appeared.
    Added,
    /// It changed.
    Modified,
    /// It went.
    Deleted,
}

impl Change {
    /// Returns the start of the watch event up to the object.
    pub const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Added => br#"{"type":"ADDED","object":"#,
            Self::Modified => br#"{"type":"MODIFIED","object":"#,
            Self::Deleted => br#"{"type":"DELETED","object":"#,
        }
    }

    /// Returns `ADDED`, `MODIFIED` or `DELETED`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// End of a watch event after the object.
pub const FRAME_END: &[u8] = b"}\n";

/// What the server asks of an object without parsing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// `namespace/name`, or `name` for cluster-scoped objects: the order of lists.
    pub key: Arc<str>,
    /// Unique identity.
    pub uid: Box<str>,
    /// Labels, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// Values of the fields that selectors may name, besides name and namespace.
    pub fields: Box<[(&'static str, Box<str>)]>,
    /// Identities of the owners.
    pub owners: Box<[Box<str>]>,
    /// Whether a deletion has begun.
    pub deleting: bool,
}

impl Head {
    /// Reads the head of an object; `fields` are the selectable values that its kind defines.
    pub fn of(key: Arc<str>, object: &Value, fields: Vec<(&'static str, String)>) -> Self {
        let metadata = &object["metadata"];
        let text = |v: &Value| Box::<str>::from(v.as_str().unwrap_or_default());
        Self {
            key,
            uid: text(&metadata["uid"]),
            labels: metadata["labels"]
                .as_object()
                .map_or_else(Box::default, |labels| {
                    labels
                        .iter()
                        .map(|(k, v)| (k.as_str().into(), text(v)))
                        .collect()
                }),
            fields: fields
                .into_iter()
                .map(|(k, v)| (k, v.into_boxed_str()))
                .collect(),
            owners: metadata["ownerReferences"]
                .as_array()
                .map_or_else(Box::default, |owners| {
                    owners.iter().map(|o| text(&o["uid"])).collect()
                }),
            deleting: metadata["deletionTimestamp"].is_string(),
        }
    }

    /// Returns the namespace, which is empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.key
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    /// Returns the name within the namespace.
    pub fn name(&self) -> &str {
        self.key.split_once('/').map_or(&self.key, |(_, name)| name)
    }

    /// Returns a label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// Returns a selectable field's value; `None` if the kind has no such field.
    pub fn field(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(self.name()),
            "metadata.namespace" => Some(self.namespace()),
            _ => self
                .fields
                .iter()
                .find(|(k, _)| *k == name)
                .map(|(_, v)| &**v),
        }
    }
}

/// An object serialised but for its resource version, which the store assigns.
#[derive(Debug)]
pub struct Draft {
    head: Head,
    json: Vec<u8>,
    /// Where the digits of the resource version go.
    hole: usize,
    /// Where the members after `apiVersion` and `kind` start.
    rest: usize,
}

impl Draft {
    /// Serialises `object`, with `apiVersion` and `kind` first so that other versions differ in the
    /// front part only. Fails if the object has no metadata map.
    pub fn new(head: Head, object: &Value) -> Result<Self, serde_json::Error> {
        use serde::ser::Error;
        let missing = || serde_json::Error::custom("an object needs metadata");
        let members = object.as_object().ok_or_else(missing)?;
        let metadata = members
            .get("metadata")
            .and_then(Value::as_object)
            .ok_or_else(missing)?;
        let mut json = Vec::with_capacity(1024);
        json.push(b'{');
        for key in ["apiVersion", "kind"] {
            if let Some(value) = members.get(key) {
                pair(&mut json, key, value)?;
                json.push(b',');
            }
        }
        let rest = json.len();
        json.extend_from_slice(br#""metadata":"#);
        let hole = metadata_with_hole(&mut json, metadata)?;
        for (key, value) in members {
            if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
                json.push(b',');
                pair(&mut json, key, value)?;
            }
        }
        json.push(b'}');
        Ok(Self {
            head,
            json,
            hole,
            rest,
        })
    }

    /// Returns the identity and the labels of the object to be.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Fills in the resource version.
    pub fn seal(self, change: Change, version: u64) -> Object {
        let prefix = change.prefix();
        let digits = version.to_string();
        let mut frame =
            Vec::with_capacity(prefix.len() + self.json.len() + digits.len() + FRAME_END.len());
        frame.extend_from_slice(prefix);
        frame.extend_from_slice(&self.json[..self.hole]);
        frame.extend_from_slice(digits.as_bytes());
        frame.extend_from_slice(&self.json[self.hole..]);
        frame.extend_from_slice(FRAME_END);
        let rest = prefix.len()
            + self.rest
            + if self.rest > self.hole {
                digits.len()
            } else {
                0
            };
        Object {
            head: self.head,
            frame: frame.into(),
            change,
            rest,
            version,
        }
    }
}

/// Writes `"key":value`.
fn pair(json: &mut Vec<u8>, key: &str, value: &Value) -> Result<(), serde_json::Error> {
    serde_json::to_writer(&mut *json, key)?;
    json.push(b':');
    serde_json::to_writer(&mut *json, value)
}

/// Writes the metadata with an empty resource version and says where its digits go.
fn metadata_with_hole(
    json: &mut Vec<u8>,
    metadata: &Map<String, Value>,
) -> Result<usize, serde_json::Error> {
    json.push(b'{');
    for (key, value) in metadata {
        if key != "resourceVersion" {
            pair(json, key, value)?;
            json.push(b',');
        }
    }
    json.extend_from_slice(br#""resourceVersion":""#);
    let hole = json.len();
    json.extend_from_slice(br#""}"#);
    Ok(hole)
}

/// A stored object.
#[derive(Debug)]
pub struct Object {
    /// What can be asked without parsing.
    pub head: Head,
    /// Resource version.
    pub version: u64,
    change: Change,
    frame: Bytes,
    rest: usize,
}

impl Object {
    /// Returns the whole watch event that led to this state of the object, newline included.
    pub fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// Returns the change that led to this state of the object.
    pub fn change(&self) -> Change {
        self.change
    }

    /// Returns the object's JSON.
    pub fn json(&self) -> Bytes {
        self.frame
            .slice(self.change.prefix().len()..self.frame.len() - FRAME_END.len())
    }

    /// Returns the object's JSON to be read in place.
    pub fn json_bytes(&self) -> &[u8] {
        &self.frame[self.change.prefix().len()..self.frame.len() - FRAME_END.len()]
    }

    /// Returns the object's JSON after `apiVersion` and `kind`: starts at `"metadata"`, ends with
    /// the closing brace.
    pub fn rest(&self) -> &[u8] {
        &self.frame[self.rest..self.frame.len() - FRAME_END.len()]
    }

    /// Returns the object as a tree.
    ///
    /// # Panics
    /// Never: the bytes were written from a tree.
    pub fn value(&self) -> Value {
        serde_json::from_slice(self.json_bytes())
            .expect("stored bytes are JSON: invariant of Draft")
    }

    /// Bytes held, for accounting.
    pub fn size(&self) -> usize {
        self.frame.len()
    }
}
