//! Watches over the network: events are held up, repeated, missed or cut off as the faults say.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use muster_shared::client::ResponseBody;
use muster_test_apiserver::Body as Served;
use tower::BoxError;

use super::{Line, Network, Reset};
use crate::history::Api;

/// The end of a watch whose version is no longer in the history of the server.
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}
"#;

struct Carried {
    network: Arc<Network>,
    line: Line,
    api: Api,
    /// Plural of the kind.
    kind: String,
    body: Served,
    /// Faults that this watch has had.
    seen: Vec<u64>,
    again: Option<Bytes>,
    is_over: bool,
}

/// The body of a watch as the client gets it.
pub(super) fn carried(
    network: Arc<Network>,
    line: Line,
    (api, kind): (Api, String),
    body: Served,
) -> ResponseBody {
    let carried = Carried {
        network,
        line,
        api,
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
    async fn next(&mut self) -> Option<Result<Bytes, Reset>> {
        if self.is_over {
            return None;
        }
        if let Some(again) = self.again.take() {
            return Some(Ok(again));
        }
        let frame = self.body.frame().await?;
        let piece = frame.ok().and_then(|frame| frame.into_data().ok())?;
        let faults = self.network.faults();
        let effects = faults.piece(self.line.actor(), &self.api, &self.kind, &mut self.seen);
        if effects.breaks {
            return Some(Err(Reset));
        }
        if let Some(pause) = effects.misses {
            tokio::time::sleep(pause).await;
            self.is_over = true;
            return Some(Ok(Bytes::from_static(EXPIRED)));
        }
        tokio::time::sleep(effects.lag).await;
        if let Err(reset) = self.network.passable(&self.line, &self.api).await {
            return Some(Err(reset));
        }
        let piece = if effects.garbles {
            garbled(&piece)
        } else {
            piece
        };
        if effects.repeats {
            self.again = Some(piece.clone());
        }
        Some(Ok(piece))
    }
}

/// A piece of JSON whose first `spec` is no object.
pub(super) fn garbled(piece: &Bytes) -> Bytes {
    const SPEC: &[u8] = br#""spec":{"#;
    let Some(at) = piece.windows(SPEC.len()).position(|it| it == SPEC) else {
        return piece.clone();
    };
    let (before, after) = (&piece[..at], &piece[at + SPEC.len()..]);
    [before, br#""spec":"nonsense","was":{"#, after]
        .concat()
        .into()
}
