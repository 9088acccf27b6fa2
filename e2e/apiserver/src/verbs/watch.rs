//! Watches: a cursor over the history of a collection, turned into frames for one client.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use super::read;
use crate::context::RequestContext;
use crate::context::Server;
use crate::faults::{Effect, Scope, silences};
use crate::registry::Served;
use crate::registry::codec;
use crate::store::Selection;
use crate::store::{Change, Compacted, Event, FRAME_END, Object, Scan};
use crate::table;
use crate::wire::clock;
use crate::wire::field_error::FieldError;
use crate::wire::media::{self, Accept, Body, Form};
use crate::wire::metadata;
use crate::wire::protobuf::encode;
use crate::wire::status_error::StatusError;

/// Time between bookmarks, as in a real server.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// Bytes sent at once.
const PIECE: usize = 64 * 1024;

/// Changes read from the history at once.
const BATCH: usize = 500;

/// The annotation of the bookmark that ends the initial events.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Starts a watch.
pub async fn start(context: &RequestContext<'_>) -> Result<Response<Body>, StatusError> {
    let mut selection = read::selection(context)?;
    if context.path.watch && !context.path.name.is_empty() {
        let only = format!("metadata.name={}", context.path.name);
        selection
            .fields
            .extend(crate::wire::selectors::fields(&only).map_err(StatusError::bad_request)?);
    }
    let asked = read::version(context).map_err(|e| StatusError::unknown(e.to_string()))?;
    let initial = initial_events(context)?;
    let bookmarks = context.query.flag("allowWatchBookmarks");
    let collection = &context.served.resource.collection;
    let prefix = read::prefix(context);
    // Subscribed before the state is read, so that no change falls between.
    let changes = collection.subscribe(&prefix);
    let mut backlog = Vec::new();
    let mut error = None;
    let cursor = match (initial, asked) {
        (Some(true), asked) | (None, asked @ (None | Some(0))) => {
            read::reach(context, asked.unwrap_or_default()).await?;
            let scan = Scan {
                prefix: &prefix,
                ..Scan::default()
            };
            let page = collection.scan(scan, |o| selection.matches(o));
            let page = page.map_err(|_| StatusError::internal("the present is never compacted"))?;
            backlog = page.objects;
            page.version
        }
        (_, None | Some(0)) => context.server.store.version(),
        (_, Some(version)) => {
            let oldest = collection.oldest();
            if version < oldest {
                error = Some(StatusError::expired(format!(
                    "too old resource version: {version} ({oldest})"
                )));
            }
            version
        }
    };
    let now = Instant::now();
    let lifetime = match context
        .query
        .number("timeoutSeconds")?
        .and_then(|s| u64::try_from(s).ok())
    {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => Duration::from_secs(1800 + u64::from(clock::suffix().as_bytes()[0]) * 10),
    };
    let kind = || encode::Kind::of(&context.served.api_version(), &context.served.resource.kind);
    let follower = Follower {
        server: Arc::clone(context.server),
        served: context.served.clone(),
        user: context.user.name.clone(),
        path: format!(
            "/{}/{}/",
            context.served.resource.plural, context.path.namespace
        ),
        selection,
        prefix,
        accept: context.accept,
        compact: context.accept.protobuf.then(kind).flatten(),
        headed: false,
        backlog: backlog.into_iter(),
        initial_end: initial == Some(true) && bookmarks,
        cursor,
        changes,
        faults: context.server.faults.subscribe(),
        bookmarks: bookmarks.then_some(now + BOOKMARKS),
        deadline: now + lifetime,
        error,
        done: false,
    };
    let stream = futures::stream::unfold(follower, Follower::next);
    let media_type = if context.accept.protobuf {
        "application/vnd.kubernetes.protobuf;stream=watch"
    } else {
        "application/json"
    };
    Ok(media::answer(
        StatusCode::OK,
        media_type,
        media::pieces(stream),
    ))
}

/// Returns whether initial events are asked for in so many words.
fn initial_events(context: &RequestContext<'_>) -> Result<Option<bool>, StatusError> {
    let asked = context.query.optional_flag("sendInitialEvents");
    let matching = context.query.get("resourceVersionMatch");
    if asked.is_some() && !context.server.watch_list {
        return Err(read::list_invalid(FieldError::forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
        )));
    }
    match (asked, matching) {
        (Some(_), Some("NotOlderThan")) | (None, None) => Ok(asked),
        (Some(_), None) => Err(read::list_invalid(FieldError::forbidden(
            "resourceVersionMatch",
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ))),
        (Some(_), Some(other)) => Err(read::list_invalid_all(&[
            FieldError::forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            FieldError::unsupported("resourceVersionMatch", &other.into(), &["NotOlderThan"]),
        ])),
        (None, Some(_)) => Err(read::list_invalid(FieldError::forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ))),
    }
}

/// One client's view of a collection.
#[allow(clippy::struct_excessive_bools)] // independent facts, read one by one
struct Follower {
    server: Arc<Server>,
    served: Served,
    user: String,
    path: String,
    selection: Selection,
    prefix: String,
    accept: Accept,
    /// How objects are written in protobuf, if they are.
    compact: Option<encode::Kind>,
    /// Whether the columns of the table were sent.
    headed: bool,
    backlog: std::vec::IntoIter<Arc<Object>>,
    initial_end: bool,
    cursor: u64,
    changes: Receiver<u64>,
    faults: Receiver<Vec<(Scope, Effect)>>,
    bookmarks: Option<Instant>,
    deadline: Instant,
    error: Option<StatusError>,
    done: bool,
}

impl Follower {
    /// Returns the next bytes for the client; `None` ends the watch.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let mut out = Vec::new();
        loop {
            if self.done {
                return None;
            }
            if !self.may_speak().await {
                return None;
            }
            if let Some(refusal) = self.error.take() {
                self.done = true;
                return Some((self.error_frame(&refusal), self));
            }
            if self.backlog.len() > 1 {
                out.reserve(PIECE + PIECE / 8);
            }
            while out.len() < PIECE
                && let Some(object) = self.backlog.next()
            {
                self.show(Change::Added, &object, &mut out);
            }
            if self.backlog.as_slice().is_empty() {
                if std::mem::take(&mut self.initial_end) {
                    self.bookmark(true, &mut out);
                }
                if out.is_empty() {
                    self.follow(&mut out);
                }
            }
            if !out.is_empty() {
                return Some((out.into(), self));
            }
            if self.error.is_none() && !self.wait(&mut out).await {
                return None;
            }
            if !out.is_empty() {
                return Some((out.into(), self));
            }
        }
    }

    /// Waits while a fault silences this watch; false if one ends it.
    async fn may_speak(&mut self) -> bool {
        loop {
            let effect = silences(&self.faults.borrow_and_update(), &self.user, &self.path);
            match effect {
                None => return true,
                Some(Effect::Hang) => {
                    if self.faults.changed().await.is_err() {
                        return false;
                    }
                }
                Some(_) => return false,
            }
        }
    }

    fn follow(&mut self, out: &mut Vec<u8>) {
        let collection = Arc::clone(&self.served.resource.collection);
        match collection.since(self.cursor, &self.prefix, BATCH) {
            Ok(since) => {
                for event in &since.events {
                    self.change(event, out);
                }
                self.cursor = since.version;
            }
            Err(Compacted { oldest }) => {
                let message = format!("too old resource version: {} ({oldest})", self.cursor);
                self.error = Some(StatusError::expired(message));
            }
        }
    }

    /// Waits for something to say; false when the watch is over.
    async fn wait(&mut self, out: &mut Vec<u8>) -> bool {
        if self.served.resource.collection.is_closed() {
            return false;
        }
        let bookmark = self.bookmarks;
        tokio::select! {
            changed = self.changes.changed() => changed.is_ok(),
            changed = self.faults.changed() => changed.is_ok(),
            () = tokio::time::sleep_until(self.deadline) => false,
            () = tokio::time::sleep_until(bookmark.unwrap_or(self.deadline)), if bookmark.is_some() => {
                self.follow(out);
                self.bookmark(false, out);
                self.bookmarks = Some(Instant::now() + BOOKMARKS);
                true
            }
        }
    }

    /// Shows a change as this client's selection sees it.
    fn change(&mut self, event: &Event, out: &mut Vec<u8>) {
        let is = event.change != Change::Deleted && self.selection.matches(&event.object);
        let was = event
            .previous
            .as_ref()
            .is_some_and(|p| self.selection.matches(p));
        match (was, is) {
            (false, true) => self.show(Change::Added, &event.object, out),
            (true, true) => self.show(Change::Modified, &event.object, out),
            (true, false) if event.change == Change::Deleted => {
                self.show(Change::Deleted, &event.object, out);
            }
            // It left the selection: the client sees its last selected state, at the version of
            // now.
            (true, false) => {
                if let Some(previous) = &event.previous {
                    let mut last = previous.value();
                    metadata::of(&mut last).insert(
                        "resourceVersion".to_owned(),
                        event.object.version.to_string().into(),
                    );
                    self.tree(Change::Deleted, last, out);
                }
            }
            (false, false) => {}
        }
    }

    fn show(&mut self, change: Change, object: &Object, out: &mut Vec<u8>) {
        if let Some(kind) = &self.compact {
            kind.frame(change.name(), object.json_bytes(), out);
        } else if self.accept.form != Form::Object {
            self.tree(change, object.value(), out);
        } else if object.change() == change {
            out.extend_from_slice(object.frame());
        } else {
            out.extend_from_slice(change.prefix());
            out.extend_from_slice(object.json_bytes());
            out.extend_from_slice(FRAME_END);
        }
    }

    fn tree(&mut self, change: Change, object: Value, out: &mut Vec<u8>) {
        if let Some(kind) = &self.compact {
            return kind.frame(change.name(), object.to_string().as_bytes(), out);
        }
        let shown = match self.accept.form {
            Form::Object => object,
            Form::Metadata => codec::metadata_only(&object),
            Form::Table => self.row(&object),
        };
        let frame = json!({ "type": change.name(), "object": shown });
        out.extend_from_slice(frame.to_string().as_bytes());
        out.push(b'\n');
    }

    fn row(&mut self, object: &Value) -> Value {
        let columns = &self.served.version().columns;
        let mut table = table::table(columns, &[object], self.server.clock.now());
        table["metadata"] = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
        if std::mem::replace(&mut self.headed, true) {
            table["columnDefinitions"] = Value::Null;
        }
        table
    }

    fn bookmark(&mut self, initial_end: bool, out: &mut Vec<u8>) {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), self.cursor.to_string().into());
        if initial_end {
            metadata.insert("annotations".to_owned(), json!({ INITIAL_END: "true" }));
        }
        let mut object = json!({
            "kind": self.served.resource.kind,
            "apiVersion": self.served.api_version(),
            "metadata": metadata,
        });
        if let Some(kind) = &self.compact {
            return kind.frame("BOOKMARK", object.to_string().as_bytes(), out);
        }
        match self.accept.form {
            Form::Object => {}
            Form::Metadata => object = codec::metadata_only(&object),
            // A row like any other, of an object that has only this.
            Form::Table => object = self.row(&object),
        }
        out.extend_from_slice(
            json!({ "type": "BOOKMARK", "object": object })
                .to_string()
                .as_bytes(),
        );
        out.push(b'\n');
    }

    fn error_frame(&self, refusal: &StatusError) -> Bytes {
        if self.compact.is_some()
            && let Some(kind) = encode::Kind::of("v1", "Status")
        {
            let mut frame = Vec::new();
            kind.frame("ERROR", refusal.status().to_string().as_bytes(), &mut frame);
            return frame.into();
        }
        let mut frame = json!({ "type": "ERROR", "object": refusal.status() }).to_string();
        frame.push('\n');
        frame.into()
    }
}
