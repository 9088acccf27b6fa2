//! Changes of clusters that are still to be answered.
//!
//! A report costs the watch no more than putting it down here. What it means for bindings is worked out by a task of its own, for several
//! clusters at once, and in a part of the time only, so that neither reports nor other work wait for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::ResourceExt;
use muster_shared::watch::Change;
use tokio::sync::Notify;

/// The time from a change to the answer, in which others of the same event gather.
const GATHER: Duration = Duration::from_millis(50);
/// Clusters answered at once; between them others get the processor.
const AT_ONCE: usize = 16;
/// The answers take one part in so many of the time.
const SHARE: u32 = 5;
/// The longest pause between two answers.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A cluster as it was when it was last answered for, and as it is.
pub(super) type Pair = (Option<Arc<Cluster>>, Option<Arc<Cluster>>);

/// Changes of clusters that are still to be answered.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pending: Mutex<BTreeMap<String, Pair>>,
    noted: Notify,
}

impl Changes {
    pub fn note(&self, change: &Change<Cluster>) {
        let (old, new) = match change {
            Change::Applied { old, new } => (old.clone(), Some(Arc::clone(new))),
            Change::Deleted { old } => (Some(Arc::clone(old)), None),
        };
        let name = change.object().name_any();
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.entry(name).or_insert((old, None)).1 = new;
        drop(pending);
        self.noted.notify_one();
    }

    /// Hands changes to `answer` as they come, for ever.
    pub async fn answer(&self, answer: impl Fn(&[Pair])) {
        loop {
            self.noted.notified().await;
            tokio::time::sleep(GATHER).await;
            let pending: Vec<Pair> = self.take().into_values().collect();
            for pairs in pending.chunks(AT_ONCE) {
                let started = Instant::now();
                answer(pairs);
                let pause = started.elapsed() * (SHARE - 1);
                tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
            }
        }
    }

    fn take(&self) -> BTreeMap<String, Pair> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::fixtures::{cluster, decoded};

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_changes_often_is_answered_once_from_its_first_state_to_its_last() {
        let changes = Arc::new(Changes::default());
        let state = |cores| Arc::new(decoded(&cluster("m", cores)));
        let states = [state(1), state(2), state(3)];
        for step in states.windows(2) {
            let (old, new) = (Some(Arc::clone(&step[0])), Arc::clone(&step[1]));
            changes.note(&Change::Applied { old, new });
        }
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let answering = Arc::clone(&changes);
        let task = tokio::spawn(async move {
            answering
                .answer(|pairs| {
                    pairs
                        .iter()
                        .cloned()
                        .for_each(|pair| tell.send(pair).unwrap());
                })
                .await;
        });
        let (old, new) = told.recv().await.unwrap();
        assert_eq!((old.unwrap(), new.unwrap()), (state(1), state(3)));
        // What changes back is no change any more, and what leaves is told, too.
        changes.note(&Change::Deleted { old: state(3) });
        let (old, new) = told.recv().await.unwrap();
        assert_eq!((old, new), (Some(state(3)), None));
        task.abort();
    }
}
