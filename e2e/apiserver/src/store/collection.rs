//! The objects of one resource: compare-and-swap writes, scans at a version, and the history that
//! watches read.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tokio::sync::watch;

use super::object::{Change, Draft, Object};
use super::{Recorder, Write};

/// What a write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// No object.
    Absent,
    /// The object at this version.
    Version(u64),
}

/// The write met something else than it expected, and did nothing.
#[derive(Debug, Clone)]
pub struct Lost(pub Option<Arc<Object>>);

/// The history no longer reaches back to the version asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// The oldest version that can still be asked for.
    pub oldest: u64,
}

/// One change.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub change: Change,
    /// The object after it; for a deletion the last state, at the version of the deletion.
    pub object: Arc<Object>,
    /// The object before it.
    pub previous: Option<Arc<Object>>,
}

/// Which objects to read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scan<'a> {
    /// `namespace/`, or empty for all.
    pub prefix: &'a str,
    /// Start after this key.
    pub after: Option<&'a str>,
    /// The state as of this version instead of now.
    pub at: Option<u64>,
    /// At most so many objects.
    pub limit: Option<usize>,
}

/// A part of a collection, consistent at `version`.
#[derive(Debug)]
pub struct Page {
    /// Objects in the order of their keys.
    pub objects: Vec<Arc<Object>>,
    /// The version at which this was the state.
    pub version: u64,
    /// The last key examined, if there are more.
    pub next: Option<Arc<str>>,
    /// Objects after that, selected or not.
    pub remaining: usize,
}

/// Changes after a version.
#[derive(Debug)]
pub struct Since {
    /// The changes, oldest first.
    pub events: Vec<Arc<Event>>,
    /// Everything up to this version has been seen.
    pub version: u64,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    history: VecDeque<Arc<Event>>,
    /// Changes up to this version are forgotten.
    compacted: u64,
    closed: bool,
    /// Wakes those that watch one namespace; holds the version of the latest change there.
    namespaces: HashMap<Box<str>, watch::Sender<u64>>,
}

/// The objects of one resource.
#[derive(Debug)]
pub struct Collection {
    name: Box<str>,
    recorder: Recorder,
    version: Arc<AtomicU64>,
    limit: usize,
    state: RwLock<State>,
    /// Wakes those that watch everything.
    latest: watch::Sender<u64>,
}

impl Collection {
    pub(super) fn new(
        name: &str,
        version: Arc<AtomicU64>,
        limit: usize,
        recorder: Recorder,
    ) -> Self {
        // A resource that appears now has no history before now.
        let compacted = version.load(Ordering::SeqCst);
        Self {
            name: name.into(),
            recorder,
            version,
            limit,
            state: RwLock::new(State {
                compacted,
                ..State::default()
            }),
            latest: watch::Sender::new(0),
        }
    }

    /// Returns the object of that key.
    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.state.read().objects.get(key).cloned()
    }

    /// Returns how many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes an object if what is there is what was expected.
    pub fn put(&self, draft: Draft, expect: Expect) -> Result<Arc<Object>, Lost> {
        let mut state = self.state.write();
        let previous = state.objects.get(&draft.head().key).cloned();
        let change = match (expect, &previous) {
            (Expect::Absent, None) if !state.closed => Change::Added,
            (Expect::Version(v), Some(old)) if old.version == v => Change::Modified,
            _ => return Err(Lost(previous)),
        };
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        let object = Arc::new(draft.seal(change, version));
        state
            .objects
            .insert(Arc::clone(&object.head.key), Arc::clone(&object));
        self.record(
            &mut state,
            Event {
                change,
                object: Arc::clone(&object),
                previous,
            },
        );
        Ok(object)
    }

    /// Removes the object at `version`; `last` is its state in the deletion event.
    pub fn remove(&self, last: Draft, version: u64) -> Result<Arc<Object>, Lost> {
        let mut state = self.state.write();
        let previous = state.objects.get(&last.head().key).cloned();
        match &previous {
            Some(old) if old.version == version => {}
            _ => return Err(Lost(previous)),
        }
        state.objects.remove(&last.head().key);
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        let object = Arc::new(last.seal(Change::Deleted, version));
        let event = Event {
            change: Change::Deleted,
            object: Arc::clone(&object),
            previous,
        };
        self.record(&mut state, event);
        Ok(object)
    }

    fn record(&self, state: &mut State, event: Event) {
        let version = event.object.version;
        if let Some(listener) = self.recorder.0.get() {
            listener(&Write {
                resource: &self.name,
                event: &event,
            });
        }
        if let Some(sender) = state.namespaces.get(event.object.head.namespace()) {
            sender.send_replace(version);
        }
        state.history.push_back(Arc::new(event));
        if state.history.len() > self.limit
            && let Some(oldest) = state.history.pop_front()
        {
            state.compacted = oldest.object.version;
        }
        self.latest.send_replace(version);
    }

    /// Returns the objects of now below a prefix: `namespace/`, or empty for all.
    pub fn present(&self, prefix: &str) -> Vec<Arc<Object>> {
        let scan = Scan {
            prefix,
            ..Scan::default()
        };
        let state = self.state.read();
        let range = state.objects.range::<str, _>(bounds(scan));
        page(range, 0, scan, |_| true).objects
    }

    /// Reads objects that `keep` wants.
    pub fn scan(&self, scan: Scan<'_>, keep: impl Fn(&Object) -> bool) -> Result<Page, Compacted> {
        let state = self.state.read();
        let now = self.version.load(Ordering::SeqCst);
        let at = scan.at.unwrap_or(now).min(now);
        let changed = self.latest.borrow().gt(&at);
        if changed {
            if at < state.compacted {
                return Err(Compacted {
                    oldest: state.compacted,
                });
            }
            let past = rolled_back(&state, at, scan.prefix);
            return Ok(page(past.range::<str, _>(bounds(scan)), at, scan, keep));
        }
        Ok(page(
            state.objects.range::<str, _>(bounds(scan)),
            at,
            scan,
            keep,
        ))
    }

    /// Changes after `version` below `prefix`, at most `limit` of them.
    pub fn since(&self, version: u64, prefix: &str, limit: usize) -> Result<Since, Compacted> {
        let state = self.state.read();
        let now = self.version.load(Ordering::SeqCst);
        let latest = match state.namespaces.get(prefix.trim_end_matches('/')) {
            Some(sender) if !prefix.is_empty() => *sender.borrow(),
            _ => *self.latest.borrow(),
        };
        if latest <= version {
            return Ok(Since {
                events: Vec::new(),
                version: now.max(version),
            });
        }
        if version < state.compacted {
            return Err(Compacted {
                oldest: state.compacted,
            });
        }
        let start = state
            .history
            .partition_point(|e| e.object.version <= version);
        let mut events = Vec::new();
        for event in state.history.range(start..) {
            if event.object.head.key.starts_with(prefix) {
                if events.len() == limit {
                    let version = events
                        .last()
                        .map_or(version, |e: &Arc<Event>| e.object.version);
                    return Ok(Since { events, version });
                }
                events.push(Arc::clone(event));
            }
        }
        Ok(Since {
            events,
            version: now,
        })
    }

    /// Returns the oldest version from which changes can be had.
    pub fn oldest(&self) -> u64 {
        self.state.read().compacted
    }

    /// Returns the version of the latest change.
    pub fn latest_version(&self) -> u64 {
        *self.latest.borrow()
    }

    /// Sends changes below `prefix` (`namespace/`, or empty for all). The sender goes when the
    /// collection closes.
    pub fn subscribe(&self, prefix: &str) -> watch::Receiver<u64> {
        if prefix.is_empty() {
            return self.latest.subscribe();
        }
        let namespace = prefix.trim_end_matches('/');
        let mut state = self.state.write();
        if let Some(sender) = state.namespaces.get(namespace) {
            return sender.subscribe();
        }
        // Changes before now may concern this namespace: start at the latest of all.
        let sender = watch::Sender::new(*self.latest.borrow());
        let receiver = sender.subscribe();
        state.namespaces.insert(namespace.into(), sender);
        receiver
    }

    /// Returns whether the resource is gone.
    pub fn is_closed(&self) -> bool {
        self.state.read().closed
    }

    pub(super) fn close(&self) {
        let mut state = self.state.write();
        state.closed = true;
        for sender in state.namespaces.values() {
            sender.send_modify(|_| {});
        }
        self.latest.send_modify(|_| {});
    }

    pub(super) fn forget_history(&self) {
        let mut state = self.state.write();
        state.history.clear();
        state.compacted = self.version.load(Ordering::SeqCst);
    }
}

fn bounds(scan: Scan<'_>) -> (Bound<&str>, Bound<&str>) {
    match scan.after {
        Some(after) if after >= scan.prefix => (Bound::Excluded(after), Bound::Unbounded),
        _ => (Bound::Included(scan.prefix), Bound::Unbounded),
    }
}

/// Returns the objects as they were at a version, from the present and the history.
fn rolled_back(state: &State, at: u64, prefix: &str) -> BTreeMap<Arc<str>, Arc<Object>> {
    let mut objects: BTreeMap<Arc<str>, Arc<Object>> = state
        .objects
        .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(prefix))
        .map(|(key, object)| (Arc::clone(key), Arc::clone(object)))
        .collect();
    for event in state
        .history
        .iter()
        .rev()
        .take_while(|e| e.object.version > at)
    {
        let key = &event.object.head.key;
        if !key.starts_with(prefix) {
            continue;
        }
        match &event.previous {
            Some(previous) => objects.insert(Arc::clone(key), Arc::clone(previous)),
            None => objects.remove(key),
        };
    }
    objects
}

fn page<'a>(
    range: impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)>,
    version: u64,
    scan: Scan<'_>,
    keep: impl Fn(&Object) -> bool,
) -> Page {
    let mut range = range.take_while(|(key, _)| key.starts_with(scan.prefix));
    let mut objects = Vec::new();
    let mut last = None;
    let limit = scan.limit.unwrap_or(usize::MAX);
    while objects.len() < limit {
        let Some((key, object)) = range.next() else {
            return Page {
                objects,
                version,
                next: None,
                remaining: 0,
            };
        };
        last = Some(key);
        if keep(object) {
            objects.push(Arc::clone(object));
        }
    }
    let remaining = range.count();
    let next = last.filter(|_| remaining > 0).map(Arc::clone);
    Page {
        objects,
        version,
        next,
        remaining,
    }
}
