//! The connection to one webhook: HTTPS, with a deadline for the whole request and a bounded
//! answer.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Request, Uri};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use muster_shared::https::client::{self, Connection};
use muster_shared::work_status::LONGEST_STATUS;
use rustls::RootCertStore;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::error::{Fault, shortened};
use crate::Operation;

/// Returns the bytes of the longest answer. A patch may be one of the largest object that an API
/// server stores, in base64; numbers, a health and a status that can be reported are short, and
/// parsed they take many times as much memory.
pub(super) fn longest_answer(operation: Operation) -> usize {
    match operation {
        Operation::Retain | Operation::ReviseReplica | Operation::AggregateStatus => 4 << 20,
        Operation::InterpretDependency => 1 << 20,
        Operation::InterpretStatus => 4 * LONGEST_STATUS,
        Operation::InterpretReplica
        | Operation::InterpretComponent
        | Operation::InterpretHealth => 64 << 10,
    }
}

/// Bytes of an answer that is read without regard to others.
const SMALL: usize = 64 << 10;
/// KiB of the longer answers that are read at a time: the tree of one takes many times as much.
pub(super) const LARGE_KIB: usize = 8 << 10;
/// Bytes of the longest body of an error that is read, to be quoted.
const LONGEST_ERROR: usize = 1024;

/// The way to a webhook. Connections are kept between questions.
#[derive(Debug)]
pub(super) struct Client {
    uri: Uri,
    connection: Connection,
}

impl Client {
    /// Prepares a client; nothing is sent yet. `authorities` are PEM in base64; without them those
    /// of the system are trusted.
    pub(super) fn new(uri: Uri, authorities: Option<&str>) -> Result<Self, String> {
        let roots = match authorities.filter(|text| !text.is_empty()) {
            Some(text) => given(text).map_err(|text| format!("clientConfig.caBundle: {text}"))?,
            None => client::authorities_of_the_system()
                .ok_or("clientConfig.caBundle is absent, and this system trusts no authorities")?,
        };
        let connection = client::connection(roots, false)?;
        Ok(Self { uri, connection })
    }

    /// Sends a question and returns the body of the answer. One that is long waits for its part of
    /// what all long answers may take together, which is held until the permit is dropped. The time
    /// of that does not count, and the rest has the deadline anew.
    pub(super) async fn post(
        &self,
        body: Bytes,
        (deadline, longest): (Duration, usize),
        large: &Arc<Semaphore>,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Fault> {
        let late = |_| Fault::Timeout(deadline.as_secs());
        let mut bytes = Vec::new();
        let begin = async {
            let mut rest = self.exchange(body, deadline).await?;
            let is_whole = read(&mut rest, &mut bytes, longest.min(SMALL)).await?;
            Ok((rest, is_whole))
        };
        let (mut rest, is_whole) = timeout(deadline, begin).await.map_err(late)??;
        if is_whole {
            return Ok((bytes.into(), None));
        }
        if longest <= SMALL || rest.size_hint().lower() > longest as u64 {
            return Err(Fault::Large(longest));
        }
        let part = u32::try_from(longest.div_ceil(1024).min(LARGE_KIB)).unwrap_or(u32::MAX);
        // It is never closed.
        let permit = Arc::clone(large).acquire_many_owned(part).await.ok();
        let whole = timeout(deadline, read(&mut rest, &mut bytes, longest));
        if whole.await.map_err(late)?? {
            Ok((bytes.into(), permit))
        } else {
            Err(Fault::Large(longest))
        }
    }

    /// Sends a question and returns the body of a successful response, to be read.
    async fn exchange(&self, body: Bytes, deadline: Duration) -> Result<Incoming, Fault> {
        let broken = |error: &dyn std::error::Error| Fault::Connection(words(error));
        // The API machinery passes a webhook its deadline so.
        let target = format!("{}?timeout={}s", self.uri.path(), deadline.as_secs());
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(target.parse().map_err(|error| broken(&error))?);
        let uri = Uri::from_parts(parts).map_err(|error| broken(&error))?;
        let request = Request::post(uri)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("muster/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))
            .map_err(|error| broken(&error))?;
        let response = self.connection.request(request).await;
        let response = response.map_err(|error| broken(&error))?;
        let status = response.status();
        let mut body = response.into_body();
        if status.is_success() {
            return Ok(body);
        }
        let mut text = Vec::new();
        // What was read until an error is quoted.
        _ = read(&mut body, &mut text, LONGEST_ERROR).await;
        text.truncate(LONGEST_ERROR);
        Err(Fault::Status {
            code: status.as_u16(),
            text: shortened(String::from_utf8_lossy(&text).trim()),
        })
    }
}

/// Reads a body as [`client::read`] does.
async fn read(body: &mut Incoming, bytes: &mut Vec<u8>, most: usize) -> Result<bool, Fault> {
    let reading = client::read(body, bytes, most).await;
    reading.map_err(|error| Fault::Connection(words(&error)))
}

fn words(error: &dyn std::error::Error) -> String {
    shortened(&client::words(error))
}

fn given(text: &str) -> Result<RootCertStore, String> {
    let pem = STANDARD
        .decode(text)
        .map_err(|error| format!("is not base64: {error}"))?;
    client::authorities(&pem)
}

/// Checks the authorities of a webhook, PEM in base64.
///
/// # Errors
/// A text that says what is wrong.
pub fn check_authorities(text: &str) -> Result<(), String> {
    given(text).map(|_| ())
}
