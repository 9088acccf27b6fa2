//! The long-running tasks of a process, supervised: none ends without a word.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

/// A task that ended although it should run as long as the process.
#[derive(Debug, thiserror::Error)]
#[error("task {name} ended: {reason}")]
pub struct Ended {
    /// The task's name.
    pub name: &'static str,
    /// How it ended.
    pub reason: String,
}

/// Named tasks that live as long as the process.
#[derive(Debug)]
pub struct Tasks {
    set: JoinSet<()>,
    names: HashMap<Id, &'static str>,
    shutdown: CancellationToken,
}

impl Tasks {
    /// No tasks yet; the token tells them to end.
    pub fn new(shutdown: CancellationToken) -> Self {
        Self {
            set: JoinSet::new(),
            names: HashMap::new(),
            shutdown,
        }
    }

    /// Starts a task that is to run until shutdown.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(task).id();
        self.names.insert(id, name);
        metrics::gauge!("muster_task_up", "task" => name).set(1.0);
    }

    /// The token that tells the tasks to end.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// Waits for shutdown and then, for at most `grace`, for the tasks.
    ///
    /// A task that ends or panics earlier ends everything: a process that lost a part is restarted by its supervisor, which
    /// is better than one that looks alive.
    pub async fn supervise(mut self, grace: Duration) -> Result<(), Ended> {
        let mut lost = None;
        while !self.shutdown.is_cancelled() {
            tokio::select! {
                () = self.shutdown.cancelled() => {}
                ended = self.set.join_next_with_id() => {
                    let (id, reason) = match ended {
                        None => break,
                        Some(Ok((id, ()))) => (id, "it returned".to_owned()),
                        Some(Err(error)) => (error.id(), error.to_string()),
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
        lost.map_or(Ok(()), Err)
    }
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

/// Only Ctrl-C ends a program where there is no SIGTERM.
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
}
