//! Memory that the texts of Works may take in the cache.
//!
//! Users of the fleet decide how many Works a member has and how large they are. The texts that
//! find no room are read from the fleet API when they are needed.

use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest text in bytes that is kept. Most Works have a few thousand.
pub const LONGEST: usize = 64 << 10;
/// Bytes of all texts that are kept at most, of 128 MiB that the agent has by default.
const MOST: usize = 48 << 20;
/// Part of the room left that one text may take, so that large ones leave some to small ones.
const PART: usize = 256;

/// Room for the texts of all Works, in bytes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Texts(Arc<Semaphore>);

impl Default for Texts {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST)))
    }
}

impl Texts {
    /// Keeps a text, if there is room for it.
    pub(super) fn keep(&self, text: &mut Text) -> bool {
        if text.room.is_some() {
            return true;
        }
        let (left, bytes) = (self.0.available_permits(), text.len());
        let bytes = u32::try_from(bytes)
            .ok()
            .filter(|_| bytes <= LONGEST.min(left / PART));
        let room = bytes.and_then(|it| Arc::clone(&self.0).try_acquire_many_owned(it).ok());
        text.room = room.map(Arc::new);
        text.room.is_some()
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        MOST - self.0.available_permits()
    }
}

/// The text of a Work, which gives its room back when it and all copies of it are dropped.
#[derive(Clone, Debug)]
pub(super) struct Text {
    text: Arc<str>,
    room: Option<Arc<OwnedSemaphorePermit>>,
}

impl Text {
    /// Makes a text outside of the cache.
    pub(super) fn new(text: String) -> Self {
        Self {
            text: text.into(),
            room: None,
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(texts: &Texts, bytes: usize) -> Option<Text> {
        let mut text = Text::new("x".repeat(bytes));
        texts.keep(&mut text).then_some(text)
    }

    #[test]
    fn texts_take_no_more_than_their_room_and_large_ones_leave_some_to_small_ones() {
        let texts = Texts::default();
        assert!(keep(&texts, LONGEST + 1).is_none());
        let large: Vec<_> = (0..2_000).map_while(|_| keep(&texts, LONGEST)).collect();
        assert!(large.len() > 500 && texts.taken() == large.len() * LONGEST);
        assert!(keep(&texts, LONGEST).is_none());
        let small: Vec<_> = (0..20_000).map_while(|_| keep(&texts, 4 << 10)).collect();
        assert!(small.len() > 3_000 && texts.taken() < MOST);
        drop((large, small));
        assert_eq!(texts.taken(), 0);
    }

    #[test]
    fn a_copy_is_the_same_text_in_the_same_room() {
        let texts = Texts::default();
        let one = keep(&texts, 10).unwrap();
        let other = one.clone();
        drop(one);
        assert_eq!((texts.taken(), &*other), (10, "xxxxxxxxxx"));
        drop(other);
        assert_eq!(texts.taken(), 0);
    }
}
