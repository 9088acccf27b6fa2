//! Reads an open watch line by line (JSON) or frame by frame (protobuf).

use std::pin::Pin;
use std::time::Duration;

use futures::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};
use tokio::time::timeout;

use super::Followed;
use super::source::WatchError;
use super::wire::compact::Decode;
use super::wire::split::NoList;
use super::wire::{Line, compact, json};
use crate::protobuf::Malformed;

/// The longest frame or line. Objects are at most 1.5 MB in etcd; what is longer than this is no
/// frame.
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

    /// Returns the next line, or `None` at the end of the answer.
    pub(super) async fn next(&mut self, silence: Duration) -> Result<Option<Line<K>>, WatchError> {
        timeout(silence, async {
            match self.decode {
                Some(decode) => self.frame(decode).await,
                None => self.line().await,
            }
        })
        .await
        .map_err(|_| WatchError::Deadline(silence))?
    }

    async fn line(&mut self) -> Result<Option<Line<K>>, WatchError> {
        self.buffer.clear();
        let mut bounded = (&mut self.bytes).take(u64::from(LONGEST_FRAME));
        let read = bounded.read_until(b'\n', &mut self.buffer).await?;
        if read == 0 {
            return Ok(None);
        }
        if read == LONGEST_FRAME as usize && self.buffer.last() != Some(&b'\n') {
            return Err(NoList::TooLong(read).into());
        }
        match json::line(&self.buffer) {
            Ok(line) => Ok(Some(line)),
            // A line cut short by the end of the connection.
            Err(error) if error.is_eof() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn frame(&mut self, decode: Decode<K>) -> Result<Option<Line<K>>, WatchError> {
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

#[cfg(test)]
mod tests {
    use futures::io::Cursor;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[tokio::test]
    async fn a_line_without_end_is_given_up() {
        let endless = vec![b'x'; LONGEST_FRAME as usize + 1];
        let mut lines: Incoming<ConfigMap> = Incoming::new(Box::pin(Cursor::new(endless)), None);
        let outcome = lines.next(Duration::from_mins(1)).await;
        assert!(matches!(
            outcome,
            Err(WatchError::NoList(NoList::TooLong(_)))
        ));
    }
}
