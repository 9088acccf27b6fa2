//! Requests as they are: for what is about the API itself, and not about objects of a kind.

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use serde_json::Value;

use super::test_bed::failed;

/// What an API answers.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The code.
    pub code: u16,
    /// The object or `Status`; a text where it is no JSON.
    pub body: Value,
}

/// Sends a request with further headers, and returns the answer. A `PATCH` is a merge patch, or an
/// apply where the path names a field manager.
pub async fn send(
    client: &Client,
    headers: &[(&str, &str)],
    method: &str,
    path: &str,
    body: &Value,
) -> Answer {
    let kind = match method {
        "PATCH" if path.contains("fieldManager") => "application/apply-patch+yaml",
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body.to_string().into_bytes().into());
    let request = request.unwrap_or_else(|error| failed(&format!("{method} {path}: {error}")));
    let response = client.send(request).await;
    let response = response.unwrap_or_else(|error| failed(&format!("{method} {path}: {error}")));
    let code = response.status().as_u16();
    let body = response.into_body().collect().await;
    let body = body.unwrap_or_else(|error| failed(&format!("{method} {path}: {error}")));
    let body = body.to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    Answer {
        code,
        body: serde_json::from_slice(&body).unwrap_or_else(|_| text()),
    }
}
