//! Judges what is known of the record of renewals. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::record::{Machine, Record};

/// Kinds that are searched where the record is lost: those that Kubernetes itself runs.
pub const BUILT_IN: [&str; 8] = [
    "apps/v1/DaemonSet",
    "apps/v1/Deployment",
    "apps/v1/ReplicaSet",
    "apps/v1/StatefulSet",
    "batch/v1/CronJob",
    "batch/v1/Job",
    "/v1/Pod",
    "/v1/ReplicationController",
];
/// Pause between searches.
const SEARCH: Duration = Duration::from_mins(1);
/// Time beyond an interval within which a leader has recorded its next renewal.
const WRITTEN: Duration = Duration::from_secs(5);

/// The process that reads the record.
#[derive(Debug)]
pub struct Reader<'a> {
    /// Machine on which it runs.
    pub machine: &'a Machine,
    /// Time from which it no longer renews the lease itself, if it ever did.
    pub silent_from: Option<Instant>,
    /// Time at which its machine woke from a suspension.
    pub woken: Option<Instant>,
    /// Pause between renewals of the lease.
    pub interval: Duration,
}

/// State of the record of the last renewal, as far as it is known.
#[derive(Debug, Default)]
pub struct Kept {
    /// The record as it was read or written last; `None` before the first read.
    pub record: Option<Record>,
    /// Sending of the renewal that was recorded last.
    pub recorded: Option<Instant>,
    /// Time of the last read.
    pub read: Option<Instant>,
    /// Time of the last read that showed another renewal than the one after it.
    changed: Option<Instant>,
    /// Time until which nothing is stopped, because records of others may have been missed.
    settles: Option<Instant>,
    /// Whether the member has no record that can be read.
    is_lost: bool,
    /// Time of the last search.
    searched: Option<Instant>,
}

impl Kept {
    /// Takes in a record that was read by a request that was sent at a time; `None` where there is
    /// none that can be read, which reports no renewal.
    ///
    /// A process that could not read for an interval has missed what another agent wrote, and would
    /// stop the workloads of a cluster that is well. It waits until a leader would have written
    /// again. The age of a record of this machine is known: then a leader that could not write
    /// either is waited for, no longer.
    pub fn learn(&mut self, found: Option<Record>, asked: Instant, reader: &Reader<'_>) {
        self.is_lost = found.is_none();
        if self.is_lost {
            self.changed = None;
        }
        let mut record = found.unwrap_or_default();
        if let Some(known) = &self.record {
            if !self.is_lost && !known.is_of_same_renewal(&record) && self.read.is_some() {
                self.changed = self.read;
            }
            record.kinds.extend(known.kinds.iter().cloned());
        }
        let is_own = !record.boot.is_empty() && record.boot == reader.machine.boot;
        let wait = if is_own {
            WRITTEN
        } else {
            reader.interval + WRITTEN
        };
        let has_missed = self.read.is_some_and(|read| {
            let before = reader.silent_from.map_or(read, |from| from.max(read));
            asked > before + reader.interval || reader.woken.is_some_and(|woken| read < woken)
        });
        let was_waiting = self
            .settles
            .is_some_and(|until| asked < until + 2 * wait && asked + wait > until);
        if has_missed && !was_waiting {
            self.settles = Some(asked + wait);
        }
        self.read = Some(asked);
        self.record = Some(record);
    }

    /// Takes in a record that was written about a renewal that was sent at a time.
    pub fn wrote(&mut self, record: Record, sent: Instant) {
        self.record = Some(record);
        self.recorded = Some(sent);
        self.is_lost = false;
    }

    /// Returns a time at or before the last renewal that the record reports.
    pub fn bound(&self, machine: &Machine, now: Instant) -> Option<Instant> {
        self.record.as_ref()?.bound(machine, self.changed, now)
    }

    /// Kinds with fenced objects; none before the first read.
    pub fn kinds(&self) -> BTreeSet<String> {
        let record = self.record.as_ref();
        record
            .map(|record| record.kinds.clone())
            .unwrap_or_default()
    }

    /// Returns the kinds that are searched for fenced objects now, because the record that names
    /// them is lost. Only after a while again, because a large member answers slowly.
    pub fn to_search(&self, now: Instant) -> Vec<&'static str> {
        let is_time = self.searched.is_none_or(|last| now >= last + SEARCH);
        if !(self.is_lost && is_time) {
            return Vec::new();
        }
        let known = self.kinds();
        let unknown = |kind: &&str| !known.contains(*kind);
        BUILT_IN.into_iter().filter(unknown).collect()
    }

    /// Takes in the kinds that a search has found; `is_whole` says whether all kinds were searched.
    pub fn found(&mut self, kinds: Vec<&str>, is_whole: bool, now: Instant) {
        let record = self.record.get_or_insert_default();
        record.kinds.extend(kinds.into_iter().map(str::to_owned));
        if is_whole {
            self.searched = Some(now);
        }
    }

    /// Returns whether what is known says whether the member is cut off.
    pub fn is_settled(&self, now: Instant) -> bool {
        self.settles.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn reader(machine: &Machine) -> Reader<'_> {
        Reader {
            machine,
            silent_from: None,
            woken: None,
            interval: 10 * S,
        }
    }

    fn learn(kept: &mut Kept, found: impl Into<Option<Record>>, asked: Instant) {
        kept.learn(found.into(), asked, &reader(&Machine::default()));
    }

    fn record(millis: u64) -> Record {
        Record {
            boot: "another".to_owned(),
            uptime_millis: millis,
            age_millis: 0,
            kinds: BTreeSet::from(["apps/v1/Deployment".to_owned()]),
        }
    }

    fn age(kept: &Kept, now: Instant) -> Option<u64> {
        let bound = kept.bound(&Machine::default(), now);
        bound.map(|bound| (now - bound).as_secs())
    }

    #[test]
    fn a_follower_knows_from_the_changes_of_the_record_that_the_lease_is_renewed() {
        let (mut kept, start) = (Kept::default(), Instant::now());
        learn(&mut kept, record(1), start);
        assert_eq!(age(&kept, start), None, "a record may be of any age");
        learn(&mut kept, record(2), start + 5 * S);
        // Between both reads; 3 s for the write.
        assert_eq!(age(&kept, start + 5 * S), Some(8));
        learn(&mut kept, record(2), start + 10 * S);
        assert_eq!(age(&kept, start + 10 * S), Some(13));
    }

    #[test]
    fn a_record_that_is_deleted_or_garbled_reports_no_renewal_and_fenced_kinds_are_searched() {
        let (mut kept, start) = (Kept::default(), Instant::now());
        learn(&mut kept, record(1), start);
        learn(&mut kept, record(2), start + 5 * S);
        for second in [10, 15, 20] {
            let now = start + second * S;
            learn(&mut kept, None, now);
            assert_eq!(age(&kept, now), None, "nobody knows");
        }
        let mut restarted = Kept::default();
        learn(&mut restarted, None, start);
        assert_eq!(restarted.to_search(start), BUILT_IN);
        restarted.found(vec!["batch/v1/Job"], false, start);
        assert_eq!(restarted.to_search(start).len(), 7, "one did not answer");
        restarted.found(vec![], true, start);
        assert!(restarted.to_search(start + 59 * S).is_empty());
        assert_eq!(restarted.to_search(start + 60 * S).len(), 7);
        assert_eq!(
            restarted.kinds(),
            BTreeSet::from(["batch/v1/Job".to_owned()])
        );
        learn(&mut restarted, record(1), start + 61 * S);
        assert!(restarted.to_search(start + 120 * S).is_empty());
    }

    #[test]
    fn a_follower_that_could_not_read_for_a_while_stops_nothing_before_a_leader_has_written_again()
    {
        for (what, record_after) in [("it changed", 3), ("the leader could not write either", 2)] {
            let (mut kept, start) = (Kept::default(), Instant::now());
            learn(&mut kept, record(1), start);
            learn(&mut kept, record(2), start + 5 * S);
            assert!(kept.is_settled(start + 5 * S), "{what}");
            let back = start + 120 * S;
            learn(&mut kept, record(record_after), back);
            assert!(!kept.is_settled(back + 14 * S), "{what}");
            assert!(kept.is_settled(back + 15 * S), "{what}");
        }
    }

    #[test]
    fn an_api_that_answers_now_and_then_does_not_put_off_the_stop_for_ever() {
        let (mut kept, start) = (Kept::default(), Instant::now());
        for turn in 0..5 {
            learn(&mut kept, record(1), start + turn * 12 * S);
        }
        assert!(kept.is_settled(start + 12 * S + 15 * S));
    }

    #[test]
    fn an_agent_that_stops_leading_begins_to_read_and_waits_for_nothing() {
        let (mut kept, start) = (Kept::default(), Instant::now());
        learn(&mut kept, record(1), start);
        // It led, and read nothing, until it failed to renew.
        let silent_from = start + 620 * S;
        let machine = Machine::default();
        let reader = Reader {
            silent_from: Some(silent_from),
            ..reader(&machine)
        };
        kept.learn(Some(record(1)), silent_from + S, &reader);
        assert!(kept.is_settled(silent_from + S));
    }

    #[test]
    fn a_machine_that_wakes_from_a_suspension_waits_for_a_leader() {
        for (boot, seconds) in [("its own", 15), ("another", 5)] {
            let (mut kept, start) = (Kept::default(), Instant::now());
            learn(&mut kept, record(1), start);
            let machine = Machine {
                boot: boot.to_owned(),
                uptime: Duration::ZERO,
            };
            let reader = Reader {
                woken: Some(start + 2 * S),
                ..reader(&machine)
            };
            let now = start + 3 * S;
            kept.learn(Some(record(1)), now, &reader);
            assert!(!kept.is_settled(now + seconds * S - S), "{boot}");
            assert!(kept.is_settled(now + seconds * S), "{boot}");
        }
    }
}
