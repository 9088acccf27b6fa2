//! TokenRequests of service accounts.

use http::StatusCode;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::spoken;
use crate::auth::tokens::ISSUER;
use crate::context::{Outcome, RequestContext};
use crate::wire::field_error::FieldError;
use crate::wire::status_error::{GroupName, StatusError};
use crate::wire::{clock, metadata};

/// The shortest life of a token, in seconds.
const SHORTEST: i64 = 600;

/// The longest.
const LONGEST: i64 = 1 << 32;

/// Answers a TokenRequest for the service account of the call.
pub fn request(context: &RequestContext<'_>, body: &[u8]) -> Result<Outcome, StatusError> {
    let mut request = spoken(context, body)?;
    let account = context.stored()?;
    let (namespace, name) = (account.head.namespace(), account.head.name());
    let spec = &mut request["spec"];
    if spec["expirationSeconds"].is_null() {
        spec["expirationSeconds"] = 3600.into();
    }
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!([ISSUER]);
    }
    if !spec["boundObjectRef"].is_null() {
        let message = "tokens are bound to nothing but their accounts here";
        return Err(StatusError::bad_request(message));
    }
    spec["boundObjectRef"] = Value::Null;
    request["status"] = json!({ "token": "", "expirationTimestamp": null });
    let now = context.server.clock.now();
    let fields = metadata::of(&mut request);
    fields.insert("name".to_owned(), name.into());
    fields.insert("uid".to_owned(), (&*account.head.uid).into());
    fields.insert("creationTimestamp".to_owned(), metadata::time(now).into());
    let seconds = seconds(&request["spec"]["expirationSeconds"])?;
    let claims = json!({
        "aud": request["spec"]["audiences"],
        "exp": now.as_second() + seconds,
        "iat": now.as_second(),
        "nbf": now.as_second(),
        "iss": ISSUER,
        "jti": clock::uid(),
        "kubernetes.io": {
            "namespace": namespace,
            "serviceaccount": { "name": name, "uid": account.head.uid },
        },
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    });
    let token = context.server.authority.sign(&claims);
    let end = now
        .checked_add(SignedDuration::from_secs(seconds))
        .unwrap_or(now);
    request["status"] = json!({
        "token": token.map_err(StatusError::internal)?,
        "expirationTimestamp": metadata::time(end),
    });
    Ok(Outcome::Tree(StatusCode::CREATED, request))
}

fn seconds(asked: &Value) -> Result<i64, StatusError> {
    let seconds = asked.as_i64().unwrap_or_default();
    let detail = if seconds < SHORTEST {
        "may not specify a duration less than 10 minutes"
    } else if seconds > LONGEST {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(seconds);
    };
    let kind = GroupName {
        group: "authentication.k8s.io",
        name: "TokenRequest",
    };
    let error = FieldError::invalid("spec.expirationSeconds", asked, detail);
    Err(StatusError::invalid(kind, "", &[error]))
}
