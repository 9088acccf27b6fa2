//! Describes why a collection cannot be listed or watched.

use std::sync::{Mutex, PoisonError};

/// The words for a trouble that lasts. Shared between a follower and whoever must say what is
/// waited for.
#[derive(Debug, Default)]
pub struct Trouble(Mutex<Option<String>>);

impl Trouble {
    /// What is wrong, once that has lasted for some seconds; `None` while all is well.
    pub fn words(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Notes what is wrong with following a kind, and gives the words for it.
    pub(super) fn is(&self, kind: &str, error: &impl std::fmt::Display) -> String {
        let words = format!("cannot list and watch {kind}: {error}");
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(words.clone());
        words
    }

    pub(super) fn over(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
