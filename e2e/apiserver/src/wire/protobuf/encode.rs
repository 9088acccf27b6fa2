//! Answers in protobuf: objects, items of lists, and frames of watches.
//!
//! Everything is written straight from JSON as this server stores it, member by member, without a
//! tree in between. The fields of a message are in the order of the JSON: readers take them in
//! any order.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::facts::{FACTS, Field, Member, Message, Shape};
use super::json::Reader;
use super::{MAGIC, message_name};

/// How the objects of a kind are written.
#[derive(Debug, Clone)]
pub struct Kind {
    message: &'static Message,
    /// What is before the object in its envelope.
    head: Vec<u8>,
}

impl Kind {
    /// Returns the protobuf form of a kind, if it has one.
    pub fn of(version: &str, kind: &str) -> Option<Self> {
        Some(Self {
            message: FACTS.named(&message_name(version, kind))?,
            head: head(version, kind),
        })
    }

    /// Appends an object with its envelope.
    pub fn object(&self, json: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        nested(2, out, |out| {
            message(&mut Reader::new(json), self.message, out);
        });
        out.extend_from_slice(&TAIL);
    }

    /// Appends an object as a frame of a watch: an event without an envelope, around an object that
    /// has its own, behind its length.
    pub fn frame(&self, event: &str, json: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        bytes(1, event.as_bytes(), out);
        nested(2, out, |out| nested(1, out, |out| self.object(json, out)));
        let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// Appends an object as an item of a list.
    pub fn item(&self, json: &[u8], out: &mut Vec<u8>) {
        nested(2, out, |out| {
            message(&mut Reader::new(json), self.message, out);
        });
    }
}

/// What surrounds the items of a list.
#[derive(Debug)]
pub struct List {
    /// The metadata, which is before the items.
    metadata: Vec<u8>,
    head: Vec<u8>,
}

impl List {
    /// Returns the protobuf form of a list of a kind: every kind of list has its metadata in field
    /// 1 and its items in field 2.
    pub fn new(version: &str, list_kind: &str, metadata: &Value) -> Self {
        let mut list = Self {
            metadata: Vec::new(),
            head: head(version, list_kind),
        };
        if let Some(known) = FACTS.named("meta.v1.ListMeta") {
            let metadata = metadata.to_string();
            let mut metadata = Reader::new(metadata.as_bytes());
            nested(1, &mut list.metadata, |out| {
                message(&mut metadata, known, out);
            });
        }
        list
    }

    /// Returns the bytes that are before items of so many bytes.
    pub fn head(mut self, items: usize) -> Vec<u8> {
        varint(2 << 3 | 2, &mut self.head);
        varint((self.metadata.len() + items) as u64, &mut self.head);
        self.head.append(&mut self.metadata);
        self.head
    }
}

/// What is after an object in its envelope: content encoding and type, which are always there
/// and always empty.
pub const TAIL: [u8; 4] = [3 << 3 | 2, 0, 4 << 3 | 2, 0];

/// Returns the bytes that are before an object in its envelope.
fn head(version: &str, kind: &str) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    nested(1, &mut out, |out| {
        bytes(1, version.as_bytes(), out);
        bytes(2, kind.as_bytes(), out);
    });
    out
}

/// Appends the fields of a message from the members of an object.
fn message(json: &mut Reader<'_>, message: &'static Message, out: &mut Vec<u8>) {
    let (mut inlined, mut from) = (Vec::new(), 0);
    json.object(|json, name| match message.member(&name, &mut from) {
        None => {
            json.skip();
        }
        Some(Member {
            field,
            inlined: false,
        }) => member(json, field, out),
        Some(Member {
            field,
            inlined: true,
        }) => member(json, field, &mut inlined),
    });
    if let Some(number) = message.inlined {
        bytes(number, &inlined, out);
    }
}

/// Appends a field from the value of a member, or several where it is a list or a map.
fn member(json: &mut Reader<'_>, field: &Field, out: &mut Vec<u8>) {
    let &Field { number, shape, .. } = field;
    match json.peek() {
        Some(b'{') if field.map => json.object(|json, key| {
            nested(number, out, |out| {
                bytes(1, &key, out);
                single(json, 2, shape, out);
            });
        }),
        Some(b'[') if field.repeated => json.array(|json| single(json, number, shape, out)),
        _ if field.map || field.repeated => {
            json.skip();
        }
        _ => single(json, number, shape, out),
    }
}

/// Appends one value. What is not of its shape, which the schema would have refused, is left out.
fn single(json: &mut Reader<'_>, number: u64, shape: Shape, out: &mut Vec<u8>) {
    match (shape, json.peek()) {
        (_, Some(b'"')) if shape != Shape::Raw => text(&json.string(), number, shape, out),
        (Shape::Message(inner), Some(opening @ (b'{' | b'['))) => {
            match (FACTS.message(inner), opening) {
                (Some(inner), b'{') => nested(number, out, |out| message(json, inner, out)),
                // A plain list in JSON, a list of its own type on the wire.
                (Some(inner), b'[') if inner.is_list => {
                    nested(number, out, |out| {
                        json.array(|json| single(json, 1, Shape::Text, out));
                    });
                }
                _ => {
                    json.skip();
                }
            }
        }
        _ => literal(json.skip(), number, shape, out),
    }
}

/// Appends a string.
fn text(text: &[u8], number: u64, shape: Shape, out: &mut Vec<u8>) {
    match shape {
        Shape::Text => bytes(number, text, out),
        Shape::Quantity => nested(number, out, |out| bytes(1, text, out)),
        Shape::IntOrString => int_or_string(number, 0, Some(text), out),
        Shape::Bytes => {
            if let Ok(decoded) = STANDARD.decode(text) {
                bytes(number, &decoded, out);
            }
        }
        Shape::Time { .. } => {
            let time = str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse::<Timestamp>().ok());
            if let Some(time) = time {
                nested(number, out, |out| {
                    integer_field(1, time.as_second(), out);
                    integer_field(2, i64::from(time.subsec_nanosecond()), out);
                });
            }
        }
        _ => {}
    }
}

/// Appends a value that is no string and no message: a number, a boolean, JSON within.
fn literal(json: &[u8], number: u64, shape: Shape, out: &mut Vec<u8>) {
    let text = str::from_utf8(json).unwrap_or_default();
    match (shape, text) {
        (_, "null") => {}
        (Shape::Raw, _) => nested(number, out, |out| bytes(1, json, out)),
        (Shape::Boolean, "true" | "false") => integer_field(number, i64::from(text == "true"), out),
        (Shape::Integer, _) => {
            if let Ok(integer) = text.parse() {
                integer_field(number, integer, out);
            }
        }
        (Shape::Double, _) => {
            if let Ok(double) = text.parse::<f64>() {
                varint(number << 3 | 1, out);
                out.extend_from_slice(&double.to_le_bytes());
            }
        }
        (Shape::Quantity, _) => nested(number, out, |out| bytes(1, json, out)),
        (Shape::IntOrString, _) => {
            int_or_string(number, text.parse().unwrap_or_default(), None, out);
        }
        _ => {}
    }
}

fn int_or_string(number: u64, integer: i64, text: Option<&[u8]>, out: &mut Vec<u8>) {
    nested(number, out, |out| {
        integer_field(1, i64::from(text.is_some()), out);
        integer_field(2, integer, out);
        bytes(3, text.unwrap_or_default(), out);
    });
}

/// Appends a field whose content is written in place, behind its length.
fn nested<T>(number: u64, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    varint(number << 3 | 2, out);
    // Most lengths take a byte; the content makes room for a longer one.
    let start = out.len();
    out.push(0);
    let written = write(out);
    let end = out.len();
    let mut length = end - start - 1;
    let more = (usize::BITS - length.leading_zeros()).saturating_sub(1) as usize / 7;
    if more > 0 {
        out.resize(end + more, 0);
        out.copy_within(start + 1..end, start + 1 + more);
    }
    for digit in &mut out[start..start + more] {
        *digit = low_bits(length as u64) | 0x80;
        length >>= 7;
    }
    out[start + more] = low_bits(length as u64);
    written
}

fn bytes(number: u64, content: &[u8], out: &mut Vec<u8>) {
    varint(number << 3 | 2, out);
    varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

fn integer_field(number: u64, integer: i64, out: &mut Vec<u8>) {
    varint(number << 3, out);
    varint(integer.cast_unsigned(), out);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    u8::try_from(value & 0x7f).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::protobuf::decode;

    /// Returns an object as it comes back from a frame.
    fn read_back(object: &Value) -> Value {
        let name = |member: &str| object[member].as_str().unwrap_or_default().to_owned();
        let kind = Kind::of(&name("apiVersion"), &name("kind")).expect("a kind with a wire form");
        let mut frame = Vec::new();
        kind.frame("ADDED", object.to_string().as_bytes(), &mut frame);
        assert_eq!(frame[..4], (frame.len() - 4).to_be_bytes()[4..]);
        let start = frame
            .windows(4)
            .position(|w| w == MAGIC)
            .expect("an envelope");
        decode(&frame[start..]).expect("decodes")
    }

    #[test]
    fn an_object_is_read_back_as_it_was_written() {
        let annotations: serde_json::Map<String, Value> =
            [(0, 127), (1, 128), (2, 16_383), (3, 16_384), (4, 300_000)]
                .iter()
                .map(|(key, length)| (key.to_string(), "x".repeat(*length).into()))
                .collect();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "300", "generation": 3,
                "creationTimestamp": "2026-01-02T03:04:05Z", "labels": { "x": "y", "empty": "", "quote": "\"\n" },
                "annotations": annotations,
                "managedFields": [{ "manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                    "fieldsV1": { "f:spec": { "f:nodeName": {} } } }] },
            "spec": { "nodeName": "n", "hostNetwork": true, "terminationGracePeriodSeconds": -1,
                "overhead": { "cpu": "10m" },
                "volumes": [{ "name": "v", "configMap": { "name": "c", "defaultMode": 420 } }],
                "containers": [{ "name": "c", "image": "i",
                    "resources": { "requests": { "cpu": "1500m", "memory": "1Gi" }, "limits": {} },
                    "ports": [{ "containerPort": 80 }],
                    "env": [{ "name": "E", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
                    "livenessProbe": { "httpGet": { "path": "/", "port": "http" }, "periodSeconds": 200 },
                    "readinessProbe": { "httpGet": { "port": 8080 } } }] },
            "status": { "phase": "Running" },
        });
        let mut read = read_back(&pod);
        // An empty map is none on the wire.
        read["spec"]["containers"][0]["resources"]["limits"] = json!({});
        assert_eq!(read, pod);
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "k": "AAEC/w==" } });
        assert_eq!(read_back(&secret), secret);
        let request = json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": "r" },
            "spec": { "username": "u", "extra": { "scopes": ["a", "b"] } } });
        assert_eq!(read_back(&request), request);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let odd = json!({ "apiVersion": "v1", "kind": "Pod", "unknown": { "a": [1] },
            "metadata": { "name": 5, "labels": [], "generation": "x", "creationTimestamp": null, "managedFields": {} },
            "spec": [1, { "a": 2 }] });
        let kept = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {} });
        assert_eq!(read_back(&odd), kept);
    }

    #[test]
    fn a_list_has_its_length_before_its_items() {
        let kind = Kind::of("v1", "ConfigMap").expect("a kind with a wire form");
        let mut items = Vec::new();
        for name in ["a", "b"] {
            kind.item(
                json!({ "metadata": { "name": name } })
                    .to_string()
                    .as_bytes(),
                &mut items,
            );
        }
        let list = List::new("v1", "ConfigMapList", &json!({ "resourceVersion": "7" }));
        let whole = [list.head(items.len()), items, TAIL.to_vec()].concat();
        let expected = [
            &b"k8s\0\x0a\x13\x0a\x02v1\x12\x0dConfigMapList\x12\x13\x0a\x03\x12\x017"[..],
            b"\x12\x05\x0a\x03\x0a\x01a\x12\x05\x0a\x03\x0a\x01b\x1a\0\x22\0",
        ];
        assert_eq!(whole, expected.concat());
    }
}
