//! How a controller is written: what it watches, which keys a change concerns, and what is done for
//! a key.
//!
//! A controller starts its work once its process may act and knows what it has to know, and asks
//! whether the process may still act before each key.
//!
//! ```no_run
//! # use std::convert::Infallible;
//! # use std::sync::Arc;
//! # use muster_shared::controller::{Context, Controller};
//! # use muster_shared::k8s::{Api, ConfigMap, ResourceExt};
//! # use muster_shared::queue::Next;
//! # use muster_shared::tasks::Tasks;
//! # use muster_shared::watch::Informer;
//! struct Process {
//!     config_maps: Informer<ConfigMap>,
//! }
//!
//! impl Context for Process {
//!     async fn ready(&self) -> bool {
//!         self.config_maps.synced().await;
//!         true
//!     }
//!     fn may_act(&self) -> bool {
//!         true
//!     }
//! }
//!
//! fn start(process: &Arc<Process>, tasks: &mut Tasks) {
//!     Controller::<String, Process>::new(process, "names")
//!         .watches(&process.config_maps, |_, change| [change.object().name_any()])
//!         .run(tasks, 1, (), |process, (), name| async move {
//!             println!("{:?}", process.config_maps.get(Some("default"), &name));
//!             Ok::<_, Infallible>(Next::Done)
//!         });
//! }
//! ```

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::Notify;

use crate::queue::{Next, Queue};
use crate::tasks::Tasks;
use crate::watch::{Change, Followed, Informer};

/// Context that all controllers of a process share.
pub trait Context: Send + Sync + 'static {
    /// Waits until the process may act and knows what its controllers have to know; `false` when it
    /// is to end instead.
    ///
    /// Nothing is decided before: a decision on half a list would be a decision on stale knowledge
    /// (safety contract 5).
    fn ready(&self) -> impl Future<Output = bool> + Send;

    /// Returns whether the process may act now.
    fn may_act(&self) -> bool;
}

/// Something whose changes a controller can watch.
pub trait Watched {
    /// A change.
    type Change;

    /// Adds a listener for changes, which must return quickly.
    fn on_change(&self, listener: impl Fn(&Self::Change) + Send + Sync + 'static);

    /// Adds a listener that acts on something, as long as others hold that: it may hold what is
    /// watched, and must not be kept alive by it.
    fn informs<T: Send + Sync + 'static>(
        &self,
        whom: &Arc<T>,
        listener: impl Fn(&Arc<T>, &Self::Change) + Send + Sync + 'static,
    ) {
        let whom = Arc::downgrade(whom);
        self.on_change(move |change| {
            if let Some(whom) = whom.upgrade() {
                listener(&whom, change);
            }
        });
    }
}

impl<K: Followed> Watched for Informer<K> {
    type Change = Change<K>;

    fn on_change(&self, listener: impl Fn(&Self::Change) + Send + Sync + 'static) {
        Self::on_change(self, listener);
    }
}

/// A controller that is being set up: a queue of keys, and what fills it.
///
/// Listeners do not keep the context alive.
#[must_use = "it does nothing before it runs"]
pub struct Controller<K, C> {
    name: &'static str,
    context: Arc<C>,
    queue: Queue<K>,
    /// Notified of what concerns all keys.
    everything: Arc<Notify>,
}

impl<K, C> Controller<K, C>
where
    K: Clone + Eq + Hash + Debug + Send + Sync + 'static,
    C: Context,
{
    /// Makes a controller of a name with a queue of its own.
    pub fn new(context: &Arc<C>, name: &'static str) -> Self {
        Self::with(context, name, &Queue::new(name))
    }

    /// Makes a controller of a name for a queue that others add to as well.
    pub fn with(context: &Arc<C>, name: &'static str, queue: &Queue<K>) -> Self {
        Self {
            name,
            context: Arc::clone(context),
            queue: queue.clone(),
            everything: Arc::default(),
        }
    }

    /// Returns the queue of the controller.
    pub fn queue(&self) -> &Queue<K> {
        &self.queue
    }

    /// Returns the notification of what concerns all keys, as [`resyncs`](Self::resyncs) lists
    /// them.
    pub fn everything(&self) -> Arc<Notify> {
        Arc::clone(&self.everything)
    }

    /// Queues the keys that a change concerns.
    pub fn watches<W: Watched, I: IntoIterator<Item = K>>(
        self,
        watched: &W,
        keys: impl Fn(&C, &W::Change) -> I + Send + Sync + 'static,
    ) -> Self {
        self.gathers(Duration::ZERO, watched, keys)
    }

    /// Queues the keys that a change concerns for a later time, until which further changes are
    /// gathered.
    pub fn gathers<W: Watched, I: IntoIterator<Item = K>>(
        self,
        time: Duration,
        watched: &W,
        keys: impl Fn(&C, &W::Change) -> I + Send + Sync + 'static,
    ) -> Self {
        let queue = self.queue.clone();
        watched.informs(&self.context, move |context, change| {
            for key in keys(context, change) {
                queue.add_after(key, time);
            }
        });
        self
    }

    /// Has all keys, as [`resyncs`](Self::resyncs) lists them, reconciled after changes that
    /// concern them all.
    pub fn resyncs_on<W: Watched>(
        self,
        watched: &W,
        concerns_all: impl Fn(&C, &W::Change) -> bool + Send + Sync + 'static,
    ) -> Self {
        let everything = self.everything.clone();
        watched.informs(&self.context, move |context, change| {
            if concerns_all(context, change) {
                everything.notify_one();
            }
        });
        self
    }

    /// Lists the keys that are queued after changes that concern them all, which are gathered for a
    /// time: the failure of many clusters is one reconciliation of each key.
    pub fn resyncs(
        self,
        tasks: &mut Tasks,
        time: Duration,
        all: impl Fn(&C) -> Vec<K> + Send + Sync + 'static,
    ) -> Self {
        let (context, queue) = (Arc::clone(&self.context), self.queue.clone());
        let (everything, shutdown) = (self.everything.clone(), tasks.shutdown().clone());
        tasks.spawn(self.name, async move {
            if !context.ready().await {
                return;
            }
            let resyncs = async {
                loop {
                    everything.notified().await;
                    tokio::time::sleep(time).await;
                    _ = everything.notified().now_or_never();
                    for key in all(&context) {
                        queue.add(key);
                    }
                }
            };
            let _: Option<()> = shutdown.run_until_cancelled(resyncs).await;
        });
        self
    }

    /// Starts the workers, which share the memory of the controller.
    pub fn run<M, F, Fut, E>(self, tasks: &mut Tasks, workers: usize, memory: M, reconcile: F)
    where
        M: Clone + Send + Sync + 'static,
        F: Fn(Arc<C>, M, K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Next, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let Self { context, queue, .. } = self;
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(self.name, async move {
            if !context.ready().await {
                return;
            }
            let work = move |key| {
                let may_act = context.may_act();
                let work = may_act.then(|| reconcile(Arc::clone(&context), memory.clone(), key));
                async move {
                    match work {
                        Some(work) => work.await,
                        // Another process acts; this one is about to end.
                        None => Ok(Next::Done),
                    }
                }
            };
            queue.run(workers, shutdown, work).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::{mpsc, watch};
    use tokio_util::sync::CancellationToken;

    use super::*;

    type Listener = Box<dyn Fn(&u32) + Send + Sync>;

    #[derive(Default)]
    struct Numbers(Mutex<Vec<Listener>>);

    impl Watched for Numbers {
        type Change = u32;

        fn on_change(&self, listener: impl Fn(&u32) + Send + Sync + 'static) {
            self.0.lock().push(Box::new(listener));
        }
    }

    impl Numbers {
        fn notify(&self, number: u32) {
            for listener in self.0.lock().iter() {
                listener(&number);
            }
        }
    }

    struct Process {
        is_ready: watch::Sender<bool>,
        may_act: AtomicBool,
    }

    impl Context for Process {
        async fn ready(&self) -> bool {
            let mut is_ready = self.is_ready.subscribe();
            is_ready.wait_for(|is_ready| *is_ready).await.is_ok()
        }

        fn may_act(&self) -> bool {
            self.may_act.load(Ordering::SeqCst)
        }
    }

    fn process() -> Arc<Process> {
        Arc::new(Process {
            is_ready: watch::Sender::new(false),
            may_act: AtomicBool::new(true),
        })
    }

    /// Starts a controller of even numbers; 1000 concerns 2 and 4. Returns what it works on.
    fn started(
        process: &Arc<Process>,
        numbers: &Numbers,
        tasks: &mut Tasks,
    ) -> mpsc::UnboundedReceiver<u32> {
        let (done, worked) = mpsc::unbounded_channel();
        Controller::new(process, "numbers")
            .watches(numbers, |_, number| {
                (*number < 1000 && number % 2 == 0).then_some(*number)
            })
            .resyncs_on(numbers, |_, number| *number == 1000)
            .resyncs(tasks, Duration::from_secs(1), |_| vec![2, 4])
            .run(tasks, 1, done, |_, done, number| async move {
                done.send(number).unwrap();
                Ok::<_, Infallible>(Next::Done)
            });
        worked
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_worked_on_by_key_once_the_process_is_ready() {
        let (process, numbers) = (process(), Numbers::default());
        let mut tasks = Tasks::new(CancellationToken::new());
        let mut worked = started(&process, &numbers, &mut tasks);
        for number in [1, 2, 2, 6] {
            numbers.notify(number);
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(worked.try_recv().is_err(), "it is not ready");
        process.is_ready.send_replace(true);
        assert_eq!(worked.recv().await, Some(2));
        assert_eq!(worked.recv().await, Some(6));
        let begun = tokio::time::Instant::now();
        for number in [1000, 1000] {
            numbers.notify(number);
        }
        assert_eq!(worked.recv().await, Some(2));
        assert_eq!(worked.recv().await, Some(4));
        assert_eq!(begun.elapsed(), Duration::from_secs(1), "gathered");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(worked.try_recv().is_err(), "each once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_concerns_all_keys_is_not_lost_while_the_process_becomes_ready() {
        let (process, numbers) = (process(), Numbers::default());
        let mut tasks = Tasks::new(CancellationToken::new());
        let mut worked = started(&process, &numbers, &mut tasks);
        numbers.notify(1000);
        process.is_ready.send_replace(true);
        assert_eq!(worked.recv().await, Some(2));
        assert_eq!(worked.recv().await, Some(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_may_not_act_any_more_works_on_nothing() {
        let (process, numbers) = (process(), Numbers::default());
        let mut tasks = Tasks::new(CancellationToken::new());
        let mut worked = started(&process, &numbers, &mut tasks);
        process.is_ready.send_replace(true);
        process.may_act.store(false, Ordering::SeqCst);
        numbers.notify(2);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(worked.try_recv().is_err());
    }
}
