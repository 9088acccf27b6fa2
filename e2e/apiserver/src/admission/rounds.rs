//! The rounds in which webhooks are asked: which of them, in what order, and whose answer counts.

use futures::future::join_all;
use serde_json::{Value, json};

use super::asking::{Trouble, ask, lay_over};
use super::config::hooks::Hook;
use super::config::matching::{self, Asked, Constraints, Resource, Rule};
use super::config::review::{self, Attributes, Invocation};
use crate::context::RequestContext;
use crate::schema::cel::Scope;
use crate::wire::status_error::{GroupName, StatusError};

/// Asks the mutating webhooks one after another.
pub async fn mutate_all(
    context: &RequestContext<'_>,
    hooks: &[Hook],
    attributes: &mut Attributes<'_>,
) -> Result<(), StatusError> {
    for hook in hooks {
        let Some(invocation) = invocation(context, hook, attributes)? else {
            continue;
        };
        let verdict = match ask(hook, &invocation, attributes, true).await {
            Ok(verdict) => verdict,
            Err(_) if hook.ignore_failure => continue,
            Err(trouble) => return Err(trouble.refusal(hook)),
        };
        verdict.warnings.into_iter().for_each(|w| context.warn(w));
        if let Some(refusal) = verdict.refusal {
            return Err(refusal);
        }
        match lay_over(context, hook, attributes, &verdict.patch) {
            Ok(()) => {}
            Err(Trouble::Calling(_)) if hook.ignore_failure => {}
            Err(trouble) => return Err(trouble.refusal(hook)),
        }
    }
    Ok(())
}

/// Asks the validating webhooks, all at once; the first in the list that refuses is heard.
pub async fn validate_all(
    context: &RequestContext<'_>,
    hooks: &[Hook],
    attributes: &Attributes<'_>,
) -> Result<(), StatusError> {
    if matching::is_exempt(&attributes.resource) {
        return Ok(());
    }
    let mut calls = Vec::new();
    for hook in hooks {
        if let Some(invocation) = invocation(context, hook, attributes)? {
            calls.push(async move { (hook, ask(hook, &invocation, attributes, false).await) });
        }
    }
    let mut refused = None;
    for (hook, verdict) in join_all(calls).await {
        let refusal = match verdict {
            Ok(verdict) => {
                verdict.warnings.into_iter().for_each(|w| context.warn(w));
                verdict.refusal
            }
            Err(_) if hook.ignore_failure => None,
            Err(trouble) => Some(trouble.refusal(hook)),
        };
        refused = refused.or(refusal);
    }
    refused.map_or(Ok(()), Err)
}

/// Returns whether a webhook is asked, and about which version of the object.
fn invocation(
    context: &RequestContext<'_>,
    hook: &Hook,
    attributes: &Attributes<'_>,
) -> Result<Option<Invocation>, StatusError> {
    let Some(invocation) = selected(context, &hook.constraints, attributes)? else {
        return Ok(None);
    };
    if hook.conditions.is_empty() {
        return Ok(Some(invocation));
    }
    let (none, nothing) = (Value::Null, json!({}));
    let request = review::request(attributes, &invocation, "");
    let scope = Scope::new([
        ("object", attributes.object.as_ref().unwrap_or(&none)),
        ("oldObject", attributes.old.as_ref().unwrap_or(&none)),
        ("request", &request),
        ("authorizer", &nothing),
    ]);
    match matching::met(&hook.conditions, &scope) {
        Ok(true) => Ok(Some(invocation)),
        Ok(false) => Ok(None),
        Err(_) if hook.ignore_failure => Ok(None),
        Err(why) => {
            let resource = GroupName {
                group: &attributes.resource.group,
                name: &attributes.resource.plural,
            };
            Err(StatusError::forbidden(resource, &attributes.name, &why))
        }
    }
}

/// Returns whether a request is what the constraints are about, and in which version of the object.
pub fn selected(
    context: &RequestContext<'_>,
    constraints: &Constraints,
    attributes: &Attributes<'_>,
) -> Result<Option<Invocation>, StatusError> {
    let labels = namespace_labels(context, constraints, attributes);
    let (object, old) = (attributes.object.as_ref(), attributes.old.as_ref());
    if matches!(labels, Ok(false)) || !constraints.objects.selects_any([object, old]) {
        return Ok(None);
    }
    let covered = |rules: &[Rule], resource: &Resource| {
        let asked = Asked {
            operation: attributes.operation,
            resource,
            subresource: attributes.subresource,
            namespace: &attributes.namespace,
            name: &attributes.name,
        };
        rules.iter().any(|rule| rule.covers(asked))
    };
    if covered(&constraints.excluded, &attributes.resource) {
        return Ok(None);
    }
    let covers = |resource: &Resource| covered(&constraints.rules, resource);
    let served = &context.served;
    let own = covers(&attributes.resource).then(|| Invocation {
        resource: attributes.resource.clone(),
        kind: attributes.kind.clone(),
    });
    let found = own.or_else(|| {
        let others = served
            .resource
            .versions
            .iter()
            .filter(|_| constraints.equivalent);
        others.into_iter().find_map(|version| {
            let resource = Resource {
                version: version.name.clone(),
                ..attributes.resource.clone()
            };
            let kind = if attributes.subresource == "scale" {
                attributes.kind.clone()
            } else {
                let api_version = served.resource.api_version(&version.name);
                (api_version, served.resource.kind.clone())
            };
            covers(&resource).then_some(Invocation { resource, kind })
        })
    });
    let Some(invocation) = found else {
        return Ok(None);
    };
    labels?;
    Ok(Some(invocation))
}

/// Returns whether the namespace of a request is one that is wanted; an error if it isn't there.
fn namespace_labels(
    context: &RequestContext<'_>,
    constraints: &Constraints,
    attributes: &Attributes<'_>,
) -> Result<bool, StatusError> {
    if constraints.namespaces.is_empty() || attributes.namespace.is_empty() {
        return Ok(true);
    }
    let own = matching::is_namespaces(&attributes.resource) && attributes.subresource.is_empty();
    let labels = match &attributes.object {
        Some(namespace) if own => namespace["metadata"]["labels"].clone(),
        _ => {
            let found = context.server.store.collection("/namespaces");
            let Some(found) = found.get(&attributes.namespace) else {
                let resource = GroupName {
                    group: "",
                    name: "namespaces",
                };
                return Err(StatusError::not_found(resource, &attributes.namespace));
            };
            let labels = found.head.labels.iter();
            labels
                .map(|(k, v)| (k.to_string(), Value::from(&**v)))
                .collect()
        }
    };
    Ok(constraints.namespaces.selects(&labels))
}
