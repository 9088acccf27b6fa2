//! Watches over the network: events are held up, repeated, missed or cut off as the faults say.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use muster_shared::client::ResponseBody;
use muster_test_apiserver::Body as Served;
use serde_json::Value;
use tower::BoxError;

use super::{Line, Network, Reset};
use crate::faults::Piece;
use crate::history::Api;

/// The end of a watch whose version is no longer in the history of the server.
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}
"#;

/// Time without anything to send after which a watch breaks, or ends, as a fault says: it does not
/// wait for an event.
const QUIET: Duration = Duration::from_secs(5);

struct Carried {
    network: Arc<Network>,
    line: Line,
    /// Address of the server, and the number of the connection.
    from: (Api, u64),
    /// Plural of the kind.
    kind: String,
    body: Served,
    /// Faults that this watch has had.
    seen: Vec<u64>,
    again: Option<Bytes>,
    /// Whether objects of this watch, or of the list before it, may have been others than there
    /// are.
    is_distorted: bool,
    /// Whether this is still the list that the watch begins with.
    is_listing: bool,
    is_over: bool,
}

impl Drop for Carried {
    fn drop(&mut self) {
        // The next watch goes on from what this one has shown.
        if self.is_distorted {
            let watch = (self.line.actor().clone(), self.api(), self.kind.clone());
            self.network.distort(watch);
        }
    }
}

/// Returns the body of a watch as the client gets it.
pub(super) fn carried(
    network: Arc<Network>,
    line: Line,
    from: (Api, u64),
    (kind, is_listing): (String, bool),
    body: Served,
) -> ResponseBody {
    let api = network.role(&from.0);
    let is_distorted = network.was_distorted(&(line.actor().clone(), api, kind.clone()));
    let carried = Carried {
        is_distorted,
        is_listing,
        network,
        line,
        from,
        kind,
        body,
        seen: Vec::new(),
        again: None,
        is_over: false,
    };
    let frames = stream::unfold(carried, |mut carried| async move {
        let piece = carried.next().await?;
        carried.is_over |= piece.is_err();
        Some((piece.map(Frame::data), carried))
    });
    StreamBody::new(frames)
        .map_err(BoxError::from)
        .boxed_unsync()
}

impl Carried {
    /// Returns what the server is now.
    fn api(&self) -> Api {
        self.network.role(&self.from.0)
    }

    async fn next(&mut self) -> Option<Result<Bytes, Reset>> {
        if self.is_over {
            return None;
        }
        if let Some(again) = self.again.take() {
            return Some(Ok(again));
        }
        let mut changes = self.network.subscribe();
        let piece = loop {
            changes.borrow_and_update();
            let (actor, api) = (self.line.actor(), self.api());
            if self.network.is_reset(&self.from) {
                return Some(Err(Reset));
            }
            let distorts = self.network.faults().distorts(actor, &api, &self.kind);
            if self.is_distorted && !distorts {
                // What can be read again is no event, so that everything has to be read anew.
                (self.is_over, self.is_distorted) = (true, false);
                return Some(Ok(Bytes::from_static(EXPIRED)));
            }
            self.is_distorted |= distorts;
            let faults = self.network.faults();
            let ends = faults.ends(actor, &api, &self.kind, &self.seen);
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame?,
                _ = changes.changed() => continue,
                () = tokio::time::sleep(QUIET), if ends => break Bytes::new(),
            };
            let piece = frame.ok().and_then(|frame| frame.into_data().ok())?;
            let piece = self.shortened(piece);
            if !piece.is_empty() {
                break piece;
            }
        };
        let (faults, api) = (self.network.faults(), self.api());
        let effects = faults.piece(self.line.actor(), &api, &self.kind, &mut self.seen);
        if effects.breaks {
            return Some(Err(Reset));
        }
        if let Some(pause) = effects.misses {
            tokio::time::sleep(pause).await;
            self.is_over = true;
            return Some(Ok(Bytes::from_static(EXPIRED)));
        }
        tokio::time::sleep(effects.lag).await;
        let (address, connection) = &self.from;
        let end = (address, *connection);
        if let Err(reset) = self.network.passable(&self.line, end).await {
            return Some(Err(reset));
        }
        let piece = distorted(piece, effects);
        if effects.repeats && !piece.is_empty() {
            self.again = Some(piece.clone());
        }
        Some(Ok(piece))
    }

    /// Events of a watch without those objects of its list that a fault leaves out. Small lists are
    /// one piece together with the event that ends them.
    fn shortened(&mut self, piece: Bytes) -> Bytes {
        if !self.is_listing {
            return piece;
        }
        let (faults, api) = (self.network.faults(), self.api());
        let mut kept = BytesMut::with_capacity(piece.len());
        for event in piece.split_inclusive(|byte| *byte == b'\n') {
            self.is_listing &= !contains(event, END_OF_LIST);
            if !self.is_listing || !faults.leaves_out(self.line.actor(), &api, &self.kind) {
                kept.extend_from_slice(event);
            }
        }
        kept.freeze()
    }
}

/// In the event that ends the list of a watch.
const END_OF_LIST: &[u8] = b"k8s.io/initial-events-end";

fn contains(piece: &[u8], part: &[u8]) -> bool {
    piece.windows(part.len()).any(|it| it == part)
}

/// Returns a piece of JSON with what faults do to it.
pub(super) fn distorted(piece: Bytes, effects: Piece) -> Bytes {
    let piece = if effects.garbles {
        garbled(&piece)
    } else {
        piece
    };
    if effects.is_nonsense {
        edited(&piece, misreport)
    } else {
        piece
    }
}

/// Events of a watch, or a list, with what a function does to each object; it says whether it did
/// anything. An object that is another has another version as well: a cache would not read it
/// again.
fn edited(piece: &Bytes, mut edit: impl FnMut(&mut Value) -> bool) -> Bytes {
    let mut change = |object: &mut Value| {
        let is_other = edit(object);
        if is_other && let Some(metadata) = object.get_mut("metadata") {
            metadata["resourceVersion"] = Value::from("1");
        }
        is_other
    };
    let text = String::from_utf8_lossy(piece);
    let lines = text.split_inclusive('\n').map(|line| {
        let Ok(mut value) = serde_json::from_str::<Value>(line) else {
            return line.to_owned();
        };
        let mut is_other = value.get_mut("object").is_some_and(&mut change);
        let items = value.get_mut("items").and_then(Value::as_array_mut);
        for object in items.into_iter().flatten() {
            is_other |= change(object);
        }
        let end = if line.ends_with('\n') { "\n" } else { "" };
        if is_other {
            format!("{value}{end}")
        } else {
            line.to_owned()
        }
    });
    lines.collect::<String>().into_bytes().into()
}

/// Makes the status of an object nonsense, if it has any number: there are fewer ready pods than
/// none, and the room of a node is no amount.
fn misreport(object: &mut Value) -> bool {
    let mut is_other = false;
    for field in ["/status/readyReplicas", "/status/availableReplicas"] {
        if let Some(number) = object.pointer_mut(field) {
            *number = Value::from(-number.as_i64().unwrap_or(1));
            is_other = true;
        }
    }
    if let Some(cpu) = object.pointer_mut("/status/allocatable/cpu") {
        *cpu = Value::from("lots");
        is_other = true;
    }
    is_other
}

/// Returns a list of JSON without the objects for which a function says so.
pub(super) fn shortened(list: &Bytes, mut leaves_out: impl FnMut() -> bool) -> Bytes {
    let Ok(mut value) = serde_json::from_slice::<Value>(list) else {
        return list.clone();
    };
    if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
        items.retain(|_| !leaves_out());
    }
    value.to_string().into()
}

/// Events of a watch, or a list, of whose objects the first that has a `spec` has one that is no
/// object.
fn garbled(piece: &Bytes) -> Bytes {
    let mut is_done = false;
    edited(piece, |object| {
        let spec = object.get_mut("spec").filter(|spec| spec.is_object());
        let Some(spec) = spec.filter(|_| !is_done) else {
            return false;
        };
        *spec = Value::from("nonsense");
        is_done = true;
        true
    })
}
