//! OpenAPI documents for kubectl: v3 says which kinds are served, and that their patches validate
//! fields; v2 is empty. No type is described, so that `kubectl explain` finds nothing.

use std::sync::Arc;

use http::HeaderMap;
use http::header::ACCEPT;
use serde_json::{Map, Value, json};

use crate::registry::{Registry, Resource};

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

/// Returns the document of one group and version.
pub fn v3_group(registry: &Registry, group: &str, version: &str) -> Value {
    let mut paths = Map::new();
    let is = |it: &&Arc<Resource>| it.group == group && it.version.name == version;
    for resource in registry.all().iter().filter(is) {
        let (path, operations) = operations(resource);
        paths.insert(path, operations);
    }
    json!({"openapi": "3.0.0", "info": info(), "paths": paths})
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
/// version, no schemas. kubectl searches there for kinds that it did not find in v3, so that it
/// learns that there are none and says `no matches for kind`.
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

/// Forms of patches. The strategic one is left out: kubectl then merges built-in kinds by its own
/// knowledge of their lists.
const FORMS: [&str; 3] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
];

/// Returns the path in which kubectl searches for a kind, and what may be done there: a patch, with
/// its parameters and forms, or a creation where there are no patches. kubectl asks it whether
/// patches validate fields and merge strategically.
fn operations(resource: &Resource) -> (String, Value) {
    let (group, version) = (&resource.group, &resource.version);
    let name = &version.name;
    let mut route = if group.is_empty() {
        format!("/api/{name}")
    } else {
        format!("/apis/{group}/{name}")
    };
    if resource.namespaced {
        route += "/namespaces/{namespace}";
    }
    route = format!("{route}/{}", resource.plural);
    let kind = json!({"group": group, "version": name, "kind": resource.kind});
    let responses = json!({"200": {"description": "OK"}});
    if !version.verbs.iter().any(|verb| verb == "patch") {
        let post = json!({"responses": responses, "x-kubernetes-group-version-kind": kind});
        return (route, json!({"post": post}));
    }
    let parameter = |name: &str| {
        let schema = json!({"type": "string", "uniqueItems": true});
        json!({"name": name, "in": "query", "schema": schema})
    };
    let parameters = ["dryRun", "fieldValidation"].map(parameter);
    let form = |form: &str| (form.to_owned(), json!({"schema": {"type": "object"}}));
    let content: Map<String, Value> = FORMS.into_iter().map(form).collect();
    let patch = json!({
        "responses": responses,
        "x-kubernetes-group-version-kind": kind,
        "parameters": parameters,
        "requestBody": {"content": content, "required": true},
    });
    (route + "/{name}", json!({"patch": patch}))
}
