//! Discovery of all groups in one document, with a tag by which a client asks whether it is still
//! the same.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use ring::digest::{SHA512, digest};
use serde_json::{Value, json};

use super::{Group, groups_of};
use crate::context::Server;
use crate::registry::documents::{Document, Documents};
use crate::registry::{Resource, Version};
use crate::wire::media::{self, Body};

const MEDIA_TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Returns whether a client asks for all groups in one document.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let first = media::ranges(headers).into_iter().find(|range| {
        let plain = range.parameter("as").is_none();
        let ours = range.parameter("as") == Some("APIGroupDiscoveryList")
            && range.parameter("g") == Some("apidiscovery.k8s.io")
            && range.parameter("v") == Some("v2");
        matches!(
            range.kind.as_str(),
            "application/json" | "*/*" | "application/*"
        ) && (plain || ours)
    });
    first.is_some_and(|range| range.parameter("as").is_some())
}

/// Answers with the core group, or with all others; the body is empty for a client that has the
/// present document.
pub fn answer(server: &Server, headers: &HeaderMap, core: bool) -> Response<Body> {
    let documents = server.documents.of(&server.registry.all(), documents);
    let Document { bytes, tag } = if core {
        documents.core
    } else {
        documents.groups
    };
    let is_known = headers.get(header::IF_NONE_MATCH) == Some(&tag);
    let (status, body) = if is_known {
        (StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        (StatusCode::OK, bytes)
    };
    let mut response = media::answer(status, MEDIA_TYPE, media::full(body));
    let headers = response.headers_mut();
    if is_known {
        headers.remove(header::CONTENT_TYPE);
    }
    headers.insert(header::ETAG, tag);
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

fn documents(all: &[Arc<Resource>]) -> Documents {
    let groups = groups_of(all);
    let of = |core| document(all, groups.iter().filter(|it| it.name.is_empty() == core));
    Documents {
        core: of(true),
        groups: of(false),
    }
}

fn document<'a>(all: &[Arc<Resource>], groups: impl Iterator<Item = &'a Group>) -> Document {
    let items: Vec<Value> = groups.map(|group| item(all, group)).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let text = format!("{list}\n");
    let mut tag = String::from("\"");
    for byte in digest(&SHA512, text.as_bytes()).as_ref() {
        let _ = write!(tag, "{byte:02X}");
    }
    tag.push('"');
    Document {
        bytes: text.into(),
        tag: HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"\"")),
    }
}

fn item(all: &[Arc<Resource>], group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|name| {
            let mut resources: Vec<Value> = all
                .iter()
                .filter(|r| r.group == group.name && r.version.name == *name)
                .map(|r| entry(r, &r.version))
                .collect();
            resources.sort_by(|a, b| a["resource"].as_str().cmp(&b["resource"].as_str()));
            json!({ "version": name, "resources": resources, "freshness": "Current" })
        })
        .collect();
    let metadata = if group.name.is_empty() {
        json!({})
    } else {
        json!({ "name": group.name })
    };
    json!({ "metadata": metadata, "versions": versions })
}

fn entry(resource: &Resource, version: &Version) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &version.name, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": version.verbs,
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        value["categories"] = json!(resource.categories);
    }
    if !version.subresources.is_empty() {
        let sub = |s: &crate::registry::Subresource| {
            let (group, version, name) = &s.speaks;
            json!({ "subresource": s.name, "responseKind": kind(group, version, name), "verbs": s.verbs })
        };
        value["subresources"] = version.subresources.iter().map(sub).collect();
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::registry::documents::Kept;
    use crate::store::{HISTORY, Store};

    #[test]
    fn a_kind_that_comes_or_goes_changes_the_tag_of_its_document() {
        let all = Registry::new(&Store::new(HISTORY)).all();
        let kept = Kept::default();
        let tags = |all: &Arc<Vec<Arc<Resource>>>| {
            let Documents { core, groups } = kept.of(all, documents);
            (core.tag, groups.tag)
        };
        let before = tags(&all);
        let fewer = all.iter().filter(|it| it.plural != "jobs").cloned();
        let fewer = tags(&Arc::new(fewer.collect()));
        assert_eq!((&fewer.0, fewer.1 == before.1), (&before.0, false));
        assert_eq!(tags(&all), before);
    }
}
