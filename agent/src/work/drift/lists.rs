//! Results of the first list of each kind in the member, used to skip objects that are as desired.
//!
//! An agent that starts has to compare every object once. The watches list all of them anyway, so a
//! Work waits a moment for the lists of its kinds, and an object that was listed as desired is not
//! read again. Every other object (absent, different, not managed) is read before the agent acts on
//! it.
//!
//! The lists count at the start only, and once for each object: later a Work is reconciled because
//! of a change.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use muster_shared::k8s::GroupVersionKind;
use serde_json::Value;
use tokio::time::Instant;

use super::ObjectKey;
use crate::digest::digest;

/// Time for which Works wait for lists. A list of a thousand objects takes a fraction of a second;
/// a kind that cannot be listed must not delay its Works for longer than this.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time after the first Work for which the lists count: enough to work on all Works.
const VALIDITY: Duration = Duration::from_mins(1);

/// The first lists, as far as they are needed.
#[derive(Debug)]
pub(super) struct FirstLists {
    /// Whether the kinds of the Works are listed at all.
    expected: bool,
    /// Time at which the first Work was reconciled.
    since: Option<Instant>,
    /// Kinds whose list is complete, or will never come.
    complete: HashSet<GroupVersionKind>,
    /// Objects that were listed as desired, with the digests of their desired states.
    as_desired: HashMap<ObjectKey, u64>,
}

impl FirstLists {
    /// Makes a memory without lists. With `expected` false none will come, and no Work waits.
    pub(super) fn new(expected: bool) -> Self {
        Self {
            expected,
            since: None,
            complete: HashSet::new(),
            as_desired: HashMap::new(),
        }
    }

    /// Returns the longest time for which a Work with objects of these kinds has to wait; `None` if
    /// it need not.
    pub(super) fn wait<'a>(
        &mut self,
        mut kinds: impl Iterator<Item = &'a GroupVersionKind>,
        now: Instant,
    ) -> Option<Duration> {
        if !self.expected {
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let left = PATIENCE.checked_sub(now - since)?;
        if left.is_zero() || kinds.all(|kind| self.complete.contains(kind)) {
            return None;
        }
        Some(left)
    }

    /// Takes over a complete list of a kind: objects that are as desired, with the digests of their
    /// desired states. Only the first list of a kind counts; returns whether it is that.
    pub(super) fn complete(
        &mut self,
        kind: &GroupVersionKind,
        as_desired: impl IntoIterator<Item = (ObjectKey, u64)>,
        now: Instant,
    ) -> bool {
        let first = self.complete.insert(kind.clone());
        if first && self.expected && !self.is_over(now) {
            self.as_desired.extend(as_desired);
        }
        first
    }

    /// Forgets an object that is not, or no longer, as it was listed.
    pub(super) fn doubt(&mut self, key: &ObjectKey) {
        self.as_desired.remove(key);
    }

    /// Forgets what was listed of a kind.
    pub(super) fn doubt_all(&mut self, kind: &GroupVersionKind) {
        self.as_desired.retain(|key, _| key.kind != *kind);
    }

    /// Returns whether an object was listed as it is desired now; true at most once.
    pub(super) fn confirms(&mut self, key: &ObjectKey, desired: &Value, now: Instant) -> bool {
        if self.is_over(now) {
            self.as_desired = HashMap::new();
        }
        let listed = self.as_desired.remove(key);
        listed.is_some_and(|listed| listed == digest(desired))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now - since >= VALIDITY)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wish(value: u32) -> (ObjectKey, Value) {
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": value});
        (ObjectKey::of(&manifest, 0).unwrap(), manifest)
    }

    fn as_desired(value: u32) -> (ObjectKey, u64) {
        let (key, wanted) = wish(value);
        (key, digest(&wanted))
    }

    fn kind(name: &str) -> GroupVersionKind {
        GroupVersionKind::gvk("", "v1", name)
    }

    #[test]
    fn a_work_waits_for_the_lists_of_all_its_kinds_and_for_no_others() {
        let now = Instant::now();
        let mut lists = FirstLists::new(true);
        let kinds = [kind("ConfigMap"), kind("Secret")];
        assert_eq!(lists.wait(kinds.iter(), now), Some(PATIENCE));
        lists.complete(&kinds[0], [], now);
        assert_eq!(lists.wait(kinds.iter(), now), Some(PATIENCE));
        lists.complete(&kinds[1], [], now);
        assert_eq!(lists.wait(kinds.iter(), now), None);
        let others = [kind("Pod")];
        assert_eq!(lists.wait(others.iter(), now), Some(PATIENCE));
    }

    #[test]
    fn no_work_waits_for_ever_or_where_nothing_is_listed() {
        let (now, kinds) = (Instant::now(), [kind("ConfigMap")]);
        assert_eq!(FirstLists::new(false).wait(kinds.iter(), now), None);
        let mut lists = FirstLists::new(true);
        assert!(lists.wait(kinds.iter(), now).is_some());
        assert_eq!(lists.wait(kinds.iter(), now + PATIENCE), None);
    }

    #[test]
    fn a_list_confirms_once_what_it_showed_and_nothing_else() {
        type Then = fn(&mut FirstLists, Instant);
        let now = Instant::now();
        let (key, wanted) = wish(1);
        let changes: Then = |lists, _| lists.doubt(&wish(1).0);
        let may_change: Then = |lists, _| lists.doubt_all(&wish(1).0.kind);
        let others_may: Then = |lists, _| lists.doubt_all(&kind("Secret"));
        let is_asked: Then = |lists, now| _ = lists.confirms(&wish(1).0, &wish(1).1, now);
        let cases: [(&str, u32, Then, bool); 6] = [
            ("it was listed as desired", 1, |_, _| {}, true),
            ("something else is desired now", 2, |_, _| {}, false),
            ("it changed since", 1, changes, false),
            ("it may have changed since", 1, may_change, false),
            ("others may have changed since", 1, others_may, true),
            ("it was asked before", 1, is_asked, false),
        ];
        for (what, listed, then, confirmed) in cases {
            let mut lists = FirstLists::new(true);
            lists.complete(&key.kind, [as_desired(listed)], now);
            then(&mut lists, now);
            assert_eq!(lists.confirms(&key, &wanted, now), confirmed, "{what}");
        }
    }

    #[test]
    fn only_first_lists_count_and_not_for_long() {
        let now = Instant::now();
        let (key, wanted) = wish(1);
        let mut lists = FirstLists::new(true);
        lists.complete(&key.kind, [], now);
        lists.complete(&key.kind, [as_desired(1)], now);
        assert!(!lists.confirms(&key, &wanted, now), "the second list");

        let mut lists = FirstLists::new(true);
        lists.complete(&key.kind, [as_desired(1)], now);
        lists.wait([].iter(), now);
        let late = now + VALIDITY;
        assert!(!lists.confirms(&key, &wanted, late), "an old list");
    }
}
