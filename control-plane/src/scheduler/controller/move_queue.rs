//! The line of workloads whose move waits for the budget.
//!
//! To find out whether a workload moves costs a placement, so only the first of the line asks the
//! budget: n workloads that wait cost three placements each at most, and each keeps its place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use muster_shared::queue::wait_until;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The line. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MoveQueue<K> {
    state: Arc<Mutex<State<K>>>,
    /// The first of the line may have become another one.
    changed: Arc<Notify>,
    /// The budget may suffice earlier than it said.
    woken: Arc<Notify>,
}

#[derive(Debug)]
struct State<K> {
    order: BTreeMap<Place, K>,
    places: HashMap<K, Place>,
    next: u64,
    /// The key that is reconciled because it is the first of the queue.
    called: Option<K>,
    /// When the first of the queue is reconciled; `None`: when the budget wakes it.
    due: Option<Instant>,
}

/// Place in the line: by priority, then by age.
type Place = (Reverse<i32>, u64);

impl<K: Clone + Eq + Hash> MoveQueue<K> {
    /// Returns an empty queue.
    pub fn new() -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                order: BTreeMap::new(),
                places: HashMap::new(),
                next: 0,
                called: None,
                due: None,
            })),
            changed: Arc::default(),
            woken: Arc::default(),
        }
    }

    /// Returns the notification that the budget sends when it may suffice earlier than it said.
    pub fn woken(&self) -> Arc<Notify> {
        Arc::clone(&self.woken)
    }

    /// Returns whether a key may ask the budget: nobody came before it.
    pub fn is_next(&self, key: &K) -> bool {
        let state = self.state.lock();
        state.order.is_empty() || state.called.as_ref() == Some(key)
    }

    /// Has a key that was refused by the budget wait until then; `None`: until the budget wakes.
    pub fn refused(&self, key: &K, priority: i32, until: Option<Instant>) {
        let mut state = self.state.lock();
        state.add(key, priority);
        state.due = until;
        state.end_call(key);
        drop(state);
        self.changed.notify_one();
    }

    /// Has a key wait behind those of its priority that came before it. These may have left since
    /// it was asked whether there are any.
    pub fn join(&self, key: &K, priority: i32) {
        self.state.lock().add(key, priority);
        self.changed.notify_one();
    }

    /// Takes a key out of the line: its move is paid for, or it does not move.
    pub fn leave(&self, key: &K) {
        let mut state = self.state.lock();
        if let Some(place) = state.places.remove(key) {
            state.order.remove(&place);
            state.end_call(key);
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Calls one after the other, each when the budget may suffice for it.
    pub async fn run(self, call: impl Fn(K)) {
        loop {
            let wait = self.state.lock().call(Instant::now(), &call);
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.woken.notified() => self.state.lock().due = Some(Instant::now()),
                () = wait_until(wait) => {}
            }
        }
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// Puts a key into the line. One that waits already takes a new priority, and is as old as
    /// before.
    fn add(&mut self, key: &K, priority: i32) {
        let known = self.places.get(key).copied();
        let age = known.map_or(self.next, |(_, age)| age);
        let place = (Reverse(priority), age);
        if known == Some(place) {
            return;
        }
        match known {
            Some(known) => drop(self.order.remove(&known)),
            None => self.next += 1,
        }
        self.places.insert(key.clone(), place);
        self.order.insert(place, key.clone());
    }

    fn end_call(&mut self, key: &K) {
        if self.called.as_ref() == Some(key) {
            self.called = None;
        }
    }

    /// Calls the first of the line, if it is time; returns when it will be.
    fn call(&mut self, now: Instant, call: impl Fn(K)) -> Option<Instant> {
        let first = self.order.values().next()?;
        let due = self.due.filter(|_| self.called.is_none())?;
        if due > now {
            return Some(due);
        }
        self.called = Some(first.clone());
        call(first.clone());
        None
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use muster_shared::queue::{Next, Queue};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::fleet::budget::pace::Pace;
    use crate::fleet::budget::rate::Rates;

    fn budget(per_second: f64) -> Pace {
        let rates = Rates {
            primary: per_second,
            ..Rates::default()
        };
        let pace = Pace::new(rates, Instant::now());
        pace.put("m1", false, Instant::now());
        pace
    }

    #[tokio::test(start_paused = true)]
    async fn each_of_many_is_reconciled_three_times_at_most_and_all_are_reached_in_order() {
        const MANY: usize = 1_000;
        for per_second in [0.1, 0.5, 10.0, 1_000.0] {
            let (pace, moves, over) = (
                budget(per_second),
                MoveQueue::new(),
                CancellationToken::new(),
            );
            let (queue, log) = (Queue::new("moves"), Arc::new(Mutex::new((0, Vec::new()))));
            for key in 0..MANY {
                queue.add(key);
            }
            let calls = moves.clone().run({
                let queue = queue.clone();
                move |key| queue.add(key)
            });
            let check = |key| {
                let (mut log, mut is_paid) = (log.lock(), false);
                log.0 += 1;
                if moves.is_next(&key) {
                    match pace.pay_after_evictions(Instant::now()) {
                        Ok(paid) => {
                            paid.keep();
                            is_paid = true;
                        }
                        Err(when) => moves.refused(&key, 0, when),
                    }
                } else {
                    moves.join(&key, 0);
                }
                if is_paid {
                    moves.leave(&key);
                    log.1.push(key);
                    if log.1.len() == MANY {
                        over.cancel();
                    }
                }
                async { Ok::<_, Infallible>(Next::Done) }
            };
            let began = Instant::now();
            tokio::select! {
                () = queue.clone().run(4, over.clone(), check) => {}
                () = calls => {}
            }
            let (looks, order) = std::mem::take(&mut *log.lock());
            let sorted: Vec<_> = (0..MANY).collect();
            assert_eq!(order, sorted, "{per_second}");
            assert!(looks <= 3 * MANY, "{per_second}: {looks} looks");
            let least = Duration::from_secs(950).div_f64(per_second);
            assert!(began.elapsed() >= least, "{per_second}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_leaves_while_it_is_called_keeps_nobody_waiting() {
        let moves = MoveQueue::new();
        let now = Instant::now();
        moves.refused(&"a", 1, Some(now));
        moves.join(&"b", 0);
        moves.join(&"a", 1);
        assert!(!moves.is_next(&"a") && !moves.is_next(&"c"));
        let called = Mutex::new(Vec::new());
        let call = |key| called.lock().push(key);
        assert_eq!(moves.state.lock().call(now, call), None);
        assert!(moves.is_next(&"a") && !moves.is_next(&"b"));
        assert_eq!(moves.state.lock().call(now, call), None, "one at a time");
        moves.leave(&"a");
        assert_eq!(moves.state.lock().call(now, call), None);
        assert_eq!(*called.lock(), ["a", "b"]);
        moves.refused(&"b", 0, None);
        assert_eq!(moves.state.lock().call(now, call), None);
        assert!(!moves.is_next(&"b"), "the budget has not woken it");
        moves.leave(&"b");
        assert!(moves.is_next(&"c"), "the line is empty");
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_joins_in_the_moment_in_which_the_line_empties_is_called() {
        let (moves, called) = (MoveQueue::new(), Arc::new(Mutex::new(Vec::new())));
        moves.refused(&"a", 0, Some(Instant::now()));
        let calls = tokio::spawn(moves.clone().run({
            let called = Arc::clone(&called);
            move |key| called.lock().push(key)
        }));
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Another worker finds that it has to wait, and before it says so, the only one that came
        // before it has moved.
        assert!(!moves.is_next(&"b"));
        moves.leave(&"a");
        tokio::time::sleep(Duration::from_secs(1)).await;
        moves.join(&"b", 0);
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(*called.lock(), ["a", "b"]);
        calls.abort();
    }

    /// Returns the first three keys that are called, each of which leaves the line then.
    fn call_three(moves: &MoveQueue<&'static str>, now: Instant) -> Vec<&'static str> {
        let called = Mutex::new(Vec::new());
        for _ in 0..3 {
            let call = |key| called.lock().push(key);
            assert_eq!(moves.state.lock().call(now, call), None);
            let last = called.lock().last().copied().unwrap();
            moves.leave(&last);
        }
        called.into_inner()
    }

    #[test]
    fn one_whose_priority_is_edited_while_it_waits_takes_another_place_by_it() {
        for (key, priority, expected) in [
            ("c", 7, ["c", "a", "b"]),
            ("a", -1, ["b", "c", "a"]),
            ("b", 0, ["a", "b", "c"]),
        ] {
            let (moves, now) = (MoveQueue::new(), Instant::now());
            moves.refused(&"a", 0, Some(now));
            moves.join(&"b", 0);
            moves.join(&"c", 0);
            moves.join(&key, priority);
            assert_eq!(call_three(&moves, now), expected, "{key} {priority}");
            assert!(moves.is_next(&"d"), "the line is empty");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_while_too_many_clusters_have_failed_is_called_when_they_return() {
        let (pace, moves) = (budget(0.5), MoveQueue::new());
        pace.put("m1", true, Instant::now());
        pace.wakes(moves.woken());
        let refused = pace.pay_after_evictions(Instant::now());
        moves.refused(&"a", 0, refused.map(drop).unwrap_err());
        let called = Arc::new(Notify::new());
        let report = Arc::clone(&called);
        let calls = tokio::spawn(moves.clone().run(move |_| report.notify_one()));
        tokio::time::advance(Duration::from_hours(1)).await;
        tokio::task::yield_now().await;
        assert!(!moves.is_next(&"a"));
        pace.put("m1", false, Instant::now());
        called.notified().await;
        assert!(moves.is_next(&"a"));
        calls.abort();
    }
}
