//! The roles and bindings that every cluster begins with.

use serde_json::Value;

/// Returns the objects, with their plurals.
pub fn bootstrap() -> Vec<(&'static str, Value)> {
    let objects: Vec<Value> = serde_saphyr::from_str(include_str!("bootstrap.yaml"))
        .expect("the file is read by every test: it is valid");
    let plural = |object: &Value| match object["kind"].as_str() {
        Some("ClusterRole") => "clusterroles",
        _ => "clusterrolebindings",
    };
    let objects = objects.into_iter();
    objects.map(|object| (plural(&object), object)).collect()
}
