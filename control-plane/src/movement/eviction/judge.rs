//! Decides whether a workload must leave a cluster, since when, and by which rule.
//!
//! `NoExecute` evicts workloads that do not tolerate it, or no longer do. `PreferNoExecute` evicts
//! workloads with `failover.cluster`, after the time given there; tolerations do not apply.
//! `NoSchedule` evicts nothing.
//!
//! The taint of `kubectl muster drain` is a person's order, while the switches are about failures:
//! it evicts whatever they say. Tolerations apply to it as to any taint.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::{Placement, PurgeMode};
use muster_shared::k8s::{Taint, Toleration};
use muster_shared::taints::{self, NO_EXECUTE, PREFER_NO_EXECUTE};

use crate::clusters::taint::default_tolerations::DefaultTolerations;
use crate::fleet::fencing;
use crate::settings::{FAILOVER, Settings};

/// Settings that govern all evictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switches {
    /// The gate `Failover`. Off: no taint moves anything, whoever put it there, apart from that of
    /// `kubectl muster drain`.
    pub failover: bool,
    /// Whether NoExecute taints evict (`--enable-no-execute-taint-eviction`).
    pub no_execute: bool,
    /// Treatment of the old copy where the policy does not say
    /// (`--no-execute-taint-eviction-purge-mode`).
    pub purge_mode: PurgeMode,
    /// How long the taints of a failed cluster are tolerated where the policy does not say.
    pub tolerations: DefaultTolerations,
}

impl Switches {
    /// Returns the switches as the settings have them.
    pub fn of(settings: &Settings) -> Self {
        Self {
            failover: settings.gate(&FAILOVER),
            no_execute: settings.enable_no_execute_taint_eviction,
            purge_mode: PurgeMode::from(settings.no_execute_taint_eviction_purge_mode.as_str()),
            tolerations: DefaultTolerations::of(settings),
        }
    }

    /// Returns whether a taint can make workloads leave under these switches.
    pub fn counts(&self, taint: &Taint) -> bool {
        match taint.effect.as_str() {
            NO_EXECUTE => taints::is_drain(taint) || (self.failover && self.no_execute),
            PREFER_NO_EXECUTE => self.failover,
            _ => false,
        }
    }
}

/// Decision about one workload on one cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// The workload stays.
    Stay(Stay),
    /// The workload has to leave at a time, or now if that has passed.
    Leave {
        /// Time at which it has to leave.
        due: Timestamp,
        /// Taint and rule.
        cause: Cause,
    },
}

/// Reason why a workload stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stay {
    /// The feature gate `Failover` is off.
    #[error("feature gate Failover is off")]
    SwitchedOff,
    /// Evictions by `NoExecute` are disabled (`--enable-no-execute-taint-eviction=false`).
    #[error("taints of effect NoExecute do not evict (--enable-no-execute-taint-eviction=false)")]
    NoExecuteOff,
    /// The cluster has no taint that evicts.
    #[error("the cluster has no taint that evicts")]
    NoTaint,
    /// Every taint is tolerated without limit.
    #[error("every taint of the cluster is tolerated")]
    Tolerated,
    /// The cluster has a taint of effect PreferNoExecute, and the policy has no `failover.cluster`.
    #[error(
        "its policy has no failover.cluster, so a taint of effect PreferNoExecute does not move it"
    )]
    NotAsked,
    /// The binding has no placement, so that its tolerations are unknown. (Karmada assumes none.)
    #[error("the binding has no placement, so its tolerations are unknown")]
    NoPlacement,
    /// The workload has a share of zero replicas in the cluster. (Karmada evicts it.)
    #[error("it has no replicas there, so that nothing is to leave")]
    Empty,
    /// The Job, or another task, has completed in the cluster. (Karmada runs it again in another
    /// one.)
    #[error("it has completed there, and in another cluster it would run again")]
    Completed,
}

/// The taint and the rule by which a workload leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// The taint.
    pub taint: Taint,
    /// The rule.
    pub rule: Rule,
}

/// Rule by which a taint evicts a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// No toleration matches the taint.
    Untolerated,
    /// The first toleration that matches is limited.
    TolerationEnds,
    /// The policy has `failover.cluster`.
    ClusterFailover,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taint = taints::describe(&self.taint);
        match self.rule {
            Rule::Untolerated => write!(f, "taint {taint}, which is not tolerated"),
            Rule::TolerationEnds => {
                write!(
                    f,
                    "taint {taint}, which is tolerated for a limited time only"
                )
            }
            Rule::ClusterFailover => write!(f, "taint {taint}, on which failover.cluster moves"),
        }
    }
}

/// How long `failover.cluster` waits when it does not say (the proposal's default).
const DEFAULT_TOLERATION_SECONDS: i32 = 300;

/// Returns the placement that counts: the binding's own, which is what the policy says now, or
/// without one that which the scheduler applied last.
pub fn placement<'a>(
    spec: &'a ResourceBindingSpec,
    applied: Option<&str>,
) -> Option<Cow<'a, Placement>> {
    let own = spec.placement.as_deref().map(Cow::Borrowed);
    own.or_else(|| serde_json::from_str(applied?).ok().map(Cow::Owned))
}

/// Judges a workload that runs on a cluster with these taints.
pub fn judge(
    taints: &[Taint],
    spec: &ResourceBindingSpec,
    placement: Option<&Placement>,
    switches: &Switches,
    now: Timestamp,
) -> Judgement {
    let in_force: Cow<'_, [Taint]> = if taints.iter().all(|taint| switches.counts(taint)) {
        Cow::Borrowed(taints)
    } else {
        let counted = taints.iter().filter(|taint| switches.counts(taint));
        Cow::Owned(counted.cloned().collect())
    };
    if !switches.failover && in_force.is_empty() {
        return Judgement::Stay(Stay::SwitchedOff);
    }
    let has = |effect: &str| in_force.iter().any(|taint| taint.effect == effect);
    let (hard, soft) = (has(NO_EXECUTE), has(PREFER_NO_EXECUTE));
    let leave = |stay: taints::Stay<'_>, rule: Rule| match stay {
        taints::Stay::Unlimited => None,
        taints::Stay::Until(due, taint) => Some((
            due,
            Cause {
                taint: taint.clone(),
                rule,
            },
        )),
        taints::Stay::Never(taint) => {
            let due = taint
                .time_added
                .as_ref()
                .map_or(now, |added| added.0.min(now));
            Some((
                due,
                Cause {
                    taint: taint.clone(),
                    rule: Rule::Untolerated,
                },
            ))
        }
    };
    let tolerations = placement
        .filter(|_| hard)
        .map(|placement| switches.tolerations.beside(&placement.cluster_tolerations));
    let untolerated = tolerations.as_ref().and_then(|tolerations| {
        leave(
            taints::stay(&in_force, tolerations, now),
            Rule::TolerationEnds,
        )
    });
    let behavior = spec.cluster_failover().filter(|_| soft);
    let asked = behavior.and_then(|behavior| {
        let seconds = behavior
            .toleration_seconds
            .unwrap_or(DEFAULT_TOLERATION_SECONDS);
        leave(
            taints::preferred_stay(&in_force, seconds.into(), now),
            Rule::ClusterFailover,
        )
    });
    match untolerated
        .into_iter()
        .chain(asked)
        .min_by_key(|(due, _)| *due)
    {
        Some((due, cause)) => {
            let tolerations = tolerations.filter(|_| due <= now);
            let ordered = tolerations.and_then(|it| drained(&in_force, &it, now));
            let cause = ordered.unwrap_or(cause);
            Judgement::Leave { due, cause }
        }
        None if hard && placement.is_none() => Judgement::Stay(Stay::NoPlacement),
        None if hard => Judgement::Stay(Stay::Tolerated),
        None if soft => Judgement::Stay(Stay::NotAsked),
        None if taints.iter().any(|taint| taint.effect == NO_EXECUTE) => {
            Judgement::Stay(Stay::NoExecuteOff)
        }
        None => Judgement::Stay(Stay::NoTaint),
    }
}

/// Decides about a workload in a cluster by its taints. A share of zero replicas
/// (`--enable-empty-workload-propagation`) leaves by a person's order to empty the cluster alone:
/// nothing would move, since no other cluster could take it over.
pub fn judge_copy(
    cluster: &str,
    taints: &[Taint],
    spec: &ResourceBindingSpec,
    placement: Option<&Placement>,
    switches: &Switches,
    now: Timestamp,
) -> Judgement {
    let judgement = judge(taints, spec, placement, switches, now);
    if spec.has_copy(cluster) || matches!(judgement, Judgement::Stay(_)) {
        return judgement;
    }
    let drains = taints.iter().filter(|it| taints::is_drain(it));
    let drains: Vec<Taint> = drains.cloned().collect();
    match judge(&drains, spec, placement, switches, now) {
        Judgement::Stay(_) => Judgement::Stay(Stay::Empty),
        leaves @ Judgement::Leave { .. } => leaves,
    }
}

/// Returns what becomes of the old copy: what the policy says, or else what the command line says.
/// Former spellings keep their meaning. When the policy says nothing, a drain keeps the copy until
/// the new one is healthy: the cluster that is left works.
pub fn purge_mode(spec: &ResourceBindingSpec, switches: &Switches, cause: &Cause) -> PurgeMode {
    let mode = match spec.cluster_failover() {
        Some(cluster) => cluster.purge_mode.clone().unwrap_or(PurgeMode::Gracefully),
        None if taints::is_drain(&cause.taint) => PurgeMode::Gracefully,
        None => switches.purge_mode.clone(),
    };
    match mode.canonical() {
        known @ (PurgeMode::Directly | PurgeMode::Never) => known.clone(),
        // Two copies would run.
        _ if fencing::runs_alone(spec) => PurgeMode::Directly,
        // A word that we do not know must not cost anyone the old copy.
        _ => PurgeMode::Gracefully,
    }
}

/// Returns the order to empty a cluster as the cause, if it drives a workload out by now. It is a
/// person's word, and asks for more than a taint: whatever else drives the workload out, the copy
/// goes even if no other cluster takes it over.
fn drained(taints: &[Taint], tolerations: &[Toleration], now: Timestamp) -> Option<Cause> {
    let drain = taints.iter().find(|taint| taints::is_drain(taint))?;
    let rule = match taints::stay(std::slice::from_ref(drain), tolerations, now) {
        taints::Stay::Never(_) => Rule::Untolerated,
        taints::Stay::Until(due, _) if due <= now => Rule::TolerationEnds,
        taints::Stay::Until(..) | taints::Stay::Unlimited => return None,
    };
    let taint = drain.clone();
    Some(Cause { taint, rule })
}

#[cfg(test)]
mod tests;
