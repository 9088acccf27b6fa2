//! Answers in protobuf: objects, lists, and frames of watches.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::facts::{FACTS, Field, Shape};
use super::{MAGIC, message_name};

/// Whether objects of a kind can be written in protobuf.
pub fn speaks(version: &str, kind: &str) -> bool {
    FACTS.contains_key(message_name(version, kind).as_str())
}

/// An object with its envelope.
pub fn object(version: &str, kind: &str, object: &Value) -> Vec<u8> {
    envelope(version, kind, &bare(version, kind, object))
}

/// A refusal, as watches tell it.
pub fn status(status: &Value) -> Vec<u8> {
    envelope("v1", "Status", &bare("meta/v1", "Status", status))
}

/// An object without its envelope, as items of lists are.
fn bare(version: &str, kind: &str, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let name = message_name(version, kind);
    if let (Some(fields), Some(object)) = (FACTS.get(name.as_str()), object.as_object()) {
        message(object, fields, &mut out);
    }
    out
}

/// A list: every kind of list has its metadata in field 1 and its items in field 2.
pub fn list(
    version: &str,
    kind: &str,
    list_kind: &str,
    metadata: &Value,
    items: impl Iterator<Item = Value>,
) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(1, &bare("meta/v1", "ListMeta", metadata), &mut out);
    for item in items {
        bytes(2, &bare(version, kind, &item), &mut out);
    }
    envelope(version, list_kind, &out)
}

/// A frame of a watch: an event without an envelope, around an object that has its own, behind its
/// length.
pub fn frame(event: &str, object: &[u8]) -> Vec<u8> {
    let (mut raw, mut out) = (Vec::new(), Vec::new());
    bytes(1, object, &mut raw);
    bytes(1, event.as_bytes(), &mut out);
    bytes(2, &raw, &mut out);
    let length = u32::try_from(out.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &out].concat()
}

fn envelope(version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let (mut meta, mut out) = (Vec::new(), MAGIC.to_vec());
    bytes(1, version.as_bytes(), &mut meta);
    bytes(2, kind.as_bytes(), &mut meta);
    bytes(1, &meta, &mut out);
    bytes(2, message, &mut out);
    // Content encoding and type, which are always there and always empty.
    bytes(3, b"", &mut out);
    bytes(4, b"", &mut out);
    out
}

fn message(object: &Map<String, Value>, fields: &[Field], out: &mut Vec<u8>) {
    for field in fields {
        if field.name == "~" {
            if let Shape::Message(name) = &field.shape {
                let mut inner = Vec::new();
                message(object, inner_fields(name), &mut inner);
                bytes(field.number, &inner, out);
            }
            continue;
        }
        match object.get(field.name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(entries)) if field.map => {
                for (key, value) in entries {
                    let mut entry = Vec::new();
                    bytes(1, key.as_bytes(), &mut entry);
                    single(2, &field.shape, value, &mut entry);
                    bytes(field.number, &entry, out);
                }
            }
            Some(Value::Array(values)) if field.repeated => {
                for value in values {
                    single(field.number, &field.shape, value, out);
                }
            }
            Some(value) => single(field.number, &field.shape, value, out),
        }
    }
}

fn inner_fields(name: &str) -> &'static [Field] {
    FACTS.get(name).map_or(&[][..], Vec::as_slice)
}

/// One value. What is not of its shape, which the schema would have refused, is left out.
fn single(number: u64, shape: &Shape, value: &Value, out: &mut Vec<u8>) {
    let text = value.as_str();
    match shape {
        Shape::Text => {
            if let Some(text) = text {
                bytes(number, text.as_bytes(), out);
            }
        }
        Shape::Bytes => {
            if let Some(decoded) = text.and_then(|text| STANDARD.decode(text).ok()) {
                bytes(number, &decoded, out);
            }
        }
        Shape::Integer => {
            if let Some(integer) = value.as_i64() {
                integer_field(number, integer, out);
            }
        }
        Shape::Boolean => integer_field(number, i64::from(value == true), out),
        Shape::Double => {
            varint(number << 3 | 1, out);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Shape::Quantity => {
            let mut inner = Vec::new();
            let spelled = text.map_or_else(|| value.to_string(), str::to_owned);
            bytes(1, spelled.as_bytes(), &mut inner);
            bytes(number, &inner, out);
        }
        Shape::Time { .. } => {
            if let Some(time) = text.and_then(|text| text.parse::<Timestamp>().ok()) {
                let mut inner = Vec::new();
                integer_field(1, time.as_second(), &mut inner);
                integer_field(2, i64::from(time.subsec_nanosecond()), &mut inner);
                bytes(number, &inner, out);
            }
        }
        Shape::IntOrString => {
            let mut inner = Vec::new();
            integer_field(1, i64::from(text.is_some()), &mut inner);
            integer_field(2, value.as_i64().unwrap_or_default(), &mut inner);
            bytes(3, text.unwrap_or_default().as_bytes(), &mut inner);
            bytes(number, &inner, out);
        }
        Shape::Raw => {
            let mut inner = Vec::new();
            bytes(1, value.to_string().as_bytes(), &mut inner);
            bytes(number, &inner, out);
        }
        Shape::Message(name) => {
            let mut inner = Vec::new();
            match value {
                Value::Object(object) => message(object, inner_fields(name), &mut inner),
                // A plain list in JSON, a list of its own type on the wire.
                Value::Array(items) => {
                    for item in items {
                        single(1, &Shape::Text, item, &mut inner);
                    }
                }
                _ => {}
            }
            bytes(number, &inner, out);
        }
    }
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
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protobuf::decode;

    #[test]
    fn what_was_written_is_read_as_it_was() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "300", "generation": 3,
                "creationTimestamp": "2026-01-02T03:04:05Z", "labels": { "x": "y", "empty": "" },
                "managedFields": [{ "manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
                    "fieldsV1": { "f:spec": { "f:nodeName": {} } } }] },
            "spec": { "nodeName": "n", "hostNetwork": true, "terminationGracePeriodSeconds": -1,
                "overhead": { "cpu": "10m" },
                "containers": [{ "name": "c", "image": "i",
                    "resources": { "requests": { "cpu": "1500m", "memory": "1Gi" }, "limits": {} },
                    "ports": [{ "containerPort": 80 }],
                    "env": [{ "name": "E", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }],
                    "livenessProbe": { "httpGet": { "path": "/", "port": "http" }, "periodSeconds": 200 },
                    "readinessProbe": { "httpGet": { "port": 8080 } } }] },
            "status": { "phase": "Running" },
        });
        let mut read = decode(&object("v1", "Pod", &pod)).expect("decodes");
        // An empty map is none on the wire.
        read["spec"]["containers"][0]["resources"]["limits"] = json!({});
        assert_eq!(read, pod);
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "k": "AAEC/w==" } });
        assert_eq!(
            decode(&object("v1", "Secret", &secret)).expect("decodes"),
            secret
        );
    }
}
