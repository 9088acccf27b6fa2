//! Queue of cluster changes whose effect on bindings has not been computed yet.
//!
//! A report costs its watch no more than an entry here. A separate task computes the effects, for
//! several clusters at once and in a part of the time, so that neither reports nor other work wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::ResourceExt;
use muster_shared::watch::Change;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::cluster_change::ClusterChange;

/// The time from a change to the answer, in which others of the same event gather.
const GATHER: Duration = Duration::from_millis(50);
/// Changes answered at once; between them others get the processor.
const AT_ONCE: usize = 16;
/// Steps of one cluster that are distinguished. Of more the last ones count as one, and a binding
/// that was decided between those two may be decided again only when its time comes.
const MOST_STEPS: usize = 4;
/// The answers take one part in so many of the time.
const SHARE: u32 = 5;
/// The longest pause between two answers.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A cluster before and after a step.
pub(super) type Pair = (Option<Arc<Cluster>>, Option<Arc<Cluster>>);

/// Changes of clusters that are still to be answered.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The steps of each cluster since it was last answered for. A binding may have been decided
    /// after any of them, so that one which is undone by the next, such as room that went and came
    /// back, is still reported.
    pending: Mutex<BTreeMap<String, Vec<Pair>>>,
    noted: Notify,
}

impl Changes {
    pub fn note(&self, change: &Change<Cluster>) {
        let (old, new) = match change {
            Change::Applied { old, new } => (old.clone(), Some(Arc::clone(new))),
            Change::Deleted { old } => (Some(Arc::clone(old)), None),
        };
        let name = change.object().name_any();
        let mut pending = self.pending.lock();
        let steps = pending.entry(name).or_default();
        let is_full = steps.len() == MOST_STEPS;
        match steps.last_mut() {
            Some(last) if is_full || is_one_step(last, new.as_deref()) => last.1 = new,
            _ => steps.push((old, new)),
        }
        drop(pending);
        self.noted.notify_one();
    }

    /// Passes changes to `answer` as they come, for ever.
    pub async fn answer(&self, answer: impl Fn(&[Pair])) {
        loop {
            self.noted.notified().await;
            tokio::time::sleep(GATHER).await;
            let pending: Vec<Pair> = self.take().into_values().flatten().collect();
            for pairs in pending.chunks(AT_ONCE) {
                let started = Instant::now();
                answer(pairs);
                let pause = started.elapsed() * (SHARE - 1);
                tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
            }
        }
    }

    fn take(&self) -> BTreeMap<String, Vec<Pair>> {
        let mut pending = self.pending.lock();
        std::mem::take(&mut *pending)
    }
}

/// Returns whether a step and the next one, to `next`, mean the same together as apart: the second
/// brings nothing, or the first took nothing away.
fn is_one_step((before, after): &Pair, next: Option<&Cluster>) -> bool {
    let brings =
        |from: Option<&Cluster>, to: Option<&Cluster>| ClusterChange::between(from, to).is_some();
    !brings(after.as_deref(), next) || !brings(after.as_deref(), before.as_deref())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::scheduler::tests::fixtures::{cluster, decoded};

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_changes_often_is_answered_once_from_its_first_state_to_its_last() {
        let changes = Arc::new(Changes::default());
        let state = |cores| Arc::new(decoded(&cluster("m", cores)));
        let states = [state(1), state(2), state(3)];
        for step in states.windows(2) {
            let (old, new) = (Some(Arc::clone(&step[0])), Arc::clone(&step[1]));
            changes.note(&Change::Applied { old, new });
        }
        let (sender, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let answering = Arc::clone(&changes);
        let task = tokio::spawn(async move {
            answering
                .answer(|pairs| {
                    pairs
                        .iter()
                        .cloned()
                        .for_each(|pair| sender.send(pair).unwrap());
                })
                .await;
        });
        let (old, new) = reported.recv().await.unwrap();
        assert_eq!((old.unwrap(), new.unwrap()), (state(1), state(3)));
        // What changes back is no change any more, and what leaves is reported, too.
        changes.note(&Change::Deleted { old: state(3) });
        let (old, new) = reported.recv().await.unwrap();
        assert_eq!((old, new), (Some(state(3)), None));
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn answers_take_a_fifth_of_the_time_and_pause_for_two_seconds_at_most() {
        for (takes, expected) in [(10, 50), (10_000, 12_000)] {
            let changes = Changes::default();
            for number in 0..=AT_ONCE {
                let new = Arc::new(decoded(&cluster(&format!("m{number}"), 1)));
                changes.note(&Change::Applied { old: None, new });
            }
            let begun = Mutex::new(Vec::new());
            let answering = changes.answer(|_| {
                begun.lock().push(Instant::now());
                // The clock goes on at the first poll.
                let answered = tokio::time::advance(Duration::from_millis(takes));
                assert!(answered.now_or_never().is_none());
            });
            let enough = Duration::from_mins(1);
            tokio::time::timeout(enough, answering).await.unwrap_err();
            let begun = begun.into_inner();
            assert_eq!(begun.len(), 2);
            assert_eq!((begun[1] - begun[0]).as_millis(), expected);
        }
    }

    #[test]
    fn room_that_went_and_came_back_is_reported_to_whoever_decided_in_between() {
        let changes = Changes::default();
        let state = |cores| Arc::new(decoded(&cluster("m", cores)));
        let step = |old, new| {
            changes.note(&Change::Applied {
                old: Some(state(old)),
                new: state(new),
            });
        };
        let noted = || -> Vec<Pair> { changes.take().into_values().flatten().collect() };
        step(10, 5);
        step(5, 10);
        let steps = [
            (Some(state(10)), Some(state(5))),
            (Some(state(5)), Some(state(10))),
        ];
        assert_eq!(noted(), steps);
        // Reports that say the same, or ever more, are one step; the number of steps is bounded.
        for (old, new) in [(5, 5), (5, 6), (6, 9)] {
            step(old, new);
        }
        assert_eq!(noted(), [(Some(state(5)), Some(state(9)))]);
        for dip in (1..90).rev() {
            step(99, dip);
            step(dip, 99);
        }
        let steps = noted();
        assert_eq!(steps.len(), MOST_STEPS);
        assert_eq!(steps.last().unwrap().1, Some(state(99)));
    }
}
