//! Works that wait, and the memory of each that lasts from one reconciliation to the next.
//!
//! A Work waits in a queue for a time, or outside of the queues for an event. Its memory has the
//! rank of its next reconciliation, the events that it waits for, the back-off of its objects, and
//! the progress of its deletion. All of it is forgotten with the Work.
//!
//! Back-off is for objects that another writer in the member keeps changing: the first difference
//! of an object is repaired soon, and each further repair of the same object waits twice as long as
//! the one before. A controller that answers every write of the agent must not load the member and
//! the fleet and delay new Works.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::work::Work;
use muster_shared::k8s::ResourceExt;
use muster_shared::queue::{Queue, doubled};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::cached::CachedWork;
use super::desired::ObjectKey;

/// Pause before the first repair.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause between two repairs of one object.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// Time without a change after a repair from which an object is no longer contended.
const CALM: Duration = Duration::from_mins(10);
/// Repairs of one object after which it is reported: people change an object once or twice,
/// controllers go on.
const REPORTED_AFTER: u32 = 4;
/// Large Works that are applied at a time, and as many that are reported. As a tree one may take
/// ten times the memory of its text.
const LARGE: usize = 2;

/// Works that wait, and the queues that they return to. Cheap to clone: all clones are the same.
#[derive(Clone)]
pub struct Waits {
    /// Works to apply: new and changed ones come before repairs and retries.
    pub to_apply: Queue<String>,
    /// Works to report.
    pub to_report: Queue<String>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    works: HashMap<String, Memory>,
    /// Number of large Works that are being processed.
    large: HashMap<Event, usize>,
}

/// Event that a Work waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The first list of its kinds in the member.
    Listed,
    /// A namespace or a definition is created.
    Prerequisite,
    /// One of the large Works has been applied.
    FreeToApply,
    /// One of the large Works has been reported.
    FreeToReport,
}

/// Memory about one Work.
#[derive(Default)]
struct Memory {
    /// Rank of its next reconciliation; `None` while none is asked for.
    rank: Option<Rank>,
    events: BTreeSet<Event>,
    /// Repaired objects.
    repairs: HashMap<ObjectKey, Repaired>,
    deletion: Option<Box<Deletion>>,
}

/// Rank of a Work in the queue of applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// A repair, or a retry: many Works that fail slowly must not delay repairs forever.
    Repair,
    /// The Work is new or changed.
    Changed,
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

/// Progress of the deletion of one Work, as long as some of its objects are not gone.
#[derive(Default)]
pub struct Deletion {
    uid: Option<String>,
    /// Objects that were asked to go, and whether they are gone or left to the member.
    pub objects: HashMap<ObjectKey, bool>,
    /// Time at which a container was first kept for the objects of other Works.
    pub kept: Option<Instant>,
    /// Time at which the member's API first did not answer, while the cluster leaves the fleet.
    pub silent: Option<Instant>,
}

/// Permit of a Work, which lasts until it is dropped. Then those that wait for one are due again.
pub struct Permit(Option<(Waits, Event)>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((waits, event)) = self.0.take() {
            if let Some(taken) = waits.state.lock().large.get_mut(&event) {
                *taken -= 1;
            }
            waits.wake(event, Duration::ZERO);
        }
    }
}

impl Default for Waits {
    fn default() -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let ranks = Arc::clone(&state);
        let rank = move |work: &String| {
            let state = ranks.lock();
            let rank = state.works.get(work).and_then(|memory| memory.rank);
            i32::from(rank != Some(Rank::Repair))
        };
        Self {
            to_apply: Queue::strict("works", rank),
            to_report: Queue::new("work-status"),
            state,
        }
    }
}

impl Waits {
    /// Adds a Work that is new or changed to the queue of applies.
    pub fn changed(&self, work: &str) {
        self.change(work, |memory| memory.rank = Some(Rank::Changed));
        self.to_apply.add(work.to_owned());
    }

    /// Records a Work that is being reconciled: it does not wait any more.
    pub fn begin(&self, work: &str) {
        self.change(work, |memory| memory.rank = None);
    }

    /// Records a Work that could not be applied, and is retried by its queue.
    pub fn failed(&self, work: &str) {
        self.change(work, |memory| _ = memory.rank.get_or_insert(Rank::Repair));
    }

    /// Records a Work that waits for an event.
    pub fn wait(&self, work: &str, event: Event) {
        self.change(work, |memory| memory.events.insert(event));
    }

    /// Records a Work that does not wait for an event any more.
    pub fn go_on(&self, work: &str, event: Event) {
        self.change(work, |memory| memory.events.remove(&event));
    }

    /// Adds the Works that wait for an event to their queue, after a pause.
    pub fn wake(&self, event: Event, pause: Duration) {
        let mut woken = Vec::new();
        self.state.lock().works.retain(|work, memory| {
            if memory.events.remove(&event) {
                woken.push(work.clone());
            }
            !memory.is_empty()
        });
        let queue = match event {
            Event::FreeToReport => &self.to_report,
            _ => &self.to_apply,
        };
        for work in woken {
            queue.add_after(work, pause);
        }
    }

    /// Returns a permit for a Work; `None` if it is large and has to wait until there is one: a
    /// worker that waited for it would keep small Works waiting.
    pub fn permit(&self, cached: &CachedWork, event: Event) -> Option<Permit> {
        if !cached.is_large() {
            return Some(Permit(None));
        }
        let mut state = self.state.lock();
        let taken = state.large.entry(event).or_default();
        if *taken == LARGE {
            let memory = state.works.entry(cached.name_any()).or_default();
            memory.events.insert(event);
            return None;
        }
        *taken += 1;
        Some(Permit(Some((self.clone(), event))))
    }

    /// Has an object repaired that differs from its desired state. Returns the pause before that.
    pub fn differs(&self, work: &str, key: &ObjectKey, wish: u64, rival: Option<&str>) -> Duration {
        self.repair(work, key, wish, rival, FIRST_PAUSE)
    }

    /// Has an object made again that disappeared. Returns the pause before that, which is zero the
    /// first time.
    pub fn disappeared(&self, work: &str, key: &ObjectKey, wish: u64) -> Duration {
        self.repair(work, key, wish, None, Duration::ZERO)
    }

    fn repair(
        &self,
        work: &str,
        key: &ObjectKey,
        wish: u64,
        rival: Option<&str>,
        first: Duration,
    ) -> Duration {
        let now = Instant::now();
        let pause = self.change(work, |memory| {
            memory.rank.get_or_insert(Rank::Repair);
            let known = memory.repairs.get(key);
            let known = known.filter(|known| known.wish == wish && !known.is_calm(now));
            if let Some(known) = known.filter(|known| known.due > now) {
                // The repair is not due yet.
                return known.due - now;
            }
            let times = known.map_or(0, |known| known.times);
            let pause = known.map_or(first, |it| doubled((FIRST_PAUSE, LONGEST_PAUSE), it.times));
            let repaired = Repaired {
                wish,
                times: times.saturating_add(1),
                due: now + pause,
                rival: rival.map(str::to_owned),
            };
            memory.repairs.insert(key.clone(), repaired);
            pause
        });
        self.to_apply.add_after(work.to_owned(), pause);
        pause
    }

    /// Returns the objects of a Work that other writers keep changing, in the order of their names,
    /// and the time after which that has to be asked again.
    pub fn contended(&self, work: &str) -> (Vec<Contended>, Option<Duration>) {
        let now = Instant::now();
        let state = self.state.lock();
        let mut contended = Vec::new();
        let mut calm = None;
        let repairs = state.works.get(work).into_iter();
        for (object, known) in repairs.flat_map(|memory| &memory.repairs) {
            if known.times >= REPORTED_AFTER && !known.is_calm(now) {
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

    /// Reads or changes the progress of the deletion of a Work.
    pub fn deletion<T>(&self, work: &Work, change: impl FnOnce(&mut Deletion) -> T) -> T {
        self.change(&work.name_any(), |memory| {
            let deletion = memory.deletion.get_or_insert_default();
            if deletion.uid != work.metadata.uid {
                **deletion = Deletion {
                    uid: work.metadata.uid.clone(),
                    ..Deletion::default()
                };
            }
            change(deletion)
        })
    }

    /// Forgets a Work that is gone, or whose objects are.
    pub fn forget(&self, work: &str) {
        self.state.lock().works.remove(work);
    }

    fn change<T>(&self, work: &str, change: impl FnOnce(&mut Memory) -> T) -> T {
        let mut state = self.state.lock();
        if state.works.len() == state.works.capacity() && !state.works.contains_key(work) {
            let now = Instant::now();
            state.works.retain(|_, memory| {
                memory.repairs.retain(|_, known| !known.is_calm(now));
                !memory.is_empty()
            });
        }
        let memory = state.works.entry(work.to_owned()).or_default();
        let outcome = change(memory);
        if memory.is_empty() {
            state.works.remove(work);
        }
        outcome
    }
}

impl Memory {
    fn is_empty(&self) -> bool {
        self.rank.is_none()
            && self.events.is_empty()
            && self.repairs.is_empty()
            && self.deletion.is_none()
    }
}

impl Repaired {
    fn is_calm(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.due) >= CALM
    }
}

#[cfg(test)]
mod tests;
