//! The eviction queue: one lane per failed cluster, and the order between lanes.
//!
//! An item is one workload to be evicted from one cluster. It is in exactly one state: waiting
//! until its toleration ends, ready, or stranded (no other cluster can take it). Adding it again
//! moves it, so there are no duplicates. A lane is removed with its items when its cluster
//! recovers. The queue is in memory only and is rebuilt from the API.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

pub use super::fair_queue::Rank;
use super::fair_queue::{FairQueue, Key};

/// State of an item. `since` is the time from which it was to be evicted: the oldest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The item becomes ready at an instant.
    Waiting {
        /// Instant at which it becomes ready.
        until: Instant,
        /// Rank from then on.
        rank: Rank,
    },
    /// The item is evicted as soon as the rate permits.
    Ready(Rank),
    /// Nothing stops the old copy, which has to stop first.
    Unfenced {
        /// Instant at which it becomes ready, and is judged again.
        until: Instant,
        /// Rank from then on.
        rank: Rank,
    },
    /// No other cluster can take the workload. Tried again after [`Backlog::wake_stranded`].
    Stranded(Rank),
}

impl Slot {
    /// Returns the rank of the item.
    pub fn rank(&self) -> Rank {
        match self {
            Self::Waiting { rank, .. }
            | Self::Unfenced { rank, .. }
            | Self::Ready(rank)
            | Self::Stranded(rank) => *rank,
        }
    }

    /// Returns the instant at which the item becomes ready, if time alone makes it so.
    fn until(&self) -> Option<Instant> {
        match self {
            Self::Waiting { until, .. } | Self::Unfenced { until, .. } => Some(*until),
            Self::Ready(_) | Self::Stranded(_) => None,
        }
    }
}

/// Numbers of items of a cluster, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Waiting for a toleration to run out.
    pub waiting: usize,
    /// Waiting for the rate.
    pub ready: usize,
    /// Nowhere to go, or not before the old copy is stopped, which nothing does.
    pub stranded: usize,
}

/// All items of all failed clusters.
#[derive(Debug, Default)]
pub struct Backlog {
    lanes: BTreeMap<Arc<str>, Lane>,
    timers: BTreeSet<(Instant, Arc<str>, Key)>,
    round: u64,
}

#[derive(Debug, Default)]
struct Lane {
    places: HashMap<Key, Slot>,
    ready: FairQueue,
    /// Stranded items that were tried since something changed last.
    stranded: FairQueue,
    /// Stranded items that were not.
    due: FairQueue,
    /// Number of items that nothing fences.
    unfenced: usize,
    /// The round in which the lane was served last: among equals the one that waited longest is
    /// next.
    served: u64,
}

impl Lane {
    fn depth(&self) -> Depth {
        let ready = self.ready.len();
        let stranded = self.stranded.len() + self.due.len() + self.unfenced;
        Depth {
            waiting: self.places.len() - ready - stranded,
            ready,
            stranded,
        }
    }
}

impl Backlog {
    /// Puts an item somewhere, from wherever it was. Says whether it was not there before.
    pub fn put(&mut self, cluster: &Arc<str>, key: Key, place: Slot) -> bool {
        let known = self.take_out(cluster, &key);
        let lane = self.lanes.entry(Arc::clone(cluster)).or_default();
        if let Some(until) = place.until() {
            self.timers
                .insert((until, Arc::clone(cluster), key.clone()));
        }
        match place {
            Slot::Waiting { .. } => {}
            Slot::Unfenced { .. } => lane.unfenced += 1,
            Slot::Ready(rank) => lane.ready.insert(rank, key.clone()),
            Slot::Stranded(rank) => lane.stranded.insert(rank, key.clone()),
        }
        lane.places.insert(key, place);
        !known
    }

    /// Removes an item. Says whether it was there.
    pub fn remove(&mut self, cluster: &Arc<str>, key: &Key) -> bool {
        let known = self.take_out(cluster, key);
        if self
            .lanes
            .get(cluster)
            .is_some_and(|lane| lane.places.is_empty())
        {
            self.lanes.remove(cluster);
        }
        known
    }

    /// Returns the place of an item in the queue of a cluster.
    pub fn place(&self, cluster: &str, key: &Key) -> Option<Slot> {
        self.lanes.get(cluster)?.places.get(key).copied()
    }

    /// Removes the queue of a cluster that recovered or left, and returns what was in it.
    pub fn drop_cluster(&mut self, cluster: &str) -> Vec<Key> {
        let Some((name, lane)) = self.lanes.remove_entry(cluster) else {
            return Vec::new();
        };
        for (key, place) in &lane.places {
            if let Some(until) = place.until() {
                self.timers.remove(&(until, Arc::clone(&name), key.clone()));
            }
        }
        lane.places.into_keys().collect()
    }

    /// Returns when the next waiting item becomes ready.
    pub fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, ..)| *at)
    }

    /// Makes the items ready whose time has come; returns them.
    pub fn mature(&mut self, now: Instant) -> Vec<(Arc<str>, Key)> {
        let mut matured = Vec::new();
        while self.timers.first().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, cluster, key)) = self.timers.pop_first() else {
                break;
            };
            if let Some(place) = self.place(&cluster, &key) {
                self.put(&cluster, key.clone(), Slot::Ready(place.rank()));
                matured.push((cluster, key));
            }
        }
        matured
    }

    /// Makes each stranded item due once more, as [`Backlog::retry`] allows: something changed that
    /// could help.
    pub fn wake_stranded(&mut self) {
        for lane in self.lanes.values_mut() {
            for (rank, key) in lane.stranded.drain() {
                lane.due.insert(rank, key);
            }
        }
    }

    /// Makes one stranded item due once more: something changed that could help.
    pub fn wake(&mut self, cluster: &str, key: &Key) {
        if let Some(lane) = self.lanes.get_mut(cluster)
            && let Some(Slot::Stranded(rank)) = lane.places.get(key)
            && lane.stranded.remove(*rank, key)
        {
            lane.due.insert(*rank, key.clone());
        }
    }

    /// Makes stranded items ready that were not tried since something changed, `most` of them:
    /// those first that come first in their lanes, in rounds. To try all at once would cost a
    /// decision for each, whenever any cluster reports more or less room.
    pub fn retry(&mut self, most: usize) {
        let mut left = most;
        while left > 0 {
            let before = left;
            for lane in self.lanes.values_mut() {
                if left > 0
                    && let Some((rank, key)) = lane.due.pop_first()
                {
                    lane.places.insert(key.clone(), Slot::Ready(rank));
                    lane.ready.insert(rank, key);
                    left -= 1;
                }
            }
            if left == before {
                return;
            }
        }
    }

    /// Returns whether there is a stranded item that was not tried since something changed.
    pub fn has_due(&self) -> bool {
        self.lanes.values().any(|lane| !lane.due.is_empty())
    }

    /// Returns the priority of the next item, and the cluster that it leaves, without those of
    /// held clusters: the highest priority of all lanes; among lanes that offer the same, in
    /// rounds.
    pub fn next_but(&self, held: &BTreeSet<Arc<str>>) -> Option<(i32, &Arc<str>)> {
        let lanes = self.lanes.iter().filter_map(|(name, lane)| {
            let priority = lane.ready.first_rank()?.priority();
            Some(((Reverse(priority), lane.served), name))
        });
        let open = lanes.filter(|(_, name)| !held.contains(*name));
        let ((Reverse(priority), _), name) = open.min_by_key(|(order, _)| *order)?;
        Some((priority, name))
    }

    /// Takes the next item out, as [`Backlog::next_but`] names it.
    pub fn pop_but(&mut self, held: &BTreeSet<Arc<str>>) -> Option<(Arc<str>, Key, Rank)> {
        let (_, name) = self.next_but(held)?;
        let name = Arc::clone(name);
        self.round += 1;
        let lane = self.lanes.get_mut(&name)?;
        lane.served = self.round;
        let (rank, key) = lane.ready.pop_first()?;
        lane.places.remove(&key);
        Some((name, key, rank))
    }

    /// Returns the items of a higher priority that leave until an instant, the most important ones
    /// first. What had nowhere to go, and what fails again and again, is not among them.
    pub fn more_important(&self, priority: i32, until: Instant) -> Vec<(Rank, &Arc<str>, &Key)> {
        let leaves = |slot: &Slot| match slot {
            Slot::Waiting { until: at, rank } => (*at <= until).then_some(*rank),
            Slot::Ready(rank) => Some(*rank),
            Slot::Unfenced { .. } | Slot::Stranded(_) => None,
        };
        let mut items = Vec::new();
        for (cluster, lane) in &self.lanes {
            for (key, slot) in &lane.places {
                let rank = leaves(slot).filter(|rank| rank.outranks(priority));
                items.extend(rank.map(|rank| (rank, cluster, key)));
            }
        }
        items.sort_unstable();
        items
    }

    /// Returns the failed clusters and how many items each has.
    pub fn depths(&self) -> impl Iterator<Item = (&Arc<str>, Depth)> {
        self.lanes.iter().map(|(name, lane)| (name, lane.depth()))
    }

    /// Returns the clusters that have a queue.
    pub fn clusters(&self) -> Vec<Arc<str>> {
        self.lanes.keys().cloned().collect()
    }

    /// Returns how many items a cluster has.
    pub fn depth(&self, cluster: &str) -> Depth {
        self.lanes.get(cluster).map(Lane::depth).unwrap_or_default()
    }

    /// Returns all items of one cluster.
    pub fn items(&self, cluster: &str) -> impl Iterator<Item = (&Key, &Slot)> {
        self.lanes
            .get(cluster)
            .into_iter()
            .flat_map(|lane| &lane.places)
    }

    fn take_out(&mut self, cluster: &Arc<str>, key: &Key) -> bool {
        let Some(lane) = self.lanes.get_mut(cluster) else {
            return false;
        };
        let Some(place) = lane.places.remove(key) else {
            return false;
        };
        if let Some(until) = place.until() {
            self.timers
                .remove(&(until, Arc::clone(cluster), key.clone()));
        }
        match place {
            Slot::Waiting { .. } => {}
            Slot::Unfenced { .. } => lane.unfenced -= 1,
            Slot::Ready(rank) => {
                lane.ready.remove(rank, key);
            }
            Slot::Stranded(rank) => {
                let _ = lane.stranded.remove(rank, key) || lane.due.remove(rank, key);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use std::time::Duration;

    use super::*;
    use crate::fleet::testing;

    fn cluster(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    fn rank(priority: i32, since: i64) -> Rank {
        Rank::new(priority, Timestamp::from_second(since).unwrap())
    }

    fn item(name: &str) -> Key {
        Arc::new(testing::key(name))
    }

    fn order(backlog: &mut Backlog) -> Vec<String> {
        std::iter::from_fn(|| backlog.pop_but(&BTreeSet::new()))
            .map(|(_, key, _)| key.name.clone())
            .collect()
    }

    #[test]
    fn clusters_take_turns_unless_one_offers_a_higher_priority() {
        let mut backlog = Backlog::default();
        let (a, b) = (cluster("a"), cluster("b"));
        for (on, key, priority, since) in [
            (&a, "a1", 0, 1),
            (&a, "a2", 0, 2),
            (&a, "a3", 0, 3),
            (&b, "b1", 0, 100),
            (&b, "b2", 0, 101),
            (&b, "vital", 7, 200),
        ] {
            backlog.put(on, item(key), Slot::Ready(rank(priority, since)));
        }
        assert_eq!(order(&mut backlog), ["vital", "a1", "b1", "a2", "b2", "a3"]);
    }

    #[test]
    fn an_item_is_in_one_place_only() {
        let mut backlog = Backlog::default();
        let (a, now) = (cluster("a"), Instant::now());
        let until = now + Duration::from_mins(5);
        assert!(backlog.put(
            &a,
            item("x"),
            Slot::Waiting {
                until,
                rank: rank(0, 300)
            }
        ));
        assert!(
            !backlog.put(&a, item("x"), Slot::Ready(rank(0, 1))),
            "a duplicate is no new item"
        );
        assert_eq!(backlog.next_timer(), None);
        assert!(!backlog.put(&a, item("x"), Slot::Stranded(rank(0, 1))));
        assert_eq!(backlog.next_but(&BTreeSet::new()), None);
        assert_eq!(
            backlog.depths().next().unwrap().1,
            Depth {
                stranded: 1,
                ..Depth::default()
            }
        );
        backlog.wake_stranded();
        assert!(backlog.has_due());
        backlog.retry(10);
        assert_eq!(order(&mut backlog), ["x"]);
        backlog.wake_stranded();
        assert!(!backlog.has_due());
        let depth = |backlog: &Backlog| {
            let depth = backlog.depth("a");
            [depth.waiting, depth.ready, depth.stranded]
        };
        let unfenced = Slot::Unfenced {
            until,
            rank: rank(0, 1),
        };
        backlog.put(&a, item("x"), unfenced);
        backlog.put(&a, item("x"), unfenced);
        assert_eq!(depth(&backlog), [0, 0, 1], "it cannot leave");
        assert_eq!(backlog.mature(until).len(), 1, "it is judged again");
        assert_eq!(depth(&backlog), [0, 1, 0]);
    }

    #[test]
    fn as_many_stranded_items_are_tried_again_as_is_said() {
        for (most, expected) in [
            (0, vec![]),
            (1, vec!["a1"]),
            (2, vec!["a1", "b1"]),
            (3, vec!["a1", "b1", "a2"]),
            (9, vec!["a1", "b1", "a2"]),
        ] {
            let mut backlog = Backlog::default();
            for (on, key, since) in [("a", "a2", 2), ("a", "a1", 1), ("b", "b1", 3)] {
                backlog.put(&cluster(on), item(key), Slot::Stranded(rank(0, since)));
            }
            backlog.wake_stranded();
            backlog.retry(most);
            assert_eq!(order(&mut backlog), expected, "{most}");
            assert_eq!(backlog.has_due(), most < 3, "{most}");
        }
    }

    #[test]
    fn a_stranded_item_that_is_taken_elsewhere_is_not_tried_again() {
        let (a, stranded) = (cluster("a"), Slot::Stranded(rank(0, 1)));
        for woken in [false, true] {
            let mut backlog = Backlog::default();
            backlog.put(&a, item("x"), stranded);
            if woken {
                backlog.wake("a", &item("x"));
            }
            assert_eq!(backlog.has_due(), woken);
            backlog.put(&a, item("x"), Slot::Ready(rank(0, 1)));
            assert_eq!(order(&mut backlog), ["x"]);
            backlog.wake_stranded();
            assert!(!backlog.has_due(), "{woken}");
        }
    }

    #[test]
    fn the_recovery_of_a_cluster_drops_its_items_and_no_others() {
        let mut backlog = Backlog::default();
        let (a, b, now) = (cluster("a"), cluster("b"), Instant::now());
        backlog.put(&a, item("ready"), Slot::Ready(rank(0, 1)));
        backlog.put(
            &a,
            item("waiting"),
            Slot::Waiting {
                until: now,
                rank: rank(0, 1),
            },
        );
        backlog.put(&a, item("stranded"), Slot::Stranded(rank(0, 1)));
        backlog.put(&b, item("other"), Slot::Ready(rank(0, 1)));
        let mut dropped = backlog.drop_cluster("a");
        dropped.sort_unstable();
        assert_eq!(dropped, ["ready", "stranded", "waiting"].map(item));
        assert_eq!(backlog.next_timer(), None);
        assert_eq!(order(&mut backlog), ["other"]);
    }
}
