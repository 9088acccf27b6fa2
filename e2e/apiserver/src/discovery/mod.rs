//! Discovery: which groups, versions and resources there are, in the classic and in the aggregated
//! form.

mod aggregated;

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use crate::context::Server;
use crate::registry::{Resource, Version};
use crate::wire::media::{self, Body};
use crate::wire::status_error::StatusError;
use crate::wire::versions::priority;

/// Groups in the order of preference that a real server gives them; others follow by name.
const ORDER: [&str; 14] = [
    "",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
];

/// A group with its versions, best first.
struct Group {
    name: String,
    versions: Vec<String>,
}

fn all_groups(server: &Server) -> Vec<Group> {
    groups_of(&server.registry.all())
}

fn groups_of(all: &[Arc<Resource>]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for resource in all {
        let at = groups
            .iter()
            .position(|g| g.name == resource.group)
            .unwrap_or_else(|| {
                groups.push(Group {
                    name: resource.group.clone(),
                    versions: Vec::new(),
                });
                groups.len() - 1
            });
        let version = &resource.version.name;
        if !groups[at].versions.contains(version) {
            groups[at].versions.push(version.clone());
        }
    }
    for group in &mut groups {
        group
            .versions
            .sort_by_key(|v| std::cmp::Reverse(priority(v)));
    }
    groups.sort_by_key(|g| {
        let at = ORDER.iter().position(|o| *o == g.name);
        (at.unwrap_or(ORDER.len()), g.name.clone())
    });
    groups
}

/// Returns the paths of all served groups and versions: `api/v1`, `apis/apps/v1`, ...
pub fn group_versions(server: &Server) -> Vec<String> {
    let name = |group: &str, version: &str| {
        if group.is_empty() {
            format!("api/{version}")
        } else {
            format!("apis/{group}/{version}")
        }
    };
    let groups = all_groups(server);
    groups
        .iter()
        .flat_map(|g| g.versions.iter().map(|v| name(&g.name, v)))
        .collect()
}

/// Answers `/api`.
pub fn core(server: &Server, headers: &HeaderMap) -> Response<Body> {
    if aggregated::is_wanted(headers) {
        return aggregated::answer(server, headers, true);
    }
    let versions = json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443" }],
    });
    media::tree(StatusCode::OK, &versions)
}

/// Answers `/apis`.
pub fn groups(server: &Server, headers: &HeaderMap) -> Response<Body> {
    if aggregated::is_wanted(headers) {
        return aggregated::answer(server, headers, false);
    }
    let groups: Vec<Value> = all_groups(server)
        .iter()
        .filter(|g| !g.name.is_empty())
        .map(group_value)
        .collect();
    let list = json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups });
    media::tree(StatusCode::OK, &list)
}

fn group_value(group: &Group) -> Value {
    let version =
        |v: &String| json!({ "groupVersion": format!("{}/{v}", group.name), "version": v });
    json!({
        "name": group.name,
        "versions": group.versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": group.versions.first().map(version),
    })
}

/// Answers `/apis/GROUP`.
pub fn group(server: &Server, name: &str) -> Result<Response<Body>, StatusError> {
    let groups = all_groups(server);
    let group = groups
        .iter()
        .find(|g| g.name == name && !name.is_empty())
        .ok_or_else(StatusError::no_such_path)?;
    let mut value = group_value(group);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Ok(media::tree(StatusCode::OK, &value))
}

/// Answers `/apis/GROUP/VERSION`.
pub fn version(server: &Server, group: &str, version: &str) -> Result<Response<Body>, StatusError> {
    if !server.registry.has_version(group, version) {
        return Err(StatusError::no_such_path());
    }
    let all = server.registry.all();
    let mut resources = Vec::new();
    for resource in all.iter().filter(|r| r.group == group) {
        if resource.version.name == version {
            resources.extend(classic(resource, &resource.version));
        }
    }
    // Custom resources keep the order of their CRDs.
    if all.iter().any(|r| r.group == group && r.custom.is_none()) {
        resources.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    });
    Ok(media::tree(StatusCode::OK, &list))
}

fn classic(resource: &Resource, version: &Version) -> Vec<Value> {
    let mut main = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": version.verbs,
    });
    if !resource.short_names.is_empty() {
        main["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main["categories"] = json!(resource.categories);
    }
    main["storageVersionHash"] = storage_hash(resource).into();
    let subresource = |sub: &crate::registry::Subresource| {
        let (group, speaks, kind) = &sub.speaks;
        let mut value = json!({
            "name": format!("{}/{}", resource.plural, sub.name),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": kind,
            "verbs": sub.verbs,
        });
        if (group, speaks) != (&resource.group, &version.name) {
            value["group"] = group.as_str().into();
            value["version"] = speaks.as_str().into();
        }
        value
    };
    std::iter::once(main)
        .chain(version.subresources.iter().map(subresource))
        .collect()
}

/// Returns a value that changes with the version; clients only compare it.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    let text = format!(
        "{}/{}/{}",
        resource.group, resource.version.name, resource.kind
    );
    // FNV-1a: short, stable, and nobody's secret.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
    });
    base64::engine::general_purpose::STANDARD.encode(hash.to_be_bytes())
}
