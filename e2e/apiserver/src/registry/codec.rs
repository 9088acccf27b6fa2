//! How stored objects are written.

use serde_json::{Map, Value, json};

use crate::registry::Served;
use crate::store::Object;

/// Writes an object as an item of a list: items of built-in kinds don't repeat version and kind.
pub fn item(served: &Served, object: &Object, out: &mut Vec<u8>) {
    if served.resource.custom.is_none() {
        out.push(b'{');
        out.extend_from_slice(object.rest());
    } else {
        out.extend_from_slice(object.json_bytes());
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
