//! The scheduler's own writes that the cache does not show yet. A decision on the older state would
//! repeat them.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_shared::api::binding::Binding;
use muster_shared::k8s::ResourceExt;
use tokio::time::Instant;

use crate::fleet::binding::BindingKey;

/// The first pause before the cache is asked again. Each further one is as long as all before.
const FIRST: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(5);
/// The time after which a state counts as current again, although it was replaced. A watch that
/// says nothing for longer than a minute is opened anew, so that by then the cache would show what
/// came of the write: nothing came of it.
const FORGOTTEN: Duration = Duration::from_secs(75);

/// The resource versions that writes replaced, until the cache shows a later one.
#[derive(Debug, Default)]
pub(super) struct Expectations(Mutex<HashMap<BindingKey, Versions>>);

#[derive(Debug)]
struct Versions {
    versions: HashSet<String>,
    since: Instant,
}

impl Expectations {
    /// A write has replaced this state by `written`. One that changed nothing has the version that
    /// was there, and replaces nothing.
    pub fn insert<B: Binding>(&self, key: &BindingKey, binding: &B, written: &B) {
        if binding.resource_version() != written.resource_version() {
            self.outdated(key, binding);
        }
    }

    /// The API has a later state than this.
    pub fn outdated<B: Binding>(&self, key: &BindingKey, binding: &B) {
        let Some(version) = binding.resource_version() else {
            return;
        };
        let mut replaced = self.lock();
        let known = replaced.entry(key.clone()).or_insert_with(|| Versions {
            versions: HashSet::new(),
            since: Instant::now(),
        });
        if known.versions.insert(version) {
            known.since = Instant::now();
        }
    }

    /// The pause after which to look again, when this state has been replaced.
    pub fn pause<B: Binding>(&self, key: &BindingKey, binding: &B) -> Option<Duration> {
        let version = binding.resource_version().unwrap_or_default();
        let mut replaced = self.lock();
        let known = replaced.get(key)?;
        if !known.versions.contains(&version) {
            return None;
        }
        let age = known.since.elapsed();
        if age >= FORGOTTEN {
            replaced.remove(key);
            return None;
        }
        Some(age.clamp(FIRST, LONGEST))
    }

    /// The cache shows this state; if it is a later one, those before it will not be seen again.
    pub fn seen<B: Binding>(&self, key: &BindingKey, binding: &B) {
        let version = binding.resource_version().unwrap_or_default();
        let mut replaced = self.lock();
        if replaced
            .get(key)
            .is_some_and(|known| !known.versions.contains(&version))
        {
            replaced.remove(key);
        }
    }

    /// The binding is gone.
    pub fn forget(&self, key: &BindingKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BindingKey, Versions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::api::binding::ResourceBinding;

    use super::*;

    fn version(version: &str) -> ResourceBinding {
        let mut binding = ResourceBinding::default();
        binding.metadata.name = Some("web".into());
        binding.metadata.resource_version = Some(version.into());
        binding
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_state_is_waited_for_ever_less_often_and_not_for_ever() {
        let (replaced, before, after) = (Expectations::default(), version("1"), version("2"));
        let key = BindingKey::of(&before);
        replaced.insert(&key, &before, &after);
        assert_eq!(replaced.pause(&key, &after), None);
        let mut looks = 0;
        while let Some(pause) = replaced.pause(&key, &before) {
            tokio::time::advance(pause).await;
            looks += 1;
        }
        assert!(looks < 30, "{looks} looks");
        // The cache shows what was written, or a later state.
        for later in ["2", "3"] {
            replaced.insert(&key, &before, &after);
            replaced.seen(&key, &before);
            assert!(replaced.pause(&key, &before).is_some());
            replaced.seen(&key, &version(later));
            assert_eq!(replaced.pause(&key, &before), None, "{later}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_changes_nothing_replaces_nothing() {
        let (replaced, binding) = (Expectations::default(), version("1"));
        let key = BindingKey::of(&binding);
        replaced.insert(&key, &binding, &binding);
        assert_eq!(replaced.pause(&key, &binding), None);
        // A conflict says that there is something later, whoever wrote it.
        replaced.outdated(&key, &binding);
        assert_eq!(replaced.pause(&key, &binding), Some(FIRST));
    }
}
