//! What a plan promises: the settings of the control plane, and how far the faults go.

use jiff::SignedDuration;

use super::process::parsed;
use crate::faults::{Fault, FaultKind};
use crate::history::{Actor, Api, Process};
use crate::oracle::Rules;
use crate::plan::Plan;

/// Returns the rules by which the oracles judge a plan.
///
/// # Errors
/// When its flags are refused.
pub(super) fn rules(plan: &Plan) -> anyhow::Result<Rules> {
    let settings = parsed(&plan.flags)?;
    let (lag, clock_error) = plan.faults.iter().fold((0, 0), |(lag, error), fault| {
        (lag.max(delay(fault)), error.max(clock_error(fault)))
    });
    let default = Rules::default();
    Ok(Rules {
        failover: settings.gate(&muster_control_plane::settings::FAILOVER),
        primary_rate: settings.resource_eviction_rate,
        secondary_rate: settings.secondary_resource_eviction_rate,
        unhealthy_threshold: settings.unhealthy_cluster_threshold,
        large_threshold: settings.large_cluster_num_threshold,
        purge_mode: settings.no_execute_taint_eviction_purge_mode.clone(),
        grace: SignedDuration::try_from(*settings.cluster_monitor_grace_period)?,
        lag: default.lag + SignedDuration::from_millis(lag),
        clock_error: SignedDuration::from_secs(clock_error),
        replicas: plan.replicas,
        ..default
    })
}

/// Milliseconds after which a connection that says nothing is given up, so that what happened
/// meanwhile is not silent.
const GIVEN_UP: u64 = 75_000;

/// Milliseconds after which everything is listed where every watch breaks, or that pass between two
/// lists of which the first was short, or so old that no watch could follow it.
const LISTED: u64 = 45_000;

/// Milliseconds for which a fault may keep the control plane from what others committed. An agent
/// that is cut off writes nothing in the fleet, and has no excuse for what it does in its member.
fn delay(fault: &Fault) -> i64 {
    let lasts = fault.until.saturating_sub(fault.from);
    let millis = match &fault.kind {
        FaultKind::Partition {
            actor: Actor::Process(Process::ControlPlane(_)),
            api: Api::Fleet,
            ..
        } => lasts.min(GIVEN_UP),
        FaultKind::Break {
            actor: Actor::Process(Process::ControlPlane(_)),
            api: Api::Fleet,
            ..
        }
        | FaultKind::Stale {
            actor: Actor::Process(Process::ControlPlane(_)),
            api: Api::Fleet,
            ..
        }
        | FaultKind::Short {
            actor: Actor::Process(Process::ControlPlane(_)),
            api: Api::Fleet,
            ..
        } => lasts.min(LISTED),
        FaultKind::Slow { delay, .. } => *delay,
        FaultKind::Lag { lag, .. } => *lag,
        FaultKind::Miss { pause, .. } => *pause,
        _ => 0,
    };
    i64::try_from(millis).unwrap_or(i64::MAX)
}

/// Seconds by which a fault makes the calendar wrong that the control plane decides by: that of the
/// fleet API's server.
const fn clock_error(fault: &Fault) -> i64 {
    match &fault.kind {
        FaultKind::ServerClock {
            api: Api::Fleet,
            jump,
        } => jump.saturating_abs(),
        _ => 0,
    }
}
