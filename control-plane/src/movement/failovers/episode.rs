//! One failover as it goes on: what its object says, and what is still to be seen.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::failover_record::{
    Cause, CauseType, Failover, FailoverSpec, FailoverStatus, FailoverWorkload, Move, Return,
    State, StrandedReason, StrandedWorkload, Subject, Target, Times, Workloads,
};
use muster_shared::clock::{later, whole_second};
use muster_shared::k8s::Time;

use super::cause::{LONGEST_LIST, Trouble};
use super::durations;
use super::observed::{Moved, Observed, Stranding};
use crate::fleet::binding::BindingKey;

/// Time after the end of a failover in which its cause may return and belongs to it: a cluster that
/// comes and goes must not fill the history.
pub const QUIET: SignedDuration = SignedDuration::from_mins(5);
/// Time after the recovery of a cluster after which new trouble is another failover, although a
/// workload of this one may never have become healthy.
pub const PATIENCE: SignedDuration = SignedDuration::from_hours(1);
/// Targets that a record names at most (the schema's rule).
const MOST_TARGETS: usize = 64;

/// A workload that moved.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is known or not, whatever the others are"
)]
struct Entry {
    at: Timestamp,
    since: Timestamp,
    is_healthy: bool,
    is_cleaned: bool,
    /// Whether its old copy stays until a person says otherwise.
    is_kept: bool,
    /// Whether nobody waits until it is healthy.
    needs_no_health: bool,
    /// Whether the record counts it among those that were healthy, by this move or an earlier one.
    was_healthy: bool,
    /// Whether it was found after a start, so that the record may have counted it.
    was_found: bool,
}

/// Counts of a failover since they were read last, for the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// Workloads that moved.
    pub moved: u64,
    /// Workloads that were stranded.
    pub stranded: u64,
    /// Workloads that were held.
    pub held: u64,
    /// Seconds of workloads that became healthy.
    pub healthy: Vec<u64>,
}

/// A failover.
#[derive(Clone, Debug)]
pub struct Episode {
    /// Spec of the record: what failed, and since when.
    pub spec: FailoverSpec,
    /// Status that the record is to have.
    pub status: FailoverStatus,
    /// Its object as it was last seen or written.
    pub object: Option<Failover>,
    /// Counts that are not in the metrics yet.
    pub counted: Counted,
    /// Beginning of the present trouble: later than that of the record after a relapse.
    since: Timestamp,
    entries: BTreeMap<BindingKey, Entry>,
    /// Workloads that moved, and that are gone or moved on since, so that nothing more is seen of
    /// these moves. A short list may say so of one that is there.
    gone: BTreeSet<BindingKey>,
    /// Workloads that are stranded or held now.
    stranded: BTreeMap<BindingKey, (FailoverWorkload, Stranding)>,
    /// Workloads that the record counted before a start and that were not found again yet: those
    /// that moved, those that were healthy, and those of each target.
    credit: (u32, u32, BTreeMap<String, u32>),
    /// Whether what it counts may be in the record already.
    is_loading: bool,
    last_healthy: Option<Timestamp>,
    last_cleaned: Option<Timestamp>,
    /// Last heartbeat before the present silence.
    silent_since: Option<Timestamp>,
    /// Time at which the first copy stops there, of those whose policies ask for that.
    stops: Option<Timestamp>,
}

/// Message of the cause of a failover whose writer ended before it had given the cause.
const UNWRITTEN: &str = "the control plane that noticed it ended before it wrote why";

/// Kind of incident. Causes of one family are stages of the same incident.
#[derive(PartialEq, Eq)]
enum Family {
    Drain,
    Taint,
    Failure,
}

fn family(kind: &CauseType) -> Family {
    match kind {
        CauseType::Drain => Family::Drain,
        CauseType::Taint => Family::Taint,
        _ => Family::Failure,
    }
}

/// Begins at the whole second that an object stores.
pub fn start_of(spec: &FailoverSpec) -> Timestamp {
    spec.start_time.as_ref().map_or(Timestamp::MIN, |it| it.0)
}

impl Episode {
    /// Begins a new failover.
    pub fn new(cluster: &str, subject: Subject, cause: Cause, start: Timestamp) -> Self {
        let spec = FailoverSpec {
            cluster: cluster.to_owned(),
            subject,
            start_time: Some(Time(whole_second(start))),
        };
        let status = FailoverStatus {
            state: State::Active,
            cause,
            ..FailoverStatus::default()
        };
        Self::with(spec, status, None)
    }

    /// Reads a failover from an object that another process wrote.
    pub fn read(object: Failover) -> Self {
        let status = object.status.clone().unwrap_or_default();
        Self::with(object.spec.clone(), status, Some(object))
    }

    fn with(spec: FailoverSpec, status: FailoverStatus, object: Option<Failover>) -> Self {
        // A workload that moved twice counts once.
        let count = |wanted: &dyn Fn(&&Move) -> bool| {
            let moves = status.moves.iter().filter(wanted);
            let workloads: BTreeSet<&FailoverWorkload> = moves.map(|it| &it.workload).collect();
            u32::try_from(workloads.len()).unwrap_or(u32::MAX)
        };
        let listed = count(&|_| true);
        let healthy = count(&|it| it.healthy.is_some());
        let targets = status.targets.iter();
        let credit = (
            status.workloads.moved.saturating_sub(listed),
            status.workloads.healthy.saturating_sub(healthy),
            targets
                .map(|it| (it.cluster.clone(), it.workloads))
                .collect(),
        );
        Self {
            since: start_of(&spec),
            spec,
            status,
            counted: Counted::default(),
            entries: BTreeMap::new(),
            gone: BTreeSet::new(),
            stranded: BTreeMap::new(),
            credit,
            is_loading: object.is_some(),
            object,
            last_healthy: None,
            last_cleaned: None,
            silent_since: None,
            stops: None,
        }
    }

    /// Notes that everything that is remembered was compared: what the record counted beyond that
    /// is of workloads that are gone.
    pub fn loaded(&mut self) {
        let (gone, healthy, _) = &self.credit;
        let healthy = healthy.saturating_sub(*gone);
        self.credit = (0, healthy, BTreeMap::new());
        self.is_loading = false;
    }

    /// Returns what orders the failover among those of its cluster: one that goes on comes after
    /// those that have ended, whatever the clock said that dated it, and the time decides among
    /// others. Applications may have been unhealthy for longer than those that were moved before
    /// them.
    pub fn position(&self) -> (bool, Timestamp) {
        let start = start_of(&self.spec);
        let last_move = self.status.times.last_move.as_ref().map(|it| it.0);
        let time = match self.spec.subject {
            Subject::Applications => last_move.unwrap_or(start),
            _ => start,
        };
        (self.ended().is_none(), time)
    }

    /// Returns the second after the cluster was well again, or else after the last workload moved,
    /// or else after the failover began: what belongs to the next failover is later.
    pub fn rest_begins(&self) -> Timestamp {
        let times = &self.status.times;
        let over = times.recovered.as_ref().or(times.last_move.as_ref());
        let over = over.map_or(Timestamp::MIN, |it| it.0);
        later(over.max(start_of(&self.spec)), SignedDuration::from_secs(1))
    }

    /// Returns whether the cause of the failover may still return, or a workload of it is still
    /// compared.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.ended().is_none_or(|ended| now <= later(ended, QUIET))
    }

    /// Returns whether the failover is over, and a move of that time was already counted before it
    /// ended.
    pub fn is_closed_to(&self, at: Timestamp, now: Timestamp) -> bool {
        !self.is_live(now) && self.ended().is_some_and(|ended| at <= ended)
    }

    /// Returns whether the failover has a cause. A record that was read before its writer had given
    /// the cause gets that later; if the writer ended before, the record says so once nothing fails
    /// any more, although its workloads may never be healthy.
    pub fn is_explained(&mut self) -> bool {
        let is_known = |it: &&Cause| !it.kind.as_str().is_empty() && it.message != UNWRITTEN;
        if is_known(&&self.status.cause) {
            return true;
        }
        let stored = self.object.as_ref().and_then(|it| it.status.as_ref());
        if let Some(cause) = stored.map(|it| &it.cause).filter(is_known) {
            self.status.cause = cause.clone();
        } else if self.status.state != State::Active {
            self.status.cause = Cause {
                kind: match self.spec.subject {
                    Subject::Applications => CauseType::ApplicationFailure,
                    _ => CauseType::ClusterNotReady,
                },
                message: UNWRITTEN.to_owned(),
                ..Cause::default()
            };
        }
        !self.status.cause.kind.as_str().is_empty()
    }

    /// Closes the failover because another one of the same cluster begins.
    pub fn close(&mut self, now: Timestamp) {
        if self.spec.subject == Subject::Cluster {
            self.recover(now);
        }
        if self.ended().is_none() {
            let recovered = self.status.times.recovered.clone();
            self.status.times.ended = Some(recovered.unwrap_or_else(|| Time(whole_second(now))));
        }
    }

    /// Forgets the workloads of the failover: nothing of it is followed any more.
    pub fn rest(&mut self) {
        self.entries = BTreeMap::new();
        self.gone = BTreeSet::new();
        self.stranded = BTreeMap::new();
    }

    /// Returns when the failover ended.
    pub fn ended(&self) -> Option<Timestamp> {
        self.status.times.ended.as_ref().map(|it| it.0)
    }

    /// Returns whether trouble at a later moment belongs to this failover.
    pub fn takes(&self, at: Timestamp) -> bool {
        if let Some(ended) = self.ended() {
            return at <= later(ended, QUIET);
        }
        let times = &self.status.times;
        let last = match self.spec.subject {
            Subject::Applications => &times.last_move,
            _ => &times.recovered,
        };
        last.as_ref().is_none_or(|it| at <= later(it.0, PATIENCE))
    }

    /// Returns whether the failover is over and what happens now has another cause: a cluster that
    /// falls silent after somebody drained it is no return of the drain.
    pub fn is_over_before(&self, cause: &Cause) -> bool {
        let known = &self.status.cause.kind;
        self.status.times.recovered.is_some()
            && !known.as_str().is_empty()
            && family(known) != family(&cause.kind)
    }

    /// Notes that the cluster is in trouble.
    pub fn fail(&mut self, trouble: &Trouble) {
        let (status, known) = (&mut self.status, &trouble.times);
        let times = &mut status.times;
        if let Some(recovered) = times.recovered.take() {
            status.relapses = status.relapses.saturating_add(1);
            let returned = Time(whole_second(trouble.since).max(recovered.0));
            status.returns.push(Return {
                recovered: Some(recovered),
                returned: Some(returned),
            });
            let surplus = status.returns.len().saturating_sub(LONGEST_LIST);
            status.returns.drain(..surplus);
            times.ended = None;
            // What was nothing but a prelude does not explain what happens now.
            let Workloads {
                moved,
                stranded,
                held,
                ..
            } = status.workloads;
            if (moved, stranded, held) == (0, 0, 0) {
                *times = Times::default();
                status.cause = Cause::default();
            }
        }
        self.silent_since = known.silent_since.as_ref().map(|it| it.0);
        if status.relapses > 0 {
            self.since = self.since.max(trouble.since);
        }
        for (time, known) in [
            (&mut times.silent_since, &known.silent_since),
            (&mut times.not_ready, &known.not_ready),
            (&mut times.tainted, &known.tainted),
        ] {
            if time.is_none() {
                time.clone_from(known);
            }
        }
        let (cause, new) = (&mut status.cause, &trouble.cause);
        if cause.kind.as_str().is_empty() {
            cause.kind = new.kind.clone();
        }
        if cause.message.is_empty() {
            cause.message.clone_from(&new.message);
        }
        if cause.command.is_none() {
            cause.command.clone_from(&new.command);
        }
        add_all(&mut cause.taints, &new.taints);
        add_all(&mut cause.policies, &new.policies);
    }

    /// Notes that the cluster is well, or left the fleet.
    pub fn recover(&mut self, at: Timestamp) {
        let start = start_of(&self.spec);
        let recovered = &mut self.status.times.recovered;
        if recovered.is_none() {
            *recovered = Some(Time(whole_second(at).max(start)));
            self.stranded.clear();
            self.stops = self.stops.filter(|it| *it <= at);
        }
    }

    /// Takes in a move that a binding remembers and that belongs to this failover.
    pub fn moved(&mut self, observed: &Observed, moved: &Moved, has_copy: bool, now: Timestamp) {
        let (key, at) = (&observed.key, moved.at);
        let is_known = self.entries.get(key).is_some_and(|it| it.at == at);
        if !is_known {
            self.count(observed, moved);
        }
        if self.ended().is_some_and(|ended| at > ended) {
            self.status.times.ended = None;
        }
        // What was so once was counted, whatever it is when the next process begins.
        let is_loading = self.is_loading;
        let latched =
            |time: &Option<Time>| is_loading && time.as_ref().is_some_and(|it| at <= it.0);
        let (ended, healthy) = (
            latched(&self.status.times.ended),
            latched(&self.status.times.healthy),
        );
        let cleaned = ended || latched(&self.status.times.cleaned);
        let mut listed = self.listed(&observed.workload, at);
        if let Some(listed) = &mut listed
            && observed.is_applied
            && listed.healthy.is_none()
            && !ended
        {
            listed
                .applied
                .get_or_insert_with(|| Time(whole_second(now)));
        }
        let (is_listed, listed_healthy) =
            listed.map_or((false, false), |it| (true, it.healthy.is_some()));
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        self.gone.remove(key);
        entry.is_kept = observed.kept.contains(&moved.from);
        entry.needs_no_health = observed.needs_no_health;
        let placed_again = observed.clusters.contains(&moved.from);
        let is_clean = placed_again || !has_copy && !observed.leaving.contains(&moved.from);
        if is_clean && !entry.is_cleaned {
            self.last_cleaned = Some(now).filter(|_| !cleaned).or(self.last_cleaned);
        }
        entry.is_cleaned |= !entry.is_kept && (cleaned || is_clean);
        // The end of a failover does not say whether a workload was healthy that nobody waits
        // for.
        let was_awaited = ended && !observed.needs_no_health;
        if entry.is_healthy || !(observed.is_healthy || was_awaited || healthy || listed_healthy) {
            return;
        }
        entry.is_healthy = true;
        let (since, was_found) = (entry.since, entry.was_found);
        let was_healthy = std::mem::replace(&mut entry.was_healthy, true);
        if listed_healthy {
            return;
        }
        if !was_healthy && !is_listed && was_found && self.credit.1 > 0 {
            self.credit.1 -= 1;
            return;
        }
        let seconds = whole_second(now).duration_since(since).as_secs();
        let seconds = u64::try_from(seconds).unwrap_or(0);
        durations::add(&mut self.status.time_to_healthy, seconds);
        if !was_healthy {
            let workloads = &mut self.status.workloads;
            workloads.healthy = workloads.healthy.saturating_add(1);
        }
        self.counted.healthy.push(seconds);
        self.last_healthy = Some(now);
        if let Some(listed) = self.listed(&observed.workload, at) {
            listed.healthy = Some(Time(whole_second(now)));
        }
    }

    /// Counts a move that is not known in this process; the record may know it.
    fn count(&mut self, observed: &Observed, moved: &Moved) {
        let at = moved.at;
        let start = start_of(&self.spec);
        let present = Some(self.since).filter(|since| at >= *since);
        let since = moved.since.or(present).unwrap_or(start);
        let is_listed = self.listed(&observed.workload, at).is_some();
        // A workload that moved before is not counted again.
        let known = self.entries.get(&observed.key);
        let listed = self.status.moves.iter();
        let mut earlier = listed.filter(|it| it.workload == observed.workload);
        let was_healthy = known.is_some_and(|it| it.was_healthy)
            || earlier.clone().any(|it| it.healthy.is_some());
        let is_again = known.is_some() || earlier.next().is_some();
        let was_found = is_listed || !is_again && self.credit.0 > 0;
        let entry = Entry {
            at,
            since,
            is_healthy: false,
            is_cleaned: false,
            is_kept: false,
            needs_no_health: false,
            was_healthy,
            was_found,
        };
        self.entries.insert(observed.key.clone(), entry);
        for target in moved.to.split(',') {
            // A list that was cut ends with a number of others.
            let name = target.split(' ').next().unwrap_or_default();
            self.count_target(name);
        }
        if is_listed {
            return;
        }
        if !is_again && self.credit.0 > 0 {
            self.credit.0 -= 1;
            return;
        }
        let times = &mut self.status.times;
        let earlier = |known: &Time| known.0 <= at;
        if !times.first_move.as_ref().is_some_and(earlier) {
            times.first_move = Some(Time(at));
        }
        if times.last_move.as_ref().is_none_or(|it| it.0 < at) {
            times.last_move = Some(Time(at));
        }
        if !is_again {
            self.status.workloads.moved = self.status.workloads.moved.saturating_add(1);
        }
        self.counted.moved += 1;
        self.status.moves.push(Move {
            workload: observed.workload.clone(),
            to: moved.to.clone(),
            time: Some(Time(at)),
            applied: None,
            healthy: None,
        });
    }

    fn count_target(&mut self, name: &str) {
        if let Some(credit) = self.credit.2.get_mut(name).filter(|it| **it > 0) {
            *credit -= 1;
            return;
        }
        let targets = &mut self.status.targets;
        match targets.binary_search_by(|it| it.cluster.as_str().cmp(name)) {
            Ok(at) => targets[at].workloads = targets[at].workloads.saturating_add(1),
            Err(at) if targets.len() < MOST_TARGETS => {
                let cluster = name.to_owned();
                targets.insert(
                    at,
                    Target {
                        cluster,
                        workloads: 1,
                    },
                );
            }
            Err(_) => self.status.other_targets = self.status.other_targets.saturating_add(1),
        }
    }

    fn listed(&mut self, workload: &FailoverWorkload, at: Timestamp) -> Option<&mut Move> {
        let mut moves = self.status.moves.iter_mut();
        moves.find(|it| it.workload == *workload && it.time.as_ref().is_some_and(|it| it.0 == at))
    }

    /// Keeps the list of moves within a number.
    pub fn limit(&mut self, entries: usize) {
        self.status.moves.truncate(entries);
    }

    /// Forgets a workload that is gone.
    pub fn forget(&mut self, key: &BindingKey) {
        self.stranded.remove(key);
        self.forget_move(key);
    }

    /// Forgets the move of a workload that moved on: whether it is healthy where it went first is
    /// not seen any more. Returns whether that changes something.
    pub fn forget_move(&mut self, key: &BindingKey) -> bool {
        let Some(entry) = self.entries.get(key) else {
            return false;
        };
        let is_settled = entry.is_healthy && entry.is_cleaned;
        self.gone.insert(key.clone()) && !is_settled
    }

    /// Notes whether a workload is stranded or held. Returns whether that changes something.
    pub fn strand(&mut self, observed: &Observed) -> bool {
        let stranding = observed.stranding_on(&self.spec.cluster);
        match stranding {
            Some(it) => {
                let known = self.stranded.get(&observed.key);
                if known.is_some_and(|(_, known)| known.reason == it.reason) {
                    return false;
                }
                let new = (observed.workload.clone(), it.clone());
                self.stranded.insert(observed.key.clone(), new);
                true
            }
            None => self.stranded.remove(&observed.key).is_some(),
        }
    }

    /// Returns whether the cluster is well again, or left the fleet.
    pub fn is_over(&self) -> bool {
        self.status.times.recovered.is_some()
    }

    /// Notes after which time of silence the first copy in the cluster is stopped.
    pub fn fences(&mut self, after: Option<SignedDuration>) {
        let stops = self.silent_since.zip(after);
        let stops = stops.and_then(|(since, after)| since.checked_add(after).ok());
        self.stops = self.stops.into_iter().chain(stops).min();
    }

    /// Returns the time until the first copy in the cluster is stopped.
    pub fn stops_in(&self, now: Timestamp) -> Option<SignedDuration> {
        let left = self.stops?.duration_since(now);
        left.is_positive().then_some(left)
    }

    /// Notes which workloads are placed in the cluster: they are affected, and those that left.
    pub fn affects(&mut self, here: &[BindingKey]) {
        let stays = here.iter().filter(|key| !self.has(key)).count();
        let all = self.entries.len().saturating_add(stays);
        let affected = &mut self.status.workloads.affected;
        *affected = u32::try_from(all).unwrap_or(u32::MAX).max(*affected);
    }

    /// Returns whether the failover knows of a workload that left.
    pub fn has(&self, key: &BindingKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Draws the conclusions of what was seen; `entries` bounds the lists.
    pub fn settle(&mut self, entries: usize, now: Timestamp) {
        self.settle_stranded(entries);
        self.affects(&[]);
        if let Some(stopped) = self.stops.take_if(|it| *it <= now) {
            let known = &mut self.status.times.stopped;
            known.get_or_insert_with(|| Time(whole_second(stopped)));
        }
        let workloads = self.status.workloads;
        let (last_healthy, last_cleaned) = (self.last_healthy, self.last_cleaned);
        let all = |wanted: &dyn Fn(&Entry) -> bool| {
            let mut entries = self.entries.iter();
            entries.all(|(key, it)| self.gone.contains(key) || wanted(it))
        };
        let (healthy, cleaned) = (all(&|it| it.is_healthy), all(&|it| it.is_cleaned));
        // A failover does not wait for the health of workloads that ask for no replicas or have
        // ended, nor for the removal of copies that are kept.
        let is_settled =
            all(&|it| (it.is_healthy || it.needs_no_health) && (it.is_cleaned || it.is_kept));
        let is_ended = self.status.times.ended.is_some();
        let times = &mut self.status.times;
        if workloads.moved > 0 && !is_ended {
            for (time, is_done, last) in [
                (&mut times.healthy, healthy, last_healthy),
                (&mut times.cleaned, cleaned, last_cleaned),
            ] {
                let known = time.take().map(|it| it.0);
                if is_done {
                    let last = last
                        .map(whole_second)
                        .or(known)
                        .unwrap_or_else(|| whole_second(now));
                    *time = Some(Time(known.map_or(last, |known| known.max(last))));
                }
            }
        }
        let is_over = self.spec.subject == Subject::Applications || times.recovered.is_some();
        if !is_over {
            times.ended = None;
            self.status.state = State::Active;
        } else if is_ended || is_settled {
            if times.ended.is_none() {
                let steps = [&times.recovered, &times.healthy, &times.cleaned];
                let last = steps.into_iter().flatten().map(|it| it.0).max();
                times.ended = Some(Time(last.unwrap_or_else(|| whole_second(now))));
            }
            self.status.state = State::Ended;
        } else {
            self.status.state = State::Settling;
        }
    }

    fn settle_stranded(&mut self, entries: usize) {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let all = self.stranded.values();
        let stranded: Vec<_> = all.filter(|(_, it)| !it.is_held()).collect();
        let count = number(stranded.len());
        let workloads = &mut self.status.workloads;
        workloads.held_now = number(self.stranded.len() - stranded.len());
        let more = workloads.held_now.saturating_sub(workloads.held);
        workloads.held += more;
        self.counted.held += u64::from(more);
        workloads.stranded_now = count;
        if count == 0 || count < workloads.stranded {
            return;
        }
        let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, it) in &stranded {
            *reasons.entry(&it.reason).or_default() += 1;
        }
        let reasons: Vec<StrandedReason> = reasons
            .into_iter()
            .take(LONGEST_LIST)
            .map(|(reason, workloads)| StrandedReason {
                reason: reason.to_owned(),
                workloads,
            })
            .collect();
        if count == workloads.stranded && reasons == self.status.stranded_reasons {
            return;
        }
        self.counted.stranded += u64::from(count - workloads.stranded);
        workloads.stranded = count;
        self.status.stranded_reasons = reasons;
        let stranded = stranded.into_iter().take(entries);
        self.status.stranded = stranded
            .map(|(workload, it)| StrandedWorkload {
                workload: workload.clone(),
                reason: it.reason.clone(),
                message: it.message.clone(),
            })
            .collect();
    }
}

pub(super) fn add_all(known: &mut Vec<String>, new: &[String]) {
    for it in new {
        if known.len() < LONGEST_LIST && !known.contains(it) {
            known.push(it.clone());
        }
    }
}
