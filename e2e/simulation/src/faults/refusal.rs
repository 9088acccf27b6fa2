//! Refusals: what a caller gets in the place of what the server would say.

use http::{Response, header};
use http_body_util::{BodyExt as _, Full};
use muster_shared::client::ResponseBody;
use serde_json::json;
use tower::BoxError;

/// A refusal by a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its code.
    pub code: u16,
    reason: &'static str,
    message: &'static str,
}

impl Refusal {
    /// That of a server whose quota of pods is used up.
    pub const QUOTA: Self = Self {
        code: 403,
        reason: "Forbidden",
        message: "exceeded quota: simulation, requested: pods=1, used: pods=8, limited: pods=8",
    };

    /// That of a server whose admission webhook does not answer.
    pub const NO_WEBHOOK: Self = Self {
        code: 500,
        reason: "InternalError",
        message: "Internal error occurred: failed calling webhook \"simulation\": context deadline exceeded",
    };

    /// Returns the refusal that servers usually give with a code.
    pub const fn of(code: u16) -> Self {
        let (reason, message) = match code {
            403 => (
                "Forbidden",
                "admission webhook \"simulation\" denied the request",
            ),
            409 => (
                "Conflict",
                "the object has been modified; please apply your changes to the latest version and try again",
            ),
            410 => ("Expired", "too old resource version: 1 (2)"),
            422 => ("Invalid", "spec: Invalid value: the simulation refuses it"),
            429 => (
                "TooManyRequests",
                "the server has received too many requests",
            ),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "the server was unable to return a response in the time allotted",
            ),
            _ => (
                "InternalError",
                "an error on the server has prevented the request from succeeding",
            ),
        };
        Self {
            code,
            reason,
            message,
        }
    }

    /// Returns the response that the caller gets.
    pub fn response(self) -> Response<ResponseBody> {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        let mut response = Response::new(
            Full::from(status.to_string())
                .map_err(BoxError::from)
                .boxed_unsync(),
        );
        *response.status_mut() = http::StatusCode::from_u16(self.code).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            header::HeaderValue::from_static("application/json"),
        );
        if self.code == 429 {
            headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}
