//! Moves applications that stay unhealthy, one at a time, and reports why others stay.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::ApplicationFailoverBehavior;
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::queue::until;
use muster_shared::queue::{Next, again};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::decide::{Verdict, decide, toleration};
use super::duty::{Duty, duty};
use super::explain::{CONDITION, FailoverState, Obstacle};
use super::history::{self, History, Move};
use super::openings::{Openings, SOON};
use super::queue::FailoverQueue;
use super::readiness::ReadinessTracker;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::{Pace, Paid};
use crate::fleet::budget::rate::Band;
use crate::movement::application_failover::evict::{
    Exit, Leaver, Outcome, Switches, obstacle, purge_mode_of,
};
use crate::movement::eviction::backlog;
use crate::movement::eviction::explain::{STRANDED, names_cluster};
use crate::movement::eviction::reason::application;
use crate::settings::PROPAGATE_DEPS;

mod report;

/// How often a condition is written again at once after somebody else wrote the binding first.
const ATTEMPTS: u32 = 4;
/// How long an application is unhealthy before that is written down: most recover at once, as
/// during every rollout.
const SETTLING: Duration = Duration::from_secs(5);
/// How long an application waits for the rate before that is told.
const WORTH_TELLING: Duration = Duration::from_secs(1);

/// A cluster that is not left, why, and when to look again; without, somebody tells when.
type Held = (String, Obstacle, Option<Duration>);

struct Applications {
    fleet: Arc<Fleet>,
    exit: Exit,
    readiness_tracker: ReadinessTracker,
    openings: Openings,
    rate_queue: Arc<FailoverQueue>,
    /// What is known beyond the annotations: what is not worth writing yet, and what the cache does
    /// not show yet. May be lost.
    known: Mutex<HashMap<BindingKey, Known>>,
}

/// A look at one application.
struct Case<'a> {
    key: &'a BindingKey,
    binding: &'a AnyBinding,
    /// What its annotation says.
    written: History,
    now: Timestamp,
}

/// What is to be told and when to look again.
struct Progress {
    state: Option<FailoverState>,
    wait: Option<Duration>,
    held: Vec<Held>,
    /// Whether what was told last is still to be read.
    is_said: bool,
}

/// What is known of one application.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Whose it is: a binding that was deleted and made again starts anew.
    uid: Option<String>,
    history: History,
    /// How often it found no place.
    attempts: u32,
    /// How often somebody else had written the binding first, one time after the other.
    overtaken: u32,
    /// When people were told of it last.
    told_at: Option<Timestamp>,
}

/// Returns whether a binding says that no other cluster takes the workload of a cluster.
fn is_stranded(binding: &AnyBinding, cluster: &str) -> bool {
    let told = conditions::get(&binding.status().conditions, CONDITION);
    told.is_some_and(|told| {
        told.status == conditions::TRUE
            && STRANDED.contains(&told.reason.as_str())
            && names_cluster(&told.message, cluster)
    })
}

/// Starts the controller. It does not depend on the gate `Failover`, which is about clusters: each
/// policy asks for it by itself.
pub fn start(fleet: &Arc<Fleet>, pace: Pace, tasks: &mut Tasks) {
    let applications = Arc::new(Applications {
        fleet: Arc::clone(fleet),
        exit: Exit::new(fleet),
        readiness_tracker: ReadinessTracker::follow(&fleet.clusters, &fleet.clock),
        openings: Openings::follow(&fleet.clusters, &fleet.pauses),
        rate_queue: Arc::new(FailoverQueue::new(
            pace,
            fleet.pauses.clone(),
            Arc::clone(&fleet.clock),
        )),
        known: Mutex::default(),
    });
    let following = Controller::new(fleet, "application failover")
        .watches(&fleet.bindings, {
            let applications = Arc::clone(&applications);
            move |_, change| applications.concerned(change)
        })
        .watches(&*fleet.interpreters, Fleet::interpreted_anew);
    let queue = following.queue().clone();
    tasks.spawn("application failover queue", {
        let (applications, fleet, queue) =
            (Arc::clone(&applications), Arc::clone(fleet), queue.clone());
        async move {
            if fleet.ready().await {
                applications.rate_queue.pace().begin(Instant::now());
                let rate_queue = Arc::clone(&applications.rate_queue);
                rate_queue.run(queue, fleet.shutdown.clone()).await;
            }
        }
    });
    let opened = applications.openings.clone();
    tasks.spawn("application failover openings", {
        let (applications, fleet, queue) =
            (Arc::clone(&applications), Arc::clone(fleet), queue.clone());
        async move {
            let held = || applications.held();
            opened.run(held, queue, fleet.shutdown.clone()).await;
        }
    });
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    following.run(
        tasks,
        workers,
        applications,
        |_, applications, key| async move { applications.reconcile(key).await },
    );
}

const METRIC: &str = "muster_application_failovers_total";

fn count(result: &'static str) {
    metrics::counter!(METRIC, "result" => result).increment(1);
}

/// Returns whether a policy asks for the failover of an application, or the binding records
/// something about one.
fn concerns_us(binding: &AnyBinding) -> bool {
    application(&binding.spec).is_some() || binding.annotations().contains_key(history::ANNOTATION)
}

impl Known {
    /// Returns whether the application found no place the last time that it was to leave a cluster.
    fn found_no_place(&self) -> bool {
        self.attempts > 0
    }
}

impl Applications {
    /// Returns the binding of a change, if the change may concern its failover.
    fn concerned(&self, change: &Change<AnyBinding>) -> Option<BindingKey> {
        let key = BindingKey::of(change.object());
        let is_concerned = match change {
            Change::Applied { old, new } => {
                let mut states = [Some(new), old.as_ref()].into_iter().flatten();
                states.any(|it| concerns_us(it))
            }
            Change::Deleted { .. } => {
                self.known.lock().remove(&key);
                self.rate_queue.leave(&key);
                // A look that is under way may still note something about the binding.
                true
            }
        };
        is_concerned.then_some(key)
    }

    /// Applications that found no place when they were to leave last.
    fn held(&self) -> Vec<BindingKey> {
        let known = self.known.lock();
        let held = known.iter().filter(|(_, known)| known.found_no_place());
        held.map(|(key, _)| key.clone()).collect()
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, ApiError> {
        // Unless it is used, the payment for it is taken back.
        let paid = self.rate_queue.take(&key);
        let Some(binding) = self.fleet.bindings.get(&key) else {
            self.rate_queue.leave(&key);
            self.known.lock().remove(&key);
            return Ok(Next::Done);
        };
        let case = Case {
            key: &key,
            binding: binding.as_ref(),
            written: History::of(binding.as_ref()),
            now: self.fleet.clock.now(),
        };
        let propagates_deps = self.fleet.settings.gate(&PROPAGATE_DEPS);
        match duty(binding.as_ref(), &self.fleet.interpreters, propagates_deps) {
            Duty::Follow(behavior) => self.follow(&case, behavior, paid).await,
            Duty::Wait => {
                self.rate_queue.leave(&key);
                Ok(Next::Done)
            }
            Duty::Forget(why) => {
                self.rate_queue.leave(&key);
                self.known.lock().remove(&key);
                self.forget(&case, why).await
            }
        }
    }

    /// Brings what is known of an application up to date with what its clusters report.
    fn learn(&self, case: &Case<'_>, behavior: &ApplicationFailoverBehavior) -> (Known, Verdict) {
        let uid = case.binding.metadata.uid.clone();
        let mut all = self.known.lock();
        let before = all.get(case.key).filter(|known| known.uid == uid).cloned();
        let mut known = before.unwrap_or_else(|| Known {
            uid,
            history: case.written.clone(),
            attempts: 0,
            overtaken: 0,
            told_at: None,
        });
        known.history = known.history.with_moves_of(&case.written);
        let heard = |cluster: &str| self.readiness_tracker.of(cluster);
        let counted = known.history.heard_since(heard, case.now);
        let verdict = decide(
            toleration(behavior),
            &case.binding.spec,
            &case.binding.status().aggregated_status,
            &counted.since,
            case.now,
        );
        known.history = counted.with_health(verdict.since.clone(), case.now);
        if verdict.leave.is_empty() {
            known.attempts = 0;
        }
        all.insert(case.key.clone(), known.clone());
        (known, verdict)
    }

    async fn follow(
        &self,
        case: &Case<'_>,
        behavior: &ApplicationFailoverBehavior,
        paid: Option<Paid>,
    ) -> Result<Next, ApiError> {
        let (known, verdict) = self.learn(case, behavior);
        let (history, now) = (known.history.clone(), case.now);
        let state = verdict
            .next
            .and_then(|until| tolerated_state(&history, until, now));
        let wait = verdict.next.map(|next| after(next, now));
        let (ready, held) = self.ready(
            (&case.binding.spec, behavior),
            &history,
            &verdict.leave,
            now,
        );
        let mut progress = Progress {
            state,
            wait,
            held,
            is_said: false,
        };
        match (ready, paid) {
            (None, _) => self.rate_queue.leave(case.key),
            (Some(cluster), Some(paid)) => {
                let left = self.leave(case, known, cluster, paid, &mut progress);
                if let Some(next) = left.await? {
                    // What else there is to leave is looked at with the binding as it is now.
                    return Ok(next);
                }
            }
            (Some(cluster), None) => self.line_up(case, &known, cluster, &mut progress),
        }
        self.conclude(case, &history, progress).await
    }

    /// Moves an application that has been paid for. Where the binding is another one now, returns
    /// when to look at that.
    async fn leave(
        &self,
        case: &Case<'_>,
        mut known: Known,
        cluster: String,
        paid: Paid,
        progress: &mut Progress,
    ) -> Result<Option<Next>, ApiError> {
        let (key, now) = (case.key, case.now);
        let overtaken = std::mem::take(&mut known.overtaken);
        let leaver = Leaver {
            key,
            binding: case.binding,
            history: &known.history,
            attempts: known.attempts,
        };
        let openings = self.openings.count();
        match self.exit.leave(&leaver, &cluster, paid, now).await {
            Outcome::Left {
                binding,
                history,
                moved,
            } => {
                let Move {
                    since, to, mode, ..
                } = &moved;
                count("moved");
                tracing::info!(binding = %key, cluster, to, mode, %since, "moved an application that stayed unhealthy");
                known.history = history;
                known.attempts = 0;
                self.known.lock().insert(key.clone(), known);
                self.report(key, binding.as_ref(), &moved.into(), now)
                    .await?;
                Ok(Some(Next::Again))
            }
            Outcome::Overtaken => {
                known.overtaken = overtaken.saturating_add(1);
                self.known.lock().insert(key.clone(), known);
                // It may have to wait for the rate before it is overtaken again.
                Ok(Some(Next::After(again(overtaken))))
            }
            Outcome::Held { why, pause } => {
                // A cluster that opened meanwhile was not waited for yet.
                let pause = pause_after(pause, openings, self.openings.count());
                known.attempts = known.attempts.saturating_add(1);
                self.known.lock().insert(key.clone(), known);
                progress.held.push((cluster, why, Some(pause)));
                Ok(None)
            }
        }
    }

    /// Puts an application in line.
    fn line_up(&self, case: &Case<'_>, known: &Known, cluster: String, progress: &mut Progress) {
        let priority = case.binding.spec.schedule_priority.as_ref();
        let priority = priority.map_or(0, |priority| priority.priority);
        let since = known.history.since.get(&cluster).copied();
        let rank = backlog::Rank::new(priority, since.unwrap_or(case.now));
        let stood_there = self.rate_queue.wait(case.key, &cluster, rank);
        let pause = self.fleet.pauses.of(&cluster, case.now);
        let why = match (pause, self.rate_queue.pace().band()) {
            (Some(pause), _) => Obstacle::Paused(pause.to_string()),
            (None, Band::Stopped) => Obstacle::Stopped,
            (None, Band::Primary | Band::Secondary) => Obstacle::Rate,
        };
        // A condition already tells of the obstacle: this process wrote it, or the one before.
        let is_said = known.found_no_place()
            || (why == Obstacle::Rate && is_stranded(case.binding, &cluster));
        if is_said {
            progress.is_said = true;
        } else if stood_there {
            progress.held.push((cluster, why, None));
        } else {
            // The rate may permit it at once.
            progress.is_said = true;
            progress.wait = progress.wait.into_iter().chain([WORTH_TELLING]).min();
        }
    }

    /// Returns the first of the clusters to be left for which there is no obstacle, and the
    /// obstacles of those before it.
    fn ready(
        &self,
        (spec, behavior): (&ResourceBindingSpec, &ApplicationFailoverBehavior),
        history: &History,
        leave: &[String],
        now: Timestamp,
    ) -> (Option<String>, Vec<Held>) {
        let mode = purge_mode_of(spec, behavior);
        let switches = Switches::of(&self.fleet.settings);
        first_free(leave, |cluster| {
            let heard = self.readiness_tracker.of(cluster);
            obstacle(&mode, history, heard, cluster, switches, now)
        })
    }
}

/// Returns the first of the clusters that has no obstacle, and the obstacles of those before it.
fn first_free(
    leave: &[String],
    obstacle: impl Fn(&str) -> Option<(Obstacle, Duration)>,
) -> (Option<String>, Vec<Held>) {
    let mut held = Vec::new();
    for cluster in leave {
        match obstacle(cluster) {
            None => return (Some(cluster.clone()), held),
            Some((why, pause)) => held.push((cluster.clone(), why, Some(pause))),
        }
    }
    (None, held)
}

/// Returns when to look next: the earlier of the two times.
fn sooner(wait: Option<Duration>, other: Next) -> Next {
    match (wait, other) {
        (Some(wait), Next::After(other)) => Next::After(wait.min(other)),
        (Some(wait), Next::Done) => Next::After(wait),
        (_, other) => other,
    }
}

/// Returns the report about the cluster in which the application has been unhealthy for the longest
/// time, tolerated until a moment; `None` while that has not lasted long enough.
fn tolerated_state(history: &History, until: Timestamp, now: Timestamp) -> Option<FailoverState> {
    let settled = |since: &Timestamp| since.checked_add(SETTLING).is_ok_and(|then| then <= now);
    let (cluster, since) = history.since.iter().min_by_key(|(_, since)| **since)?;
    settled(since).then(|| FailoverState::Tolerated {
        cluster: cluster.clone(),
        since: *since,
        until,
    })
}

/// Returns the pause of an application that found no place. It is short where a cluster has become
/// available since the attempt began.
fn pause_after(pause: Duration, before: u64, now: u64) -> Duration {
    if before == now {
        pause
    } else {
        pause.min(SOON)
    }
}

/// Returns the time until just after a moment: what is tolerated until then is not tolerated any
/// more.
fn after(moment: Timestamp, now: Timestamp) -> Duration {
    until(moment, now) + Duration::from_millis(1)
}
#[cfg(test)]
mod moved;
#[cfg(test)]
mod tests;
