//! The question to a webhook and its answer: `ResourceInterpreterContext`
//! (`config.karmada.io/v1alpha1`), as Karmada sends and reads it, but for the content of Secrets:
//! a webhook gets it only where a rule names the kind. Pure.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash as _, Hasher as _};
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use json_patch::Patch;
use muster_interpreter::{Component, Dependency, Operation, Requirements, wire};
use ring::digest::{Context, Digest, SHA256};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::error::Fault;
use super::patch;
use crate::api::binding::AggregatedStatusItem;
use crate::names::annotation;

/// API version of the context.
pub(super) const API_VERSION: &str = "config.karmada.io/v1alpha1";
/// Kind of the context.
pub(super) const KIND: &str = "ResourceInterpreterContext";

/// A question about an object.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What is asked.
    pub operation: Operation,
    /// The object.
    pub object: &'a Value,
    /// The object in the member, for `Retain`.
    pub observed: Option<&'a Value>,
    /// Number of replicas, for `ReviseReplica`.
    pub replicas: i32,
    /// Statuses of the members, for `AggregateStatus`.
    pub items: &'a [AggregatedStatusItem],
}

impl<'a> Question<'a> {
    /// Makes a question about an object alone.
    pub fn new(operation: Operation, object: &'a Value) -> Self {
        Self {
            operation,
            object,
            observed: None,
            replicas: 0,
            items: &[],
        }
    }

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
        (Key(hash.0.finish()), hash.1)
    }

    /// Returns the number of the object and the operation, which is the same for all versions of
    /// the object. Objects of different members, and copies for them, are different objects.
    pub(super) fn subject(&self, webhook: u64) -> u64 {
        let mut hash = DefaultHasher::new();
        (webhook, self.operation, self.replicas).hash(&mut hash);
        let text = |object: &'a Value, path: &str| object.pointer(path).and_then(Value::as_str);
        for path in [
            "/apiVersion",
            "/kind",
            "/metadata/namespace",
            "/metadata/name",
        ] {
            text(self.object, path).hash(&mut hash);
        }
        let of_member = self.observed.unwrap_or(self.object);
        text(of_member, "/metadata/uid").hash(&mut hash);
        let annotations = self.object.pointer("/metadata/annotations");
        let work = annotations.and_then(|all| all.get(annotation::WORK_NAMESPACE));
        work.and_then(Value::as_str).hash(&mut hash);
        hash.finish()
    }

    /// Returns the digest of the object's name.
    pub(super) fn object_number(&self) -> u64 {
        let text = |path: &str| self.object.pointer(path).and_then(Value::as_str);
        let mut hash = DefaultHasher::new();
        (text("/metadata/namespace"), text("/metadata/name")).hash(&mut hash);
        hash.finish()
    }

    /// Returns the name of the object, with its namespace.
    pub(super) fn name(&self) -> String {
        let text = |path: &str| self.object.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name").unwrap_or_default();
        match text("/metadata/namespace") {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        }
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
        let text = |path: &str| self.object.pointer(path).and_then(Value::as_str);
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
            object: Shown(self.object, form),
            observed_object: self.observed.map(|observed| Shown(observed, form)),
            replicas: self.replicas,
            aggregated_status: self.items,
        }
    }
}

/// Digest of a question.
#[derive(Clone, Copy)]
pub(super) struct Key(Digest);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref() == other.0.as_ref()
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.as_ref().hash(state);
    }
}

impl Key {
    /// Returns a text in the form of a UUID that is unique to the question and this number.
    pub(super) fn uid(&self, number: u64) -> String {
        let mut hash = Context::new(&SHA256);
        hash.update(self.0.as_ref());
        hash.update(&number.to_le_bytes());
        let digest = hash.finish();
        let mut hex = String::new();
        for byte in &digest.as_ref()[..16] {
            // Writing into a text does not fail.
            _ = write!(hex, "{byte:02x}");
        }
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
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

struct Shown<'a>(&'a Value, Form);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(object, form) = self;
        let Value::Object(fields) = object else {
            return object.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in fields {
            match value {
                Value::Object(metadata) if key == "metadata" => {
                    map.serialize_entry(key, &Metadata(metadata, *form))?;
                }
                _ if form.hides && matches!(key.as_str(), "data" | "stringData") => {}
                _ => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

struct Metadata<'a>(&'a Map<String, Value>, Form);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(metadata, form) = self;
        let mut map = serializer.serialize_map(None)?;
        for (field, value) in *metadata {
            match value {
                _ if form.is_stable
                    && matches!(field.as_str(), "resourceVersion" | "managedFields") => {}
                Value::Object(annotations) if form.hides && field == "annotations" => {
                    map.serialize_entry(field, &Harmless(annotations))?;
                }
                _ => map.serialize_entry(field, value)?,
            }
        }
        map.end()
    }
}

/// Annotations without the one that holds the whole object.
struct Harmless<'a>(&'a Map<String, Value>);

impl Serialize for Harmless<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = self.0.iter();
        serializer.collect_map(all.filter(|(name, _)| name.as_str() != LAST_APPLIED))
    }
}

/// Answer of a webhook.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::interpreter) enum Answer {
    Replicas(i32, Option<Requirements>),
    Components(Vec<Component>),
    /// Patch of the object that was sent, and the body of the question where the object has changed
    /// meanwhile.
    Object(Patch, Option<Bytes>),
    Dependencies(Vec<Dependency>),
    Status(Value),
    Health(bool),
}

/// Reads the answer to a question.
pub(super) fn read(operation: Operation, uid: &str, body: &[u8]) -> Result<Answer, Fault> {
    let context: Received = serde_json::from_slice(body)
        .map_err(|error| malformed(format!("no JSON of a {KIND}: {error}")))?;
    let is_other = |found: &str, expected: &str| !found.is_empty() && found != expected;
    if is_other(&context.kind, KIND) || is_other(&context.api_version, API_VERSION) {
        let Received {
            kind, api_version, ..
        } = context;
        return Err(malformed(format!(
            "expected {KIND} of {API_VERSION}, found {kind:?} of {api_version:?}"
        )));
    }
    let Some(response) = context.response else {
        return Err(malformed("it has no response".to_owned()));
    };
    if response.uid != uid {
        return Err(malformed(format!(
            "response.uid: expected {uid:?}, found {:?}",
            shortened(&response.uid)
        )));
    }
    if !response.successful {
        let Some(status) = response.status else {
            return Err(malformed(
                "response.status is absent, although response.successful is false".to_owned(),
            ));
        };
        return Err(Fault::Refused {
            code: status.code,
            message: shortened(&status.message),
        });
    }
    let absent = |field: &str| malformed(format!("response.{field} is absent"));
    Ok(match operation {
        Operation::InterpretReplica => {
            let count = response.replicas.ok_or_else(|| absent("replicas"))?;
            let replicas = i32::try_from(count).ok().filter(|count| *count >= 0);
            let replicas = replicas.ok_or_else(|| {
                malformed(format!(
                    "response.replicas: expected a number from 0 to 2147483647, found {count}"
                ))
            })?;
            let needs = response.replica_requirements.filter(|one| !one.is_null());
            let needs = needs.map(|needs| wire::requirements(&needs)).transpose();
            Answer::Replicas(replicas, needs.map_err(malformed)?)
        }
        Operation::InterpretComponent => {
            let list = response.components.filter(|one| !one.is_null());
            let list = list.map(|list| wire::components(&list)).transpose();
            Answer::Components(list.map_err(malformed)?.unwrap_or_default())
        }
        Operation::InterpretDependency => {
            let list = response.dependencies.filter(|one| !one.is_null());
            let list = list.map(|list| wire::dependencies(&list)).transpose();
            Answer::Dependencies(list.map_err(malformed)?.unwrap_or_default())
        }
        Operation::ReviseReplica | Operation::Retain | Operation::AggregateStatus => {
            let patch = read_patch(response.patch_type.as_deref(), response.patch.as_deref())?;
            Answer::Object(patch, None)
        }
        Operation::InterpretStatus => match response.raw_status {
            Some(status) if status.is_object() => Answer::Status(status),
            None | Some(Value::Null) => return Err(absent("rawStatus")),
            Some(_) => return Err(malformed("response.rawStatus is no object".to_owned())),
        },
        Operation::InterpretHealth => {
            Answer::Health(response.healthy.ok_or_else(|| absent("healthy"))?)
        }
    })
}

/// Reads the patch of a response. None at all leaves the object as it is.
fn read_patch(kind: Option<&str>, text: Option<&str>) -> Result<Patch, Fault> {
    match (kind, text.filter(|text| !text.is_empty())) {
        (None, None) => Ok(Patch::default()),
        (Some("JSONPatch"), Some(text)) => {
            let text = STANDARD.decode(text);
            let text = text.map_err(|error| malformed(format!("response.patch: {error}")))?;
            patch::read(&text).map_err(malformed)
        }
        (None, Some(_)) => Err(malformed("response.patchType is absent".to_owned())),
        (Some("JSONPatch"), None) => Err(malformed("response.patch is empty".to_owned())),
        (Some(other), _) => Err(malformed(format!(
            "response.patchType: expected \"JSONPatch\", found {:?}",
            shortened(other)
        ))),
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

/// Refuses an answer. The text may quote it.
pub(super) fn malformed(text: String) -> Fault {
    match shortened(&text) {
        same if same == text => Fault::Malformed(text),
        shorter => Fault::Malformed(shorter),
    }
}

/// Longest part of a foreign text that an error quotes, in characters.
const QUOTED: usize = 200;

/// Begin of a foreign text, in one line and without characters that are not seen: they may hide
/// what stands there, or turn it around.
pub(super) fn shortened(text: &str) -> String {
    let is_unseen = |one: char| {
        matches!(one, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
    };
    let seen = |one: char| match one {
        '\n' | '\r' | '\t' => Some(' '),
        _ if one.is_control() || is_unseen(one) => None,
        _ => Some(one),
    };
    let text: String = text.chars().filter_map(seen).take(QUOTED + 1).collect();
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Received {
    kind: String,
    api_version: String,
    response: Option<Response>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    uid: String,
    successful: bool,
    status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    replicas: Option<i64>,
    replica_requirements: Option<Value>,
    components: Option<Value>,
    dependencies: Option<Value>,
    raw_status: Option<Value>,
    healthy: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
    code: i64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn widget() -> Value {
        json!({ "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": { "name": "w", "namespace": "a", "resourceVersion": "7" }, "spec": { "size": 1 } })
    }

    #[test]
    fn a_question_is_sent_as_karmada_sends_it() {
        let (widget, observed) = (widget(), json!({ "spec": { "size": 2 } }));
        let items = [AggregatedStatusItem {
            cluster_name: "m1".to_owned(),
            ..AggregatedStatusItem::default()
        }];
        let question = Question {
            observed: Some(&observed),
            replicas: 3,
            items: &items,
            ..Question::new(Operation::Retain, &widget)
        };
        let body: Value = serde_json::from_slice(&question.body("u-1", false)).unwrap();
        let expected = json!({
            "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterContext",
            "request": {
                "uid": "u-1",
                "kind": { "group": "example.com", "version": "v1", "kind": "Widget" },
                "name": "w", "namespace": "a", "operation": "Retain",
                "object": widget, "observedObject": observed, "replicas": 3,
                "aggregatedStatus": [serde_json::to_value(&items[0]).unwrap()],
            },
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn a_question_is_the_same_until_something_that_counts_has_changed() {
        let digest = |object: &Value| {
            Question::new(Operation::InterpretHealth, object)
                .digest(1, false)
                .0
        };
        let known = digest(&widget());
        let edited = |path: &str, value: Value| {
            let mut object = widget();
            *object.pointer_mut(path).unwrap() = value;
            digest(&object)
        };
        assert!(known == edited("/metadata/resourceVersion", json!("8")));
        assert!(known != edited("/spec/size", json!(2)));
        assert!(known != edited("/metadata/name", json!("x")));
        let widget = widget();
        assert!(
            known
                != Question::new(Operation::InterpretStatus, &widget)
                    .digest(1, false)
                    .0
        );
        assert!(
            known
                != Question::new(Operation::InterpretHealth, &widget)
                    .digest(2, false)
                    .0
        );
        assert_ne!(known.uid(1), known.uid(2));
        assert_eq!(known.uid(1).len(), 36);
    }

    #[test]
    fn the_content_of_a_secret_is_left_out_wherever_it_stands() {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": "s", "annotations": { "a": "b", LAST_APPLIED: "{\"data\":1}" } },
            "data": { "k": "dG9w" }, "stringData": { "k": "top" } });
        let question = Question {
            observed: Some(&secret),
            ..Question::new(Operation::Retain, &secret)
        };
        let body: Value = serde_json::from_slice(&question.body("u", true)).unwrap();
        let expected = json!({ "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": "s", "annotations": { "a": "b" } } });
        assert_eq!(body["request"]["object"], expected);
        assert_eq!(body["request"]["observedObject"], expected);
        let whole: Value = serde_json::from_slice(&question.body("u", false)).unwrap();
        assert_eq!(whole["request"]["object"], secret);
        let mut other = secret.clone();
        other["data"]["k"] = json!("bm90");
        let digest = |object: &Value, hides| {
            Question::new(Operation::InterpretHealth, object)
                .digest(1, hides)
                .0
        };
        assert!(digest(&secret, true) == digest(&other, true));
        assert!(digest(&secret, false) != digest(&other, false));
    }

    #[test]
    fn an_object_stays_the_same_in_every_version_and_is_another_in_another_member() {
        let number = |object: &Value| Question::new(Operation::Retain, object).subject(1);
        let known = number(&widget());
        let edited = |path: &str, value: Value| {
            let mut object = widget();
            object["metadata"]["uid"] = json!("u");
            object["metadata"]["annotations"] = json!({ "work.karmada.io/namespace": "n" });
            *object.pointer_mut(path).unwrap() = value;
            number(&object)
        };
        let same = edited("/spec/size", json!(7));
        assert_eq!(same, edited("/metadata/resourceVersion", json!("9")));
        assert_ne!(same, edited("/metadata/name", json!("x")));
        assert_ne!(same, edited("/metadata/uid", json!("v")));
        assert_ne!(
            same,
            edited(
                "/metadata/annotations/work.karmada.io~1namespace",
                json!("m")
            )
        );
        let widget = widget();
        assert_ne!(
            known,
            Question::new(Operation::InterpretHealth, &widget).subject(1)
        );
        assert_ne!(known, Question::new(Operation::Retain, &widget).subject(2));
        let revised = Question {
            replicas: 2,
            ..Question::new(Operation::Retain, &widget)
        };
        assert_ne!(known, revised.subject(1));
    }

    #[test]
    fn versions_that_differ_in_their_status_alone_are_told_apart_from_others() {
        let object = json!({ "kind": "A", "metadata": { "name": "a", "resourceVersion": "1" },
            "spec": { "b": 1 }, "status": { "c": 1 } });
        for (path, value, expected) in [
            ("/status/c", json!(2), true),
            ("/status", json!(null), true),
            ("/metadata/resourceVersion", json!("2"), true),
            ("/spec/b", json!(2), false),
            ("/metadata/name", json!("b"), false),
        ] {
            let mut other = object.clone();
            *other.pointer_mut(path).unwrap() = value;
            assert_eq!(differs_in_status_alone(&object, &other), expected, "{path}");
        }
        let mut more = object.clone();
        more["data"] = json!({});
        assert!(!differs_in_status_alone(&object, &more));
        assert!(!differs_in_status_alone(&more, &object));
    }

    #[test]
    fn a_foreign_text_is_quoted_in_one_line_and_shortened() {
        assert_eq!(shortened("a\nb\u{202e}c\u{7}d\u{200b}"), "a bcd");
        let long = shortened(&"x".repeat(5_000));
        assert_eq!(long.len(), QUOTED + 3);
        // Errors of parsers quote what they read.
        let body = json!({ "response": { "uid": "u", "successful": "y".repeat(50_000) } });
        let Err(Fault::Malformed(text)) =
            read(Operation::InterpretHealth, "u", body.to_string().as_bytes())
        else {
            panic!("it was read");
        };
        assert!(text.len() <= QUOTED + 3, "{} bytes", text.len());
    }

    fn answered(operation: Operation, response: &Value) -> Result<Answer, Fault> {
        let mut all = json!({ "uid": "u", "successful": true });
        all.as_object_mut()
            .unwrap()
            .extend(response.as_object().unwrap().clone());
        let context = json!({ "apiVersion": API_VERSION, "kind": KIND, "response": all });
        read(operation, "u", context.to_string().as_bytes())
    }

    #[test]
    fn an_answer_is_read_for_each_operation() {
        let patch = STANDARD.encode(r#"[{"op":"add","path":"/spec/a","value":1}]"#);
        let patched = json!({ "patchType": "JSONPatch", "patch": patch });
        for operation in [
            Operation::Retain,
            Operation::ReviseReplica,
            Operation::AggregateStatus,
        ] {
            let Answer::Object(patch, None) = answered(operation, &patched).unwrap() else {
                panic!("no patch");
            };
            assert_eq!(patch.0.len(), 1);
            let Answer::Object(none, None) = answered(operation, &json!({})).unwrap() else {
                panic!("no patch");
            };
            assert_eq!(none.0.len(), 0);
        }
        let replicas =
            json!({ "replicas": 2, "replicaRequirements": { "resourceRequest": { "cpu": "1" } } });
        let Answer::Replicas(2, Some(needs)) =
            answered(Operation::InterpretReplica, &replicas).unwrap()
        else {
            panic!("no replicas");
        };
        assert_eq!(needs.resource_request["cpu"].0, "1");
        for (operation, response, expected) in [
            (
                Operation::InterpretHealth,
                json!({ "healthy": false }),
                Answer::Health(false),
            ),
            (
                Operation::InterpretStatus,
                json!({ "rawStatus": { "a": 1 } }),
                Answer::Status(json!({ "a": 1 })),
            ),
            (
                Operation::InterpretDependency,
                json!({}),
                Answer::Dependencies(Vec::new()),
            ),
            (
                Operation::InterpretComponent,
                json!({ "components": [{ "name": "a", "replicas": 1 }] }),
                Answer::Components(vec![Component {
                    name: "a".to_owned(),
                    replicas: 1,
                    replica_requirements: None,
                }]),
            ),
        ] {
            assert_eq!(answered(operation, &response), Ok(expected), "{operation}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_used_says_why() {
        use Operation::{InterpretHealth, InterpretReplica, InterpretStatus, Retain};
        for (operation, response, told) in [
            (InterpretHealth, json!({}), "response.healthy is absent"),
            (InterpretHealth, json!({ "healthy": "yes" }), "invalid type"),
            (
                InterpretHealth,
                json!({ "uid": "v", "healthy": true }),
                "response.uid",
            ),
            (InterpretReplica, json!({}), "response.replicas is absent"),
            (InterpretReplica, json!({ "replicas": -1 }), "from 0 to"),
            (
                InterpretReplica,
                json!({ "replicas": 1, "replicaRequirements": { "nodeClaim": 3 } }),
                "replicaRequirements.nodeClaim",
            ),
            (InterpretStatus, json!({}), "response.rawStatus is absent"),
            (InterpretStatus, json!({ "rawStatus": [1] }), "no object"),
            (Retain, json!({ "patch": "W10=" }), "patchType is absent"),
            (
                Retain,
                json!({ "patchType": "JSONPatch" }),
                "patch is empty",
            ),
            (
                Retain,
                json!({ "patchType": "Merge", "patch": "W10=" }),
                "expected \"JSONPatch\"",
            ),
            (
                Retain,
                json!({ "patchType": "JSONPatch", "patch": "%%" }),
                "response.patch",
            ),
            (
                InterpretHealth,
                json!({ "successful": false }),
                "response.status is absent",
            ),
        ] {
            let Err(Fault::Malformed(text)) = answered(operation, &response) else {
                panic!("{response}");
            };
            assert!(text.contains(told), "{response}: {text}");
        }
        let refused =
            json!({ "successful": false, "status": { "code": 400, "message": "no such kind" } });
        let expected = Fault::Refused {
            code: 400,
            message: "no such kind".to_owned(),
        };
        assert_eq!(answered(InterpretHealth, &refused), Err(expected));
        for body in ["", "{}", "[]", r#"{"kind":"Status"}"#, "{\"response\":"] {
            let found = read(InterpretHealth, "u", body.as_bytes());
            assert!(
                matches!(found, Err(Fault::Malformed(_))),
                "{body}: {found:?}"
            );
        }
    }
}
