//! Requests of a watch, and their errors.

use std::pin::Pin;
use std::time::Duration;

use futures::TryStreamExt;
use futures::io::{AsyncBufRead, AsyncReadExt};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::api::{Api, ListParams, Request, VersionMatch, WatchParams};
use kube::client::Body;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::incoming::Incoming;
use super::listing::{Listing, Part};
use super::wire::compact::Decode;
use super::wire::split::NoList;
use super::wire::{compact, json};
use super::{Followed, Selection};
use crate::clock;
use crate::protobuf::{self, Malformed};

/// Deadline for the head of an answer, and for each object of a list. Kubernetes' own server gives
/// up on a list after 60 s.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_mins(1);
/// As much of a refusal as is read.
const LONGEST_REFUSAL: u64 = 64 * 1024;
/// What we ask for where objects can be read from protobuf. A server that cannot write it answers
/// JSON.
const COMPACT_OR_JSON: &str = "application/vnd.kubernetes.protobuf, application/json";

/// Reason why a step did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WatchError {
    #[error("{0}")]
    Unreachable(#[from] kube::Error),
    #[error("the server refused: {message} (code {code})")]
    Refused {
        code: u16,
        message: String,
        /// Time after which the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    #[error("cannot build the request: {0}")]
    Request(#[from] kube::core::request::Error),
    #[error("no answer within {0:?}")]
    Deadline(Duration),
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    #[error("the answer is not what a Kubernetes API sends: {0}")]
    Garbled(#[from] serde_json::Error),
    #[error("the answer is no list: {0}")]
    NoList(#[from] NoList),
    #[error("the answer is not what a Kubernetes API sends as protobuf: {0}")]
    Malformed(#[from] Malformed),
    #[error("the server ended the watch: {message} (code {code})")]
    Ended { code: u16, message: String },
    #[error("the list carries no resourceVersion")]
    NoResourceVersion,
}

impl WatchError {
    /// Returns the code with which the server refused or ended what we asked for.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } | Self::Ended { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns whether the server does not serve the path at all. For kinds that it serves, a 404
    /// has a status object.
    pub(super) fn is_unserved(&self) -> bool {
        matches!(self, Self::Refused { code: 404, message, .. } if message.trim() == "404 page not found")
    }

    /// Returns how long the server wants to be left alone.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Part of a collection that is listed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Everything, from the server's cache: as it was a moment ago.
    Whole,
    /// A page of what there is, as fresh as can be read.
    Page {
        /// As many objects as the page has at most.
        limit: u32,
        /// Token at which the page before ended; `None` for the first.
        from: Option<String>,
    },
}

/// Source from which a collection is read.
pub(super) struct Source<K> {
    client: Client,
    request: Request,
    pub(super) selection: Selection,
    /// Decoder of objects in protobuf, as long as it succeeds.
    pub(super) decode: Option<Decode<K>>,
}

impl<K: DeserializeOwned> Source<K> {
    pub(super) fn new<O: kube::Resource + Clone>(
        api: &Api<O>,
        selection: Selection,
        decode: Option<Decode<K>>,
    ) -> Self {
        Self {
            client: api.clone().into_client(),
            request: Request::new(api.resource_url()),
            selection,
            decode,
        }
    }

    /// Opens a list, or a page of one.
    pub(super) async fn list(&self, extent: &Extent) -> Result<Listing<K>, WatchError> {
        let mut params = ListParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            ..ListParams::default()
        };
        match extent {
            Extent::Whole => {
                params.resource_version = Some("0".to_owned());
                params.version_match = Some(VersionMatch::NotOlderThan);
            }
            Extent::Page { limit, from } => {
                params.limit = Some(*limit);
                params.continue_token.clone_from(from);
            }
        }
        let request = self.request.list(&params)?;
        let answer = timeout(ANSWER_DEADLINE, self.send(request))
            .await
            .map_err(|_| WatchError::Deadline(ANSWER_DEADLINE))??;
        let decode = self.decode.filter(|_| is_protobuf(answer.headers()));
        Ok(Listing::new(bytes(answer), decode))
    }

    /// Returns the present version of the collection; `None` if the server does not say it.
    pub(super) async fn version(&self) -> Result<Option<String>, WatchError> {
        let limit = 1;
        let mut listing = self.list(&Extent::Page { limit, from: None }).await?;
        loop {
            if let Part::End(meta) = listing.next(ANSWER_DEADLINE).await? {
                return Ok(meta.resource_version);
            }
        }
    }

    async fn send(
        &self,
        mut request: http::Request<Vec<u8>>,
    ) -> Result<http::Response<Body>, WatchError> {
        if self.decode.is_some() {
            let accept = header::HeaderValue::from_static(COMPACT_OR_JSON);
            request.headers_mut().insert(header::ACCEPT, accept);
        }
        let answer = self.client.send(request.map(Body::from)).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(refusal(answer).await)
    }
}

impl<K: Followed> Source<K> {
    /// Opens a watch at a version, or a streaming list when there is none. The server is to end it
    /// after `lasts`.
    pub(super) async fn watch(
        &self,
        from: Option<&str>,
        lasts: Duration,
    ) -> Result<Incoming<K>, WatchError> {
        let params = WatchParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            timeout: Some(u32::try_from(lasts.as_secs()).unwrap_or(u32::MAX)),
            bookmarks: true,
            send_initial_events: from.is_none(),
        };
        // An empty version with `sendInitialEvents` asks for a list as fresh as a quorum read:
        // nothing may be decided on a server's stale cache.
        let request = self.request.watch(&params, from.unwrap_or_default())?;
        let answer = timeout(ANSWER_DEADLINE, self.send(request))
            .await
            .map_err(|_| WatchError::Deadline(ANSWER_DEADLINE))??;
        let decode = self.decode.filter(|_| is_protobuf(answer.headers()));
        Ok(Incoming::new(bytes(answer), decode))
    }
}

/// Returns the body of an answer as it arrives.
fn bytes(answer: http::Response<Body>) -> Pin<Box<dyn AsyncBufRead + Send>> {
    let body = answer.into_body().into_data_stream();
    Box::pin(body.map_err(std::io::Error::other).into_async_read())
}

async fn refusal(answer: http::Response<Body>) -> WatchError {
    let (head, body) = answer.into_parts();
    let mut text = Vec::new();
    let body = body.into_data_stream().map_err(std::io::Error::other);
    let mut body = std::pin::pin!(body.into_async_read().take(LONGEST_REFUSAL));
    // What could be read has to do: the code is in the head.
    let _ = body.read_to_end(&mut text).await;
    let (_, mut message) = if is_protobuf(&head.headers) {
        compact::status(&text).unwrap_or_default()
    } else {
        json::status(&text)
    };
    if message.is_empty() {
        message.push_str(String::from_utf8_lossy(&text).trim());
    }
    WatchError::Refused {
        code: head.status.as_u16(),
        message,
        retry_after: clock::retry_after(&head.headers),
    }
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(protobuf::MEDIA_TYPE.as_bytes()))
}
