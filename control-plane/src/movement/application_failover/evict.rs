//! Evicts an application from a cluster: the reasons not to, and the write that moves it.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::any_binding::{AnyBinding, BindingKind};
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::{ApplicationFailoverBehavior, PurgeMode};
use muster_shared::queue::until;
use serde_json::json;

use super::explain::Obstacle;
use super::history::{self, History, Move};
use super::readiness::Readiness;
use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::Paid;
use crate::fleet::fencing;
use crate::fleet::protection::protected;
use crate::movement::eviction::execute::{Leaving, NotWritten, carry_out, plan_in};
use crate::movement::eviction::reason::{EvictionReason, application};
use crate::scheduler::controller::LiveSnapshot;
use crate::scheduler::core::Options;
use crate::settings::{GRACEFUL_EVICTION, STATEFUL_FAILOVER_INJECTION, Settings};

/// How long an old copy waits for the new one when the policy does not say, in seconds (Karmada's
/// admission writes this number).
const GRACE_SECONDS: i32 = 600;
/// First and longest pause before an application that cannot leave is tried again.
const OBSTRUCTED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(5));
/// Time after its return in which what a cluster reports of its workloads may be what it reported
/// before.
const REFRESH: SignedDuration = SignedDuration::from_secs(10);

/// What the operator has switched on.
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// Gate `GracefulEviction`.
    pub graceful_eviction: bool,
    /// Gate `StatefulFailoverInjection`.
    pub preserves_state: bool,
}

impl Switches {
    /// Returns the switches as the settings have them.
    pub fn of(settings: &Settings) -> Self {
        Self {
            graceful_eviction: settings.gate(&GRACEFUL_EVICTION),
            preserves_state: settings.gate(&STATEFUL_FAILOVER_INJECTION),
        }
    }
}

/// Returns the obstacle that holds an application back before a place is looked for, and for how
/// long.
pub fn obstacle(
    mode: &PurgeMode,
    history: &History,
    heard: Readiness,
    cluster: &str,
    switches: Switches,
    now: Timestamp,
) -> Option<(Obstacle, Duration)> {
    let Readiness::ReadySince(heard) = heard else {
        return Some((Obstacle::Unheard(cluster.to_owned()), OBSTRUCTED.0));
    };
    let refreshed = heard.min(now).saturating_add(REFRESH);
    let refreshed = refreshed.unwrap_or(Timestamp::MAX);
    if now < refreshed {
        let why = Obstacle::Returned {
            cluster: cluster.to_owned(),
            until: refreshed,
        };
        return Some((why, until(refreshed, now)));
    }
    let rested = history.rested_at(now).filter(|rested| now < *rested);
    if let Some(rested) = rested {
        let why = Obstacle::Rests {
            moves: history.moves,
            until: rested,
        };
        return Some((why, until(rested, now)));
    }
    let off = *mode == PurgeMode::Gracefully && !switches.graceful_eviction;
    off.then_some((Obstacle::GateOff, OBSTRUCTED.1))
}

/// Returns the reason for which an application leaves a cluster where it has been unhealthy since a
/// moment.
pub fn failure<'a>(
    behavior: &ApplicationFailoverBehavior,
    since: Timestamp,
    producer: &'a str,
) -> EvictionReason<'a> {
    EvictionReason::Failure {
        since,
        producer,
        grace_seconds: behavior.grace_period_seconds.or(Some(GRACE_SECONDS)),
    }
}

/// Returns the pause before an application is tried again that found no place this many times.
pub fn pause(attempts: u32) -> Duration {
    OBSTRUCTED
        .0
        .saturating_mul(1 << attempts.min(5))
        .min(OBSTRUCTED.1)
}

/// An application that is to leave.
pub struct Leaver<'a> {
    /// What names its binding.
    pub key: &'a BindingKey,
    /// Its binding.
    pub binding: &'a AnyBinding,
    /// What is known of it.
    pub history: &'a History,
    /// How often it found no place.
    pub attempts: u32,
}

/// Result of an eviction.
pub enum Outcome {
    /// The application was evicted.
    Left {
        /// Binding after the write.
        binding: Box<AnyBinding>,
        /// Recorded state after the write.
        history: History,
        /// Eviction to report.
        moved: Move,
    },
    /// The application stays for now.
    Held {
        /// Reason.
        why: Obstacle,
        /// Time until the next attempt.
        pause: Duration,
    },
    /// Another writer changed the binding first.
    Overtaken,
}

/// The way out, the same for all applications.
pub struct Exit {
    fleet: Arc<Fleet>,
    snapshot: LiveSnapshot,
    options: Options,
}

impl Exit {
    /// Follows the clusters.
    pub fn new(fleet: &Arc<Fleet>) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            snapshot: LiveSnapshot::follow(&fleet.clusters),
            options: Options::of(&fleet.settings).for_departure(),
        }
    }

    /// Moves an application out of a cluster, where there is a place for it: eviction and new
    /// placement are one write. The payment is kept unless it is known that nothing was moved.
    pub async fn leave(
        &self,
        leaver: &Leaver<'_>,
        cluster: &str,
        paid: Paid,
        now: Timestamp,
    ) -> Outcome {
        let Leaver {
            key,
            binding,
            history,
            attempts,
        } = *leaver;
        let fleet = &self.fleet;
        // A setting that protects counts from the moment at which it stands in the policy.
        let spec = &*protected(fleet, binding);
        let Some(behavior) = application(spec) else {
            return Outcome::Overtaken;
        };
        let mode = purge_mode_of(spec, behavior);
        let since = history.since.get(cluster).copied().unwrap_or(now);
        let leaving = Leaving {
            spec,
            status: binding.status(),
            cluster,
            reason: failure(behavior, since, producer(key.kind())),
            purge_mode: &mode,
        };
        let mut plan = match plan_in(fleet, &leaving, &self.snapshot.get(), &self.options, now) {
            Ok(plan) => plan,
            Err(nowhere) => {
                return Outcome::Held {
                    why: nowhere.into(),
                    pause: pause(attempts),
                };
            }
        };
        let moved = Move {
            from: cluster.to_owned(),
            since,
            to: plan.destination(),
            mode: mode.to_string(),
            without_state: leaves_state(behavior, Switches::of(&fleet.settings)),
        };
        let then = History {
            last: Some(moved.clone()),
            ..history.clone().after_move(cluster, now)
        };
        plan.patch["metadata"]["annotations"][history::ANNOTATION] = json!(then.write());
        match carry_out(fleet, binding, plan, &paid).await {
            Ok(binding) => Outcome::Left {
                binding: Box::new(binding),
                history: then,
                moved,
            },
            Err(NotWritten::Overtaken | NotWritten::Gone) => Outcome::Overtaken,
            Err(NotWritten::Refused(why) | NotWritten::Unclear(why)) => Outcome::Held {
                why: Obstacle::Failed(why),
                pause: pause(attempts),
            },
        }
    }
}

/// Returns what becomes of the old copy of a workload. Where two copies must not run, it is removed
/// before the new one is made.
pub fn purge_mode_of(
    spec: &ResourceBindingSpec,
    behavior: &ApplicationFailoverBehavior,
) -> PurgeMode {
    match purge_mode(behavior) {
        PurgeMode::Gracefully if fencing::asked(spec).is_some() => PurgeMode::Directly,
        mode => mode,
    }
}

/// Returns what the policy says about the old copy.
pub fn purge_mode(behavior: &ApplicationFailoverBehavior) -> PurgeMode {
    let mode = behavior.purge_mode.as_ref().map(PurgeMode::canonical);
    mode.cloned().unwrap_or(PurgeMode::Gracefully)
}

/// Returns whether a policy asks for state to be preserved that is not, because the gate is off.
fn leaves_state(behavior: &ApplicationFailoverBehavior, switches: Switches) -> bool {
    let rules = behavior.state_preservation.as_ref();
    rules.is_some_and(|state| !state.rules.is_empty()) && !switches.preserves_state
}

/// Returns the name of the controller that moves applications, as eviction tasks have it.
pub const fn producer(kind: BindingKind) -> &'static str {
    match kind {
        BindingKind::Namespaced => "resource-binding-application-failover-controller",
        BindingKind::Cluster => "cluster-resource-binding-application-failover-controller",
    }
}

#[cfg(test)]
mod leaving;
#[cfg(test)]
mod tests;
