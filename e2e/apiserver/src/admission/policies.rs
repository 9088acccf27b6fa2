//! Holding requests against admission policies.

use serde_json::json;

use super::rounds::covers;
use crate::admission_config::review::Attributes;
use crate::context::RequestContext;
use crate::wire::status_error::{GroupName, StatusError};

/// Holds a request against all policies; the first that denies it counts.
pub fn validate(
    context: &RequestContext<'_>,
    attributes: &Attributes<'_>,
) -> Result<(), StatusError> {
    let Some(bound) = context.server.admission.policies.bound() else {
        return Ok(());
    };
    if is_exempt(attributes) {
        return Ok(());
    }
    for bound in bound.iter() {
        let policy = &bound.policy;
        let denial = covers(&policy.rules, attributes).then(|| policy.denial(attributes));
        let Some((reason, message)) = denial.flatten() else {
            continue;
        };
        let (policy, binding) = (&policy.name, &bound.binding);
        let message = format!(
            "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {message}"
        );
        return Err(refusal(attributes, &reason, &message));
    }
    Ok(())
}

/// Policies are never held against policies, lest nobody could repair one.
fn is_exempt(attributes: &Attributes<'_>) -> bool {
    let resource = &attributes.resource;
    resource.group == "admissionregistration.k8s.io" && resource.plural.contains("admissionpolic")
}

fn refusal(attributes: &Attributes<'_>, reason: &str, message: &str) -> StatusError {
    let resource = GroupName {
        group: &attributes.resource.group,
        name: &attributes.resource.plural,
    };
    let forbidden = StatusError::forbidden(resource, &attributes.name, message);
    let code = match reason {
        "Unauthorized" => 401,
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    let mut details = forbidden.status()["details"].clone();
    details["causes"] = json!([{ "message": message }]);
    StatusError::denied(code, reason, forbidden.message().to_owned(), Some(details))
}
