//! Schedules bindings: queues them on changes of bindings and clusters, calls
//! [`cycle`](crate::scheduler::core::cycle), and writes the result.

pub mod affected;
#[cfg(test)]
mod answered_tests;
pub mod changes;
pub mod cluster_change;
mod completed;
#[cfg(test)]
mod data_tests;
pub mod events;
pub mod initial_placement;
pub mod live;
pub mod measure;
mod move_queue;
mod movement;
mod obstructed;
mod reports;
pub mod waiting;
pub mod waits_for;
pub mod write;

pub(crate) use self::completed::{UNREAD, has_completed_everywhere};
pub use self::initial_placement::InitialPlacement;
pub use self::live::LiveSnapshot;
use self::movement::has_copies;
pub(crate) use self::movement::waits_for_others;
pub use self::movement::waits_to_move;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client::{self, is_gone};
use muster_shared::clock::whole_second;
use muster_shared::conditions::is_true;
use muster_shared::controller::Controller;
use muster_shared::names::condition::DATA_PENDING;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Expectations};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::{BindingKey, Bindings};
use crate::fleet::budget::pace::Pace;
use crate::fleet::copy::obstacle;
use crate::fleet::memory::Backoff;
use crate::fleet::protection::protected;
use crate::scheduler::controller::affected::{EffectOn, concerned};
use crate::scheduler::controller::changes::{Changes, Pair};
use crate::scheduler::controller::cluster_change::ClusterChange;
use crate::scheduler::controller::events::{report, report_failure, report_unread};
use crate::scheduler::controller::measure::Incoming;
use crate::scheduler::controller::movement::{Held, Movement};
use crate::scheduler::controller::obstructed::pass_around;
use crate::scheduler::controller::waiting::Waiting;
use crate::scheduler::controller::waits_for::Wait;
use crate::scheduler::controller::write::{with_answer, write, write_stay};
use crate::scheduler::core::Options;
use crate::scheduler::core::Snapshot;
use crate::scheduler::core::outcome::{Outcome, Subject, pass, stay, without_leaving};
use crate::scheduler::core::report::{Report, Verdict};
use crate::scheduler::core::return_request;
use crate::settings::{FAILOVER, PRIORITY_BASED_SCHEDULING, names_scheduler};

/// A binding that waits is reconciled again after this time even if no cluster seemed to change
/// (Karmada flushes its queue of unschedulable bindings as often). A move that waits may have
/// become needless since.
const CHECK_AGAIN: Duration = Duration::from_mins(5);
/// Writers of reports on bindings that had been placed before: they wait until decisions and orders
/// leave room.
const REPORTERS: usize = 8;

/// Reason why a binding could not be handled; it is tried again.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("cannot report on {key}: somebody else changes its status all the time")]
    Contended { key: BindingKey },
}

/// Installs the scheduler. What it moves is paid from `pace`.
pub fn start(fleet: &Arc<Fleet>, pace: Pace, tasks: &mut Tasks) {
    // Whether a Job has completed is known by its template where no cluster reports it.
    fleet.follow_templates();
    let scheduler = Arc::new(Scheduler::new(fleet, pace));
    fleet.pauses.on_change({
        let scheduler = Arc::clone(&scheduler);
        move || scheduler.pauses_changed()
    });
    scheduler.listen(&fleet.bindings);
    let listening = Arc::clone(&scheduler);
    let changed = move |change: &Change<_>| listening.changes.note(change);
    fleet.clusters.on_change(changed);
    let (answering, shutdown) = (Arc::clone(&scheduler), fleet.shutdown.clone());
    let bindings = fleet.bindings.clone();
    tasks.spawn("scheduler's changes of clusters", async move {
        let answer = |pairs: &[Pair]| answering.answer(pairs, &bindings);
        let answers = answering.changes.answer(answer);
        let _ = shutdown.run_until_cancelled(answers).await;
    });
    let (moves, queue) = (scheduler.movement.moves.clone(), scheduler.queue.clone());
    let shutdown = fleet.shutdown.clone();
    tasks.spawn("scheduler's queue of moves", async move {
        let moves = moves.run(move |key| queue.add(key));
        let _ = shutdown.run_until_cancelled(moves).await;
    });
    let (waking, shutdown) = (Arc::clone(&scheduler), fleet.shutdown.clone());
    tasks.spawn("scheduler's waiting bindings", async move {
        let woken = waking.waiting.wake(|key, after| waking.wake_up(key, after));
        let _ = shutdown.run_until_cancelled(woken).await;
    });
    let (listening, bindings) = (Arc::clone(&scheduler), fleet.bindings.clone());
    // A cluster left of which nothing was ever read.
    fleet.clusters.on_unread_departure(move |_, cluster| {
        for key in bindings.index().naming(cluster) {
            Incoming::ClusterChanged.count();
            listening.queue.add((*key).clone());
        }
    });
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    Controller::with(fleet, "scheduler", &scheduler.queue).run(
        tasks,
        workers,
        Arc::clone(&scheduler),
        |fleet, scheduler, key| async move { scheduler.handle(&fleet, key).await },
    );
    let reports = scheduler.reports.clone();
    Controller::with(fleet, "scheduling reports", &reports).run(
        tasks,
        REPORTERS,
        scheduler,
        |fleet, scheduler, key| async move { scheduler.confirm(&fleet, key).await },
    );
}

/// Returns the queue of bindings: by priority, then by age. The reference states no rule against
/// starvation, and there is none.
fn queue(fleet: &Fleet) -> Queue<BindingKey> {
    if !fleet.settings.gate(&PRIORITY_BASED_SCHEDULING) {
        return Queue::new("scheduler");
    }
    let bindings = fleet.bindings.clone();
    Queue::strict("scheduler", move |key: &BindingKey| {
        bindings.get(key).map_or(0, |it| it.spec.priority())
    })
}

struct Scheduler {
    snapshot: LiveSnapshot,
    queue: Queue<BindingKey>,
    /// Bindings that need no other placement now, and of which that is still to be said. Saying it
    /// must not hold up decisions.
    reports: Queue<BindingKey>,
    /// Reports about bindings that were placed, until they are written.
    unreported: Mutex<HashMap<BindingKey, Report>>,
    waiting: Waiting<BindingKey>,
    changes: Changes,
    /// Bindings of Jobs of which it cannot be read whether they have completed.
    unread: Backoff<BindingKey>,
    expectations: Expectations<BindingKey>,
    options: Options,
    /// Bindings whose move waits for the budget, or for the end of a pause.
    movement: Movement,
}

impl Scheduler {
    fn new(fleet: &Fleet, pace: Pace) -> Self {
        let is_ranked = fleet.settings.gate(&PRIORITY_BASED_SCHEDULING);
        Self {
            snapshot: LiveSnapshot::follow(fleet),
            queue: queue(fleet),
            reports: Queue::new("scheduling reports"),
            unreported: Mutex::default(),
            waiting: Waiting::ranked(is_ranked),
            changes: Changes::default(),
            unread: Backoff::default(),
            expectations: Expectations::default(),
            options: Options::of(&fleet.settings),
            movement: Movement::new(pace, is_ranked),
        }
    }

    fn listen(self: &Arc<Self>, bindings: &Bindings) {
        let (scheduler, followers) = (Arc::clone(self), bindings.followers().clone());
        bindings.on_change(move |change| match change {
            Change::Applied { old, new } => {
                let key = BindingKey::of(new.as_ref());
                if gains_clusters(old.as_deref(), new) {
                    for workload in followers.of(&key) {
                        scheduler.queue.add(workload);
                    }
                }
                scheduler.expectations.observe(&key, &new.metadata);
                // Status writes, most of them our own, change nothing that a decision depends on.
                // Of the metadata the placement that was applied last does, and of what others
                // write into the status that a copy waits for its data.
                let waits = |it: &AnyBinding| is_true(&it.status().conditions, DATA_PENDING);
                let seen = old.as_ref().is_some_and(|old| {
                    old.metadata.generation == new.metadata.generation
                        && (waits(old) || !waits(new))
                        && Subject::of(old.as_ref()).applied_placement
                            == Subject::of(new.as_ref()).applied_placement
                });
                if !seen {
                    let event = if old.is_some() {
                        Incoming::BindingUpdate
                    } else {
                        Incoming::BindingAdd
                    };
                    event.count();
                    scheduler.queue.add(key);
                }
            }
            Change::Deleted { old } => {
                let key = BindingKey::of(old.as_ref());
                scheduler.expectations.forget(&key);
                scheduler.unread.forget(&key);
                scheduler.queue.add(key);
            }
        });
    }

    /// Puts the bindings on the queue for which these changes of clusters may matter: of those that
    /// wait the ones that they may help, and of the settled ones those whose result may be another
    /// now.
    fn answer(&self, pairs: &[Pair], bindings: &Bindings) {
        let changes: Vec<ClusterChange<'_>> = pairs
            .iter()
            .filter_map(|(old, new)| ClusterChange::between(old.as_deref(), new.as_deref()))
            .collect();
        for (key, after) in self.waiting.helped(&changes, self.options.grade_rule) {
            self.wake_up(key, after);
        }
        let effects: Vec<EffectOn<'_>> = changes
            .iter()
            .filter_map(|it| Some((it.effect?, it.now.or(it.before)?)))
            .collect();
        if !effects.is_empty() {
            self.wake(bindings, &effects);
        }
    }

    /// Puts a binding on the queue that waits, and that a change of clusters may have helped.
    fn wake_up(&self, key: BindingKey, after: Duration) {
        Incoming::ClusterChanged.count();
        self.queue.add_after(key, after);
    }

    fn wake(&self, bindings: &Bindings, effects: &[EffectOn<'_>]) {
        // Before the first list is complete every binding is on the queue, or will be.
        if !bindings.is_synced() {
            return;
        }
        for key in concerned(bindings, effects) {
            Incoming::ClusterChanged.count();
            self.queue.add(key);
        }
    }

    /// Returns the binding as the cache has it.
    ///
    /// # Errors
    /// `Next::Done` if the binding does not exist or is another scheduler's; the pause after which
    /// to try again if the cache does not show the last write yet.
    fn current(&self, fleet: &Fleet, key: &BindingKey) -> Result<Arc<AnyBinding>, Next> {
        let cached = fleet.bindings.get(key);
        let binding = cached
            .filter(|binding| is_ours(binding.as_ref(), fleet))
            .ok_or(Next::Done)?;
        match self.expectations.pause(key, &binding.metadata) {
            Some(pause) => Err(Next::After(pause)),
            None => Ok(binding),
        }
    }

    async fn handle(&self, fleet: &Fleet, key: BindingKey) -> Result<Next, Error> {
        let binding = match self.current(fleet, &key) {
            Ok(binding) => binding,
            Err(next) => {
                if next == Next::Done {
                    self.waiting.put(&key, None);
                    self.movement.ends(&key);
                    self.report_suspended(fleet, &key).await?;
                }
                return Ok(next);
            }
        };
        // Before the clusters are read, so that none of their changes is missed until this is
        // decided.
        self.waiting.begin(key.clone());
        let decided = self.decide(fleet, &key, binding.as_ref()).await;
        // What failed is tried again without any change of a cluster.
        let wait = decided.as_ref().ok().and_then(|(_, wait)| *wait);
        self.waiting
            .put(&key, wait.map(|wait| (&binding.spec, wait)));
        decided.map(|(next, _)| next)
    }

    /// Decides where a binding goes, writes it and says so; says what the binding waits for from
    /// now on.
    async fn decide(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        binding: &AnyBinding,
    ) -> Result<(Next, Option<Wait>), Error> {
        let started = Instant::now();
        let now = whole_second(fleet.clock.now());
        let snapshot = self.snapshot.get();
        let subject = Subject::of(binding);
        let Some(has_completed) = self.completion(fleet, key, binding) else {
            self.movement.ends(key);
            return Ok((Next::After(UNREAD), None));
        };
        let (outcome, obstructed) = self.outcome(fleet, binding, has_completed, &snapshot, now);
        let wait = outcome
            .failure
            .is_some()
            .then(|| Wait::after(&binding.spec, &outcome.attempts));
        let attempt = measure::Attempt::begun(started, outcome.need, &outcome.spent);
        let ended = |scheduled| attempt.iter().for_each(|it| it.end(scheduled));

        let api = key.api(&fleet.client);
        let placed = outcome
            .placed
            .as_ref()
            .filter(|placed| !placed.is_known(&subject));
        let permit = placed.map(|_| {
            if let Some(why) = obstructed {
                return Err(Held::Obstructed(why));
            }
            let at = (&snapshot, now);
            self.permit(fleet, key, &subject, &outcome, at)
        });
        if let Some(Err(held)) = permit {
            self.hold(fleet, (key, binding), &outcome, &held, now);
            if outcome.failure.is_some() {
                report(fleet, binding, &outcome);
            }
            let next = if let Held::Obstructed(_) = held {
                Next::After(self.movement.obstructed.next(key).time)
            } else {
                self.movement.obstructed.forget(key);
                Next::After(CHECK_AGAIN)
            };
            let taken_off = self.take_off(fleet, key, binding, &snapshot).await?;
            return Ok((taken_off.unwrap_or(next), wait));
        }
        if let Some(Ok(permit)) = &permit
            && !permit.is_confirmed(fleet).await?
        {
            return Ok((Next::Again, wait));
        }
        // Before the write, so that the next one's does not wait for this one's answer.
        self.movement.moves.leave(key);
        let written = match placed.zip(permit.and_then(Result::ok)) {
            None => None,
            Some((placed, permit)) => match write(&api, binding, placed, permit).await {
                Ok(written) => Some(written),
                Err(error) if is_gone(&error) => {
                    self.movement.ends(key);
                    return Ok((Next::Done, None));
                }
                // Somebody else was faster; the cache will show what they did.
                Err(error) if client::is_conflict(&error) => {
                    self.expectations.conflicted(key.clone(), &binding.metadata);
                    return Ok((Next::Again, None));
                }
                Err(source) => {
                    ended(false);
                    if let Some(verdict) = Verdict::refused(&source, binding.metadata.generation) {
                        self.movement.refused(key);
                        report_failure(fleet, binding, &verdict);
                        let report = Report {
                            scheduled: Some(verdict),
                            ..Report::default()
                        };
                        self.report(&api, key, binding, &report, now).await?;
                    }
                    return Err(ApiError::of("write the result of", key)(source).into());
                }
            },
        };
        // What was held back and is not written remains so: its next attempt is no fresh edit.
        self.movement.ends(key);
        if outcome.failure.is_some() && has_copies(&subject) {
            self.movement.found_none(key, subject.generation);
        }
        ended(outcome.failure.is_none());
        report(fleet, binding, &outcome);
        if wait.is_some() {
            Incoming::ScheduleAttemptFailure.count();
        }
        if let Some(written) = &written {
            self.expectations
                .written(key.clone(), &binding.metadata, &written.metadata, ());
            let subject = Subject::of(written);
            let (next, _) = self.outcome(fleet, written, has_completed, &snapshot, now);
            let report = outcome.followed_by(&next, &subject);
            self.report_placed(&api, key, written, report, now).await?;
        } else if outcome.report.patch(binding.status(), now).is_some() {
            self.reports.add(key.clone());
        }
        let next = wait.map_or(Next::Done, |_| Next::After(CHECK_AGAIN));
        Ok((next, wait))
    }

    /// Takes a binding whose move is held back off the clusters that leave the fleet. Returns when
    /// to reconcile it again if somebody else was faster.
    async fn take_off(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        binding: &AnyBinding,
        snapshot: &Snapshot,
    ) -> Result<Option<Next>, Error> {
        let Some(stays) = without_leaving(&Subject::of(binding), snapshot) else {
            return Ok(None);
        };
        match write_stay(&key.api(&fleet.client), binding, &stays).await {
            Ok(written) => {
                let (before, after) = (&binding.metadata, &written.metadata);
                self.expectations.written(key.clone(), before, after, ());
                Ok(None)
            }
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) if client::is_conflict(&error) => {
                self.expectations.conflicted(key.clone(), &binding.metadata);
                Ok(Some(Next::Again))
            }
            Err(source) => Err(ApiError::of("take leaving clusters off", key)(source).into()),
        }
    }

    /// Returns what is to become of a binding, which may be that of a completed Job, and why a move
    /// of it has to wait, if no cluster could carry its order out. Whoever places it and whoever
    /// reports of it must find the same, or each would hand it to the other for ever.
    fn outcome(
        &self,
        fleet: &Fleet,
        binding: &AnyBinding,
        has_completed: bool,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> (Outcome, Option<String>) {
        let reported = with_answer(binding);
        // What was asked before returns were switched off is taken back by their controller, if it
        // runs, and moves nothing until then.
        let judged = return_request::without_if(&reported, || {
            let (settings, scheduler) = (&fleet.settings, &binding.spec.scheduler_name);
            let is_on = settings.gate(&FAILOVER);
            settings.no_return(scheduler.as_deref(), is_on).is_some()
        });
        let look = |binding: &AnyBinding| {
            let subject = Subject::of(binding);
            if has_completed {
                return (stay(&subject, snapshot, now), None);
            }
            let place = |snapshot: &Snapshot| pass(&subject, snapshot, &self.options, now);
            let obstacle = |name: &str| obstacle(fleet, subject.spec, name);
            pass_around(&subject, snapshot, place, obstacle)
        };
        let (mut outcome, mut obstructed) = look(&judged);
        // An edit of the policy counts at once for the copies that the outcome drops, although the
        // binding does not have it yet.
        if outcome.cause.is_some()
            && let Cow::Owned(spec) = protected(fleet, &judged)
        {
            let mut says = AnyBinding::clone(&judged);
            says.spec = spec;
            (outcome, obstructed) = look(&says);
        }
        if let Cow::Owned(reported) = &reported {
            let answered = reported.status().last_scheduled_time.as_ref();
            let placed = outcome.report.scheduled_at.take();
            outcome.report.scheduled_at = placed.or_else(|| answered.map(|it| it.0));
        }
        (outcome, obstructed)
    }

    /// Returns whether a binding is that of a Job which has completed in each of its clusters, and
    /// reports when that cannot be read for long.
    fn completion(&self, fleet: &Fleet, key: &BindingKey, binding: &AnyBinding) -> Option<bool> {
        let completion = has_completed_everywhere(fleet, binding);
        if completion.is_some() {
            self.unread.forget(key);
        } else if self.unread.next(key).is_worth_reporting {
            report_unread(fleet, binding);
        }
        completion
    }
}

/// Returns whether the binding is for us to place: its scheduler is us, nobody suspended it, and it
/// has a placement (bindings that only follow others as their dependencies have none).
fn is_ours(binding: &AnyBinding, fleet: &Fleet) -> bool {
    let spec = &binding.spec;
    binding.metadata.deletion_timestamp.is_none()
        && names_scheduler(
            spec.scheduler_name.as_deref(),
            &fleet.settings.scheduler_name,
        )
        && !spec.scheduling_suspended()
        && spec.placement.is_some()
}

/// Returns whether a binding has clusters that it had not, so that workloads may be placed there
/// whose data its object is.
pub(crate) fn gains_clusters(old: Option<&AnyBinding>, new: &AnyBinding) -> bool {
    let had = |name: &str| old.is_some_and(|old| old.spec.target(name).is_some());
    new.spec.clusters.iter().any(|it| !had(&it.name))
}
