//! Waiting bindings that may go to the same clusters, ask for like amounts and have the same
//! priority.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::demands::DemandId;
use super::line::Line;
use crate::scheduler::controller::waits_for::WaitsFor;

/// What distinguishes the groups of one choice of clusters; the highest priority comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    pub priority: Reverse<i32>,
    pub demand: DemandId,
}

/// A value of the count of `anything` below all that somebody waits for.
const BEFORE_ALL: i64 = -1;

/// The bindings of a group, by what they wait for.
#[derive(Debug)]
pub struct Group<K> {
    /// How many bindings belong to it, those included that have been woken.
    pub members: usize,
    /// Whether it has its place among the groups whose bindings are to be woken.
    pub is_in_order: bool,
    admission: Line<K>,
    /// Counts the replicas for which room has appeared since the group exists. Room that went is
    /// not counted: a decision too many does no harm.
    room: Line<K>,
    anything: Line<K>,
    /// The count of `anything` up to which a change of admission, and not only room, concerns the
    /// bindings.
    touched: i64,
    /// Bindings that were woken for a later time, because only room had appeared, and were not
    /// decided since.
    resting: BTreeSet<K>,
    /// Those of them that are woken a second time, because admission changed meanwhile.
    roused: BTreeSet<K>,
}

impl<K> Default for Group<K> {
    fn default() -> Self {
        Self {
            members: 0,
            is_in_order: false,
            admission: Line::default(),
            room: Line::default(),
            anything: Line::default(),
            touched: BEFORE_ALL,
            resting: BTreeSet::new(),
            roused: BTreeSet::new(),
        }
    }
}

impl<K: Clone + Ord> Group<K> {
    /// Makes a binding wait until room for so many replicas has appeared, if room is what it waits
    /// for; whom anything may help is helped by room for one. Returns the value that the binding
    /// waits for.
    pub fn join(&mut self, key: K, wish: WaitsFor, lacking: i64) -> i64 {
        let lacking = match wish {
            WaitsFor::Anything => lacking.min(1),
            _ => lacking,
        };
        self.line(wish).map_or(0, |line| line.join(key, lacking))
    }

    /// Removes a binding that does not wait any more.
    pub fn leave(&mut self, key: &K, wish: WaitsFor, due: i64) {
        if let Some(line) = self.line(wish) {
            line.leave(due, key);
        }
        self.resting.remove(key);
        self.roused.remove(key);
    }

    /// Records that a binding that was woken is decided only after a while, unless admission
    /// changes before.
    pub fn rest(&mut self, key: K) {
        self.resting.insert(key);
    }

    /// Makes the bindings due that wait for admission or for room, because a cluster lets in what
    /// it did not let in.
    pub fn admit(&mut self) {
        self.admission.release();
        self.room.release();
    }

    /// Makes the bindings due that anything may help, and those that were to be decided only
    /// after a while, because a cluster lets in something else than before.
    pub fn touch(&mut self) {
        self.touched = self.anything.release();
        // A binding that joins from now on waits for more than this.
        self.anything.advance(1);
        self.roused.append(&mut self.resting);
    }

    /// Counts the room for more replicas that has appeared.
    pub fn grow(&mut self, replicas: i64) {
        self.room.advance(replicas);
        self.anything.advance(replicas.min(1));
    }

    /// Returns whether there is a binding to be woken.
    pub fn is_due(&self) -> bool {
        self.admission.is_due()
            || self.room.is_due()
            || self.anything.is_due()
            || !self.roused.is_empty()
    }

    /// Takes a binding that is to be woken, and says whether it is likely to be helped.
    pub fn pop(&mut self) -> Option<(K, bool)> {
        let likely = self.admission.pop().or_else(|| self.room.pop());
        if let Some((_, key)) = likely {
            return Some((key, true));
        }
        if let Some(key) = self.roused.pop_first() {
            return Some((key, true));
        }
        let (due, key) = self.anything.pop()?;
        Some((key, due <= self.touched))
    }

    fn line(&mut self, wish: WaitsFor) -> Option<&mut Line<K>> {
        match wish {
            WaitsFor::Nothing => None,
            WaitsFor::Admission => Some(&mut self.admission),
            WaitsFor::Room => Some(&mut self.room),
            WaitsFor::Anything => Some(&mut self.anything),
        }
    }
}
