//! Clusters that open: after that, applications that found no place are tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use muster_shared::api::cluster::Cluster;
use muster_shared::queue::Queue;
use muster_shared::watch::{Change, Informer};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::fleet::binding::BindingKey;
use crate::fleet::pause::Pauses;
use crate::movement::eviction::fleet_view::opens;

/// Time in which related changes of clusters arrive.
pub const SOON: Duration = Duration::from_secs(1);
/// Time between two applications that are tried again: a fleet in which everything changes at once
/// must not spend its time on trying.
const EACH: Duration = Duration::from_millis(10);

/// The changes of clusters that may let in applications.
#[derive(Clone, Debug, Default)]
pub struct Openings(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    count: AtomicU64,
    news: Notify,
}

impl Openings {
    /// Follows the clusters, and pauses: a move waits for those of all clusters that it takes from.
    pub fn follow(clusters: &Informer<Cluster>, pauses: &Pauses) -> Self {
        let openings = Self::default();
        let told = openings.clone();
        pauses.on_change(move || told.notify());
        let told = openings.clone();
        clusters.on_change(move |change| {
            if let Change::Applied { old, new } = change
                && opens(old.as_deref(), new)
            {
                told.notify();
            }
        });
        openings
    }

    /// Returns the number of changes so far: it differs if there was a change in between.
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::Acquire)
    }

    /// Has applications tried again until shutdown, one after the other. All changes of one second
    /// count as one.
    pub async fn run(
        self,
        held: impl Fn() -> Vec<BindingKey>,
        queue: Queue<BindingKey>,
        shutdown: CancellationToken,
    ) {
        let tries = async {
            loop {
                self.0.news.notified().await;
                tokio::time::sleep(SOON).await;
                for (place, key) in (0..).zip(held()) {
                    queue.add_after(key, EACH.saturating_mul(place));
                }
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tries => {}
        }
    }

    fn notify(&self) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        self.0.news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use tokio::time::Instant;

    use super::*;

    fn key(name: &str) -> BindingKey {
        BindingKey {
            namespace: Some("default".to_owned()),
            name: name.to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_within_a_second_have_each_application_tried_once_in_turn() {
        let openings = Openings::default();
        let queue = Queue::new("test");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let names: Vec<String> = (0..300).map(|n| format!("w{n}")).collect();
        let keys: Vec<BindingKey> = names.iter().map(|name| key(name)).collect();
        let shutdown = CancellationToken::new();
        let held = {
            let asked = Arc::clone(&asked);
            move || {
                asked.lock().push(Instant::now());
                keys.clone()
            }
        };
        let start = Instant::now();
        let running = openings.clone().run(held, queue.clone(), shutdown.clone());
        let running = tokio::spawn(running);
        for _ in 0..1_000 {
            openings.notify();
        }
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(openings.count(), 1_000);
        assert_eq!(queue.len(), 300);
        let asked = asked.lock().clone();
        assert_eq!(asked, [start + SOON]);
        shutdown.cancel();
        running.await.unwrap();
    }
}
