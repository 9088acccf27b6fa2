//! Moves applications that stay unhealthy, one at a time, and reports why others stay.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, ResourceHealth};
use muster_shared::api::policy::ApplicationFailoverBehavior;
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::queue::{Next, Queue, until};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use parking_lot::Mutex;

use super::action::{Action, action};
use super::decide::{Verdict, decide, toleration};
use super::evict::{obstacle, purge_mode_of};
use super::explain::{CONDITION, FailoverState, Obstacle, reports_failure};
use super::history::{self, History, Move};
use super::readiness::ReadinessTracker;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::movement::eviction::EvictorHandle;
use crate::movement::eviction::backlog::Rank;
use crate::movement::eviction::explain::{EvictionState, STRANDED, names_cluster};
use crate::settings::PROPAGATE_DEPS;

mod leave;
mod report;

/// How often a condition is written again at once after somebody else wrote the binding first.
const ATTEMPTS: u32 = 4;
/// How long an application is unhealthy before that is written down: most recover at once, as
/// during every rollout.
const SETTLING: Duration = Duration::from_secs(5);
/// Time for which an application waits for the rate before a condition says so.
const WORTH_REPORTING: Duration = Duration::from_secs(1);

/// A cluster that is not left, why, and when to check again; without, a change has it checked.
type Held = (String, Obstacle, Option<Duration>);

struct Applications {
    fleet: Arc<Fleet>,
    evictor: EvictorHandle,
    queue: Queue<BindingKey>,
    readiness_tracker: ReadinessTracker,
    /// What is known beyond the annotations: what is not worth writing yet, and what the cache does
    /// not show yet. May be lost.
    known: Mutex<HashMap<BindingKey, Known>>,
}

/// One reconciliation of an application.
struct Case<'a> {
    key: &'a BindingKey,
    binding: &'a AnyBinding,
    /// History in its annotation.
    written: History,
    now: Timestamp,
}

/// Result of a reconciliation: what is to be reported, and when to reconcile again.
struct Progress {
    state: Option<FailoverState>,
    wait: Option<Duration>,
    held: Vec<Held>,
    /// Whether the condition still has the last report.
    is_said: bool,
}

/// Memory about one application.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Uid of the binding: one that was deleted and made again starts anew.
    uid: Option<String>,
    history: History,
    /// Move that is still to be reported.
    moved: Option<Move>,
    /// Time of the last report about the application.
    reported_at: Option<Timestamp>,
}

/// Returns whether a binding says that no other cluster takes the workload of a cluster.
fn is_stranded(binding: &AnyBinding, cluster: &str) -> bool {
    let reported = conditions::get(&binding.status().conditions, CONDITION);
    reported.is_some_and(|reported| {
        reported.status == conditions::TRUE
            && STRANDED.contains(&reported.reason.as_str())
            && names_cluster(&reported.message, cluster)
    })
}

/// Starts the controller. It does not depend on the gate `Failover`, which is about clusters: each
/// policy asks for it by itself.
pub fn start(fleet: &Arc<Fleet>, evictor: &EvictorHandle, tasks: &mut Tasks) {
    let following = Controller::new(fleet, "application failover");
    let applications = Arc::new(Applications {
        fleet: Arc::clone(fleet),
        evictor: evictor.clone(),
        queue: following.queue().clone(),
        readiness_tracker: ReadinessTracker::follow(&fleet.clusters, &fleet.clock),
        known: Mutex::default(),
    });
    let weak = Arc::downgrade(&applications);
    evictor.follow_applications(weak);
    let workers = fleet.settings.concurrent_resourcebinding_syncs;
    following
        .watches(&fleet.bindings, {
            let applications = Arc::clone(&applications);
            move |_, change| applications.concerned(change)
        })
        .watches(&*fleet.interpreters, Fleet::interpreted_anew)
        .run(
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
    binding.spec.application_failover().is_some()
        || binding.annotations().contains_key(history::ANNOTATION)
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
                // A reconciliation that is under way may still note something about the binding.
                true
            }
        };
        is_concerned.then_some(key)
    }

    async fn reconcile(&self, key: BindingKey) -> Result<Next, ApiError> {
        let Some(binding) = self.fleet.bindings.get(&key) else {
            self.known.lock().remove(&key);
            return Ok(Next::Done);
        };
        let case = Case {
            key: &key,
            binding: binding.as_ref(),
            written: History::of(binding.as_ref()),
            now: self.fleet.clock.now(),
        };
        match self.action(case.binding) {
            Action::Follow(behavior) => self.follow(&case, behavior).await,
            Action::Wait => {
                self.evictor.fails_no_more(&key);
                Ok(Next::Done)
            }
            Action::Forget(why) => {
                self.evictor.fails_no_more(&key);
                self.known.lock().remove(&key);
                self.forget(&case, why).await
            }
        }
    }

    /// Returns what the policy of an application says, where it can be followed.
    fn action<'a>(&self, binding: &'a AnyBinding) -> Action<'a> {
        let propagates_deps = self.fleet.settings.gate(&PROPAGATE_DEPS);
        action(binding, &self.fleet.interpreters, propagates_deps)
    }

    /// Brings what is known of an application up to date with what its clusters report.
    fn learn(&self, case: &Case<'_>, behavior: &ApplicationFailoverBehavior) -> (History, Verdict) {
        let uid = case.binding.metadata.uid.clone();
        let mut all = self.known.lock();
        let before = all.get(case.key).filter(|known| known.uid == uid).cloned();
        let mut known = before.unwrap_or_else(|| Known {
            uid,
            history: case.written.clone(),
            moved: None,
            reported_at: None,
        });
        known.history = known.history.with_moves_of(&case.written);
        let reporting = |cluster: &str| self.readiness_tracker.of(cluster);
        let counted = known.history.reporting_since(reporting, case.now);
        let verdict = decide(
            toleration(behavior),
            &case.binding.spec,
            &case.binding.status().aggregated_status,
            &counted.since,
            case.now,
        );
        known.history = counted.with_health(verdict.since.clone(), case.now);
        let history = known.history.clone();
        all.insert(case.key.clone(), known);
        (history, verdict)
    }

    async fn follow(
        &self,
        case: &Case<'_>,
        behavior: &ApplicationFailoverBehavior,
    ) -> Result<Next, ApiError> {
        let (history, verdict) = self.learn(case, behavior);
        let now = case.now;
        let state = verdict
            .next
            .and_then(|until| tolerated_state(&history, until, now))
            .or_else(|| refused_state(case));
        let wait = verdict.next.map(|next| until(next, now));
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
        match ready {
            None => self.evictor.fails_no_more(case.key),
            Some(cluster) => self.line_up(case, &history, cluster, &mut progress),
        }
        self.conclude(case, &history, progress).await
    }

    /// Has an application leave a cluster when the queue comes to it, and finds out what keeps it
    /// until then.
    fn line_up(
        &self,
        case: &Case<'_>,
        history: &History,
        cluster: String,
        progress: &mut Progress,
    ) {
        let since = history.since.get(&cluster).copied();
        let rank = Rank::new(case.binding.spec.priority(), since.unwrap_or(case.now));
        match self.evictor.fails(case.key, &cluster, rank) {
            // The condition already reports the obstacle that the process before this one found.
            Some(EvictionState::Queued { .. }) if is_stranded(case.binding, &cluster) => {
                progress.is_said = true;
            }
            Some(state) => {
                let why = Obstacle::Eviction(state);
                progress.held.push((cluster, why, None));
            }
            None => {
                // The rate may permit it at once.
                progress.is_said = true;
                progress.wait = progress.wait.into_iter().chain([WORTH_REPORTING]).min();
            }
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
        let settings = &self.fleet.settings;
        first_free(leave, |cluster| {
            let reporting = self.readiness_tracker.of(cluster);
            obstacle(&mode, history, reporting, cluster, settings, now)
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

/// Returns the report about a cluster that refuses an update of an application which the binding
/// says was unhealthy there. The refusal hides its health, perhaps for long, and an application
/// is not moved for what is not known to be wrong.
fn refused_state(case: &Case<'_>) -> Option<FailoverState> {
    let status = case.binding.status();
    let reported = conditions::get(&status.conditions, CONDITION);
    let was_unhealthy = |cluster: &str| {
        case.written.since.contains_key(cluster)
            || reported.is_some_and(|reported| reports_failure(reported, cluster))
    };
    let refused = status.aggregated_status.iter().find(|report| {
        let cluster = &report.cluster_name;
        let is_hidden = report.is_refused() && report.health == Some(ResourceHealth::Unknown);
        let is_assigned = case.binding.spec.target(cluster).is_some();
        is_hidden && is_assigned && was_unhealthy(cluster)
    });
    refused.map(|report| FailoverState::Refused {
        cluster: report.cluster_name.clone(),
    })
}

#[cfg(test)]
mod moved_tests;
#[cfg(test)]
mod tests;
