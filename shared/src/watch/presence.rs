//! What a cache knows of an object by name: that it exists, that it was seen being deleted, or
//! neither.
//!
//! An object that is missing in a cache is not thereby deleted: it may not decode, the list may
//! have been short, or the process may have started a moment ago. Code that removes, releases or
//! places anew something because an object is gone asks
//! [`Informer::presence`](super::Informer::presence) and acts only on [`Presence::Gone`].

use std::collections::HashMap;
use std::sync::Arc;

use lru::LruCache;

/// Presence of an object, as far as it is known by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence<T> {
    /// The object exists. The value is the last version that decoded.
    There(T),
    /// The object was seen being deleted, and has not been seen since: the API reported its
    /// deletion, or a complete list did not contain it after it had a deletion timestamp or no
    /// finalizer. Only in this state may a decision remove, release or place anew anything.
    ///
    /// The memory of deletions begins with the process and is bounded ([`MOST_DEPARTED`] names); a
    /// name that is forgotten is `Unknown`.
    Gone,
    /// The existence of the object is not known. A decision keeps what depends on it, and says so.
    Unknown(Doubt),
}

/// Reason why it is not known whether an object exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The first complete list has not arrived.
    Unlisted,
    /// A complete list does not contain the object, and this process has never seen it: it never
    /// existed, was deleted before this process started, or the list was incomplete.
    Unseen,
    /// The object exists and does not decode; no earlier version did.
    Unreadable {
        /// Whether the object has a deletion timestamp.
        deleting: bool,
    },
    /// The object existed, and a later list did not contain it although nothing announced its
    /// deletion; or it is no longer selected.
    Vanished,
}

impl Doubt {
    /// Formats the reason for conditions, events and logs.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Unlisted => "it has not been listed yet",
            Self::Unseen => "the API does not list it, and nobody saw it leave",
            Self::Unreadable { .. } => "the API has it, but it cannot be read",
            Self::Vanished => "it is missing from the API's list, and nobody saw it leave",
        }
    }
}

impl<T> Presence<T> {
    /// Returns the object, if it exists.
    pub fn there(self) -> Option<T> {
        match self {
            Self::There(object) => Some(object),
            Self::Gone | Self::Unknown(_) => None,
        }
    }

    /// Returns whether the object was seen being deleted.
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Gone)
    }

    /// Returns whether the object exists as far as is known: it was read, it cannot be read, or
    /// nothing has been listed yet.
    pub const fn may_exist(&self) -> bool {
        matches!(
            self,
            Self::There(_) | Self::Unknown(Doubt::Unlisted | Doubt::Unreadable { .. })
        )
    }

    /// Returns whether the object may exist without being readable or listed.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

/// Names of departed objects that an informer remembers. More than the largest fleet loses while
/// one decision waits; about 200 KB when full.
pub const MOST_DEPARTED: usize = 1024;

/// Returns whether an object with this metadata that a complete list lacks has left: it was being
/// deleted, or nothing had to happen before it could go. With a finalizer and without a deletion
/// timestamp it cannot have left in the ordinary way.
pub(super) fn is_to_leave(deleting: bool, finalizers: Option<&Vec<String>>) -> bool {
    deleting || finalizers.is_none_or(Vec::is_empty)
}

/// The names that left, the oldest forgotten first. Cheap to share: a holder keeps the state that
/// it got.
#[derive(Debug, Clone)]
pub struct Departed(LruCache<Arc<str>, Departure>);

impl Default for Departed {
    fn default() -> Self {
        // It takes memory for the names that have left only; `put` bounds them.
        Self(LruCache::unbounded())
    }
}

/// Way in which a name left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Departure {
    /// A watch showed its deletion.
    Deleted,
    /// A list lacked it, and nothing kept it from leaving.
    Left,
    /// A list lacked it, and nobody saw it leave.
    Vanished,
}

impl Departed {
    /// Returns whether the object was seen leaving; `namespace` is `None` for cluster-scoped kinds.
    pub fn is_gone(&self, namespace: Option<&str>, name: &str) -> bool {
        let departure = self.get(namespace.unwrap_or_default(), name);
        matches!(departure, Some(Departure::Deleted | Departure::Left))
    }

    /// Returns the names in a namespace of objects that a list lacked, whose deletion nothing
    /// showed.
    pub fn missing_in(&self, namespace: &str) -> Vec<String> {
        let missing = self.0.iter().filter_map(|(joined, departure)| {
            let (found, name) = joined.split_once('/')?;
            let is_missing = found == namespace && *departure != Departure::Deleted;
            is_missing.then(|| name.to_owned())
        });
        missing.collect()
    }

    /// Notes that the object was seen leaving.
    pub fn insert(&mut self, namespace: Option<&str>, name: &str) {
        self.put(namespace.unwrap_or_default(), name, Departure::Deleted);
    }

    /// Notes that the object is there again.
    pub fn forget(&mut self, namespace: Option<&str>, name: &str) {
        self.take(namespace.unwrap_or_default(), name);
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Departure> {
        if self.0.is_empty() {
            return None;
        }
        self.0.peek(&*joined(namespace, name)).copied()
    }

    pub(super) fn put(&mut self, namespace: &str, name: &str, departure: Departure) {
        self.0.put(joined(namespace, name), departure);
        if self.0.len() > MOST_DEPARTED {
            self.0.pop_lru();
        }
    }

    pub(super) fn take(&mut self, namespace: &str, name: &str) {
        if !self.0.is_empty() {
            self.0.pop(&*joined(namespace, name));
        }
    }
}

/// Joins a namespace and a name by a slash, which neither part of an address has.
fn joined(namespace: &str, name: &str) -> Arc<str> {
    [namespace, "/", name].concat().into()
}

/// The objects that the API has and that do not decode, each with whether it is being deleted.
#[derive(Debug, Default)]
pub(super) struct Unreadable(HashMap<Arc<str>, bool>);

impl Unreadable {
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<bool> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&*joined(namespace, name)).copied()
    }

    pub(super) fn put(&mut self, namespace: &str, name: &str, deleting: bool) {
        self.0.insert(joined(namespace, name), deleting);
    }

    pub(super) fn take(&mut self, namespace: &str, name: &str) -> Option<bool> {
        if self.0.is_empty() {
            return None;
        }
        self.0.remove(&*joined(namespace, name))
    }

    /// Returns the addresses, as namespace and name, with whether each is being deleted.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        let parts = self.0.iter();
        parts.filter_map(|(joined, deleting)| {
            let (namespace, name) = joined.split_once('/')?;
            Some((namespace, name, *deleting))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_listed_yet_or_cannot_be_read_may_exist() {
        for (presence, expected) in [
            (Presence::There(()), true),
            (Presence::Unknown(Doubt::Unlisted), true),
            (
                Presence::Unknown(Doubt::Unreadable { deleting: false }),
                true,
            ),
            (Presence::Unknown(Doubt::Unseen), false),
            (Presence::Unknown(Doubt::Vanished), false),
            (Presence::Gone, false),
        ] {
            assert_eq!(presence.may_exist(), expected, "{presence:?}");
        }
    }

    #[test]
    fn what_a_list_of_a_namespace_lacked_is_known_until_it_is_seen_again() {
        let mut departed = Departed::default();
        departed.put("a", "gone", Departure::Deleted);
        departed.put("a", "left", Departure::Left);
        departed.put("a", "lost", Departure::Vanished);
        departed.put("b", "lost", Departure::Vanished);
        let mut missing = departed.missing_in("a");
        missing.sort_unstable();
        assert_eq!(missing, ["left", "lost"]);
        let is_gone = ["gone", "left", "lost"].map(|it| departed.is_gone(Some("a"), it));
        assert_eq!(is_gone, [true, true, false]);
        departed.take("a", "lost");
        departed.take("a", "left");
        assert_eq!(departed.missing_in("a"), [""; 0]);
    }

    #[test]
    fn the_memory_of_departures_is_bounded_and_forgets_the_oldest_first() {
        let mut departed = Departed::default();
        for number in 0..=MOST_DEPARTED {
            departed.put("a", &number.to_string(), Departure::Deleted);
        }
        assert!(!departed.is_gone(Some("a"), "0"));
        assert!(departed.is_gone(Some("a"), "1"));
        assert!(!departed.is_gone(Some("b"), "1"), "names are not addresses");
        // What leaves again is the youngest; what is back is no departure.
        departed.put("a", "1", Departure::Deleted);
        departed.put("a", "one more", Departure::Deleted);
        assert!(departed.is_gone(Some("a"), "1"));
        assert!(!departed.is_gone(Some("a"), "2"));
        departed.take("a", "1");
        assert!(!departed.is_gone(Some("a"), "1"));
        assert_eq!(departed.0.len(), MOST_DEPARTED - 1);
    }

    #[test]
    fn what_a_list_lacks_has_left_when_nothing_had_to_happen_first() {
        let finalizers = vec!["x/y".to_owned()];
        assert!(!is_to_leave(false, Some(&finalizers)));
        assert!(is_to_leave(true, Some(&finalizers)));
        assert!(is_to_leave(false, Some(&Vec::new())));
        assert!(is_to_leave(false, None));
    }
}
