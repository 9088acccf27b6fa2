//! Lets a result be written.
//!
//! A result that takes from one cluster for another is a move: it waits while movement is paused,
//! and it is paid for from the budget that evictions use, in the moment before it is written. First
//! placements, growth and shrinking take nothing from one cluster for another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{
    GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus, TargetCluster,
};
use muster_shared::conditions;
use muster_shared::names::condition::SCHEDULED;
use muster_shared::names::eviction::{PAUSED, REASON_NO_CLUSTER_FIT, STOPPED, WAITING_FOR_RATE};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::move_queue::MoveQueue;
use super::{Scheduler, Subject};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::{Pace, Paid};
use crate::fleet::memory::Backoff;
use crate::fleet::pause::{Pause, losers};
use crate::scheduler::core::Snapshot;
use crate::scheduler::core::fit_error::Kind;
use crate::scheduler::core::need::Need;
use crate::scheduler::core::outcome::Outcome;
use crate::scheduler::core::released::{is_released, is_scaled_away};
use crate::scheduler::core::replacement::{Cause, as_it_runs, can_keep};
use crate::scheduler::core::report::{Report, Verdict};

/// Reason of the condition of a binding whose move waits until its order can be carried out.
const OBSTRUCTED: &str = "TargetObstructed";

/// Reason of the condition of a binding whose move waited when its scheduling was suspended. The
/// move remains one that was held back.
const SUSPENDED: &str = "SchedulingSuspended";

/// Returns whether a binding says that its move waits for something that need not come.
pub(crate) fn waits_for_others(status: &ResourceBindingStatus) -> bool {
    let reported = conditions::get(&status.conditions, SCHEDULED);
    reported.is_some_and(|reported| [PAUSED, OBSTRUCTED].contains(&&*reported.reason))
}

/// Returns whether a binding says that its move waits.
pub fn waits_to_move(status: &ResourceBindingStatus) -> bool {
    const WAITS: [&str; 5] = [PAUSED, WAITING_FOR_RATE, STOPPED, OBSTRUCTED, SUSPENDED];
    let reported = conditions::get(&status.conditions, SCHEDULED);
    reported.is_some_and(|reported| WAITS.contains(&&*reported.reason))
}

/// Returns the report on a binding whose scheduling was suspended while its move waited; `None`
/// where no move of it did. One without clusters goes on saying why.
pub(super) fn suspended(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
) -> Option<Report> {
    let waits = spec.scheduling_suspended() && !spec.clusters.is_empty() && waits_to_move(status);
    let verdict = || Verdict {
        scheduled: true,
        generation: None,
        reason: SUSPENDED,
        message: "Binding has been scheduled, and is not moved while its scheduling is suspended."
            .to_owned(),
    };
    waits.then(|| Report {
        scheduled: Some(verdict()),
        ..Report::default()
    })
}

/// Permission to write a result. Nothing else gives one than [`Scheduler::permit`].
#[must_use = "a result is written, or what was paid for it is taken back"]
#[derive(Debug)]
pub(super) struct Permit {
    paid: Option<Paid>,
    /// Clusters that lose the workload, or replicas of it.
    losers: Vec<String>,
}

impl Permit {
    /// Returns whether the clusters that lose something are as they were when this was given: the
    /// watch may not have shown yet that movement out of one is paused.
    ///
    /// # Errors
    /// A cluster cannot be read.
    pub async fn is_confirmed(&self, fleet: &Fleet) -> Result<bool, ApiError> {
        let losers: Vec<&str> = self.losers.iter().map(String::as_str).collect();
        fleet.confirmations.confirm(fleet, &losers).await
    }

    /// Keeps what was paid, unless the answer says that the result was not written.
    pub fn settle<T>(&self, answer: &Result<T, kube::Error>) {
        if let Some(paid) = &self.paid {
            paid.settle(answer);
        }
    }
}

/// Reason why a result is not written now.
#[derive(Debug)]
pub(super) enum Held {
    /// Somebody paused movement.
    Paused(Arc<Pause>),
    /// The rate permits it at this instant; `None`: not while so many clusters have failed.
    Refused(Option<Instant>),
    /// Moves that came before it wait for the budget.
    InLine,
    /// Its order could not be carried out where it would go.
    Obstructed(String),
}

/// First and longest time after which a move that waits until its order could be carried out is
/// reconciled again: the end of a removal is no change of a cluster, and each pass places it anew.
const OBSTRUCTED_FIRST: Duration = Duration::from_secs(15);
const OBSTRUCTED_LONGEST: Duration = Duration::from_mins(2);

/// Moves that wait.
#[derive(Debug)]
pub(super) struct Movement {
    pace: Pace,
    /// Bindings whose moves wait for the budget.
    pub moves: MoveQueue<BindingKey>,
    /// Bindings whose order could not be carried out in any cluster.
    pub obstructed: Backoff<BindingKey>,
    /// Whether moves wait by priority.
    is_ranked: bool,
    waits: Mutex<HashMap<BindingKey, Wait>>,
}

/// State of a binding whose move waits.
#[derive(Clone, Debug, Default)]
struct Wait {
    /// Report that its condition gives of the wait.
    report: Option<Report>,
    /// Whether it waits for the end of a pause.
    is_paused: bool,
    /// Generation for which no other clusters were found; 0, which no object has, if some were.
    unplaced: Option<i64>,
}

impl Movement {
    /// Moves that are paid from a budget which others use as well.
    pub fn new(pace: Pace, is_ranked: bool) -> Self {
        let moves = MoveQueue::new();
        pace.wakes(moves.woken());
        Self {
            pace,
            moves,
            obstructed: Backoff::between(OBSTRUCTED_FIRST, OBSTRUCTED_LONGEST),
            is_ranked,
            waits: Mutex::default(),
        }
    }

    /// Notes that a binding does not wait for anything any more.
    pub fn ends(&self, key: &BindingKey) {
        self.moves.leave(key);
        self.obstructed.forget(key);
        self.waits.lock().remove(key);
    }

    /// Notes that no clusters were found for a binding as it is now, which stays where it is.
    pub fn found_none(&self, key: &BindingKey, generation: i64) {
        let mut waits = self.waits.lock();
        waits.entry(key.clone()).or_default().unplaced = Some(generation);
    }

    /// Notes that clusters were found for a binding and that the API refused the result: its
    /// condition says that it failed, and yet no pass was in vain.
    pub fn refused(&self, key: &BindingKey) {
        let mut waits = self.waits.lock();
        let wait = waits.entry(key.clone()).or_default();
        wait.unplaced.get_or_insert(0);
    }

    /// Returns what is said of a binding that waits.
    pub fn reported(&self, key: &BindingKey) -> Option<Report> {
        self.wait(key).report
    }

    /// Returns whether a binding waits for its move, or for clusters that it could be placed in.
    pub fn is_waiting(&self, key: &BindingKey) -> bool {
        let waits = self.waits.lock();
        let wait = waits.get(key);
        wait.is_some_and(|it| it.report.is_some() || it.unplaced.is_some())
    }

    fn wait(&self, key: &BindingKey) -> Wait {
        self.waits.lock().get(key).cloned().unwrap_or_default()
    }
}

/// Returns the clusters that a result drops although nobody edited the policy, where no other
/// gains: their copies may be the last that run.
fn withdrawn<'a>(
    before: &'a [TargetCluster],
    after: &[TargetCluster],
    outcome: &Outcome,
    snapshot: &Snapshot,
) -> Vec<&'a str> {
    let is_edit = outcome.need == Some(Need::PlacementChanged);
    let Some(cause) = outcome.cause.as_ref().filter(|_| !is_edit) else {
        return Vec::new();
    };
    let names = before.iter().map(|it| it.name.as_str());
    let dropped = names.filter(|name| after.iter().all(|it| it.name != *name));
    dropped
        .filter(|it| cause.keeps(it) && can_keep(snapshot, it))
        .collect()
}

/// Returns whether a result has no cluster because the workload asks for no replicas: it shrinks,
/// and nothing of it moves.
fn asks_for_none(outcome: &Outcome) -> bool {
    let placed = outcome.placed.as_ref();
    outcome.need.is_some()
        && outcome.failure.is_none()
        && placed.is_some_and(|placed| placed.clusters.is_empty())
}

/// Returns the clusters from which a result takes a workload, or replicas of it, as a move does.
pub(super) fn losers_of<'a>(
    subject: &Subject<'a>,
    outcome: &Outcome,
    snapshot: &Snapshot,
) -> Vec<&'a str> {
    let Some(placed) = &outcome.placed else {
        return Vec::new();
    };
    if asks_for_none(outcome) {
        return Vec::new();
    }
    let (before, after) = (&subject.spec.clusters, &placed.clusters);
    let losers = if subject.spec.is_undivided() {
        let running = as_it_runs(subject.spec, subject.status);
        let losers = losers(&running, after);
        let names = before.iter().map(|it| it.name.as_str());
        names.filter(|it| losers.contains(it)).collect()
    } else {
        losers(before, after)
    };
    let mut losers = if losers.is_empty() {
        withdrawn(before, after, outcome, snapshot)
    } else {
        losers
    };
    losers.retain(|name| outcome.unstarted.iter().all(|it| it != name));
    let stays = |name: &&str| {
        let target = subject.spec.target(name);
        target.is_none_or(|it| !is_scaled_away(subject.spec, it))
    };
    losers.retain(stays);
    losers
}

/// Returns whether the binding says that its move was held back: this process may have started
/// since. One that no cluster may have any more and that has targets still says why instead.
fn has_been_held(subject: &Subject<'_>, outcome: &Outcome) -> bool {
    let reported = conditions::get(&subject.status.conditions, SCHEDULED);
    let is_withdrawal = outcome.failure.is_some() && !subject.spec.clusters.is_empty();
    waits_to_move(subject.status)
        || reported.is_some_and(|it| is_withdrawal && it.reason == Kind::NoClusterFit.reason())
}

/// Returns whether the binding was decided before as it is now, and no other clusters were found.
/// `unplaced` is the generation of the last such decision in this process; without one, the
/// condition reports those of the process before.
fn has_waited(subject: &Subject<'_>, unplaced: Option<i64>) -> bool {
    let has_failed = || {
        let reported = conditions::status(&subject.status.conditions, SCHEDULED);
        reported == Some(conditions::FALSE)
    };
    let is_same = unplaced.map(|generation| generation == subject.generation);
    has_copies(subject) && is_same.unwrap_or_else(has_failed)
}

/// Returns whether a workload has copies, although it may have no cluster any more.
pub(super) fn has_copies(subject: &Subject<'_>) -> bool {
    !subject.spec.clusters.is_empty() || kept_copies(subject.spec).next().is_some()
}

/// Returns the tasks that keep the copies of a workload without a cluster until another cluster
/// takes it: to place it is a move out of theirs.
fn kept_copies(spec: &ResourceBindingSpec) -> impl Iterator<Item = &GracefulEvictionTask> {
    let tasks = spec.graceful_eviction_tasks.iter();
    tasks.filter(|it| spec.clusters.is_empty() && it.reason == REASON_NO_CLUSTER_FIT)
}

/// Returns the clusters whose kept copy, or replicas of it, a result gives to others.
fn given_up<'a>(spec: &'a ResourceBindingSpec, after: &[TargetCluster]) -> Vec<&'a str> {
    let kept = kept_copies(spec).map(|task| TargetCluster {
        name: task.from_cluster.clone(),
        replicas: task.replicas.unwrap_or(0),
        ..TargetCluster::default()
    });
    let kept: Vec<TargetCluster> = kept.collect();
    let losers = losers(&kept, after);
    let is_dropped = |name: &str| after.iter().all(|it| it.name != name);
    kept_copies(spec)
        .filter(|task| !is_released(spec, task))
        .map(|task| task.from_cluster.as_str())
        .filter(|it| is_dropped(it) || losers.contains(it))
        .collect()
}

/// Returns whether a result moves something that stays where it is if nothing is written, and that
/// nobody asked for by an edit. Whoever edits a policy, or the number of replicas, means this one
/// workload or those of this policy, and means them at once: edits that a pause has `held` back, or
/// that no cluster could take, do not all take effect in the moment in which that ends. What a
/// request moves is no edit of the number of replicas, though that was edited as well. `losers`
/// names clusters whose copies can be kept: one that is being removed takes its copies with it.
fn is_to_be_paid(outcome: &Outcome, is_held: bool, losers: &[&str]) -> bool {
    let is_edit = match outcome.need {
        Some(Need::PlacementChanged) => true,
        Some(Need::ReplicasChanged) => {
            let is_other =
                |it: &Cause| matches!(it, Cause::Requested | Cause::ClustersChanged { .. });
            !outcome.cause.as_ref().is_some_and(is_other)
        }
        _ => false,
    };
    (is_held || !is_edit) && !losers.is_empty()
}

impl Scheduler {
    /// Permits a result to be written now, or says why it waits.
    pub(super) fn permit(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        subject: &Subject<'_>,
        outcome: &Outcome,
        (snapshot, now): (&Snapshot, Timestamp),
    ) -> Result<Permit, Held> {
        let mut losers = losers_of(subject, outcome, snapshot);
        if let Some(placed) = outcome.placed.as_ref().filter(|it| !it.clusters.is_empty()) {
            losers.extend(given_up(subject.spec, &placed.clusters));
        }
        // A copy that goes with its cluster is not held there, and its move is not paid for.
        losers.retain(|it| can_keep(snapshot, it));
        let mut pauses = losers.iter().filter_map(|it| fleet.pauses.of(it, now));
        if let Some(pause) = pauses.next() {
            return Err(Held::Paused(pause));
        }
        let wait = self.movement.wait(key);
        let is_held = wait.report.is_some()
            || has_been_held(subject, outcome)
            || has_waited(subject, wait.unplaced);
        let permit = |paid| Permit {
            paid,
            losers: losers.iter().map(|it| (*it).to_owned()).collect(),
        };
        if !is_to_be_paid(outcome, is_held, &losers) {
            return Ok(permit(None));
        }
        let Movement { pace, moves, .. } = &self.movement;
        if !moves.is_next(key) {
            return Err(Held::InLine);
        }
        let paid = pace.pay_after_evictions(Instant::now());
        paid.map(|paid| permit(Some(paid))).map_err(Held::Refused)
    }

    /// Notes that a binding waits, and has its condition `Scheduled` say so, unless that says why
    /// no cluster may have it any more.
    pub(super) fn hold(
        &self,
        fleet: &Fleet,
        (key, binding): (&BindingKey, &AnyBinding),
        outcome: &Outcome,
        held: &Held,
        now: Timestamp,
    ) {
        let verdict = held.verdict(!binding.spec.clusters.is_empty());
        let report = if outcome.failure.is_some() {
            outcome.report.clone()
        } else {
            Report {
                scheduled: Some(verdict.clone()),
                ..Report::default()
            }
        };
        let is_paused = matches!(held, Held::Paused(_));
        let mut waits = self.movement.waits.lock();
        let wait = waits.entry(key.clone()).or_default();
        wait.is_paused = is_paused;
        let is_update = wait.report.replace(report.clone()).as_ref() != Some(&report);
        drop(waits);
        if is_update {
            tracing::info!(binding = %key, reason = verdict.reason, "{}", verdict.message);
            if is_paused {
                fleet.warn(binding, "MovementPaused", verdict.message);
            }
        }
        let (moves, priority) = (&self.movement.moves, self.priority_of(&binding.spec));
        match held {
            Held::Paused(_) | Held::Obstructed(_) => moves.leave(key),
            Held::Refused(until) => {
                moves.refused(key, priority, *until);
                // Clusters may have returned since, which the queue was informed of too early.
                if until.is_none() && self.movement.pace.per_second() > 0.0 {
                    moves.woken().notify_one();
                }
            }
            Held::InLine => moves.join(key, priority),
        }
        if report.patch(binding.status(), now).is_some() {
            self.reports.add(key.clone());
        }
        // The pause may have ended meanwhile. By a later time than that of the decision, it would
        // be decided anew with the same result until the second is over.
        let Held::Paused(pause) = held else {
            return;
        };
        let lasts = match &pause.cluster {
            Some(cluster) => fleet.pauses.of(cluster, now),
            None => fleet.pauses.of_fleet(now),
        };
        if lasts.is_none() {
            self.pauses_changed();
        }
    }

    fn priority_of(&self, spec: &ResourceBindingSpec) -> i32 {
        if self.movement.is_ranked {
            spec.priority()
        } else {
            0
        }
    }

    /// Reconciles again all bindings that waited for the end of a pause.
    pub(super) fn pauses_changed(&self) {
        for (key, wait) in &mut *self.movement.waits.lock() {
            if std::mem::take(&mut wait.is_paused) {
                self.queue.add(key.clone());
            }
        }
    }
}

impl Held {
    /// Returns what is said of a binding that waits. One without clusters is not scheduled, even if
    /// a copy of it is kept.
    fn verdict(&self, scheduled: bool) -> Verdict {
        let (reason, why) = match self {
            Self::Paused(pause) => (PAUSED, pause.to_string()),
            Self::Obstructed(why) => (
                OBSTRUCTED,
                format!("the order for it could not be carried out where it would go: {why}"),
            ),
            Self::Refused(None) => (
                STOPPED,
                "more clusters have failed than --unhealthy-cluster-threshold allows".to_owned(),
            ),
            Self::Refused(Some(_)) | Self::InLine => (
                WAITING_FOR_RATE,
                "it waits in the queue of moves: evictions and new placements share one rate"
                    .to_owned(),
            ),
        };
        Verdict {
            scheduled,
            generation: None,
            reason,
            message: format!("It is to be placed anew, and stays where it is: {why}."),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use muster_shared::queue::Next;
    use serde_json::{Value, json};

    use super::super::CHECK_AGAIN;
    use super::*;
    use crate::fleet::testing::{self as bench, Bench, paused};
    use crate::scheduler::core::Options;
    use crate::scheduler::core::outcome::{pass, stay};
    use crate::scheduler::core::record::record;
    use crate::scheduler::tests::fixtures::{cluster, deployment, placed, snapshot};

    /// Has the scheduler handle the binding in a fleet with these clusters, while the budget knows
    /// of some clusters whether they have failed.
    async fn handled<const N: usize>(
        clusters: [Value; N],
        binding: Value,
        known: &[(&str, bool)],
    ) -> (Bench, Scheduler, BindingKey, Next) {
        let clusters = clusters.map(|it| ("clusters", it));
        let objects = clusters.into_iter().chain([("resourcebindings", binding)]);
        let bench = Bench::followed(objects).await;
        let pace = Pace::of(&bench.fleet.settings);
        for (cluster, has_failed) in known {
            pace.put(cluster, *has_failed, Instant::now());
        }
        let scheduler = Scheduler::new(&bench.fleet, pace);
        let key = bench::key("web-deployment");
        let next = scheduler.handle(&bench.fleet, key.clone()).await.unwrap();
        (bench, scheduler, key, next)
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_a_pause_of_the_cluster_that_keeps_its_copy_is_not_reconciled_meanwhile()
    {
        let mut kept = bench::binding();
        kept["spec"]["clusters"] = json!([]);
        kept["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m2"]);
        kept["spec"]["gracefulEvictionTasks"] = json!([{
            "fromCluster": "m1", "reason": "NoClusterFit", "producer": "p",
        }]);
        let clusters = [paused(bench::cluster("m1")), bench::cluster("m2")];
        let (_bench, scheduler, key, _) = handled(clusters, kept, &[]).await;
        assert!(scheduler.movement.wait(&key).is_paused);
        assert_eq!(scheduler.queue.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_ended_during_the_decision_is_not_waited_for_because_another_one_lasts() {
        let leaving = paused(bench::deleting(bench::cluster("m1")));
        let mut binding = bench::binding();
        binding["spec"]["clusters"] =
            json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
        let clusters = [leaving, bench::cluster("m2")].map(|it| ("clusters", it));
        let objects = clusters.into_iter().chain([("resourcebindings", binding)]);
        let bench = Bench::followed(objects).await;
        let fleet = &bench.fleet;
        let scheduler = Scheduler::new(fleet, Pace::of(&fleet.settings));
        let binding = bench.binding("web-deployment").unwrap();
        let (key, now) = (BindingKey::of(binding.as_ref()), fleet.clock.now());
        let snapshot = snapshot(&[cluster("m2", 10)]);
        let outcome = stay(&Subject::of(binding.as_ref()), &snapshot, now);
        let of_m2 = Pause {
            cluster: Some("m2".to_owned()),
            ..Pause::default()
        };
        let held = Held::Paused(Arc::new(of_m2));
        scheduler.hold(fleet, (&key, binding.as_ref()), &outcome, &held, now);
        assert!(!scheduler.movement.wait(&key).is_paused);
        assert_eq!(scheduler.queue.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_watch_has_not_shown_holds_a_move() {
        for (is_paused, seconds, moves) in [(false, 10, true), (true, 10, false), (true, 1, true)] {
            let mut binding = bench::binding();
            binding["metadata"]["annotations"] =
                json!({"policy.karmada.io/applied-placement": "{}"});
            binding["status"] = json!({"lastScheduledTime": "2024-01-01T00:00:00Z"});
            let spec = &mut binding["spec"];
            spec["clusters"] = json!([{"name": "m1", "replicas": 2}]);
            spec["placement"]["clusterAffinity"]["clusterNames"] = json!(["m2"]);
            spec["rescheduleTriggeredAt"] = json!("2024-01-02T00:00:00Z");
            let clusters = ["m1", "m2"].map(|name| ("clusters", bench::cluster(name)));
            let objects = clusters.into_iter().chain([("resourcebindings", binding)]);
            let bench = bench::Bench::followed(objects).await;
            let fleet = &bench.fleet;
            let scheduler = Scheduler::new(fleet, Pace::of(&fleet.settings));
            let key = BindingKey::of(bench.binding("web-deployment").unwrap().as_ref());
            let case = format!("{is_paused} {seconds}");
            if is_paused {
                let mut paused = bench::cluster("m1");
                paused["metadata"]["annotations"] = json!({"failover.muster.io/paused": "x"});
                bench.api.put_unreported("clusters", paused);
            }
            bench::pass(seconds).await;
            let next = scheduler.handle(fleet, key.clone()).await.unwrap();
            assert_eq!(next == Next::Again, !moves, "{case}");
            let stored = bench.api.binding("web-deployment");
            let place = if moves { "m2" } else { "m1" };
            assert_eq!(stored["spec"]["clusters"][0]["name"], place, "{case}");
            if !moves {
                scheduler.handle(fleet, key.clone()).await.unwrap();
                assert!(scheduler.movement.wait(&key).is_paused, "it is known now");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_leaves_does_not_wait_for_a_move_out_of_another_one() {
        let record = json!({"policy.karmada.io/applied-placement": "{}"});
        for (what, place, is_asked) in [
            ("no cluster fits", "m9", false),
            ("it moves by an edit", "m3", false),
            ("it moves by a request", "m3", true),
        ] {
            let mut binding = bench::binding();
            binding["metadata"]["annotations"] = record.clone();
            binding["status"] = json!({"lastScheduledTime": "2024-01-01T00:00:00Z"});
            let spec = &mut binding["spec"];
            let stays = json!({"name": "m2", "replicas": 2});
            spec["clusters"] = json!([{"name": "m1", "replicas": 2}, stays]);
            spec["placement"]["clusterAffinity"]["clusterNames"] = json!([place]);
            if is_asked {
                spec["rescheduleTriggeredAt"] = json!("2024-01-02T00:00:00Z");
            }
            let leaving = bench::deleting(bench::cluster("m1"));
            let m2 = paused(bench::cluster("m2"));
            let clusters = [leaving, m2, bench::cluster("m3")];
            let (bench, scheduler, key, _) = handled(clusters, binding, &[]).await;
            assert!(scheduler.movement.wait(&key).is_paused, "{what}");
            let stored = bench.api.binding("web-deployment");
            assert_eq!(stored["spec"]["clusters"], json!([stays]), "{what}");
            assert_eq!(stored["metadata"]["annotations"], record, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_keeps_no_copy_of_a_workload_that_is_scaled_to_zero() {
        for (replicas, stays) in [(0, 0), (2, 1)] {
            let mut binding = bench::binding();
            binding["spec"]["replicas"] = json!(replicas);
            binding["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m9"]);
            let m1 = paused(bench::cluster("m1"));
            let (bench, ..) = handled([m1], binding, &[]).await;
            let stored = bench.api.binding("web-deployment");
            let targets = stored["spec"]["clusters"].as_array().map_or(0, Vec::len);
            assert_eq!(targets, stays, "{replicas}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_move_that_the_rate_holds_up_is_tried_again_since_it_may_become_needless() {
        let mut left = bench::cluster("m1");
        left["spec"]["taints"] = json!([{"key": "x", "effect": "NoExecute"}]);
        let mut asked = bench::binding();
        asked["spec"]["rescheduleTriggeredAt"] = json!("2024-01-02T00:00:00Z");
        asked["status"] = json!({"lastScheduledTime": "2024-01-01T00:00:00Z"});
        let clusters = [left, bench::cluster("m2")];
        let (_bench, scheduler, key, next) = handled(clusters, asked, &[("m1", true)]).await;
        let reported = scheduler
            .movement
            .reported(&key)
            .and_then(|it| it.scheduled);
        assert_eq!(reported.unwrap().reason, STOPPED);
        assert_eq!(next, Next::After(CHECK_AGAIN));
    }

    #[tokio::test(start_paused = true)]
    async fn clusters_that_return_while_the_budget_refuses_a_move_wake_it() {
        let objects = [("resourcebindings", bench::binding())];
        let bench = Bench::followed(objects).await;
        let fleet = &bench.fleet;
        let binding = bench.binding("web-deployment").unwrap();
        let (key, now) = (BindingKey::of(binding.as_ref()), fleet.clock.now());
        let outcome = stay(&Subject::of(binding.as_ref()), &snapshot(&[]), now);
        for (has_failed, is_woken) in [(true, false), (false, true)] {
            let pace = Pace::of(&fleet.settings);
            pace.put("m1", has_failed, Instant::now());
            let scheduler = Scheduler::new(fleet, pace);
            let refused = Held::Refused(None);
            scheduler.hold(fleet, (&key, binding.as_ref()), &outcome, &refused, now);
            let woken = scheduler.movement.moves.woken();
            let woken = woken.notified().now_or_never();
            assert_eq!(woken.is_some(), is_woken, "{has_failed}");
        }
    }

    /// Handles a workload without clusters whose copy in `m1` is kept, and whose placement is made
    /// by `edit`. Returns its clusters afterwards.
    async fn placed_from(m1: Value, edit: impl Fn(&mut Value), is_stopped: bool) -> String {
        let mut kept = bench::binding();
        kept["spec"]["clusters"] = json!([]);
        edit(&mut kept);
        kept["spec"]["gracefulEvictionTasks"] = json!([{
            "fromCluster": "m1", "reason": "NoClusterFit", "producer": "p", "replicas": 2,
        }]);
        kept["status"] = json!({"conditions": [{
            "type": "Scheduled", "status": "False", "reason": "NoClusterFit", "message": "m",
            "lastTransitionTime": "2024-01-01T00:00:00Z",
        }]});
        let known = ["c0", "c1", "c2"].map(|it| (it, is_stopped));
        let (bench, ..) = handled([m1, bench::cluster("m2")], kept, &known).await;
        bench.api.binding("web-deployment")["spec"]["clusters"].to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_that_is_placed_where_its_copy_is_kept_does_not_move() {
        let paused = paused(bench::cluster("m1"));
        let leaving = bench::deleting(paused.clone());
        let well = || bench::cluster("m1");
        for (what, m1, names, is_stopped, place) in [
            ("nothing holds", well(), "m1", false, Some("m1")),
            ("it is paused", paused.clone(), "m1", false, Some("m1")),
            ("the rate is stopped", well(), "m1", true, Some("m1")),
            ("it goes with its cluster", leaving, "m2", false, Some("m2")),
            ("it would leave a paused cluster", paused, "m2", false, None),
            ("it would leave at a stopped rate", well(), "m2", true, None),
        ] {
            let place_in = |kept: &mut Value| {
                kept["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!([names]);
            };
            let clusters = placed_from(m1, place_in, is_stopped).await;
            let expected = |place| json!([{"name": place, "replicas": 2}]).to_string();
            let expected = place.map_or_else(|| "[]".to_owned(), expected);
            assert_eq!(clusters, expected, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_that_is_divided_between_its_kept_copy_and_another_cluster_moves() {
        for (what, m1, is_stopped) in [
            ("it is paused", paused(bench::cluster("m1")), false),
            ("the rate is stopped", bench::cluster("m1"), true),
        ] {
            let clusters = placed_from(
                m1,
                |kept| {
                    let weights = ["m1", "m2"]
                        .map(|it| json!({"targetCluster": {"clusterNames": [it]}, "weight": 1}));
                    kept["spec"]["placement"] = json!({"replicaScheduling": {
                        "replicaSchedulingType": "Divided",
                        "replicaDivisionPreference": "Weighted",
                        "weightPreference": {"staticWeightList": weights},
                    }});
                },
                is_stopped,
            )
            .await;
            assert_eq!(clusters, "[]", "{what}: a replica of two would leave m1");
        }
    }

    #[test]
    fn a_copy_that_no_edit_gives_up_is_paid_for_although_no_cluster_gains() {
        use Need::{NotDivided, PlacementChanged, ReplicasChanged};
        let spec = placed(deployment(2, &json!({})), &[("m1", 2), ("m2", 2)]);
        let after = &spec.clusters[1..];
        let leaving = bench::deleting(cluster("m1", 10));
        let clusters = snapshot(&[cluster("m1", 10), cluster("m2", 10)]);
        let leaves = snapshot(&[leaving, cluster("m2", 10)]);
        let changed = Cause::ClustersChanged {
            unmatched: vec!["m1".to_owned()],
            is_resized: false,
        };
        let (change, request) = (Some(changed), Some(Cause::Requested));
        for (what, need, cause, snapshot, expected) in [
            ("a label", NotDivided, &change, &clusters, true),
            ("scaled since", ReplicasChanged, &change, &clusters, true),
            ("its end", NotDivided, &change, &leaves, false),
            ("and a request", ReplicasChanged, &request, &clusters, true),
            ("an edit", PlacementChanged, &request, &clusters, false),
            ("scaled down", ReplicasChanged, &None, &clusters, false),
        ] {
            let status = ResourceBindingStatus::default();
            let subject = Subject {
                generation: 1,
                applied_placement: None,
                spec: &spec,
                status: &status,
            };
            let outcome = Outcome {
                need: Some(need),
                cause: cause.clone(),
                ..stay(&subject, snapshot, Timestamp::UNIX_EPOCH)
            };
            assert_eq!(losers(&spec.clusters, after), Vec::<&str>::new());
            let losers = withdrawn(&spec.clusters, after, &outcome, snapshot);
            let expected_losers: &[&str] = if expected { &["m1"] } else { &[] };
            assert_eq!(losers, expected_losers, "{what}");
            let is_paid = is_to_be_paid(&outcome, false, &losers);
            assert_eq!(is_paid, expected, "{what}");
        }
    }

    #[test]
    fn an_edit_has_waited_if_no_cluster_took_it_before_and_nothing_was_edited_since() {
        let reported = |status: &str| -> ResourceBindingStatus {
            let condition =
                conditions::new(SCHEDULED, status, "NoClusterFit", "", Timestamp::UNIX_EPOCH);
            ResourceBindingStatus {
                conditions: vec![condition],
                ..ResourceBindingStatus::default()
            }
        };
        let there = placed(deployment(2, &json!({})), &[("m1", 1)]);
        let nowhere = deployment(2, &json!({}));
        let mut withdrawn = nowhere.clone();
        let task = json!([{"fromCluster": "m1", "reason": "NoClusterFit", "producer": "p"}]);
        withdrawn.graceful_eviction_tasks = serde_json::from_value(task).unwrap();
        for (what, spec, status, unplaced, expected) in [
            ("looked at before", &there, reported("False"), Some(7), true),
            ("edited since", &there, reported("False"), Some(6), false),
            ("by another process", &there, reported("False"), None, true),
            ("never", &there, reported("True"), None, false),
            ("it is nowhere", &nowhere, reported("False"), Some(7), false),
            (
                "kept by a task",
                &withdrawn,
                reported("False"),
                Some(7),
                true,
            ),
        ] {
            let subject = Subject {
                generation: 7,
                applied_placement: None,
                spec,
                status: &status,
            };
            assert_eq!(has_waited(&subject, unplaced), expected, "{what}");
        }
    }

    #[test]
    fn a_workload_that_asks_for_no_replicas_moves_nowhere() {
        let status = ResourceBindingStatus::default();
        let all = snapshot(&[cluster("m1", 10)]);
        let mut full = cluster("m1", 10);
        full["spec"]["taints"] = json!([{"key": "full", "effect": "NoExecute"}]);
        let none = snapshot(&[full]);
        for (what, replicas, clusters, expected) in [
            ("scaled to zero", 0, &all, &[][..]),
            ("no cluster fits", 2, &none, &["m1"]),
        ] {
            let mut spec = placed(deployment(replicas, &json!({})), &[("m1", 2)]);
            let tasks = json!([{"fromCluster": "m1", "reason": "r", "producer": "p"}]);
            if replicas > 0 {
                spec.graceful_eviction_tasks = serde_json::from_value(tasks).unwrap();
            }
            let applied = record(&spec);
            let subject = Subject {
                generation: 1,
                applied_placement: Some(&applied),
                spec: &spec,
                status: &status,
            };
            let outcome = pass(
                &subject,
                clusters,
                &Options::default(),
                Timestamp::UNIX_EPOCH,
            );
            let placed = outcome.placed.as_ref().expect("it has a cluster");
            assert_eq!(placed.clusters, [], "{what}");
            assert_eq!(losers_of(&subject, &outcome, clusters), expected, "{what}");
        }
    }
}
