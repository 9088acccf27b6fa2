//! Describes why a collection cannot be listed or watched.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::source::WatchError;

/// The words for a trouble that lasts. Shared between a follower and whoever must say what is
/// waited for.
#[derive(Debug, Default)]
pub struct Trouble {
    words: Mutex<Option<String>>,
    unserved: AtomicBool,
    latest: Mutex<Option<Refused>>,
    followed: AtomicBool,
}

/// Latest error of following a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Status code, if the API answered with one.
    pub code: Option<u16>,
    /// Words of the error.
    pub words: String,
}

impl Trouble {
    /// Returns what is wrong, once that has lasted for some seconds; `None` while all is well.
    pub fn words(&self) -> Option<String> {
        self.words.lock().clone()
    }

    /// Returns whether the API has said for some seconds that it does not serve the kind.
    pub fn is_unserved(&self) -> bool {
        self.unserved.load(Ordering::Acquire)
    }

    /// Returns the latest error, however short ago it was; `None` while all is well.
    pub fn latest(&self) -> Option<Refused> {
        self.latest.lock().clone()
    }

    /// Returns whether the kind has been followed since the start.
    pub(super) fn was_followed(&self) -> bool {
        self.followed.load(Ordering::Acquire)
    }

    /// Notes an error.
    pub(super) fn stumbled(&self, error: &WatchError) {
        let refused = Refused {
            code: error.code(),
            words: error.to_string(),
        };
        *self.latest.lock() = Some(refused);
    }

    /// Notes what is wrong with following a kind, and gives the words for it.
    pub(super) fn is(&self, kind: &str, error: &WatchError) -> String {
        let words = format!("cannot list and watch {kind}: {error}");
        *self.words.lock() = Some(words.clone());
        self.unserved.store(error.is_unserved(), Ordering::Release);
        words
    }

    /// Notes what keeps the kind from being followed at all.
    pub(super) fn hindered(&self, words: String) {
        *self.words.lock() = Some(words);
    }

    pub(super) fn over(&self) {
        self.followed.store(true, Ordering::Release);
        *self.latest.lock() = None;
        *self.words.lock() = None;
        self.unserved.store(false, Ordering::Release);
    }
}
