//! Reads a list, or a page of one, object by object while it arrives.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use futures::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::source::WatchError;
use super::wire::compact::Decode;
use super::wire::split::{Found, Splitter};
use super::wire::{ListMeta, Rejected, compact, json};
use crate::protobuf::{self, Malformed};

/// The longest object in bytes. etcd takes 1.5 MB, and JSON may be several times longer than what
/// is stored; what is longer than this is no object.
const LONGEST_OBJECT: usize = 1 << 24;

/// A piece of a list.
pub(super) enum Part<K> {
    Object(K),
    Rejected(Rejected),
    /// The list, or this page of it, is complete.
    End(ListMeta),
}

/// The answer to a list.
pub(super) struct Listing<K> {
    bytes: Pin<Box<dyn AsyncBufRead + Send>>,
    form: Form<K>,
    meta: ListMeta,
    buffer: Vec<u8>,
    read: u64,
}

/// Encoding of the answer.
enum Form<K> {
    Json(Splitter),
    /// Protobuf: how its objects are read, and where in the envelope we are.
    Compact(Decode<K>, Place),
}

/// Position of the next byte in the envelope of a list.
#[derive(Clone, Copy)]
enum Place {
    /// Before the prefix.
    Start,
    /// In the envelope, before a field.
    Envelope,
    /// In the list, which has so many bytes left, before a field.
    List(u64),
}

impl<K: DeserializeOwned> Listing<K> {
    /// Makes the reader of an answer, which is read as protobuf where there is a way to.
    pub(super) fn new(bytes: Pin<Box<dyn AsyncBufRead + Send>>, decode: Option<Decode<K>>) -> Self {
        let form = match decode {
            Some(decode) => Form::Compact(decode, Place::Start),
            None => Form::Json(Splitter::new(LONGEST_OBJECT)),
        };
        Self {
            bytes,
            form,
            meta: ListMeta::default(),
            buffer: Vec::new(),
            read: 0,
        }
    }

    /// Bytes of the answer so far.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Returns the next piece; none may be longer in coming than `silence`. After an error or the
    /// end there are no more.
    pub(super) async fn next(&mut self, silence: Duration) -> Result<Part<K>, WatchError> {
        timeout(silence, async {
            match &self.form {
                Form::Json(_) => self.json().await,
                Form::Compact(decode, place) => {
                    let (decode, place) = (*decode, *place);
                    self.compact(decode, place).await
                }
            }
        })
        .await
        .map_err(|_| WatchError::Deadline(silence))?
    }

    async fn json(&mut self) -> Result<Part<K>, WatchError> {
        let Form::Json(splitter) = &mut self.form else {
            return Err(Malformed::Prefix.into());
        };
        loop {
            let piece = self.bytes.fill_buf().await?;
            if piece.is_empty() {
                return Err(cut_short());
            }
            let (used, found) = splitter.read(piece)?;
            self.bytes.consume_unpin(used);
            self.read += used as u64;
            match found {
                None => {}
                Some(Found::Item) => {
                    return Ok(match json::object(splitter.taken()) {
                        Ok(object) => Part::Object(object),
                        Err(rejected) => Part::Rejected(rejected),
                    });
                }
                Some(Found::Metadata) => self.meta = json::list_meta(splitter.taken())?,
                Some(Found::End) => break,
            }
        }
        // A connection whose answer was read to its end serves the next request.
        loop {
            let rest = self.bytes.fill_buf().await?.len();
            if rest == 0 {
                return Ok(Part::End(std::mem::take(&mut self.meta)));
            }
            self.bytes.consume_unpin(rest);
        }
    }

    async fn compact(
        &mut self,
        decode: Decode<K>,
        mut place: Place,
    ) -> Result<Part<K>, WatchError> {
        loop {
            place = match place {
                Place::Start => {
                    self.take(protobuf::MAGIC.len() as u64).await?;
                    if self.buffer != protobuf::MAGIC {
                        return Err(Malformed::Prefix.into());
                    }
                    Place::Envelope
                }
                Place::Envelope => match self.number().await? {
                    None => return Ok(Part::End(std::mem::take(&mut self.meta))),
                    Some(key) if (key >> 3, key & 7) == (2, 2) => Place::List(self.length().await?),
                    Some(key) => {
                        self.skip(key).await?;
                        Place::Envelope
                    }
                },
                Place::List(0) => Place::Envelope,
                Place::List(left) => {
                    let before = self.read;
                    let key = self.number().await?.ok_or_else(cut_short)?;
                    let wanted = matches!((key >> 3, key & 7), (1 | 2, 2));
                    if wanted {
                        let length = self.length().await?;
                        self.take(length).await?;
                    } else {
                        self.skip(key).await?;
                    }
                    let left = left
                        .checked_sub(self.read - before)
                        .ok_or(Malformed::Truncated)?;
                    let place = Place::List(left);
                    if wanted && key >> 3 == 2 {
                        self.form = Form::Compact(decode, place);
                        return Ok(Part::Object(decode(&self.buffer)?));
                    }
                    if wanted {
                        self.meta = compact::list_meta(&self.buffer)?;
                    }
                    place
                }
            };
        }
    }

    /// Returns the next number; `None` at the end of the answer.
    async fn number(&mut self) -> Result<Option<u64>, WatchError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            if self.bytes.read(&mut byte).await? == 0 {
                return if shift == 0 {
                    Ok(None)
                } else {
                    Err(cut_short())
                };
            }
            self.read += 1;
            number |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(Some(number));
            }
        }
        Err(Malformed::Number.into())
    }

    async fn length(&mut self) -> Result<u64, WatchError> {
        self.number().await?.ok_or_else(cut_short)
    }

    /// Reads so many bytes into the buffer.
    async fn take(&mut self, length: u64) -> Result<(), WatchError> {
        let wanted = usize::try_from(length).unwrap_or(usize::MAX);
        if wanted > LONGEST_OBJECT {
            return Err(Malformed::Truncated.into());
        }
        self.buffer.resize(wanted, 0);
        self.bytes.read_exact(&mut self.buffer).await?;
        self.read += length;
        Ok(())
    }

    /// Steps over the content of a field.
    async fn skip(&mut self, key: u64) -> Result<(), WatchError> {
        let mut left = match key & 7 {
            0 => return self.length().await.map(|_| ()),
            1 => 8,
            2 => self.length().await?,
            5 => 4,
            wire => {
                let field = key >> 3;
                return Err(Malformed::WireType { field, wire }.into());
            }
        };
        while left > 0 {
            let piece = self.bytes.fill_buf().await?.len();
            if piece == 0 {
                return Err(cut_short());
            }
            let used = piece.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.bytes.consume_unpin(used);
            self.read += used as u64;
            left -= used as u64;
        }
        Ok(())
    }
}

/// Returns the error of an answer that ended before the list did.
fn cut_short() -> WatchError {
    WatchError::Broken(io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::super::Followed;
    use super::*;
    use crate::capacity::PodView;
    use crate::protobuf::FromProtobuf;
    use crate::watch::wire::compact::tests::field;

    const PATIENCE: Duration = Duration::from_mins(1);

    /// Returns an answer that arrives in pieces of such a length.
    fn arriving<K: Followed>(
        answer: &[u8],
        length: usize,
        decode: Option<Decode<K>>,
    ) -> Listing<K> {
        let pieces: Vec<io::Result<Vec<u8>>> = answer
            .chunks(length)
            .map(|piece| Ok(piece.to_vec()))
            .collect();
        Listing::new(Box::pin(stream::iter(pieces).into_async_read()), decode)
    }

    /// Returns what comes of an answer.
    async fn reported<K: Followed>(mut listing: Listing<K>) -> Result<Vec<String>, String> {
        let mut reported = Vec::new();
        loop {
            match listing
                .next(PATIENCE)
                .await
                .map_err(|error| error.to_string())?
            {
                Part::Object(object) => {
                    reported.push(object.meta().name.clone().unwrap_or_default());
                }
                Part::Rejected(rejected) => reported.push(format!("-{}", rejected.name)),
                Part::End(meta) => {
                    let version = meta.resource_version.unwrap_or_default();
                    reported.push(format!(
                        "{version}:{}",
                        meta.continue_token.unwrap_or_default()
                    ));
                    return Ok(reported);
                }
            }
        }
    }

    #[tokio::test]
    async fn json_is_read_object_by_object_and_a_malformed_one_costs_only_itself() {
        let list = json!({"kind": "ConfigMapList", "metadata": {"resourceVersion": "7", "continue": "on"}, "items": [
            {"metadata": {"name": "good", "namespace": "a"}},
            {"metadata": {"name": "bad", "namespace": "a"}, "data": 5},
            {"metadata": {"name": "last"}}]});
        let text = format!("{list}\n");
        for length in [1, 2, 3, 7, 64, 1000] {
            let listing = arriving::<ConfigMap>(text.as_bytes(), length, None);
            let expected = ["good", "-bad", "last", "7:on"];
            assert_eq!(
                reported(listing).await.unwrap(),
                expected,
                "pieces of {length}"
            );
        }
        for end in 0..text.len() - 2 {
            let listing = arriving::<ConfigMap>(&text.as_bytes()[..end], 50, None);
            assert!(reported(listing).await.is_err(), "cut after {end}");
        }
    }

    /// Returns a list of pods as a server writes it: its kind, the list itself, and empty texts
    /// behind it.
    fn pods() -> Vec<u8> {
        let pod = |name: &[u8]| field(2, &field(1, &field(1, name)));
        let list = [
            field(1, &[field(2, b"7"), field(3, b"on")].concat()),
            pod(b"a"),
            vec![3 << 3, 9],
            pod(b"b"),
        ];
        let kind = field(1, &field(1, b"v1"));
        let rest = [field(3, b""), field(4, b"")].concat();
        [b"k8s\0".to_vec(), kind, field(2, &list.concat()), rest].concat()
    }

    #[tokio::test]
    async fn protobuf_is_read_object_by_object() {
        let list = pods();
        let decode: Option<Decode<PodView>> = Some(PodView::from_protobuf);
        for length in [1, 2, 5, 1000] {
            let listing = arriving(&list, length, decode);
            let expected = ["a", "b", "7:on"];
            assert_eq!(
                reported(listing).await.unwrap(),
                expected,
                "pieces of {length}"
            );
        }
        for end in 0..list.len() - 5 {
            let cut = reported(arriving(&list[..end], 50, decode)).await;
            assert!(end == 4 || end == 10 || cut.is_err(), "cut after {end}");
        }
        assert!(
            reported(arriving(b"{\"items\":[]}", 50, decode))
                .await
                .is_err()
        );
    }

    /// Objects as large as an API stores them, far more of them than fit into memory that we would
    /// want to use.
    #[tokio::test]
    async fn no_more_than_one_object_is_held_however_large_they_are() {
        let object =
            json!({"metadata": {"name": "x"}, "data": {"k": "y".repeat(1 << 20)}}).to_string();
        let pieces = (0..200).flat_map(|number| {
            let head = if number == 0 { "{\"items\":[" } else { "," };
            let tail = if number == 199 { "]}" } else { "" };
            let text = format!("{head}{object}{tail}").into_bytes();
            let pieces: Vec<_> = text.chunks(16 << 10).map(|it| Ok(it.to_vec())).collect();
            pieces
        });
        let bytes: Pin<Box<dyn AsyncBufRead + Send>> =
            Box::pin(stream::iter(pieces.collect::<Vec<io::Result<Vec<u8>>>>()).into_async_read());
        let mut listing: Listing<ConfigMap> = Listing::new(bytes, None);
        let mut objects = 0;
        while let Part::Object(_) = listing.next(PATIENCE).await.unwrap() {
            objects += 1;
            let Form::Json(splitter) = &listing.form else {
                panic!("it is JSON")
            };
            assert!(splitter.taken().len() < 2 << 20);
        }
        assert_eq!(objects, 200);
    }
}
