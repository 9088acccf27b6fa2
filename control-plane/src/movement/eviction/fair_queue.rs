//! Queue of one lane, in the order of ranks. Among equal ranks the namespaces take turns, so that a
//! small one does not wait for all workloads of a large one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::fleet::binding::BindingKey;

/// One key for each binding, however many places mention it.
pub type Key = Arc<BindingKey>;

/// What comes first within a lane: what has not failed, then the higher priority, then the older,
/// and among equals the namespaces take turns.
/// What fails again and again must not keep the others waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    has_failed: bool,
    priority: Reverse<i32>,
    since: Timestamp,
}

impl Rank {
    /// Returns the rank of an item that has been waiting to be evicted since a moment.
    pub fn new(priority: i32, since: Timestamp) -> Self {
        Self {
            has_failed: false,
            priority: Reverse(priority),
            since,
        }
    }

    /// Returns the rank for an item that could not be evicted when it was taken.
    #[must_use]
    pub fn failed(self) -> Self {
        Self {
            has_failed: true,
            ..self
        }
    }

    /// Returns the priority of the item.
    pub fn priority(&self) -> i32 {
        self.priority.0
    }

    /// Returns whether the item goes before all of a priority.
    pub fn outranks(&self, priority: i32) -> bool {
        !self.has_failed && self.priority() > priority
    }

    /// Returns since when the item has been waiting to be evicted.
    pub fn since(&self) -> Timestamp {
        self.since
    }
}

/// Returns the namespace of a binding; empty for one that has none.
fn namespace(key: &BindingKey) -> &str {
    key.namespace.as_deref().unwrap_or_default()
}

/// Items in the order of their ranks.
#[derive(Debug, Default)]
pub struct FairQueue {
    by_rank: BTreeMap<Rank, BTreeMap<Box<str>, BTreeSet<Key>>>,
    len: usize,
    /// The namespace that was served last: the one after it, by name, is next.
    served: Box<str>,
}

impl FairQueue {
    /// Adds an item.
    pub fn insert(&mut self, rank: Rank, key: Key) {
        let namespaces = self.by_rank.entry(rank).or_default();
        let items = match namespaces.get_mut(namespace(&key)) {
            Some(items) => items,
            None => namespaces.entry(namespace(&key).into()).or_default(),
        };
        self.len += usize::from(items.insert(key));
    }

    /// Removes an item. Returns whether it was there.
    pub fn remove(&mut self, rank: Rank, key: &Key) -> bool {
        let removed = self.take(rank, |namespaces| {
            let items = namespaces.get_mut(namespace(key))?;
            let key = items.take(key)?;
            Some((key, items.is_empty()))
        });
        removed.is_some()
    }

    /// Removes the item that comes first and returns it.
    pub fn pop_first(&mut self) -> Option<(Rank, Key)> {
        let rank = self.first_rank()?;
        let served = std::mem::take(&mut self.served);
        let key = self.take(rank, |namespaces| {
            let after = namespaces
                .range::<str, _>((Excluded(&*served), Unbounded))
                .next();
            let next = after.or_else(|| namespaces.first_key_value())?.0.clone();
            let items = namespaces.get_mut(&next)?;
            let key = items.pop_first()?;
            Some((key, items.is_empty()))
        })?;
        self.served = namespace(&key).into();
        Some((rank, key))
    }

    /// Returns the rank of the item that comes first.
    pub fn first_rank(&self) -> Option<Rank> {
        self.by_rank.first_key_value().map(|(rank, _)| *rank)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all items and returns them.
    pub fn drain(&mut self) -> impl Iterator<Item = (Rank, Key)> + use<> {
        self.len = 0;
        let ranks = std::mem::take(&mut self.by_rank).into_iter();
        ranks.flat_map(|(rank, namespaces)| {
            let items = namespaces.into_values().flatten();
            items.map(move |key| (rank, key))
        })
    }

    /// Takes an item of a rank out, and what is empty then; `out` says whether that is the
    /// namespace.
    fn take(
        &mut self,
        rank: Rank,
        out: impl FnOnce(&mut BTreeMap<Box<str>, BTreeSet<Key>>) -> Option<(Key, bool)>,
    ) -> Option<Key> {
        let namespaces = self.by_rank.get_mut(&rank)?;
        let (key, is_last) = out(namespaces)?;
        if is_last {
            namespaces.remove(namespace(&key));
        }
        if namespaces.is_empty() {
            self.by_rank.remove(&rank);
        }
        self.len -= 1;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(priority: i32) -> Rank {
        Rank::new(priority, Timestamp::UNIX_EPOCH)
    }

    fn key(text: &str) -> Key {
        let (namespace, name) = text.split_once('/').unwrap();
        Arc::new(BindingKey {
            namespace: Some(namespace.to_owned()).filter(|it| !it.is_empty()),
            name: name.to_owned(),
        })
    }

    fn queue(items: &[(i32, &str)]) -> FairQueue {
        let mut queue = FairQueue::default();
        for (priority, item) in items {
            queue.insert(rank(*priority), key(item));
        }
        queue
    }

    fn order(mut queue: FairQueue) -> Vec<Key> {
        let keys = std::iter::from_fn(|| queue.pop_first()).map(|(_, key)| key);
        let keys = keys.collect();
        assert!(queue.is_empty());
        keys
    }

    #[test]
    fn namespaces_take_turns_among_equals() {
        for (items, expected) in [
            (
                &[(0, "a/1"), (0, "a/2"), (0, "a/3"), (0, "b/1"), (0, "c/1")][..],
                &["a/1", "b/1", "c/1", "a/2", "a/3"][..],
            ),
            // Without a namespace it is one like any other.
            (&[(0, "/1"), (0, "/2"), (0, "a/1")], &["a/1", "/1", "/2"]),
            // A higher priority asks for no turns.
            (
                &[(0, "a/1"), (9, "b/1"), (9, "b/2"), (0, "c/1")],
                &["b/1", "b/2", "c/1", "a/1"],
            ),
            (&[], &[]),
        ] {
            let expected: Vec<Key> = expected.iter().map(|it| key(it)).collect();
            assert_eq!(order(queue(items)), expected);
        }
    }

    #[test]
    fn what_is_removed_is_not_served_and_leaves_nothing() {
        let mut queue = queue(&[(0, "a/1"), (0, "a/2"), (0, "b/1")]);
        assert!(queue.remove(rank(0), &key("a/1")));
        assert!(!queue.remove(rank(0), &key("a/1")), "it is gone");
        assert!(!queue.remove(rank(1), &key("a/2")), "it has another rank");
        assert!(queue.remove(rank(0), &key("b/1")));
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.pop_first(), Some((rank(0), key("a/2"))));
        assert_eq!(queue.first_rank(), None);
        queue.insert(rank(2), key("x/1"));
        queue.insert(rank(2), key("x/1"));
        assert_eq!(queue.len(), 1, "once");
        assert_eq!(queue.drain().collect::<Vec<_>>(), [(rank(2), key("x/1"))]);
        assert!(queue.is_empty() && queue.by_rank.is_empty());
    }
}
