//! Bodies and headers: what is read from requests, what the client accepts, how answers are
//! written.

use std::convert::Infallible;

use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body as HttpBody, Frame};
use serde_json::Value;

use crate::wire::protobuf;
use crate::wire::status_error::StatusError;

/// Why a body could not be read to its end.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The largest body that is read, as in a real server.
pub const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Media types that bodies about built-in kinds are read in.
const OFFERED: [&str; 3] = ["application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// How the client wants to see objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Whole.
    #[default]
    Object,
    /// Only their metadata (`as=PartialObjectMetadata`, or `...List`).
    Metadata,
    /// As rows of a table (`as=Table`).
    Table,
}

/// What the client wants to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Accept {
    /// The form of objects.
    pub form: Form,
    /// Protobuf rather than JSON. Only lists and watches of built-in kinds are.
    pub protobuf: bool,
}

impl Accept {
    /// Returns the best of the forms that the client accepts and that we offer.
    pub fn negotiate(headers: &HeaderMap) -> Result<Self, StatusError> {
        let ranges = ranges(headers);
        if ranges.is_empty() {
            return Ok(Self::default());
        }
        ranges.iter().find_map(Self::from_range).ok_or_else(|| {
            if ranges.iter().any(|range| range.kind == "application/json") {
                StatusError::form_not_acceptable()
            } else {
                StatusError::not_acceptable()
            }
        })
    }

    /// Returns protobuf, if the client prefers it to everything else that we offer.
    pub fn prefers_protobuf(headers: &HeaderMap) -> Option<Self> {
        let first = ranges(headers).into_iter().find(|range| {
            range.kind == protobuf::MEDIA_TYPE || Self::from_range(range).is_some()
        })?;
        let whole = first.kind == protobuf::MEDIA_TYPE && first.parameter("as").is_none();
        whole.then(|| Self {
            protobuf: true,
            ..Self::default()
        })
    }

    fn from_range(range: &MediaRange) -> Option<Self> {
        if !["*/*", "application/*", "application/json"].contains(&range.kind.as_str()) {
            return None;
        }
        let form = match range.parameter("as") {
            None => return Some(Self::default()),
            Some("Table") => Form::Table,
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Form::Metadata,
            Some(_) => return None,
        };
        let ours =
            range.parameter("g") == Some("meta.k8s.io") && range.parameter("v") == Some("v1");
        ours.then_some(Self {
            form,
            protobuf: false,
        })
    }
}

/// One entry of an `Accept` header.
pub struct MediaRange {
    /// `application/json`.
    pub kind: String,
    parameters: Vec<(String, String)>,
}

impl MediaRange {
    /// Returns a parameter such as `as` or `v`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    }
}

/// Returns what the client accepts, best first.
pub fn ranges(headers: &HeaderMap) -> Vec<MediaRange> {
    let mut ranges: Vec<(f32, MediaRange)> = Vec::new();
    for header in headers.get_all(header::ACCEPT) {
        for entry in header.to_str().unwrap_or_default().split(',') {
            let mut parts = entry.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            if kind.is_empty() {
                continue;
            }
            let parameters: Vec<(String, String)> = parts
                .filter_map(|p| p.split_once('='))
                .map(|(k, v)| (k.to_owned(), v.trim_matches('"').to_owned()))
                .collect();
            let range = MediaRange { kind, parameters };
            let quality = range
                .parameter("q")
                .and_then(|q| q.parse().ok())
                .unwrap_or(1.0);
            ranges.push((quality, range));
        }
    }
    // Stable: entries of equal quality stay in the client's order.
    ranges.sort_by(|a, b| b.0.total_cmp(&a.0));
    ranges
        .into_iter()
        .filter(|(q, _)| *q > 0.0)
        .map(|(_, range)| range)
        .collect()
}

/// Returns the media type of a request's body, without parameters; empty if not said.
pub fn content_type(headers: &HeaderMap) -> String {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .map(|v| {
            v.split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_ascii_lowercase()
        })
        .unwrap_or_default()
}

/// Reads a body up to the limit.
pub async fn read<B>(body: B) -> Result<Bytes, StatusError>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(e) if e.is::<LengthLimitError>() => Err(StatusError::too_large(BODY_LIMIT)),
        Err(e) => Err(StatusError::bad_request(format!("reading the body: {e}"))),
    }
}

/// Why a body could not be read.
#[derive(Debug, Clone, PartialEq)]
pub enum Unread {
    /// The reason is known in full.
    Refused(StatusError),
    /// It is no JSON, and why.
    Json(String),
}

/// Reads a body in the form that its content type says. Only built-in kinds are spoken in protobuf.
pub fn parse(content_type: &str, body: &[u8], builtin: bool) -> Result<Value, Unread> {
    match content_type {
        "" | "application/json" => {
            serde_json::from_slice(body).map_err(|e| Unread::Json(e.to_string()))
        }
        "application/yaml" => serde_saphyr::from_slice(body).map_err(|e| {
            Unread::Refused(StatusError::bad_request(format!(
                "error converting YAML to JSON: {e}"
            )))
        }),
        protobuf::MEDIA_TYPE if builtin => protobuf::decode(body).map_err(|e| {
            Unread::Refused(StatusError::bad_request(format!(
                "unable to decode the body: {e}"
            )))
        }),
        _ => {
            let offered = if builtin { &OFFERED[..] } else { &OFFERED[..2] };
            Err(Unread::Refused(StatusError::unsupported_media_type(
                offered,
            )))
        }
    }
}

/// Reads the body of a request that is about no kind of its own.
pub fn tree_of(content_type: &str, body: &[u8]) -> Result<Value, StatusError> {
    parse(content_type, body, true).map_err(|unread| match unread {
        Unread::Refused(refusal) => refusal,
        Unread::Json(error) => StatusError::bad_request(format!(
            "couldn't get version/kind; json parse error: {error}"
        )),
    })
}

/// Returns a body that is sent as a whole.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// Returns a body that is sent in pieces.
pub fn pieces(stream: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    use futures::StreamExt;
    StreamBody::new(stream.map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync()
}

/// Returns an answer of the given media type.
pub fn answer(code: StatusCode, media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// Returns a JSON answer from bytes.
pub fn json_bytes(code: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
    answer(code, "application/json", full(bytes))
}

/// Returns a JSON answer from a tree.
pub fn tree(code: StatusCode, value: &Value) -> Response<Body> {
    let mut bytes = value.to_string().into_bytes();
    bytes.push(b'\n');
    json_bytes(code, bytes)
}

/// Returns a text answer.
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    answer(code, "text/plain; charset=utf-8", full(text))
}

/// Returns the answer that reports a refusal to a client.
pub fn refused(refusal: &StatusError) -> Response<Body> {
    if refusal.is_plain() {
        return text(refusal.code(), refusal.message().to_owned());
    }
    let mut response = tree(refusal.code(), &refusal.status());
    if let Some(seconds) = refusal.retry_seconds() {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protobuf_is_written_for_those_who_name_it_first() {
        for (text, expected) in [
            ("application/vnd.kubernetes.protobuf,application/json", true),
            ("application/vnd.kubernetes.protobuf", true),
            (
                "application/json,application/vnd.kubernetes.protobuf",
                false,
            ),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
                false,
            ),
            ("*/*", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, text.parse().expect("header"));
            let prefers = Accept::prefers_protobuf(&headers).is_some();
            assert_eq!(prefers, expected, "{text}");
        }
    }
}
