//! How an application is evicted from a cluster, and the reasons not to evict it yet.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::{ApplicationFailoverBehavior, PurgeMode};
use muster_shared::api::scope::ResourceScope;
use muster_shared::clock::later;
use muster_shared::queue::until;

use super::explain::Obstacle;
use super::history::History;
use crate::fleet::fencing;
use crate::movement::eviction::reason::EvictionReason;
use crate::settings::{GRACEFUL_EVICTION, STATEFUL_FAILOVER_INJECTION, Settings};

/// How long an old copy waits for the new one when the policy does not say, in seconds (Karmada's
/// admission writes this number).
const GRACE_SECONDS: i32 = 600;
/// Pause before an application in a cluster that is not ready is reconciled again.
const NOT_READY: Duration = Duration::from_secs(10);
/// Pause before an application is reconciled again whose policy asks for what is switched off.
const SWITCHED_OFF: Duration = Duration::from_mins(5);
/// Time after its return in which what a cluster reports of its workloads may be what it reported
/// before.
const REFRESH: SignedDuration = SignedDuration::from_secs(10);

/// Returns the obstacle that holds an application back before a place is searched for, and for how
/// long. `reporting` is since when the reports of its cluster count.
pub fn obstacle(
    mode: &PurgeMode,
    history: &History,
    reporting: Option<Timestamp>,
    cluster: &str,
    settings: &Settings,
    now: Timestamp,
) -> Option<(Obstacle, Duration)> {
    let Some(reporting) = reporting else {
        return Some((Obstacle::NotReady(cluster.to_owned()), NOT_READY));
    };
    let refreshed = later(reporting.min(now), REFRESH);
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
    let off = *mode == PurgeMode::Gracefully && !settings.gate(&GRACEFUL_EVICTION);
    off.then_some((Obstacle::GateOff, SWITCHED_OFF))
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

/// Returns what becomes of the old copy of a workload. Where two copies must not run, it is removed
/// before the new one is made.
pub fn purge_mode_of(
    spec: &ResourceBindingSpec,
    behavior: &ApplicationFailoverBehavior,
) -> PurgeMode {
    match purge_mode(behavior) {
        PurgeMode::Gracefully if fencing::runs_alone(spec) => PurgeMode::Directly,
        mode => mode,
    }
}

/// Returns what the policy says about the old copy.
pub fn purge_mode(behavior: &ApplicationFailoverBehavior) -> PurgeMode {
    let mode = behavior.purge_mode.as_ref().map(PurgeMode::canonical);
    mode.cloned().unwrap_or(PurgeMode::Gracefully)
}

/// Returns whether a policy asks for state to be preserved that is not, because the gate is off.
pub fn leaves_state(behavior: &ApplicationFailoverBehavior, settings: &Settings) -> bool {
    let rules = behavior.state_preservation.as_ref();
    rules.is_some_and(|state| !state.rules.is_empty())
        && !settings.gate(&STATEFUL_FAILOVER_INJECTION)
}

/// Returns the name of the controller that moves applications, as eviction tasks have it.
pub const fn producer(scope: ResourceScope) -> &'static str {
    match scope {
        ResourceScope::Namespaced => "resource-binding-application-failover-controller",
        ResourceScope::Cluster => "cluster-resource-binding-application-failover-controller",
    }
}

#[cfg(test)]
mod tests;
