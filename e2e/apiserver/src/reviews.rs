//! Questions that are answered and never stored: who am I, may I.

use http::StatusCode;
use serde_json::{Value, json};

use crate::admission;
use crate::apply;
use crate::auth::authorize::Reason;
use crate::auth::bootstrap_tokens;
use crate::auth::identity::User;
use crate::auth::rbac::Attributes;
use crate::auth::tokens;
use crate::context::{Outcome, RequestContext};
use crate::registry::Served;
use crate::verbs;
use crate::wire::field_error::FieldError;
use crate::wire::metadata;
use crate::wire::status_error::{GroupName, StatusError};

/// Returns whether objects of a resource are answered and never stored.
pub fn are(served: &Served) -> bool {
    !served.version().verbs.iter().any(|v| v == "get")
}

/// Answers a review.
pub fn create(context: &RequestContext<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let review = answer(context, verbs::decoded(context, body)?)?;
    Ok(Outcome::Tree(StatusCode::CREATED, review))
}

fn answer(context: &RequestContext<'_>, mut review: Value) -> Result<Value, StatusError> {
    let version = context.served.version();
    let (manager, api_version, now) = (
        context.manager(),
        context.served.api_version(),
        context.server.clock.now(),
    );
    apply::track_update(
        None,
        &mut review,
        manager,
        &api_version,
        "",
        &version.schema,
        now,
    );
    check(context, &review["spec"])?;
    let status = match context.served.resource.plural.as_str() {
        "selfsubjectreviews" => json!({ "userInfo": admission::user_info(context.user) }),
        "selfsubjectaccessreviews" => access(context, context.user, &review["spec"]),
        "subjectaccessreviews" => {
            let spec = &review["spec"];
            let name = spec["user"].as_str().unwrap_or_default();
            let groups = spec["groups"].as_array().into_iter().flatten();
            let groups = groups
                .filter_map(|g| g.as_str().map(str::to_owned))
                .collect();
            access(
                context,
                &User {
                    name: name.to_owned(),
                    groups,
                    ..User::default()
                },
                spec,
            )
        }
        "tokenreviews" => token(context, &review["spec"]),
        _ => return Err(StatusError::method_not_allowed()),
    };
    review["status"] = status;
    // The real server answers with empty metadata, whatever came in.
    if let Some(fields) = review["metadata"].as_object_mut() {
        fields.retain(|key, _| key == "namespace" || key == "managedFields");
        if context.served.resource.plural == "selfsubjectreviews" {
            fields.insert("creationTimestamp".to_owned(), metadata::time(now).into());
        }
    }
    Ok(review)
}

/// Refuses reviews that ask nothing, or two things at once.
fn check(context: &RequestContext<'_>, spec: &Value) -> Result<(), StatusError> {
    let invalid = |field: &str, value: &Value, detail: &str| {
        // The real server names neither kind nor object here.
        let kind = GroupName {
            group: "authorization.k8s.io",
            name: "",
        };
        Err(StatusError::invalid(
            kind,
            "",
            &[FieldError::invalid(field, value, detail)],
        ))
    };
    let plural = context.served.resource.plural.as_str();
    match plural {
        "tokenreviews" if spec["token"].as_str().is_none_or(str::is_empty) => {
            let message = "token is required for TokenReview in authentication";
            return Err(StatusError::bad_request(message));
        }
        "selfsubjectaccessreviews" | "subjectaccessreviews" => {}
        _ => return Ok(()),
    }
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() && path.is_object() {
        let shown = json!({ "Path": path["path"], "Verb": path["verb"] });
        let detail = "cannot be specified in combination with resourceAttributes";
        return invalid("spec.nonResourceAttributes", &shown, detail);
    }
    if !resource.is_object() && !path.is_object() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        return invalid("spec.resourceAttributes", &Value::Null, detail);
    }
    let nobody = spec["user"].as_str().is_none_or(str::is_empty)
        && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if plural != "selfsubjectaccessreviews" && nobody {
        let detail = "at least one of user or group must be specified";
        return invalid("spec.user", &"".into(), detail);
    }
    Ok(())
}

fn token(context: &RequestContext<'_>, spec: &Value) -> Value {
    let token = spec["token"].as_str().unwrap_or_default();
    let audiences = spec["audiences"].as_array().into_iter().flatten();
    let audiences: Vec<String> = audiences
        .filter_map(|a| a.as_str().map(str::to_owned))
        .collect();
    let known = context.server.known();
    let user = known.authority.user_of_token(token);
    let user = user.or_else(|| bootstrap_tokens::bearer(known.store, token, known.now));
    if let Some(user) = user {
        return json!({ "authenticated": true, "user": admission::user_info(&user) });
    }
    match tokens::bearer(known, token, &audiences) {
        Ok(bearer) => json!({
            "authenticated": true,
            "user": admission::user_info(&bearer.user),
            "audiences": bearer.audiences,
        }),
        Err(error) => json!({ "user": {}, "error": error }),
    }
}

fn access(context: &RequestContext<'_>, user: &User, spec: &Value) -> Value {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let resource = &spec["resourceAttributes"];
    let attributes = if resource.is_object() {
        Attributes {
            verb: text(&resource["verb"]),
            group: text(&resource["group"]),
            resource: text(&resource["resource"]),
            subresource: text(&resource["subresource"]),
            namespace: text(&resource["namespace"]),
            name: text(&resource["name"]),
            path: None,
        }
    } else {
        let asked = &spec["nonResourceAttributes"];
        Attributes {
            verb: text(&asked["verb"]),
            path: Some(text(&asked["path"])),
            ..Attributes::default()
        }
    };
    match context.server.access.decide(user, &attributes) {
        Ok(Reason::Everything) => json!({ "allowed": true }),
        Ok(reason) => json!({ "allowed": true, "reason": reason.to_string() }),
        Err(_) => json!({ "allowed": false }),
    }
}
