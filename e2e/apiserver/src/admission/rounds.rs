//! The rounds in which webhooks are asked: which of them, in what order, and whose answer counts.

use futures::future::join_all;
use serde_json::{Value, json};

use super::asking::{Trouble, ask, lay_over};
use crate::admission_config::hooks::Hook;
use crate::admission_config::matching::{self, Asked, Rule};
use crate::admission_config::review::{self, Attributes};
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
        if !is_asked(hook, attributes)? {
            continue;
        }
        let verdict = match ask(hook, attributes, true).await {
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

/// Asks the validating webhooks, all at once; the first in the list that refuses counts.
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
        if is_asked(hook, attributes)? {
            calls.push(async move { (hook, ask(hook, attributes, false).await) });
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

/// Returns whether a webhook is asked.
fn is_asked(hook: &Hook, attributes: &Attributes<'_>) -> Result<bool, StatusError> {
    if !covers(&hook.rules, attributes) {
        return Ok(false);
    }
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    let (none, nothing) = (Value::Null, json!({}));
    let request = review::request(attributes, "");
    let scope = Scope::new([
        ("object", attributes.object.as_ref().unwrap_or(&none)),
        ("oldObject", attributes.old.as_ref().unwrap_or(&none)),
        ("request", &request),
        ("authorizer", &nothing),
    ]);
    match matching::met(&hook.conditions, &scope) {
        Ok(is_met) => Ok(is_met),
        Err(_) if hook.ignore_failure => Ok(false),
        Err(why) => {
            let resource = GroupName {
                group: &attributes.resource.group,
                name: &attributes.resource.plural,
            };
            Err(StatusError::forbidden(resource, &attributes.name, &why))
        }
    }
}

/// Returns whether a request is what one of the rules is about.
pub fn covers(rules: &[Rule], attributes: &Attributes<'_>) -> bool {
    let asked = Asked {
        operation: attributes.operation,
        resource: &attributes.resource,
        subresource: attributes.subresource,
        namespace: &attributes.namespace,
        name: &attributes.name,
    };
    rules.iter().any(|rule| rule.covers(asked))
}
