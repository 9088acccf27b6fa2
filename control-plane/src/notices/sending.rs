//! Sends a notice: one request with a deadline, whose answer is its status. What a receiver answers
//! besides is not read, and where it redirects to is not asked.
//!
//! Files are read for each notice, so that a Secret that is replaced is in force with the next.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::Full;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use muster_shared::https::client;
use rustls::RootCertStore;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::body;
use super::event::Event;
use super::signature::Keys;
use crate::settings::notice_receivers::{Receiver, check_url};

/// Time for a whole request, the one that Standard Webhooks suggests at least.
const DEADLINE: Duration = Duration::from_secs(15);
/// Bytes of the longest file: many authorities.
const LONGEST_FILE: u64 = 512 << 10;

/// Reason why a notice was not delivered. No text has anything of a file or of an answer in it.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// The receiver is gone for good.
    Gone,
    /// The request may succeed later, and not before this time if the receiver gave one.
    Failed(String, Option<Duration>),
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Self::Failed(why, None)
    }
}

/// Sends an event at a time by the clock of the fleet.
pub async fn send(receiver: &Receiver, event: &Event, now: Timestamp) -> Result<(), Fault> {
    let (kind, body) = body::body(receiver, event)?;
    let uri = address(receiver).await?;
    let timestamp = now.as_second();
    let mut request = Request::post(uri)
        .header(CONTENT_TYPE, kind)
        .header(USER_AGENT, concat!("muster/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", &event.id)
        .header("webhook-timestamp", timestamp);
    if let Some(file) = &receiver.secret_file {
        let keys = Keys::read(&text("secretFile", file).await?);
        let keys = keys.map_err(|problem| format!("secretFile {} {problem}", file.display()))?;
        let signature = keys.sign(&event.id, timestamp, &body);
        request = request.header("webhook-signature", signature);
    }
    let request = request.body(Full::new(Bytes::from(body)));
    let request = request.map_err(|error| error.to_string())?;
    let roots = match &receiver.ca_file {
        Some(file) => client::authorities(text("caFile", file).await?.as_bytes())
            .map_err(|problem| format!("caFile {} {problem}", file.display()))?,
        // Plain HTTP needs none.
        None => client::authorities_of_the_system().unwrap_or_else(RootCertStore::empty),
    };
    let connection = client::connection(roots, true)?;
    let response = match timeout(DEADLINE, connection.request(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Err(client::words(&error).into()),
        Err(_) => return Err(format!("no answer within {} s", DEADLINE.as_secs()).into()),
    };
    match response.status() {
        status if status.is_success() => Ok(()),
        StatusCode::GONE => Err(Fault::Gone),
        status => Err(Fault::Failed(
            format!("the receiver answered {}", status.as_u16()),
            wish(response.headers(), now),
        )),
    }
}

async fn address(receiver: &Receiver) -> Result<Uri, String> {
    if let Some(file) = &receiver.url_file {
        let url = text("urlFile", file).await?;
        let uri = check_url(url.trim());
        return uri.map_err(|problem| format!("urlFile {} {problem}", file.display()));
    }
    let url = receiver.url.as_deref().unwrap_or_default();
    check_url(url).map_err(|problem| format!("url {problem}"))
}

/// Reads a file that a field names.
async fn text(field: &str, file: &Path) -> Result<String, String> {
    let reading = async |file: PathBuf| {
        let mut text = String::new();
        let file = tokio::fs::File::open(file).await?;
        file.take(LONGEST_FILE).read_to_string(&mut text).await?;
        Ok(text)
    };
    let read: std::io::Result<String> = reading(file.to_owned()).await;
    read.map_err(|error| format!("cannot read {field} {}: {error}", file.display()))
}

/// Returns the time for which a receiver asks: seconds, or a date.
fn wish(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Duration::try_from(date.duration_since(now)).ok()
}

#[cfg(test)]
mod tests;
