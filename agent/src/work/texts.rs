//! Memory that the texts of Works may take in the cache.
//!
//! Users of the fleet decide how many Works a member has and how large they are. The texts that
//! find no room are read from the fleet API when they are needed.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest text in bytes that is kept. Most Works have a few thousand.
pub const LONGEST: usize = 64 << 10;
/// Bytes of all texts that are kept at most, of 128 MiB that the agent has by default.
const MOST: usize = 48 << 20;
/// Part of the room left that one text may take, so that large ones leave some to small ones.
const PART: usize = 256;

/// What the texts of all Works take together. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    taken: Arc<AtomicUsize>,
}

impl Texts {
    /// Keeps a text, if there is room for it.
    pub(super) fn keep(&self, text: &mut Text) -> bool {
        if text.share.is_some() {
            return true;
        }
        let left = MOST.saturating_sub(self.taken.load(Ordering::Relaxed));
        if text.len() > LONGEST.min(left / PART) {
            return false;
        }
        text.share = Some(Share::of(self, text.len()));
        true
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// The text of a Work, which gives its room back when it is dropped.
#[derive(Clone, Debug)]
pub(super) struct Text {
    text: Box<str>,
    share: Option<Share>,
}

impl Text {
    /// Makes a text outside of the cache.
    pub(super) fn new(text: String) -> Self {
        Self {
            text: text.into(),
            share: None,
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// Room that a text takes.
#[derive(Debug)]
struct Share {
    texts: Texts,
    bytes: usize,
}

impl Share {
    fn of(texts: &Texts, bytes: usize) -> Self {
        texts.taken.fetch_add(bytes, Ordering::Relaxed);
        Self {
            texts: texts.clone(),
            bytes,
        }
    }
}

impl Clone for Share {
    fn clone(&self) -> Self {
        Self::of(&self.texts, self.bytes)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.texts.taken.fetch_sub(self.bytes, Ordering::Relaxed);
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
    fn a_copy_takes_room_of_its_own() {
        let texts = Texts::default();
        let one = keep(&texts, 10).unwrap();
        let other = one.clone();
        assert_eq!(texts.taken(), 20);
        drop(one);
        assert_eq!((texts.taken(), &*other), (10, "xxxxxxxxxx"));
    }
}
