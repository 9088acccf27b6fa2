//! Results of the first list of each kind in the member, used to skip objects that are as desired.
//!
//! An agent that starts has to look at every object once. The watches list all of them anyway, so a
//! Work waits a moment for the lists of its kinds, and an object that was listed as desired is not
//! read again. Every other object (absent, different, not managed) is read before the agent acts on
//! it.
//!
//! The lists count at the start only, and once for each object: later a Work is reconciled because
//! of a change.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_shared::k8s::GroupVersionKind;
use serde_json::Value;
use tokio::time::Instant;

use super::desired::ObjectKey;
use crate::digest::digest;

/// How long Works wait for lists. A list of a thousand objects takes a fraction of a second; a kind
/// that cannot be listed at all shall not keep its Works for longer than this.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after the first Work was looked at the lists' word counts: time to work on all of them.
const VALIDITY: Duration = Duration::from_mins(1);

/// The first lists, as far as they are needed.
#[derive(Debug)]
pub struct Inventory {
    /// Whether anybody lists for us.
    open: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the first Work was looked at.
    since: Option<Instant>,
    /// Kinds whose list is complete, or will never come.
    listed: HashSet<GroupVersionKind>,
    fit: HashMap<ObjectKey, u64>,
    /// Works that wait for a list.
    waiting: HashSet<String>,
}

impl Inventory {
    /// Nothing is listed yet. With `open` false nobody will: no Work waits.
    pub fn new(open: bool) -> Self {
        Self {
            open,
            state: Mutex::default(),
        }
    }

    /// How long a Work with objects of these kinds waits at most; `None` when it need not.
    /// [`list`](Self::list) gives it back earlier.
    pub fn wait<'a>(
        &self,
        work: &str,
        mut kinds: impl Iterator<Item = &'a GroupVersionKind>,
    ) -> Option<Duration> {
        if !self.open {
            return None;
        }
        let mut state = self.lock();
        let since = *state.since.get_or_insert_with(Instant::now);
        let left = PATIENCE.checked_sub(since.elapsed())?;
        if left.is_zero() || kinds.all(|kind| state.listed.contains(kind)) {
            return None;
        }
        state.waiting.insert(work.to_owned());
        Some(left)
    }

    /// Takes over the first complete list of a kind: objects that are as desired, each with the
    /// digest of that. Returns the Works that waited for a list.
    pub fn list(
        &self,
        kind: &GroupVersionKind,
        fit: impl IntoIterator<Item = (ObjectKey, u64)>,
    ) -> Vec<String> {
        let mut state = self.lock();
        let first = state.listed.insert(kind.clone());
        if first && self.open && !state.is_over() {
            state.fit.extend(fit);
        }
        state.waiting.drain().collect()
    }

    /// There will be no list of a kind. Gives the Works that waited for a list.
    pub fn give_up(&self, kind: &GroupVersionKind) -> Vec<String> {
        self.list(kind, [])
    }

    /// An object is not, or no longer, as it was listed.
    pub fn doubt(&self, key: &ObjectKey) {
        self.lock().fit.remove(key);
    }

    /// Returns whether an object was listed as it is desired now; true at most once.
    pub fn confirms(&self, key: &ObjectKey, desired: &Value) -> bool {
        let mut state = self.lock();
        if state.is_over() {
            state.fit = HashMap::new();
        }
        state
            .fit
            .remove(key)
            .is_some_and(|listed| listed == digest(desired))
    }

    /// Forgets a Work that is gone.
    pub fn forget(&self, work: &str) {
        self.lock().waiting.remove(work);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= VALIDITY)
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

    fn fit(value: u32) -> (ObjectKey, u64) {
        let (key, wanted) = wish(value);
        (key, digest(&wanted))
    }

    fn kind(name: &str) -> GroupVersionKind {
        GroupVersionKind::gvk("", "v1", name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_waits_for_the_lists_of_all_its_kinds_and_for_no_others() {
        let inventory = Inventory::new(true);
        let kinds = [kind("ConfigMap"), kind("Secret")];
        let wait = || inventory.wait("w", kinds.iter());
        assert_eq!(wait(), Some(PATIENCE));
        assert_eq!(inventory.list(&kinds[0], []), ["w"]);
        assert_eq!(wait(), Some(PATIENCE));
        assert_eq!(inventory.give_up(&kinds[1]), ["w"]);
        assert_eq!(wait(), None);
        assert_eq!(
            inventory.wait("other", [kind("Pod")].iter()),
            Some(PATIENCE)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_or_where_nobody_lists() {
        let kinds = [kind("ConfigMap")];
        assert_eq!(Inventory::new(false).wait("w", kinds.iter()), None);
        let inventory = Inventory::new(true);
        assert!(inventory.wait("w", kinds.iter()).is_some());
        tokio::time::advance(PATIENCE).await;
        assert_eq!(inventory.wait("w", kinds.iter()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_confirms_once_what_it_showed_and_nothing_else() {
        type Then = fn(&Inventory);
        let (key, wanted) = wish(1);
        let cases: [(&str, u32, Then, bool); 4] = [
            ("it was listed as desired", 1, |_| {}, true),
            ("something else is desired now", 2, |_| {}, false),
            (
                "it changed since",
                1,
                |inventory| inventory.doubt(&wish(1).0),
                false,
            ),
            (
                "it was asked before",
                1,
                |inventory| _ = inventory.confirms(&wish(1).0, &wish(1).1),
                false,
            ),
        ];
        for (what, listed, then, confirmed) in cases {
            let inventory = Inventory::new(true);
            inventory.list(&key.kind, [fit(listed)]);
            then(&inventory);
            assert_eq!(inventory.confirms(&key, &wanted), confirmed, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_first_lists_count_and_not_for_long() {
        let (key, wanted) = wish(1);
        let inventory = Inventory::new(true);
        inventory.list(&key.kind, []);
        inventory.list(&key.kind, [fit(1)]);
        assert!(!inventory.confirms(&key, &wanted), "the second list");

        let inventory = Inventory::new(true);
        inventory.list(&key.kind, [fit(1)]);
        inventory.wait("w", [].iter());
        tokio::time::advance(VALIDITY).await;
        assert!(!inventory.confirms(&key, &wanted), "an old list");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_works_that_came_and_went_while_they_waited() {
        let inventory = Inventory::new(true);
        let kinds = [kind("ConfigMap")];
        for number in 0..100_000 {
            let work = format!("w{number}");
            assert!(inventory.wait(&work, kinds.iter()).is_some());
            inventory.forget(&work);
        }
        assert_eq!(inventory.lock().waiting.len(), 0);
    }
}
