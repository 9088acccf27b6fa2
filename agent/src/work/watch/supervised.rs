//! Tasks by key. A task that ends is restarted after a pause, without affecting the others.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use muster_shared::queue::backoff;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A task that ran for so long before it broke begins with the shortest pause again.
const SOUND: Duration = Duration::from_mins(10);

/// The tasks that run, and those that broke and wait.
pub(super) struct Supervised<K> {
    tasks: JoinSet<()>,
    keys: HashMap<Id, K>,
    running: HashMap<K, Running>,
    broken: HashMap<K, Broken>,
}

struct Running {
    task: Id,
    stop: CancellationToken,
    since: Instant,
}

struct Broken {
    times: u32,
    /// Time from which it may be started again.
    until: Instant,
}

impl<K: Clone + Debug + Eq + Hash> Supervised<K> {
    pub(super) fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            keys: HashMap::new(),
            running: HashMap::new(),
            broken: HashMap::new(),
        }
    }

    /// Returns the number of running tasks.
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Stops the tasks of all other keys.
    pub(super) fn retain(&mut self, wanted: impl Fn(&K) -> bool) {
        self.broken.retain(|key, _| wanted(key));
        self.running.retain(|key, running| {
            let keep = wanted(key);
            if !keep {
                running.stop.cancel();
            }
            keep
        });
    }

    /// Returns whether the task of a key has to be started now: it does not run, and the pause
    /// after its last failure is over.
    pub(super) fn is_due(&self, key: &K) -> bool {
        let waits = |broken: &Broken| broken.until > Instant::now();
        !self.running.contains_key(key) && !self.broken.get(key).is_some_and(waits)
    }

    /// Returns the time at which the first of the broken tasks may be started again.
    pub(super) fn next_start(&self) -> Option<Instant> {
        let waiting = self.broken.iter();
        waiting
            .filter(|(key, _)| !self.running.contains_key(*key))
            .map(|(_, broken)| broken.until)
            .min()
    }

    /// Starts the task of a key; it ends when `stop` is cancelled.
    pub(super) fn start<F>(&mut self, key: K, stop: CancellationToken, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = self.tasks.spawn(muster_shared::clock::inherited(task)).id();
        self.keys.insert(task, key.clone());
        let since = Instant::now();
        self.running.insert(key, Running { task, stop, since });
    }

    /// Waits until a task ends that was not stopped; forever while there is none.
    pub(super) async fn broke(&mut self) {
        loop {
            let Some(ended) = self.tasks.join_next_with_id().await else {
                return std::future::pending().await;
            };
            let (task, error) = match ended {
                Ok((task, ())) => (task, "it ended".to_owned()),
                Err(error) => (error.id(), error.to_string()),
            };
            let Some(key) = self.keys.remove(&task) else {
                continue;
            };
            let current = self.running.get(&key);
            let Some(since) = current.filter(|it| it.task == task).map(|it| it.since) else {
                continue;
            };
            self.running.remove(&key);
            let known = self.broken.get(&key).filter(|_| since.elapsed() < SOUND);
            let times = known.map_or(1, |broken| broken.times.saturating_add(1));
            let pause = backoff(times);
            tracing::error!(?key, error, times, again_in = ?pause, "a task broke");
            let until = Instant::now() + pause;
            self.broken.insert(key, Broken { times, until });
            return;
        }
    }

    /// Waits for all tasks, which were told to stop.
    pub(super) async fn drain(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_breaks_is_started_again_alone_with_growing_pauses() {
        let mut tasks = Supervised::new();
        let stop = CancellationToken::new();
        let ends = stop.clone();
        tasks.start("sound", stop.clone(), async move { ends.cancelled().await });
        let begun = Instant::now();
        let mut starts = Vec::new();
        let runs = Arc::new(AtomicU32::new(0));
        while starts.len() < 4 {
            assert!(tasks.is_due(&"broken"));
            starts.push(begun.elapsed().as_millis());
            let runs = Arc::clone(&runs);
            tasks.start("broken", stop.clone(), async move {
                assert_eq!(runs.fetch_add(1, Ordering::Relaxed), u32::MAX, "breaks");
            });
            tasks.broke().await;
            assert!(!tasks.is_due(&"broken"));
            tokio::time::sleep_until(tasks.next_start().unwrap()).await;
        }
        assert_eq!(starts, [0, 100, 300, 700]);
        assert_eq!(tasks.len(), 1, "the other one still runs");
        assert!(!stop.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_was_stopped_is_not_broken_and_one_that_ran_for_long_pauses_shortly() {
        let mut tasks = Supervised::new();
        let stop = CancellationToken::new();
        let ends = stop.clone();
        tasks.start(
            "stopped",
            stop.clone(),
            async move { ends.cancelled().await },
        );
        tasks.retain(|_| false);
        assert!(stop.is_cancelled());
        assert_eq!(tasks.len(), 0);
        for expected in [100, 100] {
            tasks.start("broken", CancellationToken::new(), async {
                tokio::time::sleep(SOUND).await; // allowed: paused time, the work itself
                panic!("breaks")
            });
            tasks.broke().await;
            let pause = tasks.next_start().unwrap() - Instant::now();
            assert_eq!(pause.as_millis(), expected);
            tokio::time::sleep_until(tasks.next_start().unwrap()).await;
        }
    }
}
