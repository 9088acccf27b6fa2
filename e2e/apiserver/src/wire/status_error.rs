//! Answers that refuse: the `Status` objects of the API with their exact code, reason, message and
//! details.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::wire::field_error::{FieldError, aggregate};

/// A group and a plural, as messages name a resource: `deployments.apps`, `pods`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupName<'a> {
    /// API group, empty for the core group.
    pub group: &'a str,
    /// Plural or kind.
    pub name: &'a str,
}

impl fmt::Display for GroupName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(self.name)
        } else {
            write!(f, "{}.{}", self.name, self.group)
        }
    }
}

/// A refusal of a request. Boxed: it travels through every `Result` of the server.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusError(Box<Body>);

#[derive(Debug, Clone, PartialEq)]
struct Body {
    code: StatusCode,
    reason: Cow<'static, str>,
    message: String,
    details: Option<Value>,
    continue_token: Option<String>,
    plain: bool,
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {}",
            self.0.code.as_u16(),
            self.0.reason,
            self.0.message
        )
    }
}

impl std::error::Error for StatusError {}

impl StatusError {
    fn build(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Body {
            code,
            reason: Cow::Borrowed(reason),
            message: message.into(),
            details: None,
            continue_token: None,
            plain: false,
        }))
    }

    fn about(mut self, what: GroupName<'_>, name: &str) -> Self {
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", what.group), ("kind", what.name)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        self.0.details = Some(Value::Object(details));
        self
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        let details = self.0.details.get_or_insert_with(|| json!({}));
        details["retryAfterSeconds"] = seconds.into();
        self
    }

    /// Returns the refusal of a path that does not exist at all: plain text, as Go's own
    /// multiplexer answers.
    pub fn no_such_path() -> Self {
        let mut refusal = Self::build(StatusCode::NOT_FOUND, "NotFound", "404 page not found\n");
        refusal.0.plain = true;
        refusal
    }

    /// Returns the refusal of a resource that doesn't exist, although its group and version do.
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        let mut refusal = Self::build(StatusCode::NOT_FOUND, "NotFound", message);
        refusal.0.details = Some(json!({}));
        refusal
    }

    /// Returns the refusal of an object that doesn't exist, although its resource does.
    pub fn not_found(resource: GroupName<'_>, name: &str) -> Self {
        let message = format!("{resource} {name:?} not found");
        Self::build(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    /// Returns the refusal of a creation because an object of that name is there already.
    pub fn already_exists(resource: GroupName<'_>, name: &str) -> Self {
        let message = format!("{resource} {name:?} already exists");
        Self::build(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    /// Returns the refusal of a caller that acted on a state that is no longer current.
    pub fn conflict(resource: GroupName<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::build(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    /// Returns the refusal of a request whose resource version is not the current one.
    pub fn modified(resource: GroupName<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// Returns the refusal of a server-side apply that met fields that others own; the fields are
    /// given with what is said about each.
    pub fn apply_conflict<'a>(
        message: String,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let causes: Vec<Value> = fields
            .map(|(field, said)| json!({ "reason": "FieldManagerConflict", "message": said, "field": field }))
            .collect();
        let mut refusal = Self::build(StatusCode::CONFLICT, "Conflict", message);
        refusal.0.details = Some(json!({ "causes": causes }));
        refusal
    }

    /// Returns the refusal of an object that breaks rules of its kind.
    pub fn invalid(kind: GroupName<'_>, name: &str, errors: &[FieldError]) -> Self {
        let message = format!("{kind} {name:?} is invalid: {}", aggregate(errors));
        let mut refusal =
            Self::build(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(kind, name);
        if let Some(details) = &mut refusal.0.details {
            details["causes"] = errors
                .iter()
                .map(|e| json!({ "reason": e.reason.as_str(), "message": e.message, "field": e.field }))
                .collect();
        }
        refusal
    }

    /// Returns the refusal of a JSON patch whose operations can't be carried out.
    pub fn patch_does_not_fit() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut refusal = Self::build(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        refusal.0.details = Some(json!({}));
        refusal
    }

    /// Returns an error for which the real server has no reason.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::build(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Returns the refusal of a request that is itself wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::build(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// Returns the refusal of a caller that may not do this; `why` follows the colon.
    pub fn forbidden(resource: GroupName<'_>, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {name:?} is forbidden: {why}")
        };
        Self::build(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, name)
    }

    /// Returns the refusal of a caller that may not reach a path that is no resource.
    pub fn forbidden_path(why: &str) -> Self {
        let mut refusal = Self::build(
            StatusCode::FORBIDDEN,
            "Forbidden",
            format!("forbidden: {why}"),
        );
        refusal.0.details = Some(json!({}));
        refusal
    }

    /// Returns the refusal of a creation in a namespace that is being deleted.
    pub fn namespace_terminating(resource: GroupName<'_>, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let mut refusal = Self::forbidden(resource, name, &why);
        if let Some(details) = &mut refusal.0.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        refusal
    }

    /// Returns the refusal of a caller whose identity is not known.
    pub fn unauthorized() -> Self {
        Self::build(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// Returns the refusal of a method that is not for this resource.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut refusal = Self::build(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        refusal.0.details = Some(json!({}));
        refusal
    }

    /// Returns the refusal of a client that accepts none of the media types that are spoken here.
    pub fn not_acceptable() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
            application/vnd.kubernetes.protobuf, application/json;stream=watch, \
            application/vnd.kubernetes.protobuf;stream=watch";
        let mut refusal = Self::build(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message);
        refusal.0.details = Some(json!({}));
        refusal
    }

    /// Returns the refusal of a client that accepts media types that are spoken here, but not in
    /// the form that their parameters ask for.
    pub fn form_not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml, \
            application/vnd.kubernetes.protobuf";
        Self::build(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// Returns the refusal of a patch whose body is in a form that no built-in kind takes.
    pub fn unsupported_patch() -> Self {
        let message = "415: Unsupported Media Type";
        let mut refusal = Self::build(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        );
        refusal.0.details = Some(json!({}));
        refusal
    }

    /// Returns the refusal of a body in a format that isn't read here.
    pub fn unsupported_media_type(offered: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            offered.join(", ")
        );
        Self::build(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    /// Returns the refusal of a body that is larger than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::build(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            message,
        )
    }

    /// Returns the refusal of a version that is older than the history reaches.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::build(StatusCode::GONE, "Expired", message)
    }

    /// Returns the refusal of a page that can no longer be continued consistently; `token`
    /// continues without consistency.
    pub fn continue_expired(token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. \
            You can start a new list without the continue parameter, or use the continue token in this \
            response to retrieve the remainder of the results. Continuing with the provided token results \
            in an inconsistent list - objects that were created, modified, or deleted between the time the \
            first chunk was returned and now may show up in the list.";
        let mut refusal = Self::expired(message);
        refusal.0.continue_token = Some(token);
        refusal
    }

    /// Returns the refusal of a version that lies in the future.
    pub fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut refusal = Self::build(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: {message}"),
        );
        refusal.0.details = Some(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
        }));
        refusal.retry_after(1)
    }

    /// Returns the refusal of a request because there are too many, or because a disruption budget
    /// is in the way.
    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self::build(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            .retry_after(retry_after)
    }

    /// Returns the error that says that something broke on our side.
    pub fn internal(message: impl fmt::Display) -> Self {
        let mut refusal = Self::build(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        refusal.0.details = Some(json!({ "causes": [{ "message": message.to_string() }] }));
        refusal
    }

    /// Returns a refusal in the words of an admission webhook; codes that don't exist become 400.
    pub fn denied(code: u16, reason: &str, message: String, details: Option<Value>) -> Self {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
        let mut refusal = Self::build(code, "", message);
        refusal.0.reason = Cow::Owned(reason.to_owned());
        refusal.0.details = details.filter(|d| !d.is_null());
        refusal
    }

    /// Returns an injected failure with the given code.
    pub fn injected(code: StatusCode) -> Self {
        let reason = match code {
            StatusCode::TOO_MANY_REQUESTS => {
                let message =
                    "the server has received too many requests and has asked us to try again later";
                return Self::too_many_requests(message, 1);
            }
            StatusCode::INTERNAL_SERVER_ERROR => return Self::internal("injected fault"),
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            StatusCode::CONFLICT => "Conflict",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::GONE => "Expired",
            StatusCode::GATEWAY_TIMEOUT => "Timeout",
            _ => "Unknown",
        };
        Self::build(code, reason, "injected fault")
    }

    /// Returns the HTTP status code.
    pub fn code(&self) -> StatusCode {
        self.0.code
    }

    /// Returns the message, a sentence for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns whether the answer is text instead of a `Status`.
    pub fn is_plain(&self) -> bool {
        self.0.plain
    }

    /// Seconds for the `Retry-After` header.
    pub fn retry_seconds(&self) -> Option<u64> {
        self.0.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    /// Returns the `Status` object.
    pub fn status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.0.continue_token {
            metadata.insert("continue".to_owned(), token.clone().into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.0.message,
            "code": self.0.code.as_u16(),
        });
        if !self.0.reason.is_empty() {
            status["reason"] = self.0.reason.as_ref().into();
        }
        if let Some(details) = &self.0.details {
            status["details"] = details.clone();
        }
        status
    }
}
