//! Objects that are scaled.

use serde_json::Value;

/// Removes the time from what is owned through the scale, and lists it first, as the real server
/// does.
pub fn forget_time(object: &mut Value) {
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        for entry in entries.iter_mut().filter(|e| e["subresource"] == "scale") {
            entry.as_object_mut().map(|e| e.remove("time"));
        }
        entries.sort_by_key(|e| e.get("time").is_some());
    }
}
