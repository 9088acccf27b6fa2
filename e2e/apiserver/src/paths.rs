//! Paths that are no resources: health, version, discovery, OpenAPI.

use std::fmt::Write as _;
use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::context::Server;
use crate::discovery;
use crate::faults::Effect;
use crate::openapi;
use crate::wire::media::{self, Body};
use crate::wire::request::Query;
use crate::wire::status_error::StatusError;

/// The version that the server says it is.
pub const VERSION: (&str, &str, &str) = ("1", "33", "v1.33.6");

/// The checks that `/readyz?verbose` lists.
const CHECKS: [&str; 4] = ["ping", "log", "etcd", "informer-sync"];

/// Answers a request on a path that is no resource.
pub fn answer(
    server: &Arc<Server>,
    parts: &Parts,
    query: &Query,
) -> Result<Response<Body>, StatusError> {
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
        ["healthz" | "livez", ..] => Ok(health(segments[0], query, true)),
        ["readyz", ..] => {
            let failing = server
                .faults
                .effects(None, Some(path))
                .contains(&Effect::NotReady);
            Ok(health("readyz", query, !failing))
        }
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

fn health(name: &str, query: &Query, well: bool) -> Response<Body> {
    let verbose = query.optional_flag("verbose").is_some();
    if well && !verbose {
        return media::text(StatusCode::OK, "ok");
    }
    let mut lines = String::new();
    for check in CHECKS {
        let failed = !well && check == "etcd";
        let (mark, end) = if failed {
            ('-', " failed: reason withheld")
        } else {
            ('+', " ok")
        };
        let _ = writeln!(lines, "[{mark}]{check}{end}");
    }
    let (code, end) = if well {
        (StatusCode::OK, format!("{name} check passed\n"))
    } else {
        (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{name} check failed\n"),
        )
    };
    lines.push_str(&end);
    media::text(code, lines)
}
