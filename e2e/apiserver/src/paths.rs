//! Paths that are no resources: health, version, discovery, OpenAPI.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::context::Server;
use crate::discovery;
use crate::openapi;
use crate::wire::media::{self, Body};
use crate::wire::status_error::StatusError;

/// The version that the server says it is.
pub const VERSION: (&str, &str, &str) = ("1", "33", "v1.33.6");

/// Answers a request on a path that is no resource.
pub fn answer(server: &Arc<Server>, parts: &Parts) -> Result<Response<Body>, StatusError> {
    let path = parts.uri.path().trim_end_matches('/');
    let probe = ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|p| path.starts_with(p));
    if !probe && !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(if path.starts_with("/api") {
            StatusError::method_not_allowed()
        } else {
            StatusError::no_such_path()
        });
    }
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let tree = |value: &Value| Ok(media::tree(StatusCode::OK, value));
    match segments.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(media::text(StatusCode::OK, "ok")),
        ["version"] => tree(&version()),
        ["api"] => Ok(discovery::core(server, &parts.headers)),
        ["apis"] => Ok(discovery::groups(server, &parts.headers)),
        ["apis", group] => discovery::group(server, group),
        ["api", version] if !server.registry.has_version("", version) => {
            Err(StatusError::no_such_resource())
        }
        ["api", version] => discovery::version(server, "", version),
        ["apis", group, version] => discovery::version(server, group, version),
        ["openapi", "v2"] if openapi::wants_protobuf(&parts.headers) => Ok(media::answer(
            StatusCode::OK,
            openapi::PROTOBUF,
            media::full(openapi::v2_protobuf()),
        )),
        ["openapi", "v2"] => tree(&openapi::v2()),
        ["openapi", "v3"] => {
            let versions = discovery::group_versions(server);
            let hash = format!(
                "{:X}",
                server
                    .store
                    .collection("apiextensions.k8s.io/customresourcedefinitions")
                    .latest_version()
            );
            tree(&openapi::v3_root(
                versions.iter().map(|v| (v.as_str(), hash.clone())),
            ))
        }
        ["openapi", "v3", rest @ ..] => {
            let (group, version) = match rest {
                ["api", version] => ("", *version),
                ["apis", group, version] => (*group, *version),
                _ => return Err(StatusError::no_such_path()),
            };
            if !server.registry.has_version(group, version) {
                return Err(StatusError::no_such_path());
            }
            tree(&openapi::v3_group(&server.registry, group, version))
        }
        _ => Err(StatusError::no_such_path()),
    }
}

fn version() -> Value {
    let (major, minor, git) = VERSION;
    json!({
        "major": major, "minor": minor, "gitVersion": git,
        "emulationMajor": major, "emulationMinor": minor,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "2025-11-11T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}
