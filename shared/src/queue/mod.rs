//! Work queue of a controller, by key.
//!
//! - A key waits at most once, and one worker at a time works on it.
//! - A key can be added for a later time.
//! - A key whose work fails is tried again with a back-off of its own.
//! - With ranks, due keys of a higher rank come first.
//! - Keys that were added since the work began come before those that waited for it to begin, but
//!   in a strict queue: in a new process what changes now is not behind a pass over everything
//!   there is.
//!
//! The contract is that of client-go's rate-limiting work queue. kube's `Controller` has no
//! back-off per object.
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::{Arc, Mutex};
//!
//! use muster_shared::queue::{Next, Queue};
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let queue = Queue::<String>::new("deployments");
//! queue.add("web".to_owned());
//! queue.add("web".to_owned()); // waits already
//! queue.add("db".to_owned());
//! assert_eq!(queue.len(), 2);
//!
//! let done = Arc::new(Mutex::new(Vec::new()));
//! let shutdown = CancellationToken::new();
//! let work = queue.clone().run(1, shutdown.clone(), {
//!     let (done, shutdown) = (Arc::clone(&done), shutdown.clone());
//!     move |key| {
//!         done.lock().unwrap().push(key);
//!         if done.lock().unwrap().len() == 2 {
//!             shutdown.cancel();
//!         }
//!         async { Ok::<_, Infallible>(Next::Done) }
//!     }
//! });
//! work.await;
//! assert_eq!(*done.lock().unwrap(), ["web", "db"]);
//! # }
//! ```

mod line;
mod pause;

use std::collections::{HashMap, HashSet};
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::line::Line;
pub use self::pause::{again, backoff, doubled, jittered, until, wait_until};

/// Longest back-off of a key that was added while its work failed: the cause may be gone. Work that
/// fails after a write adds its own key each time, so there is still a back-off.
const LONGEST_WAIT_WITH_NEWS: Duration = Duration::from_secs(1);
/// Time for running work to finish after shutdown was requested.
const DRAIN: Duration = Duration::from_secs(10);

/// Rank of keys that are added before the work begins.
const BACKLOG: i32 = -1;
/// Number of keys of which one is of a lower rank, so that these do not wait for ever in a fleet
/// that is never at rest.
const LOWER_EACH: usize = 8;

/// Result of successful work on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The key is finished until it is added again.
    Done,
    /// The key is due again after this time.
    After(Duration),
    /// The key is due again after a pause that doubles each time in a row ([`again`]): another
    /// client wrote the object first, or a cache does not show yet what the work needs.
    Again,
    /// The work has not begun, and waits for something that adds the key again. Its back-off goes
    /// on.
    Waits,
}

impl Next {
    /// Returns when a key is due of which two results say so: at the earlier of two times, and at
    /// the one that is named where the other has no time.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::Done | Self::Waits, other) | (other, Self::Done | Self::Waits) => other,
            (Self::Again, _) | (_, Self::Again) => Self::Again,
        }
    }
}

/// Function that returns the rank of a key when it is added.
type Rank<K> = Box<dyn Fn(&K) -> i32 + Send + Sync>;

/// Work queue. Cheap to clone: all clones are the same queue.
pub struct Queue<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    name: &'static str,
    rank: Rank<K>,
    /// Whether nothing but its rank decides on the place of a key.
    is_strict: bool,
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    line: Line<K>,
    /// Whether the work has begun.
    has_begun: bool,
    /// Number of keys that were taken.
    taken: usize,
    running: HashSet<K>,
    /// Keys that became due while they were being worked on.
    again: HashSet<K>,
    failures: HashMap<K, u32>,
    /// Number of consecutive times that the work asked to be done again.
    repeats: HashMap<K, u32>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<K: Clone + Eq + Hash + Debug + Send + 'static> Queue<K> {
    /// Makes an empty queue; `name` labels its metrics and log lines.
    pub fn new(name: &'static str) -> Self {
        Self::with(name, false, |_| 0)
    }

    /// Makes an empty queue in which keys of a higher rank come first, but for one key of eight,
    /// which is one of a lower rank: of each of these in turn. Ranks begin with 0; within a rank,
    /// the first key that is due comes first.
    ///
    /// The rank is computed whenever a key is added after the work has begun.
    pub fn ranked(name: &'static str, rank: impl Fn(&K) -> i32 + Send + Sync + 'static) -> Self {
        Self::with(name, false, rank)
    }

    /// Makes an empty queue in which keys of a higher rank always come first. They may delay others
    /// for as long as they keep coming.
    ///
    /// The rank is computed whenever a key is added.
    pub fn strict(name: &'static str, rank: impl Fn(&K) -> i32 + Send + Sync + 'static) -> Self {
        Self::with(name, true, rank)
    }

    fn with(
        name: &'static str,
        is_strict: bool,
        rank: impl Fn(&K) -> i32 + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            line: Line::new(),
            has_begun: false,
            taken: 0,
            running: HashSet::new(),
            again: HashSet::new(),
            failures: HashMap::new(),
            repeats: HashMap::new(),
        };
        Self {
            inner: Arc::new(Inner {
                name,
                rank: Box::new(rank),
                is_strict,
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
        }
    }

    /// Adds a key that is due now. A key that waits for a later time becomes due now.
    pub fn add(&self, key: K) {
        self.add_at(key, Instant::now());
    }

    /// Adds a key that is due after a time. A key that is due earlier stays so.
    pub fn add_after(&self, key: K, wait: Duration) {
        self.add_at(key, Instant::now() + wait);
    }

    /// Returns the number of waiting keys, without those being worked on.
    pub fn len(&self) -> usize {
        self.lock().line.len()
    }

    /// Returns whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether a key is due and waits for a worker.
    pub fn is_behind(&self) -> bool {
        self.next_due().is_some_and(|next| next <= Instant::now())
    }

    /// Works on due keys until shutdown, on at most `workers` keys at a time and never twice on the
    /// same key.
    ///
    /// If the work fails or panics, its key backs off (100 ms, doubled up to 60 s, or up to 1 s if
    /// the key was added meanwhile); success resets the back-off. After shutdown, running work has
    /// ten seconds to finish.
    pub async fn run<F, Fut, E>(self, workers: usize, shutdown: CancellationToken, reconcile: F)
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = Result<Next, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        self.lock().has_begun = true;
        let mut running: JoinSet<Result<Next, E>> = JoinSet::new();
        let mut keys: HashMap<tokio::task::Id, K> = HashMap::new();
        loop {
            while running.len() < workers.max(1) {
                let Some(key) = self.take_due() else { break };
                let handle = running.spawn(crate::clock::inherited(reconcile(key.clone())));
                keys.insert(handle.id(), key);
            }
            let changed = self.inner.changed.notified();
            let next_due = if running.len() < workers.max(1) {
                self.next_due()
            } else {
                None
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(finished) = running.join_next_with_id() => self.settle(&mut keys, finished),
                () = changed => {}
                () = wait_until(next_due) => {}
            }
        }
        let drained = async { while running.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!(
                queue = self.inner.name,
                "work did not finish in time for the shutdown"
            );
        }
    }

    fn add_at(&self, key: K, when: Instant) {
        let has_rank = self.inner.is_strict || self.lock().has_begun;
        let rank = if has_rank {
            (self.inner.rank)(&key)
        } else {
            BACKLOG
        };
        self.lock().line.add(key, when, rank);
        self.gauge();
        self.inner.changed.notify_one();
    }

    /// Takes the first key that is due and not being worked on.
    fn take_due(&self) -> Option<K> {
        let now = Instant::now();
        let mut state = self.lock();
        loop {
            state.taken += 1;
            let is_of_lower = !self.inner.is_strict && state.taken.is_multiple_of(LOWER_EACH);
            let key = if is_of_lower {
                let nth = state.taken / LOWER_EACH;
                state.line.take_lower(now, nth)?
            } else {
                state.line.take(now)?
            };
            if state.running.contains(&key) {
                state.again.insert(key);
                continue;
            }
            state.running.insert(key.clone());
            drop(state);
            self.gauge();
            return Some(key);
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().line.next_due()
    }

    fn settle<E: Display>(
        &self,
        keys: &mut HashMap<tokio::task::Id, K>,
        finished: Result<(tokio::task::Id, Result<Next, E>), tokio::task::JoinError>,
    ) {
        let (id, outcome) = match finished {
            Ok((id, Ok(next))) => (id, Ok(next)),
            Ok((id, Err(error))) => (id, Err(error.to_string())),
            Err(panic) => (panic.id(), Err(format!("it panicked: {panic}"))),
        };
        let Some(key) = keys.remove(&id) else { return };
        let wait = {
            let mut state = self.lock();
            state.running.remove(&key);
            let again = state.again.remove(&key);
            match outcome {
                Ok(Next::Again) => {
                    state.failures.remove(&key);
                    let repeats = state.repeats.entry(key.clone()).or_insert(0);
                    let wait = pause::again(*repeats);
                    *repeats = repeats.saturating_add(1);
                    Some(wait)
                }
                Ok(Next::Waits) => again.then_some(Duration::ZERO),
                Ok(next) => {
                    state.failures.remove(&key);
                    state.repeats.remove(&key);
                    match (again, next) {
                        (true, _) => Some(Duration::ZERO),
                        (false, Next::After(wait)) => Some(wait),
                        (false, Next::Done | Next::Again | Next::Waits) => None,
                    }
                }
                Err(error) => {
                    let failures = state.failures.entry(key.clone()).or_insert(0);
                    *failures = failures.saturating_add(1);
                    let wait = if again {
                        backoff(*failures).min(LONGEST_WAIT_WITH_NEWS)
                    } else {
                        backoff(*failures)
                    };
                    metrics::counter!("muster_queue_retries_total", "queue" => self.inner.name)
                        .increment(1);
                    tracing::warn!(queue = self.inner.name, key = ?key, attempt = *failures, retry_in = ?wait, error, "will try again");
                    Some(wait)
                }
            }
        };
        if let Some(wait) = wait {
            self.add_after(key, wait);
        }
    }

    #[allow(clippy::cast_precision_loss)] // a gauge
    fn gauge(&self) {
        metrics::gauge!("muster_queue_depth", "queue" => self.inner.name).set(self.len() as f64);
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.inner.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::sync::mpsc;

    use super::*;

    /// Runs a queue whose work reports its keys with the second at which it began, and answers as
    /// `outcome` says.
    fn start(
        queue: &Queue<&'static str>,
        outcome: impl Fn(&'static str, u32) -> Result<Next, &'static str> + Send + 'static,
    ) -> mpsc::UnboundedReceiver<(&'static str, u64)> {
        let (sender, reported) = mpsc::unbounded_channel();
        let begun = Instant::now();
        let count = Arc::new(Mutex::new(HashMap::<&'static str, u32>::new()));
        tokio::spawn(queue.clone().run(2, CancellationToken::new(), move |key| {
            let nth = {
                let mut count = count.lock();
                let nth = count.entry(key).or_insert(0);
                *nth += 1;
                *nth
            };
            let millis = u64::try_from(begun.elapsed().as_millis()).unwrap();
            sender.send((key, millis)).ok();
            let answer = outcome(key, nth);
            async move { answer }
        }));
        reported
    }

    /// Returns when each of so many keys was worked on.
    async fn times(
        reported: &mut mpsc::UnboundedReceiver<(&'static str, u64)>,
        number: usize,
    ) -> Vec<u64> {
        let mut keys = Vec::new();
        while keys.len() < number {
            keys.push(reported.recv().await.unwrap().1);
        }
        keys
    }

    #[test]
    fn the_sooner_of_two_results_counts() {
        let after = |seconds| Next::After(Duration::from_secs(seconds));
        for (one, other, expected) in [
            (Next::Done, Next::Done, Next::Done),
            (after(2), Next::Done, after(2)),
            (Next::Done, after(1), after(1)),
            (after(2), after(1), after(1)),
            (after(2), after(3), after(2)),
            (after(2), Next::Again, Next::Again),
            (Next::Again, Next::Done, Next::Again),
            (Next::Waits, after(1), after(1)),
        ] {
            assert_eq!(one.sooner(other), expected, "{one:?} {other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_twice_is_worked_on_once() {
        let queue = Queue::new("test");
        queue.add("a");
        queue.add("a");
        queue.add("b");
        let mut reported = start(&queue, |_, _| Ok(Next::Done));
        assert_eq!(reported.recv().await.unwrap().0, "a");
        assert_eq!(reported.recv().await.unwrap().0, "b");
        queue.add("end");
        assert_eq!(reported.recv().await.unwrap().0, "end");
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_wish_wins() {
        let queue = Queue::new("test");
        queue.add_after("a", Duration::from_secs(9));
        queue.add_after("a", Duration::from_secs(3));
        queue.add_after("a", Duration::from_secs(6));
        let mut reported = start(&queue, |_, _| Ok(Next::Done));
        assert_eq!(reported.recv().await.unwrap(), ("a", 3000));
        queue.add_after("b", Duration::from_secs(100));
        assert_eq!(reported.recv().await.unwrap(), ("b", 103_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_higher_rank_overtakes_what_is_due_and_waits_for_what_is_not() {
        let queue = Queue::strict("test", |key: &&'static str| i32::from(key.starts_with('!')));
        queue.add("a");
        queue.add_after("!later", Duration::from_secs(1));
        queue.add("b");
        queue.add("!now");
        let mut reported = start(&queue, |_, _| Ok(Next::Done));
        let mut order = Vec::new();
        for _ in 0..4 {
            order.push(reported.recv().await.unwrap());
        }
        assert_eq!(order, [("!now", 0), ("a", 0), ("b", 0), ("!later", 1000)]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_lower_rank_goes_on_while_others_keep_coming() {
        // Keys that end with `+` come again each time.
        let keeps_coming = |key: &str| key.ends_with('+');
        for (coming, expected) in [
            ("2+", ["1", "0"]),
            ("2+ 0+", ["1", "1"]),
            ("2+ 1+", ["0", "0"]),
        ] {
            let rank = |key: &String| i32::from(key.as_bytes()[0] - b'0');
            let (queue, over) = (Queue::ranked("test", rank), CancellationToken::new());
            let (sender, mut reported) = mpsc::unbounded_channel();
            let (added, ends, count) = (queue.clone(), over.clone(), Mutex::new(0));
            let work = move |key: String| {
                *count.lock() += 1;
                if *count.lock() == 200 {
                    ends.cancel();
                }
                if keeps_coming(&key) {
                    added.add(key);
                } else {
                    sender.send(key).unwrap();
                }
                async { Ok::<_, Infallible>(Next::Done) }
            };
            tokio::spawn(queue.clone().run(1, over, work));
            // The work has begun.
            tokio::task::yield_now().await;
            let others = expected.into_iter().enumerate();
            let others = others.map(|(nth, rank)| format!("{rank}{nth}"));
            let keys = coming.split_whitespace().map(str::to_owned).chain(others);
            let keys: Vec<String> = keys.collect();
            for key in &keys {
                queue.add(key.clone());
            }
            for key in keys.iter().filter(|it| !keeps_coming(it)) {
                let found = reported.recv().await;
                assert_eq!(found.as_ref(), Some(key), "{coming}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_now_is_not_behind_everything_there_is_which_goes_on_nevertheless() {
        let queue = Queue::new("test");
        let there: Vec<String> = (0..20).map(|n| format!("there {n}")).collect();
        for key in &there {
            queue.add(key.clone());
        }
        let (sender, mut reported) = mpsc::unbounded_channel();
        let added = queue.clone();
        // A change comes with the first key, and from then on another one with each.
        let work = move |key: String| {
            let count = added.len();
            added.add(format!("change {count}"));
            sender.send(key).unwrap();
            async { Ok::<_, Infallible>(Next::Done) }
        };
        tokio::spawn(queue.run(1, CancellationToken::new(), work));
        let mut order = Vec::new();
        while order.iter().filter(|key| there.contains(key)).count() < 4 {
            order.push(reported.recv().await.unwrap());
        }
        let places = [0, 7, 15, 23].map(|at| &*order[at]);
        assert_eq!(places, ["there 0", "there 1", "there 2", "there 3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_success_forgets_them() {
        let queue = Queue::new("test");
        queue.add("a");
        let mut reported = start(&queue, |_, nth| match nth {
            1..=3 | 5 => Err("no"),
            4 => Ok(Next::After(Duration::from_secs(1))),
            _ => Ok(Next::Done),
        });
        let at = times(&mut reported, 6).await;
        assert_eq!(at, [0, 100, 300, 700, 1700, 1800]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_waits_is_due_when_it_is_added_and_keeps_its_back_off() {
        let queue = Queue::new("test");
        queue.add("a");
        let added = queue.clone();
        let mut reported = start(&queue, move |key, nth| match nth {
            1..=3 | 5 => Err("no"),
            4 => {
                added.add_after(key, Duration::from_secs(5));
                Ok(Next::Waits)
            }
            _ => Ok(Next::Done),
        });
        let at = times(&mut reported, 6).await;
        assert_eq!(at, [0, 100, 300, 700, 5700, 6500]);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_overtaken_again_and_again_is_done_ever_less_often_until_it_is_not() {
        let queue = Queue::new("test");
        queue.add("a");
        let added = queue.clone();
        let mut reported = start(&queue, move |key, nth| {
            // The other's write is seen, and does not shorten the pause.
            if nth == 2 {
                added.add(key);
            }
            match (key, nth) {
                ("a", 1..=4 | 6) => Ok(Next::Again),
                ("a", 5) => Ok(Next::After(Duration::from_secs(1))),
                _ => Ok(Next::Done),
            }
        });
        let at = times(&mut reported, 7).await;
        assert_eq!(at, [0, 50, 150, 350, 750, 1750, 1800]);
        // By then whatever is running has ended.
        queue.add_after("end", Duration::from_secs(1));
        assert_eq!(reported.recv().await.unwrap().0, "end");
        let state = queue.lock();
        assert!(state.repeats.is_empty(), "{:?}", state.repeats);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_during_its_work_is_worked_on_again_and_never_twice_at_once() {
        let queue: Queue<&'static str> = Queue::new("test");
        let running = Arc::new(Mutex::new((0u32, 0u32)));
        let (sender, mut reported) = mpsc::unbounded_channel();
        queue.add("a");
        let (again, seen) = (queue.clone(), Arc::clone(&running));
        tokio::spawn(queue.clone().run(4, CancellationToken::new(), move |key| {
            let (again, running, sender) = (again.clone(), Arc::clone(&seen), sender.clone());
            async move {
                let turn = {
                    let mut running = running.lock();
                    running.0 += 1;
                    running.1 = running.1.max(running.0);
                    running.1
                };
                again.add_after(key, Duration::from_millis(1));
                tokio::time::sleep(Duration::from_secs(1)).await; // allowed: paused time, the work itself
                running.lock().0 -= 1;
                sender.send(turn).ok();
                Ok::<_, Infallible>(Next::Done)
            }
        }));
        reported.recv().await.unwrap();
        reported.recv().await.unwrap();
        assert_eq!(running.lock().1, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_a_key_during_its_failing_work_does_not_wait_out_the_back_off() {
        let queue = Queue::new("test");
        queue.add("a");
        let added = queue.clone();
        let mut reported = start(&queue, move |key, nth| {
            if nth == 8 {
                // It arrives while the work is under way.
                added.add(key);
            }
            if nth < 9 { Err("no") } else { Ok(Next::Done) }
        });
        let at = times(&mut reported, 9).await;
        assert_eq!(at[7] - at[6], 6_400, "it has backed off");
        assert_eq!(at[8] - at[7], 1_000, "the change is reconciled");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_of_its_key_alone() {
        let queue = Queue::new("test");
        queue.add("bad");
        queue.add("good");
        let (sender, mut reported) = mpsc::unbounded_channel();
        tokio::spawn(queue.clone().run(1, CancellationToken::new(), move |key| {
            let sender = sender.clone();
            async move {
                sender.send(key).ok();
                assert_ne!(key, "bad");
                Ok::<_, Infallible>(Next::Done)
            }
        }));
        assert_eq!(reported.recv().await.unwrap(), "bad");
        assert_eq!(reported.recv().await.unwrap(), "good");
        assert_eq!(reported.recv().await.unwrap(), "bad");
    }
}
