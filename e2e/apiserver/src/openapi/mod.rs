//! OpenAPI documents for kubectl: v3 for `explain`, strategic merge and field validation; v2 is
//! empty.

mod paths;
mod schemas;

use http::HeaderMap;
use http::header::ACCEPT;
use serde_json::{Map, Value, json};

use crate::catalog::{self, Kind};
use paths::Resource;
use schemas::Schemas;

/// Returns the index at `/openapi/v3`: one path per served group and version. `versions` are
/// `api/v1`, `apis/apps/v1`, …; each comes with a text that changes when its document changes.
pub fn v3_root<'a>(versions: impl IntoIterator<Item = (&'a str, String)>) -> Value {
    let paths: Map<String, Value> = versions
        .into_iter()
        .map(|(path, hash)| {
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path.to_owned(), json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// Returns the document of one group and version: built-in kinds, and those of `crds` (whole
/// `CustomResourceDefinition`s) that serve it.
pub fn v3_group(group: &str, version: &str, crds: &[&Value]) -> Value {
    let mut schemas = Schemas::default();
    let mut paths = Map::new();
    for kind in builtin(group, version) {
        schemas.builtin(kind);
        paths::add(&mut paths, &Resource::builtin(kind));
    }
    for crd in crds.iter().filter(|crd| crd["spec"]["group"] == group) {
        if let Some(served) = served(crd).find(|v| v["name"] == version) {
            schemas.custom(crd, served);
            paths::add(&mut paths, &Resource::custom(crd, served));
        }
    }
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": schemas.finish()},
    })
}

/// Returns the document at `/openapi/v2`, which has no paths and no definitions: kubectl reads v3.
pub fn v2() -> Value {
    json!({"swagger": "2.0", "info": info(), "paths": {}, "definitions": {}})
}

/// Media type of `/openapi/v2` in protobuf. kubectl asks with an `@` in it, which no parser of
/// media types takes.
pub const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Returns whether a client wants `/openapi/v2` in protobuf.
pub fn wants_protobuf(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("proto-openapi.spec.v2"))
}

/// Returns the document at `/openapi/v2` in protobuf (message `openapi.v2.Document`): title and
/// version, no schemas. kubectl looks there for kinds that it did not find in v3, so that it learns
/// that there are none and says `no matches for kind`.
pub fn v2_protobuf() -> Vec<u8> {
    let text = |number: u8, bytes: &[u8]| -> Vec<u8> {
        // A length below 128 is one byte.
        let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap_or(0)];
        field.extend_from_slice(bytes);
        field
    };
    let info = [text(1, b"Kubernetes"), text(2, b"v1.33.0")].concat();
    [text(1, b"2.0"), text(2, &info)].concat()
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.33.0"})
}

fn builtin<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = &'static Kind> + use<'a> {
    catalog::all()
        .iter()
        .filter(move |kind| kind.group == group && kind.version == version)
}

fn served(crd: &Value) -> impl Iterator<Item = &Value> {
    crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|v| v["served"] == true)
}

#[cfg(test)]
mod tests;
