//! The request to a webhook: `ResourceInterpreterContext` (`config.karmada.io/v1alpha1`). Karmada
//! sends the same but for the content of Secrets: a webhook gets it only where a rule names the
//! kind. Pure.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::io;

use muster_shared::api::binding::AggregatedStatusItem;
use muster_shared::names::{annotation, namespaced_key};
use ring::digest::{Context, SHA256};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::Question;

/// API version of the context.
pub(super) const API_VERSION: &str = "config.karmada.io/v1alpha1";
/// Kind of the context.
pub(super) const KIND: &str = "ResourceInterpreterContext";

impl Question<'_> {
    /// Returns the digest of all that an answer may depend on, and about the size of the body.
    ///
    /// The version of the object and its managed fields do not take part: they change with each
    /// write, and mean nothing. `hides` as for [`body`](Self::body).
    pub(super) fn digest(&self, webhook: u64, hides: bool) -> (Key, usize) {
        let mut hash = Hash(Context::new(&SHA256), 0);
        hash.0.update(&webhook.to_le_bytes());
        let form = Form {
            is_stable: true,
            hides,
        };
        // Writing into a hash does not fail.
        _ = serde_json::to_writer(&mut hash, &self.request(form, ""));
        let digest = hash.0.finish();
        let key = Key(digest.as_ref().try_into().unwrap_or_default());
        (key, hash.1)
    }

    /// Returns the number of the object and the operation, which is the same for all versions of
    /// the object. Objects of different members, and copies for them, are different objects.
    pub(super) fn identity(&self, webhook: u64) -> u64 {
        let mut hash = DefaultHasher::new();
        (webhook, self.operation, self.replicas).hash(&mut hash);
        for path in [
            "/apiVersion",
            "/kind",
            "/metadata/namespace",
            "/metadata/name",
        ] {
            text(&self.object, path).hash(&mut hash);
        }
        let of_member = self.observed.unwrap_or(&self.object);
        text(of_member, "/metadata/uid").hash(&mut hash);
        let annotations = self.object.pointer("/metadata/annotations");
        let work = annotations.and_then(|all| all.get(annotation::WORK_NAMESPACE));
        work.and_then(Value::as_str).hash(&mut hash);
        hash.finish()
    }

    /// Returns the name of the object, with its namespace.
    pub(super) fn name(&self) -> String {
        let text = |path: &str| text(&self.object, path).unwrap_or_default();
        namespaced_key(text("/metadata/namespace"), text("/metadata/name"))
    }

    /// Returns the body of the request; `hides` leaves out the content of a Secret.
    pub(super) fn body(&self, uid: &str, hides: bool) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Context<T> {
            kind: &'static str,
            api_version: &'static str,
            request: T,
        }
        let context = Context {
            kind: KIND,
            api_version: API_VERSION,
            request: self.request(
                Form {
                    is_stable: false,
                    hides,
                },
                uid,
            ),
        };
        // Values are always JSON.
        serde_json::to_vec(&context).unwrap_or_default()
    }

    fn request<'q>(&'q self, form: Form, uid: &'q str) -> Request<'q> {
        let text = |path: &str| text(&self.object, path);
        let api_version = text("/apiVersion").unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Request {
            uid,
            kind: GroupVersionKind {
                group,
                version,
                kind: text("/kind").unwrap_or_default(),
            },
            name: text("/metadata/name").unwrap_or_default(),
            namespace: text("/metadata/namespace"),
            operation: self.operation.to_string(),
            object: Shown(&self.object, Part::Object, form),
            observed_object: self.observed.map(|it| Shown(it, Part::Object, form)),
            replicas: self.replicas,
            aggregated_status: self.items,
        }
    }
}

/// Returns the text at a path.
fn text<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    object.pointer(path).and_then(Value::as_str)
}

/// Digest of a question.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// Returns a text in the form of a UUID that is unique to the question and this number.
    pub(super) fn uid(&self, number: u64) -> String {
        let first = self.0.first_chunk().copied().unwrap_or_default();
        let number = u128::from_le_bytes(first).wrapping_add(number.into());
        let part = |shift: u32| (number >> shift) & 0xffff;
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            number >> 96,
            part(80),
            part(64),
            part(48),
            number & 0xffff_ffff_ffff
        )
    }
}

/// Digest, and number of bytes.
struct Hash(Context, usize);

impl io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        self.1 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: &'a str,
    kind: GroupVersionKind<'a>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    operation: String,
    object: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_object: Option<Shown<'a>>,
    // Karmada sends it for every operation.
    replicas: i32,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    aggregated_status: &'a [AggregatedStatusItem],
}

#[derive(Serialize)]
struct GroupVersionKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// Annotation in which `kubectl apply` keeps the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Which fields are written.
#[derive(Clone, Copy)]
struct Form {
    /// Leaves out the metadata that change with each write.
    is_stable: bool,
    /// Leaves out the content of a Secret.
    hides: bool,
}

/// Parts of an object of which fields may be left out.
#[derive(Clone, Copy)]
enum Part {
    Object,
    Metadata,
    Annotations,
}

/// An object or a part of it, as it is sent.
struct Shown<'a>(&'a Value, Part, Form);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(value, part, form) = *self;
        let Value::Object(fields) = value else {
            return value.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in fields {
            let inner = match (part, key.as_str()) {
                (Part::Object, "data" | "stringData") | (Part::Annotations, LAST_APPLIED)
                    if form.hides =>
                {
                    continue;
                }
                (Part::Metadata, "resourceVersion" | "managedFields") if form.is_stable => continue,
                (Part::Object, "metadata") => Part::Metadata,
                (Part::Metadata, "annotations") => Part::Annotations,
                _ => {
                    map.serialize_entry(key, value)?;
                    continue;
                }
            };
            map.serialize_entry(key, &Self(value, inner, form))?;
        }
        map.end()
    }
}

/// Objects of a question: the one that was asked about, and the one in the member.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Objects {
    pub(super) object: Value,
    pub(super) observed_object: Option<Value>,
}

impl Objects {
    /// Reads them from the body of a question.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Sent {
            request: Objects,
        }
        let sent: Sent = serde_json::from_slice(body).ok()?;
        Some(sent.request)
    }
}

/// Returns whether two versions of an object differ at most in what a controller writes all the
/// time: the status, and the metadata that change with each write.
pub(super) fn differs_in_status_alone(one: &Value, other: &Value) -> bool {
    let ignored = |field: &str| matches!(field, "status" | "metadata");
    let metadata =
        |field: &str| matches!(field, "resourceVersion" | "managedFields" | "generation");
    is_same(one, other, ignored) && is_same(&one["metadata"], &other["metadata"], metadata)
}

fn is_same(one: &Value, other: &Value, ignored: impl Fn(&str) -> bool) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else {
        return one == other;
    };
    let counts = |map: &Map<String, Value>| map.keys().filter(|key| !ignored(key)).count();
    let mut fields = one.iter().filter(|(key, _)| !ignored(key));
    counts(one) == counts(other) && fields.all(|(key, value)| other.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
