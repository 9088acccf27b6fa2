//! Between the version that a request speaks and the version that is stored.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Map, Value, json};

use crate::registry::Served;
use crate::store::Object;
use crate::wire::protobuf::encode;

/// Core events and `events.k8s.io` events are the same objects with other field names:
/// `(core, events.k8s.io)`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn renames_fields(served: &Served) -> bool {
    served.resource.group == "events.k8s.io"
}

/// Returns whether the bytes of a stored object are what the request's version looks like.
pub fn as_stored(served: &Served, object: &Object) -> bool {
    // Of a custom object, another version shows what its own schema knows; built-in kinds have one
    // version.
    !renames_fields(served)
        && (served.resource.custom.is_none() || object.is_in(&served.api_version()))
}

/// Returns a stored object as the request's version has it.
pub fn to_request(served: &Served, mut object: Value) -> Value {
    if renames_fields(served) {
        rename(&mut object, |core, events| (core, events));
        if let Some(members) = object.as_object_mut() {
            members.retain(|key, value| !(key.starts_with("reporting") && value == ""));
        }
    }
    let api_version = Value::from(served.api_version());
    if served.resource.custom.is_some() && object["apiVersion"] != api_version {
        served.version().schema.prune(&mut object);
    }
    object["apiVersion"] = api_version;
    object
}

/// Returns an object of the request's version as it is stored.
pub fn to_storage(served: &Served, mut object: Value) -> Value {
    if renames_fields(served) {
        rename(&mut object, |core, events| (events, core));
        object["apiVersion"] = "v1".into();
    } else if !served.is_storage() {
        object["apiVersion"] = served.resource.api_version(&served.resource.storage).into();
    }
    object
}

fn rename(
    object: &mut Value,
    direction: fn(&'static str, &'static str) -> (&'static str, &'static str),
) {
    let Some(members) = object.as_object_mut() else {
        return;
    };
    for (core, events) in EVENT_FIELDS {
        let (from, to) = direction(core, events);
        if let Some(value) = members.remove(from) {
            members.insert(to.to_owned(), value);
        }
    }
}

/// Returns the JSON of a stored object in the request's version.
pub fn bytes(served: &Served, object: &Object) -> Bytes {
    if !as_stored(served, object) {
        return to_request(served, object.value()).to_string().into();
    }
    if served.is_storage() || served.resource.custom.is_some() {
        return object.json();
    }
    let head =
        json!({ "apiVersion": served.api_version(), "kind": served.resource.kind }).to_string();
    let rest = object.rest();
    let mut out = BytesMut::with_capacity(head.len() + rest.len());
    out.put_slice(&head.as_bytes()[..head.len() - 1]);
    out.put_u8(b',');
    out.put_slice(rest);
    out.freeze()
}

/// Writes an object as an item of a list: items of built-in kinds don't repeat version and kind.
pub fn item(served: &Served, object: &Object, out: &mut Vec<u8>) {
    if as_stored(served, object) && served.resource.custom.is_none() {
        out.push(b'{');
        out.extend_from_slice(object.rest());
    } else if served.resource.custom.is_none() {
        let mut value = to_request(served, object.value());
        if let Some(members) = value.as_object_mut() {
            members.retain(|key, _| key != "apiVersion" && key != "kind");
        }
        out.extend_from_slice(value.to_string().as_bytes());
    } else {
        out.extend_from_slice(&bytes(served, object));
    }
}

/// Writes an object as an item of a list in protobuf.
pub fn compact_item(served: &Served, kind: &encode::Kind, object: &Object, out: &mut Vec<u8>) {
    if as_stored(served, object) {
        kind.item(object.json_bytes(), out);
    } else {
        kind.item(
            to_request(served, object.value()).to_string().as_bytes(),
            out,
        );
    }
}

/// Returns the metadata of an object as an object of its own.
pub fn metadata_only(object: &Value) -> Value {
    let metadata = object
        .get("metadata")
        .cloned()
        .unwrap_or_else(|| Value::Object(Map::new()));
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}
