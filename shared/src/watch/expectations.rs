//! Writes of this process that its cache does not show yet.
//!
//! A cache follows the API with a delay. A decision on a state that the process itself has replaced
//! would repeat its last write, or take it for the write of another client. Resource versions
//! cannot be ordered, but the versions that were replaced are known: while the cache shows one of
//! them it is behind, and whatever else it shows is later.
//!
//! ```
//! use muster_shared::k8s::ObjectMeta;
//! use muster_shared::watch::Expectations;
//!
//! let version = |version: &str| ObjectMeta {
//!     resource_version: Some(version.to_owned()),
//!     ..ObjectMeta::default()
//! };
//! let expectations = Expectations::<String, _>::default();
//! expectations.written("web", &version("7"), &version("8"), "the answer to the write");
//! assert_eq!(expectations.answer("web", &version("7")), Some("the answer to the write"));
//! expectations.observe("web", &version("9"));
//! assert_eq!(expectations.answer("web", &version("7")), None);
//! ```

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::spare::give_back;

/// The first pause before the cache is read again. Each further one is as long as all before.
const FIRST: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(5);
/// Time after which a replaced state counts as current again. A watch that says nothing for longer
/// than a minute is opened anew; a cache that still shows the state by then shows that the write
/// had no effect.
const EXPIRY: Duration = Duration::from_secs(75);

/// Writes that the cache does not show yet, by the key of their object. Losing them costs a
/// repeated write at most, unless their user relies on [lasting](Self::lasting) ones.
///
/// `A` is kept with the last write of an object: as a rule the object that the API answered with.
#[derive(Debug)]
pub struct Expectations<K, A = ()> {
    all: Mutex<HashMap<K, Expectation<A>>>,
    /// Whether they are kept until the cache shows them, however long it takes.
    last: bool,
}

#[derive(Debug)]
struct Expectation<A> {
    /// Versions that were replaced.
    replaced: HashSet<String>,
    /// Versions that this process has made.
    own: HashSet<String>,
    /// Version and answer of the last write; `None` after a conflict.
    last: Option<(String, A)>,
    since: Instant,
}

impl<K, A> Default for Expectations<K, A> {
    fn default() -> Self {
        let all = Mutex::default();
        Self { all, last: false }
    }
}

impl<K: Eq + Hash, A: Clone> Expectations<K, A> {
    /// Makes an empty memory that keeps what it is given until the cache shows it, or the object is
    /// forgotten. Its user reads from the API what is [overdue](Self::is_overdue).
    pub fn lasting() -> Self {
        let all = Mutex::default();
        Self { all, last: true }
    }

    /// Records a write that replaced the state `before` by the state `after`. A write that changed
    /// nothing has the version that was there, and is not recorded.
    pub fn written(&self, key: impl Into<K>, before: &ObjectMeta, after: &ObjectMeta, answer: A) {
        let versions = (&before.resource_version, &after.resource_version);
        let (Some(before), Some(after)) = versions else {
            return;
        };
        if before != after {
            let last = Some((after.clone(), answer));
            self.replace(key.into(), before.clone(), last);
        }
    }

    /// Records that a read found the state `present`, perhaps of another client, after the cache
    /// had shown the state `seen`.
    pub fn found(&self, key: impl Into<K>, seen: &ObjectMeta, present: &ObjectMeta, answer: A) {
        let mut all = self.all.lock();
        let key = key.into();
        let versions = (&seen.resource_version, &present.resource_version);
        let (Some(version), Some(present)) = versions else {
            return;
        };
        if version == present {
            // What was written so long ago had no effect.
            if all.get(&key).is_some_and(|it| it.is_overdue(seen)) {
                all.remove(&key);
            }
            return;
        }
        let expectation = all.entry(key).or_insert_with(Expectation::new);
        expectation.replaced.insert(version.clone());
        // A write of this process upon what was read may have overtaken the read.
        if !expectation.replaced.contains(present) {
            expectation.supersede(present, answer);
        }
    }

    /// Records that the API has a later state than `seen`: it answered a write with a conflict.
    pub fn conflicted(&self, key: impl Into<K>, seen: &ObjectMeta) {
        if let Some(version) = &seen.resource_version {
            self.replace(key.into(), version.clone(), None);
        }
    }

    fn replace(&self, key: K, version: String, last: Option<(String, A)>) {
        let mut all = self.all.lock();
        if !self.last && all.len() == all.capacity() {
            // Whoever never reads its objects again takes no more memory than for those of the last
            // minutes.
            all.retain(|_, it| it.since.elapsed() < EXPIRY);
        }
        let expectation = all.entry(key).or_insert_with(Expectation::new);
        if expectation.replaced.insert(version) {
            expectation.since = Instant::now();
        }
        expectation
            .own
            .extend(last.iter().map(|(version, _)| version.clone()));
        expectation.last = last;
    }

    /// Returns the pause after which the cache is to be read again, if the state that it shows has
    /// been replaced: 50 ms, doubled up to 5 s, and none after 75 s.
    pub fn pause<Q>(&self, key: &Q, cached: &ObjectMeta) -> Option<Duration>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut all = self.all.lock();
        let expectation = all.get(key).filter(|it| it.is_ahead_of(cached))?;
        let age = expectation.since.elapsed();
        if age >= EXPIRY {
            all.remove(key);
            return None;
        }
        Some(age.clamp(FIRST, LONGEST))
    }

    /// Returns whether the cache has shown a replaced state for so long that it no longer counts as
    /// behind, or what was written as present.
    pub fn is_overdue<Q>(&self, key: &Q, cached: &ObjectMeta) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let all = self.all.lock();
        all.get(key).is_some_and(|it| it.is_overdue(cached))
    }

    /// Returns the answer to the last write if it is newer than the state that the cache shows.
    pub fn answer<Q>(&self, key: &Q, cached: &ObjectMeta) -> Option<A>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let all = self.all.lock();
        let expectation = all.get(key).filter(|it| it.is_ahead_of(cached))?;
        expectation.last.as_ref().map(|(_, answer)| answer.clone())
    }

    /// Returns whether a state is the result of the last write, and not of another client's.
    pub fn is_last_write<Q>(&self, key: &Q, seen: &ObjectMeta) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let all = self.all.lock();
        let last = all.get(key).and_then(|it| it.last.as_ref());
        last.is_some_and(|(version, _)| seen.resource_version.as_ref() == Some(version))
    }

    /// Returns whether a state is the result of one of the writes that the cache has not passed.
    /// Another client may have written in between.
    pub fn is_own_write<Q>(&self, key: &Q, seen: &ObjectMeta) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let all = self.all.lock();
        all.get(key).is_some_and(|it| it.has_made(seen))
    }

    /// Notes the state that the cache shows. If it was neither replaced nor is the result of a
    /// write before the last, it is later than all writes, and those before it will not be seen
    /// again.
    pub fn observe<Q>(&self, key: &Q, cached: &ObjectMeta)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut all = self.all.lock();
        let is_passed = |it: &Expectation<A>| {
            let last = it.last.as_ref().map(|(version, _)| version);
            let is_last = last == cached.resource_version.as_ref();
            !it.is_ahead_of(cached) && (is_last || !it.has_made(cached))
        };
        if all.get(key).is_some_and(is_passed) {
            all.remove(key);
            give_back(&mut all);
        }
    }

    /// Forgets an object that does not exist any more.
    pub fn forget<Q>(&self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut all = self.all.lock();
        all.remove(key);
        give_back(&mut all);
    }
}

impl<A> Expectation<A> {
    fn new() -> Self {
        Self {
            replaced: HashSet::new(),
            own: HashSet::new(),
            last: None,
            since: Instant::now(),
        }
    }

    /// Takes in a state that was read, which has replaced what was written last.
    fn supersede(&mut self, present: &str, answer: A) {
        let last = self.last.replace((present.to_owned(), answer));
        self.replaced.extend(last.map(|(version, _)| version));
        self.replaced.remove(present);
        self.since = Instant::now();
    }

    /// Returns whether the state that the cache shows has been replaced.
    fn is_ahead_of(&self, cached: &ObjectMeta) -> bool {
        let version = cached.resource_version.as_ref();
        version.is_some_and(|version| self.replaced.contains(version))
    }

    /// Returns whether the cache has shown a replaced state for too long.
    fn is_overdue(&self, cached: &ObjectMeta) -> bool {
        self.is_ahead_of(cached) && self.since.elapsed() >= EXPIRY
    }

    /// Returns whether the state is the result of a write of this process.
    fn has_made(&self, seen: &ObjectMeta) -> bool {
        let version = seen.resource_version.as_ref();
        version.is_some_and(|version| self.own.contains(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(version: &str) -> ObjectMeta {
        ObjectMeta {
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn what_was_read_counts_while_the_cache_shows_what_it_has_replaced() {
        let expectations = Expectations::<String, _>::lasting();
        let answer = |shown: &str| expectations.answer("web", &version(shown));
        expectations.found("web", &version("7"), &version("7"), "the same");
        assert_eq!(answer("7"), None);
        expectations.written("web", &version("7"), &version("8"), "written");
        expectations.found("web", &version("7"), &version("9"), "read");
        assert_eq!(
            [answer("7"), answer("8"), answer("9"), answer("10")],
            [Some("read"), Some("read"), None, None]
        );
        assert!(!expectations.is_own_write("web", &version("9")));
        expectations.observe("web", &version("9"));
        assert_eq!(answer("7"), None, "the cache has caught up");
    }

    #[test]
    fn a_read_that_a_write_has_overtaken_does_not_count() {
        let expectations = Expectations::<String, _>::lasting();
        let answer = |shown: &str| expectations.answer("web", &version(shown));
        // The read of 8 is answered after a write upon 8.
        expectations.written("web", &version("8"), &version("9"), "written");
        expectations.found("web", &version("7"), &version("8"), "read");
        assert_eq!(
            [answer("7"), answer("8"), answer("9")],
            [Some("written"), Some("written"), None]
        );
    }

    fn none() -> Expectations<String, &'static str> {
        Expectations::default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_state_is_waited_for_ever_less_often_and_not_for_ever() {
        let expectations = none();
        let written = || expectations.written("web", &version("1"), &version("2"), "");
        written();
        assert_eq!(expectations.pause("web", &version("2")), None);
        let mut looks = 0;
        while let Some(pause) = expectations.pause("web", &version("1")) {
            tokio::time::advance(pause).await;
            looks += 1;
        }
        assert!(looks < 30, "{looks} looks");
        for later in ["2", "3"] {
            written();
            expectations.observe("web", &version("1"));
            assert!(expectations.pause("web", &version("1")).is_some());
            expectations.observe("web", &version(later));
            assert_eq!(expectations.pause("web", &version("1")), None, "{later}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn writes_that_are_never_reconciled_again_are_forgotten() {
        let expectations = none();
        for number in 0..10_000 {
            expectations.written(number.to_string(), &version("1"), &version("2"), "");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let held = expectations.all.lock().len();
        assert!(held <= 4 * 75, "{held}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_changes_nothing_replaces_nothing_and_a_conflict_does() {
        let expectations = none();
        expectations.written("web", &version("1"), &version("1"), "");
        assert_eq!(expectations.pause("web", &version("1")), None);
        expectations.conflicted("web", &version("1"));
        assert_eq!(expectations.pause("web", &version("1")), Some(FIRST));
        assert_eq!(expectations.answer("web", &version("1")), None);
    }

    #[tokio::test]
    async fn the_answer_to_the_last_of_several_writes_counts_until_the_cache_has_passed_it() {
        let expectations = none();
        assert_eq!(expectations.answer("web", &version("1")), None);
        expectations.written("web", &version("1"), &version("2"), "two");
        expectations.written("web", &version("2"), &version("3"), "three");
        for behind in ["1", "2"] {
            expectations.observe("web", &version(behind));
            let answer = expectations.answer("web", &version(behind));
            assert_eq!(answer, Some("three"), "{behind}");
        }
        assert!(expectations.is_last_write("web", &version("3")));
        assert!(!expectations.is_last_write("web", &version("2")));
        assert!(!expectations.is_last_write("web", &version("4")));
        expectations.observe("web", &version("4"));
        assert_eq!(expectations.answer("web", &version("1")), None);
        assert!(!expectations.is_last_write("web", &version("3")));
    }

    #[tokio::test]
    async fn all_writes_that_the_cache_has_not_passed_are_told_from_those_of_others() {
        let expectations = none();
        expectations.written("web", &version("1"), &version("2"), "");
        // Another client has made the third version.
        expectations.written("web", &version("3"), &version("4"), "");
        let own = ["1", "2", "3", "4"].map(|seen| {
            let is_own = expectations.is_own_write("web", &version(seen));
            expectations.observe("web", &version(seen));
            is_own
        });
        assert_eq!(own, [false, true, false, true]);
        assert!(!expectations.is_own_write("web", &version("4")), "passed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_because_the_cache_was_behind_for_long_counts_until_the_cache_shows_it() {
        let expectations = Expectations::<String, _>::lasting();
        let overdue = async || {
            tokio::time::advance(EXPIRY).await;
            assert!(expectations.is_overdue("web", &version("1")));
        };
        expectations.written("web", &version("1"), &version("2"), "two");
        assert!(!expectations.is_overdue("web", &version("1")));
        overdue().await;
        expectations.found("web", &version("1"), &version("5"), "five");
        assert!(!expectations.is_overdue("web", &version("1")));
        // A read that began before a write and ended after it.
        expectations.written("web", &version("5"), &version("6"), "six");
        expectations.found("web", &version("1"), &version("5"), "five");
        for behind in ["1", "2", "5"] {
            expectations.observe("web", &version(behind));
            let answer = expectations.answer("web", &version(behind));
            assert_eq!(answer, Some("six"), "{behind}");
        }
        overdue().await;
        expectations.found("web", &version("1"), &version("1"), "one");
        assert_eq!(expectations.answer("web", &version("1")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn lasting_expectations_outlast_those_of_many_other_objects() {
        let expectations = Expectations::<String, _>::lasting();
        for number in 0..1000 {
            expectations.written(number.to_string(), &version("1"), &version("2"), "");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(expectations.is_overdue("0", &version("1")));
    }

    #[tokio::test]
    async fn objects_that_came_and_went_leave_nothing() {
        let expectations = none();
        for number in 0..1000 {
            let key = format!("w{number}");
            expectations.written(key.clone(), &version("1"), &version("2"), "");
            expectations.forget(&key);
        }
        assert_eq!(expectations.all.lock().len(), 0);
    }
}
