//! Back-off for objects that another writer in the member keeps changing.
//!
//! The first difference of an object is repaired soon. Each further repair of the same object waits
//! twice as long as the one before: a controller that answers every write of the agent must not
//! load the member and the fleet and delay new Works.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::desired::ObjectKey;

/// Pause before the first repair.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause between two repairs of one object.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// Time without a change after a repair from which an object is no longer contended.
const CALM: Duration = Duration::from_mins(10);
/// Repairs of one object after which it is reported: people change an object once or twice,
/// controllers go on.
const TOLD_AFTER: u32 = 4;
/// Number of remembered Works from which those without recent repairs are forgotten.
const MANY: usize = 1024;

/// Times of repairs by Work, and the Works that wait for one. Decides when a difference is
/// repaired; [`Drift`](super::drift::Drift) decides whether there is one.
#[derive(Debug, Default)]
pub struct Repairs {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Repaired objects by Work.
    objects: HashMap<String, HashMap<ObjectKey, Repaired>>,
    /// Number of Works at which those without recent repairs are searched next.
    many: usize,
    /// Works that wait for a repair.
    waiting: HashSet<String>,
    /// Works that wait because they are new or changed.
    asked: HashSet<String>,
}

#[derive(Debug)]
struct Repaired {
    /// Digest of the desired state; another one starts the pauses again.
    wish: u64,
    times: u32,
    /// Time at which the last repair was due.
    due: Instant,
    /// The field manager that wrote the agent's fields.
    rival: Option<String>,
}

/// An object that another writer keeps changing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contended {
    /// The object.
    pub object: ObjectKey,
    /// The field manager of the other writer; `None` when the object is deleted again and again, or
    /// the server does not say.
    pub rival: Option<String>,
}

impl Repairs {
    /// Records an object that differs from its desired state. Returns the pause before the repair,
    /// for which the Work waits.
    pub fn differs(&self, work: &str, key: &ObjectKey, wish: u64, rival: Option<&str>) -> Duration {
        self.next(work, key, wish, rival, FIRST_PAUSE)
    }

    /// Records an object that disappeared. Returns the pause before the repair, which is zero the
    /// first time.
    pub fn disappeared(&self, work: &str, key: &ObjectKey, wish: u64) -> Duration {
        self.next(work, key, wish, None, Duration::ZERO)
    }

    fn next(
        &self,
        work: &str,
        key: &ObjectKey,
        wish: u64,
        rival: Option<&str>,
        first: Duration,
    ) -> Duration {
        let now = Instant::now();
        let mut state = self.lock();
        state.waiting.insert(work.to_owned());
        if state.objects.len() >= state.many.max(MANY) {
            state.objects.retain(|_, objects| {
                objects.retain(|_, known| !known.is_calm(now));
                !objects.is_empty()
            });
            state.many = 2 * state.objects.len();
        }
        let objects = state.objects.entry(work.to_owned()).or_default();
        if let Some(known) = objects.get_mut(key)
            && known.wish == wish
            && !known.is_calm(now)
        {
            if known.due > now {
                // The repair is not due yet.
                return known.due - now;
            }
            let pause = pause(known.times);
            known.times = known.times.saturating_add(1);
            known.due = now + pause;
            known.rival = rival.map(str::to_owned);
            return pause;
        }
        let repaired = Repaired {
            wish,
            times: 1,
            due: now + first,
            rival: rival.map(str::to_owned),
        };
        objects.insert(key.clone(), repaired);
        first
    }

    /// Returns the objects of a Work that other writers keep changing, in the order of their names,
    /// and the time after which that has to be asked again.
    pub fn contended(&self, work: &str) -> (Vec<Contended>, Option<Duration>) {
        let now = Instant::now();
        let state = self.lock();
        let mut contended = Vec::new();
        let mut calm = None;
        for (object, known) in state.objects.get(work).into_iter().flatten() {
            if known.times >= TOLD_AFTER && !known.is_calm(now) {
                let rival = known.rival.clone();
                contended.push(Contended {
                    object: object.clone(),
                    rival,
                });
                calm = calm.max(Some(known.due + CALM));
            }
        }
        contended.sort_by_cached_key(|contended| contended.object.to_string());
        (
            contended,
            calm.map(|calm| calm.saturating_duration_since(now)),
        )
    }

    /// Records a Work that is new or changed.
    pub fn ask(&self, work: &str) {
        self.lock().asked.insert(work.to_owned());
    }

    /// Records a Work that is being reconciled: it does not wait any more.
    pub fn begin(&self, work: &str) {
        let mut state = self.lock();
        state.waiting.remove(work);
        state.asked.remove(work);
    }

    /// Records a Work that could not be applied. Its retry ranks as a repair, after new Works: many
    /// Works that fail slowly must not delay repairs forever.
    pub fn failed(&self, work: &str) {
        self.lock().waiting.insert(work.to_owned());
    }

    /// Forgets a Work that is gone.
    pub fn forget(&self, work: &str) {
        let mut state = self.lock();
        state.waiting.remove(work);
        state.asked.remove(work);
        state.objects.remove(work);
    }

    /// Returns the rank of a Work in the queue: new and changed Works come before repairs.
    pub fn rank(&self, work: &str) -> i32 {
        let state = self.lock();
        i32::from(state.asked.contains(work) || !state.waiting.contains(work))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Repaired {
    fn is_calm(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.due) >= CALM
    }
}

/// Returns the pause after a number of repairs: doubled each time.
fn pause(times: u32) -> Duration {
    FIRST_PAUSE
        .saturating_mul(1 << times.min(16))
        .min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_shared::queue::{Next, Queue};
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn key() -> ObjectKey {
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        ObjectKey::of(&manifest, 0).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_field_that_is_changed_back_at_once_is_written_ten_times_in_ten_minutes() {
        let repairs = Repairs::default();
        let begun = Instant::now();
        let mut times = 0;
        while begun.elapsed() < Duration::from_mins(10) {
            let pause = repairs.differs("w", &key(), 1, Some("cainjector"));
            tokio::time::advance(pause).await;
            times += 1;
        }
        assert!(times <= 11, "{times} repairs");
        let (contended, again) = repairs.contended("w");
        assert_eq!(contended.len(), 1);
        assert_eq!(contended[0].rival.as_deref(), Some("cainjector"));
        tokio::time::advance(again.unwrap()).await;
        assert_eq!(repairs.contended("w"), (Vec::new(), None));
        let again = repairs.differs("w", &key(), 1, None);
        assert_eq!(again, FIRST_PAUSE, "it was calm for long");
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_again_and_again_does_not_overtake_repairs() {
        let repairs = Arc::new(Repairs::default());
        let ranks = Arc::clone(&repairs);
        let queue = Queue::ranked("test", move |work: &String| ranks.rank(work));
        repairs.begin("fails");
        repairs.failed("fails");
        let pause = repairs.disappeared("repaired", &key(), 1);
        assert_eq!(pause, Duration::ZERO);
        queue.add("repaired".to_owned());
        queue.add("fails".to_owned());
        repairs.ask("new");
        queue.add("new".to_owned());
        let order: Arc<Mutex<Vec<String>>> = Arc::default();
        let (done, shutdown) = (Arc::clone(&order), CancellationToken::new());
        let stop = shutdown.clone();
        let work = move |work: String| {
            let mut done = done.lock().unwrap();
            done.push(work);
            if done.len() == 3 {
                stop.cancel();
            }
            async { Ok::<_, String>(Next::Done) }
        };
        queue.run(1, shutdown, work).await;
        assert_eq!(*order.lock().unwrap(), ["new", "repaired", "fails"]);
        repairs.ask("fails");
        assert_eq!(repairs.rank("fails"), 1, "it changed");
    }

    #[tokio::test(start_paused = true)]
    async fn one_repair_answers_all_changes_until_it_is_due_and_another_wish_begins_anew() {
        let repairs = Repairs::default();
        let differs = |wish| repairs.differs("w", &key(), wish, None).as_millis();
        assert_eq!(differs(1), 500);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(differs(1), 300, "the same repair");
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(differs(1), 1000);
        assert_eq!(differs(2), 500, "the template changed");
        assert_eq!(
            repairs.contended("w"),
            (Vec::new(), None),
            "twice is no contest"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_disappears_is_made_again_at_once_and_then_with_pauses() {
        let repairs = Repairs::default();
        let mut pauses = Vec::new();
        for _ in 0..3 {
            let pause = repairs.disappeared("w", &key(), 1);
            pauses.push(pause.as_millis());
            tokio::time::advance(pause).await;
        }
        assert_eq!(pauses, [0, 1000, 2000]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_new_ranks_before_repairs() {
        let repairs = Repairs::default();
        let ranks = || (repairs.rank("repaired"), repairs.rank("new"));
        repairs.differs("repaired", &key(), 1, None);
        assert_eq!(ranks(), (0, 1));
        repairs.ask("repaired");
        assert_eq!(ranks(), (1, 1), "its template changed, too");
        repairs.begin("repaired");
        repairs.differs("repaired", &key(), 1, None);
        assert_eq!(ranks(), (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_works_that_came_and_went() {
        let repairs = Repairs::default();
        for number in 0..100_000 {
            let work = format!("w{number}");
            repairs.ask(&work);
            repairs.begin(&work);
            repairs.differs(&work, &key(), 1, None);
            repairs.failed(&work);
            repairs.forget(&work);
        }
        let state = repairs.lock();
        let left = (state.objects.len(), state.waiting.len(), state.asked.len());
        assert_eq!(left, (0, 0, 0));
    }
}
