//! What hangs below objects: status, scale, finalize, token, binding, approval.

pub mod scale;
mod token;
use http::StatusCode;
use serde_json::{Value, json};

use crate::context::{Outcome, RequestContext};
use crate::verbs::{self, Prepared};
use crate::wire::media;
use crate::wire::metadata;
use crate::wire::request::Verb;
use crate::wire::status_error::{GroupName, StatusError};

/// Answers a request on a subresource.
pub async fn dispatch(
    context: &RequestContext<'_>,
    verb: Verb,
    body: &[u8],
) -> Result<Outcome, StatusError> {
    let name = context.path.subresource.as_ref();
    let subresource = context
        .served
        .version()
        .subresource(name)
        .ok_or_else(StatusError::no_such_resource)?;
    let offered = subresource.verbs.iter().any(|v| v == verb.name());
    if !offered || context.path.surplus {
        return Err(StatusError::method_not_allowed());
    }
    match (name, verb) {
        ("scale", _) => scale::dispatch(context, verb, body).await,
        ("token", _) => token::request(context, body),
        ("binding", _) => bind(context, body).await,
        ("finalize", _) => finalize(context, body).await,
        (_, Verb::Get) => Ok(Outcome::Stored(StatusCode::OK, context.stored()?)),
        (_, Verb::Update) => verbs::replace(context, body).await,
        (_, Verb::Patch) => verbs::patch(context, body).await,
        _ => Err(StatusError::method_not_allowed()),
    }
}

/// Reads a body as an object of the kind that the subresource speaks.
pub fn spoken(context: &RequestContext<'_>, body: &[u8]) -> Result<Value, StatusError> {
    let mut object = media::tree_of(context.content_type, body)?;
    if !object.is_object() {
        return Err(StatusError::bad_request("the body is no object"));
    }
    let subresource = context
        .served
        .version()
        .subresource(&context.path.subresource);
    if let Some((group, version, kind)) = subresource.map(|s| &s.speaks) {
        let api_version = if group.is_empty() {
            version.clone()
        } else {
            format!("{group}/{version}")
        };
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.as_str().into();
    }
    metadata::settle_namespace(&mut object, &context.path.namespace)?;
    Ok(object)
}

/// Gives a pod its node.
async fn bind(context: &RequestContext<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let binding = spoken(context, body)?;
    let Some(node) = binding["target"]["name"].as_str().filter(|n| !n.is_empty()) else {
        return Err(StatusError::bad_request("target.name is required"));
    };
    let name = context.path.name.as_ref();
    if binding["metadata"]["name"] != name {
        return Err(StatusError::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    verbs::update_with(context, |old| {
        let mut pod = old.clone();
        if old["spec"]["nodeName"]
            .as_str()
            .is_some_and(|n| !n.is_empty())
        {
            let why = format!(
                "pod {name} is already assigned to node {}",
                old["spec"]["nodeName"]
            );
            let bindings = GroupName {
                group: "",
                name: "pods/binding",
            };
            return Err(StatusError::conflict(bindings, name, &why));
        }
        pod["spec"]["nodeName"] = node.into();
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": metadata::time(context.server.clock.now()),
        });
        if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
            conditions.retain(|c| c["type"] != "PodScheduled");
            conditions.push(scheduled);
        } else {
            pod["status"]["conditions"] = json!([scheduled]);
        }
        // Nobody owns what a binding writes.
        Ok(Prepared {
            object: pod,
            owned: true,
        })
    })
    .await?;
    let success = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    Ok(Outcome::Tree(StatusCode::CREATED, success))
}

/// Writes a namespace's own finalizers; without any left, a namespace whose deletion began goes.
async fn finalize(context: &RequestContext<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let namespace = media::tree_of(context.content_type, body)?;
    let finalizers = namespace["spec"]["finalizers"].clone();
    verbs::update_with(context, |old| {
        let mut new = old.clone();
        let given = namespace["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default();
        if !given.is_empty() {
            metadata::of(&mut new).insert("resourceVersion".to_owned(), given.into());
        }
        if finalizers.as_array().is_some_and(|list| !list.is_empty()) {
            new["spec"]["finalizers"] = finalizers.clone();
        } else if let Some(spec) = new["spec"].as_object_mut() {
            spec.remove("finalizers");
        }
        Ok(Prepared::from(new))
    })
    .await
}
