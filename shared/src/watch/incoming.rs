//! An open watch, read line by line (JSON) or frame by frame (protobuf).

use std::pin::Pin;
use std::time::Duration;

use futures::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use tokio::time::timeout;

use super::Followed;
use super::source::Stumble;
use super::wire::compact::Decode;
use super::wire::{Line, compact, json};
use crate::protobuf::Malformed;

/// The longest frame. Objects are at most 1.5 MB in etcd; what is longer than this is no frame.
const LONGEST_FRAME: u32 = 1 << 24;

/// An open watch.
pub(super) struct Incoming<K> {
    bytes: Pin<Box<dyn AsyncBufRead + Send>>,
    /// How objects are read from frames; `None` where the server answered with lines.
    decode: Option<Decode<K>>,
    /// One line or frame; kept for the next.
    buffer: Vec<u8>,
}

impl<K: Followed> Incoming<K> {
    pub(super) fn new(bytes: Pin<Box<dyn AsyncBufRead + Send>>, decode: Option<Decode<K>>) -> Self {
        Self {
            bytes,
            decode,
            buffer: Vec::new(),
        }
    }

    /// The next line, or `None` at the end of the answer.
    pub(super) async fn next(&mut self, silence: Duration) -> Result<Option<Line<K>>, Stumble> {
        timeout(silence, async {
            match self.decode {
                Some(decode) => self.frame(decode).await,
                None => self.line().await,
            }
        })
        .await
        .map_err(|_| Stumble::Deadline(silence))?
    }

    async fn line(&mut self) -> Result<Option<Line<K>>, Stumble> {
        self.buffer.clear();
        if self.bytes.read_until(b'\n', &mut self.buffer).await? == 0 {
            return Ok(None);
        }
        match json::line(&self.buffer) {
            Ok(line) => Ok(Some(line)),
            // A line cut short by the end of the connection.
            Err(error) if error.is_eof() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn frame(&mut self, decode: Decode<K>) -> Result<Option<Line<K>>, Stumble> {
        let mut length = [0; 4];
        match self.bytes.read_exact(&mut length).await {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let length = u32::from_be_bytes(length);
        if length > LONGEST_FRAME {
            return Err(Malformed::Truncated.into());
        }
        self.buffer.resize(length as usize, 0);
        match self.bytes.read_exact(&mut self.buffer).await {
            Ok(()) => Ok(Some(compact::frame(&self.buffer, decode)?)),
            // A frame cut short by the end of the connection.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
