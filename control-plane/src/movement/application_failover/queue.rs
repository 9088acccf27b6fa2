//! Queue of failing applications: by priority, then by time, with clusters taking turns.
//!
//! An application waits here until the eviction rate permits it, and only then is a new cluster
//! looked for. However many wait, each permission costs one plan.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::clock::Clock;
use muster_shared::queue::Queue;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::{Pace, Paid, Payer};
use crate::fleet::pause::Pauses;
use crate::movement::eviction::backlog::{Backlog, Rank, Slot};

/// The applications that wait for the rate.
#[derive(Debug)]
pub struct FailoverQueue {
    pace: Pace,
    pauses: Pauses,
    clock: Arc<Clock>,
    changed: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    backlog: Backlog<BindingKey>,
    /// What each waits to leave.
    waiting: HashMap<BindingKey, Arc<str>>,
    /// Payments of the applications that may move and have not moved yet.
    granted: HashMap<BindingKey, Paid>,
}

impl FailoverQueue {
    /// Returns an empty queue.
    pub fn new(pace: Pace, pauses: Pauses, clock: Arc<Clock>) -> Self {
        let changed = Arc::new(Notify::new());
        pace.wakes(Arc::clone(&changed));
        pauses.on_change({
            let changed = Arc::clone(&changed);
            move || changed.notify_one()
        });
        Self {
            pace,
            pauses,
            clock,
            changed,
            state: Mutex::default(),
        }
    }

    /// Returns the budget that moves are paid from.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Takes the payment for the move of an application, if it has been made.
    pub fn take(&self, key: &BindingKey) -> Option<Paid> {
        self.state.lock().granted.remove(key)
    }

    /// Puts an application in line to leave a cluster, or leaves it where it stands; says whether
    /// it stood there.
    pub fn wait(&self, key: &BindingKey, cluster: &str, rank: Rank) -> bool {
        let mut state = self.state.lock();
        if state.granted.contains_key(key) {
            return false;
        }
        let known = state.waiting.get(key).cloned();
        if known.as_deref() == Some(cluster)
            && state.backlog.place(cluster, key) == Some(Slot::Ready(rank))
        {
            return true;
        }
        state.forget(key);
        let cluster: Arc<str> = Arc::from(cluster);
        state.waiting.insert(key.clone(), Arc::clone(&cluster));
        state.backlog.put(&cluster, key.clone(), Slot::Ready(rank));
        self.changed.notify_one();
        false
    }

    /// Removes an application from those that wait.
    pub fn leave(&self, key: &BindingKey) {
        self.state.lock().forget(key);
        drop(self.take(key));
    }

    /// Pays for the next application and returns it, or when to ask again (`None`: when something
    /// changes).
    pub fn next(&self, now: Instant) -> Result<BindingKey, Option<Instant>> {
        let mut state = self.state.lock();
        let date = self.clock.now();
        let lanes = state.backlog.depths();
        // When the time of a pause is over, that is told like any other change.
        let held: BTreeSet<Arc<str>> = lanes
            .filter(|(cluster, _)| self.pauses.of(cluster, date).is_some())
            .map(|(cluster, _)| Arc::clone(cluster))
            .collect();
        if !state.backlog.has_ready_but(&held) {
            self.pace.withdraw(Payer::Applications);
            return Err(None);
        }
        let paid = self.pace.pay(Payer::Applications, now)?;
        let (_, key, _) = state.backlog.pop_but(&held).ok_or(None)?;
        state.waiting.remove(&key);
        state.granted.insert(key.clone(), paid);
        Ok(key)
    }

    /// Adds each application to the controller's queue once its move has been paid for.
    pub async fn run(self: Arc<Self>, queue: Queue<BindingKey>, shutdown: CancellationToken) {
        loop {
            let when = match self.next(Instant::now()) {
                Ok(key) => {
                    queue.add(key);
                    continue;
                }
                Err(when) => when,
            };
            let timer = async {
                match when {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.changed.notified() => {}
                () = timer => {}
            }
        }
    }
}

impl State {
    fn forget(&mut self, key: &BindingKey) {
        if let Some(cluster) = self.waiting.remove(key) {
            self.backlog.remove(&cluster, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::fleet::budget::rate::Rates;

    fn key(name: &str) -> BindingKey {
        BindingKey {
            namespace: Some("default".to_owned()),
            name: name.to_owned(),
        }
    }

    fn rank(priority: i32, since: i64) -> Rank {
        Rank::new(priority, Timestamp::from_second(since).unwrap())
    }

    fn failover_queue(start: Instant) -> FailoverQueue {
        FailoverQueue::new(
            Pace::new(Rates::default(), start),
            Pauses::default(),
            Arc::default(),
        )
    }

    #[test]
    fn however_many_wait_each_payment_is_for_one_and_they_go_in_order() {
        let start = Instant::now();
        let queue = failover_queue(start);
        for n in 0..1_000 {
            queue.wait(&key(&format!("w{n:03}")), "m1", rank(0, 1_000 - n));
        }
        queue.wait(&key("vital"), "m2", rank(9, 5_000));
        let (mut now, mut asked, mut order) = (start, 0, Vec::new());
        while now <= start + Duration::from_secs(9) {
            asked += 1;
            match queue.next(now) {
                Ok(key) => {
                    queue.take(&key).unwrap().keep();
                    order.push(key.name);
                }
                Err(at) => now = at.unwrap(),
            }
        }
        assert_eq!(order, ["vital", "w999", "w998", "w997"]);
        assert!(asked <= 2 * order.len() + 1, "{asked} looks");
    }

    #[test]
    fn a_turn_that_is_not_used_goes_to_the_next() {
        let start = Instant::now();
        let queue = failover_queue(start);
        for name in ["a", "b", "c"] {
            queue.wait(&key(name), "m1", rank(0, 1));
        }
        let now = start + Duration::from_secs(2);
        let first = queue.next(now).unwrap();
        assert_eq!(first, key("a"));
        assert!(queue.next(now).is_err());
        drop(queue.take(&first).unwrap());
        let second = queue.next(now).unwrap();
        assert_eq!(second, key("b"));
        // It recovered before it could use it.
        queue.leave(&second);
        assert!(queue.take(&second).is_none());
        assert_eq!(queue.next(now).unwrap(), key("c"));
    }

    #[test]
    fn asking_again_keeps_the_place_in_line() {
        let start = Instant::now();
        let queue = failover_queue(start);
        for again in [false, true, true] {
            assert_eq!(queue.wait(&key("a"), "m1", rank(0, 1)), again);
            assert_eq!(queue.wait(&key("b"), "m1", rank(0, 2)), again);
        }
        // Something else is to be left now.
        queue.wait(&key("b"), "m2", rank(0, 2));
        let granted: Vec<String> = (1..4)
            .filter_map(|n| queue.next(start + Duration::from_secs(2 * n)).ok())
            .inspect(|key| queue.take(key).unwrap().keep())
            .map(|key| key.name)
            .collect();
        assert_eq!(granted, ["a", "b"], "each once");
        queue.wait(&key("c"), "m1", rank(0, 1));
        queue.leave(&key("c"));
        assert_eq!(queue.next(start + Duration::from_secs(9)), Err(None));
    }

    #[test]
    fn a_priority_that_rises_moves_an_application_forward() {
        let start = Instant::now();
        let queue = failover_queue(start);
        queue.wait(&key("a"), "m1", rank(0, 1));
        queue.wait(&key("b"), "m1", rank(0, 2));
        assert!(!queue.wait(&key("b"), "m1", rank(9, 2)), "it is news");
        let now = start + Duration::from_secs(2);
        assert_eq!(queue.next(now), Ok(key("b")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_application_is_queued_when_its_turn_has_come() {
        let start = Instant::now();
        let waiting = Arc::new(failover_queue(start));
        waiting.wait(&key("a"), "m1", rank(0, 1));
        let queue = Queue::new("test");
        let shutdown = CancellationToken::new();
        let running = Arc::clone(&waiting).run(queue.clone(), shutdown.clone());
        let running = tokio::spawn(running);
        for (millis, granted) in [(1_900, 0), (2_100, 1), (9_000, 1)] {
            tokio::time::sleep_until(start + Duration::from_millis(millis)).await;
            assert_eq!(queue.len(), granted, "{millis} ms");
        }
        assert!(waiting.take(&key("a")).is_some());
        shutdown.cancel();
        running.await.unwrap();
    }
}
