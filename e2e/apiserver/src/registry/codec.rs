//! Between the version that a request speaks and the version that is stored.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::registry::Served;
use crate::store::Object;
use crate::wire::protobuf::encode;

/// Returns whether the bytes of a stored object are what the request's version looks like.
pub fn as_stored(served: &Served, object: &Object) -> bool {
    // Of a custom object, another version shows what its own schema knows; built-in kinds have one
    // version.
    served.resource.custom.is_none() || object.is_in(&served.api_version())
}

/// Returns a stored object as the request's version has it.
pub fn to_request(served: &Served, mut object: Value) -> Value {
    let api_version = Value::from(served.api_version());
    if served.resource.custom.is_some() && object["apiVersion"] != api_version {
        served.version().schema.prune(&mut object);
    }
    object["apiVersion"] = api_version;
    object
}

/// Returns an object of the request's version as it is stored.
pub fn to_storage(served: &Served, mut object: Value) -> Value {
    if !served.is_storage() {
        object["apiVersion"] = served.resource.api_version(&served.resource.storage).into();
    }
    object
}

/// Returns the JSON of a stored object in the request's version.
pub fn bytes(served: &Served, object: &Object) -> Bytes {
    if as_stored(served, object) {
        return object.json();
    }
    to_request(served, object.value()).to_string().into()
}

/// Writes an object as an item of a list: items of built-in kinds don't repeat version and kind.
pub fn item(served: &Served, object: &Object, out: &mut Vec<u8>) {
    if served.resource.custom.is_none() {
        out.push(b'{');
        out.extend_from_slice(object.rest());
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
