//! Request bodies, limited one by one and in total.

use std::sync::Arc;

use bytes::Buf;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest body: two objects of the largest size that an API server stores, with room to spare
/// (controller-runtime's limit).
const LARGEST: usize = 7 << 20;
/// Bytes of all bodies together. A review is parsed into a tree of several times its size, by at
/// most as many threads as there are processors; the charts give the process 256 MiB.
const BUDGET: usize = 32 << 20;

/// Bytes of each body that do not count: most reviews are no larger, and are read although whoever
/// reaches the port uses up the budget with bodies that never end. With all connections and their
/// streams they are 32 MiB.
const SMALL: usize = 32 << 10;

/// Reason why a body was not read.
#[derive(Debug)]
pub enum Error {
    /// The body is larger than any review.
    Large,
    /// The connection broke, in the words of the HTTP library.
    Broken(String),
}

/// A complete body. Its share of the budget is free again when it is dropped.
#[derive(Debug)]
pub struct Collected {
    bytes: Vec<u8>,
    _share: Option<OwnedSemaphorePermit>,
}

impl Collected {
    /// Returns the octets.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns the budget of what the bodies of one server may take, in bytes.
pub fn budget() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(BUDGET))
}

/// Reads a body piece by piece. What has arrived counts, not what was announced; while the budget
/// is used up nothing more is read.
pub async fn collect<B>(mut body: B, budget: &Arc<Semaphore>) -> Result<Collected, Error>
where
    B: Body + Unpin,
    B::Error: std::fmt::Display,
{
    let mut bytes = Vec::new();
    let mut share: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Broken(error.to_string()))?;
        let Ok(mut data) = frame.into_data() else {
            continue;
        };
        let more = data.remaining();
        if bytes.len() + more > LARGEST {
            return Err(Error::Large);
        }
        let counted = |length: usize| length.saturating_sub(SMALL);
        let more = counted(bytes.len() + more) - counted(bytes.len());
        if more > 0 {
            let more = u32::try_from(more).map_err(|_| Error::Large)?;
            let permit = Arc::clone(budget).acquire_many_owned(more).await;
            let permit = permit.map_err(|error| Error::Broken(error.to_string()))?;
            match &mut share {
                Some(share) => share.merge(permit),
                None => share = Some(permit),
            }
        }
        while data.has_remaining() {
            let piece = data.chunk();
            bytes.extend_from_slice(piece);
            let length = piece.len();
            data.advance(length);
        }
    }
    Ok(Collected {
        bytes,
        _share: share,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;

    fn body(length: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b'x'; length]))
    }

    #[tokio::test(start_paused = true)]
    async fn all_bodies_together_take_no_more_than_the_budget() {
        let budget = budget();
        let mut held = Vec::new();
        let waits = loop {
            let collecting = collect(body(LARGEST), &budget);
            let second = std::time::Duration::from_secs(1);
            match tokio::time::timeout(second, collecting).await {
                Ok(collected) => held.push(collected.unwrap()),
                Err(waits) => break waits,
            }
        };
        let total: usize = held.iter().map(|it| it.bytes().len()).sum();
        assert!(total <= BUDGET && held.len() == BUDGET / LARGEST, "{waits}");
        assert!(collect(body(1000), &budget).await.is_ok(), "a small one");
        let rest = u32::try_from(budget.available_permits()).unwrap();
        let rest = Arc::clone(&budget).acquire_many_owned(rest).await.unwrap();
        assert!(collect(body(SMALL), &budget).await.is_ok(), "nothing left");
        drop(rest);
        held.pop();
        assert!(collect(body(LARGEST), &budget).await.is_ok());
        drop(held);
        assert_eq!(budget.available_permits(), BUDGET);
    }

    #[tokio::test]
    async fn a_body_that_is_larger_than_any_review_is_refused() {
        let budget = budget();
        for (length, fits) in [(0, true), (LARGEST, true), (LARGEST + 1, false)] {
            let found = collect(body(length), &budget).await;
            match found {
                Ok(found) => assert!(fits && found.bytes().len() == length),
                Err(error) => assert!(!fits && matches!(error, Error::Large)),
            }
        }
        assert_eq!(budget.available_permits(), BUDGET);
    }
}
