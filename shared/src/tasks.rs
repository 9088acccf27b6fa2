//! Supervises the long-running tasks of a process, so that no task ends unnoticed.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::clock::inherited;

/// Error: a task ended before shutdown.
#[derive(Debug, thiserror::Error)]
#[error("task {name} ended: {reason}")]
pub struct Ended {
    /// Name of the task.
    pub name: &'static str,
    /// Reason why the task ended.
    pub reason: String,
}

/// How long the last tasks may take to end once all others have. A lease is given up within that.
const LAST_GRACE: Duration = Duration::from_secs(5);

/// Named tasks that run as long as the process.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<()>,
    /// Tasks that go on while the others finish.
    last: JoinSet<()>,
    names: HashMap<Id, &'static str>,
    shutdown: CancellationToken,
    retire: CancellationToken,
}

impl Tasks {
    /// Makes an empty set; the token asks the tasks to end.
    pub fn new(shutdown: CancellationToken) -> Self {
        Self {
            set: JoinSet::new(),
            last: JoinSet::new(),
            names: HashMap::new(),
            shutdown,
            retire: CancellationToken::new(),
        }
    }

    /// Starts a task that runs until shutdown.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(inherited(task)).id();
        self.names.insert(id, name);
        metrics::gauge!("muster_task_up", "task" => name).set(1.0);
    }

    /// Starts a task that continues while the others finish after shutdown was requested, and ends
    /// when [`retire`](Self::retire) is cancelled, such as the renewal of the lease under which the
    /// others still write.
    pub fn spawn_last(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let id = self.last.spawn(inherited(task)).id();
        self.names.insert(id, name);
        metrics::gauge!("muster_task_up", "task" => name).set(1.0);
    }

    /// Returns the token that asks the last tasks to end, once all others have.
    pub fn retire(&self) -> &CancellationToken {
        &self.retire
    }

    /// Returns the token that asks the tasks to end.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Waits for shutdown and then, for at most `grace`, for the tasks.
    ///
    /// A task that ends or panics earlier ends all others: a process without one of its parts is
    /// better restarted than left running.
    pub async fn supervise(mut self, grace: Duration) -> Result<(), Ended> {
        let mut lost = None;
        while !(self.shutdown.is_cancelled() || self.set.is_empty() && self.last.is_empty()) {
            tokio::select! {
                () = self.shutdown.cancelled() => {}
                Some(ended) = next_of(&mut self.set, &mut self.last) => {
                    let (id, reason) = match ended {
                        Ok((id, ())) => (id, "it returned".to_owned()),
                        Err(error) => (error.id(), error.to_string()),
                    };
                    // A task may see the shutdown before we do.
                    if !self.shutdown.is_cancelled() {
                        let name = self.names.get(&id).copied().unwrap_or("?");
                        metrics::gauge!("muster_task_up", "task" => name).set(0.0);
                        tracing::error!(task = name, reason, "a task ended that should not: shutting down to be started anew");
                        lost = Some(Ended { name, reason });
                        self.shutdown.cancel();
                    }
                }
            }
        }
        let drained = async { while self.set.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, drained).await.is_err() {
            tracing::warn!(?grace, "some tasks did not end in time");
        }
        self.retire.cancel();
        let drained = async { while self.last.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_GRACE, drained).await.is_err() {
            tracing::warn!(grace = ?LAST_GRACE, "the last tasks did not end in time");
        }
        lost.map_or(Ok(()), Err)
    }
}

impl Drop for Tasks {
    /// Tasks that are no longer supervised end, those on threads of their own included.
    fn drop(&mut self) {
        self.retire.cancel();
    }
}

/// Waits for the next task to end of either set; returns `None` when both are empty.
async fn next_of(
    set: &mut JoinSet<()>,
    last: &mut JoinSet<()>,
) -> Option<Result<(Id, ()), JoinError>> {
    tokio::select! {
        Some(ended) = set.join_next_with_id() => Some(ended),
        Some(ended) = last.join_next_with_id() => Some(ended),
        else => None,
    }
}

/// Runs a task on a thread and a runtime of its own, so that nothing that blocks the caller's
/// delays it. What is returned ends when the task does, and panics when the task panicked; dropping
/// it leaves the task alone.
///
/// # Errors
/// When the system gives no thread, or no runtime.
pub fn on_own_thread<F>(
    name: &'static str,
    task: impl FnOnce() -> F + Send + 'static,
) -> io::Result<impl Future<Output = ()> + Send + 'static>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (sender, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // A task within the runtime, so that a panic is caught and reported.
            let outcome = runtime.block_on(async { tokio::spawn(async { task().await }).await });
            sender.send(outcome).ok();
        })?;
    Ok(async move {
        if let Ok(Err(error)) = ended.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    })
}

/// Ends with SIGTERM or SIGINT; cancels the token.
pub async fn stop_on_signal(shutdown: CancellationToken) {
    tokio::select! {
        () = terminated() => tracing::info!("SIGTERM: shutting down"),
        _ = tokio::signal::ctrl_c() => tracing::info!("interrupted: shutting down"),
        () = shutdown.cancelled() => {}
    }
    shutdown.cancel();
}

#[cfg(unix)]
async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => _ = signal.recv().await,
        Err(_) => std::future::pending().await,
    }
}

/// Waits for ever: only Ctrl-C ends a program where there is no SIGTERM.
#[cfg(not(unix))]
async fn terminated() {
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_ends_the_others_and_is_named() {
        let shutdown = CancellationToken::new();
        let mut tasks = Tasks::new(shutdown.clone());
        tasks.spawn("lease", async { panic!("boom") });
        tasks.spawn("census", shutdown.clone().cancelled_owned());
        let ended = tasks.supervise(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(ended.name, "lease");
        assert!(shutdown.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_waits_for_tasks_only_so_long() {
        let shutdown = CancellationToken::new();
        let mut tasks = Tasks::new(shutdown.clone());
        tasks.spawn("stuck", std::future::pending());
        shutdown.cancel();
        let begun = tokio::time::Instant::now();
        tasks.supervise(Duration::from_secs(3)).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_tasks_go_on_until_the_others_are_through_with_their_work() {
        let shutdown = CancellationToken::new();
        let mut tasks = Tasks::new(shutdown.clone());
        let retire = tasks.retire().clone();
        let (begun, order) = (tokio::time::Instant::now(), std::sync::Arc::default());
        let note = move |order: &std::sync::Arc<parking_lot::Mutex<Vec<_>>>, what: &'static str| {
            order.lock().push((what, begun.elapsed().as_secs()));
        };
        let (work, lease) = (std::sync::Arc::clone(&order), std::sync::Arc::clone(&order));
        let asked = shutdown.clone();
        tasks.spawn("work", async move {
            asked.cancelled().await;
            tokio::time::sleep(Duration::from_secs(7)).await; // paused time: the work itself
            note(&work, "work is done");
        });
        tasks.spawn_last("lease", async move {
            retire.cancelled().await;
            note(&lease, "lease is given up");
        });
        shutdown.cancel();
        tasks.supervise(Duration::from_secs(15)).await.unwrap();
        let expected = [("work is done", 7), ("lease is given up", 7)];
        assert_eq!(*order.lock(), expected);
    }

    #[tokio::test]
    async fn what_runs_on_its_own_thread_ends_with_those_that_nobody_supervises_any_more() {
        let tasks = Tasks::new(CancellationToken::new());
        let retire = tasks.retire().clone();
        let thread = on_own_thread("beat", || retire.cancelled_owned()).unwrap();
        drop(tasks);
        thread.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_last_task_that_ends_too_early_ends_the_others_and_is_named() {
        let shutdown = CancellationToken::new();
        let mut tasks = Tasks::new(shutdown.clone());
        tasks.spawn_last("election", async { panic!("boom") });
        tasks.spawn("census", shutdown.clone().cancelled_owned());
        let ended = tasks.supervise(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(ended.name, "election");
    }

    #[tokio::test]
    async fn what_runs_on_its_own_thread_goes_on_while_ours_is_blocked() {
        let (sender, reported) = std::sync::mpsc::channel();
        let thread = on_own_thread("beat", move || async move {
            for beat in 0..3 {
                tokio::time::sleep(Duration::from_millis(1)).await; // the beat itself
                sender.send(beat).ok();
            }
        })
        .unwrap();
        // Blocks the only thread of this runtime until all beats were made.
        let beats: Vec<i32> = reported.iter().collect();
        assert_eq!(beats, [0, 1, 2]);
        thread.await;
    }

    #[tokio::test]
    async fn a_panic_on_its_own_thread_is_a_panic_of_the_task_that_waits_for_it() {
        let thread = on_own_thread("beat", || async { panic!("boom") }).unwrap();
        let error = tokio::spawn(thread).await.unwrap_err();
        assert!(error.is_panic());
    }
}
