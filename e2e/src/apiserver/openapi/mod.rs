//! OpenAPI documents for kubectl: v3 for `explain`, strategic merge and field validation, v2 for older clients.

mod paths;
mod schemas;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Map, Value, json};

use super::kinds::{self, Kind};
use paths::Resource;
use schemas::{Dialect, Schemas};

/// The index at `/openapi/v3`: one path per served group and version. `versions` are `api/v1`, `apis/apps/v1`, …;
/// each comes with a hash that changes when its document changes ([`hash`]).
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

/// A short text that differs when the document differs; clients use it to keep documents they know.
pub fn hash(document: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    document.to_string().hash(&mut hasher);
    format!("{:016X}", hasher.finish())
}

/// The document of one group and version: built-in kinds, and those of `crds` (whole `CustomResourceDefinition`s)
/// that serve it.
pub fn v3_group(group: &str, version: &str, crds: &[&Value]) -> Value {
    let mut schemas = Schemas::new(Dialect::V3);
    let mut paths = Map::new();
    for kind in builtin(group, version) {
        schemas.builtin(kind);
        paths::add(&mut paths, &Resource::builtin(kind), Dialect::V3);
    }
    for crd in crds.iter().filter(|crd| crd["spec"]["group"] == group) {
        if let Some(served) = served(crd).find(|v| v["name"] == version) {
            schemas.custom(crd, served);
            paths::add(&mut paths, &Resource::custom(crd, served), Dialect::V3);
        }
    }
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": schemas.finish()},
    })
}

/// The document at `/openapi/v2`, with all built-in kinds and `crds`.
pub fn v2(crds: &[&Value]) -> Value {
    let mut schemas = Schemas::new(Dialect::V2);
    let mut paths = Map::new();
    for kind in kinds::all() {
        schemas.builtin(kind);
        paths::add(&mut paths, &Resource::builtin(kind), Dialect::V2);
    }
    for crd in crds {
        for served in served(crd) {
            schemas.custom(crd, served);
            paths::add(&mut paths, &Resource::custom(crd, served), Dialect::V2);
        }
    }
    json!({"swagger": "2.0", "info": info(), "paths": paths, "definitions": schemas.finish()})
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.33.0"})
}

fn builtin<'a>(group: &'a str, version: &'a str) -> impl Iterator<Item = &'static Kind> + use<'a> {
    kinds::all()
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
