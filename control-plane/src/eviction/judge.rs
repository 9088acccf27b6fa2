//! Whether a workload has to leave a cluster, since when, and by which rule.
//!
//! `NoExecute` drives out what does not tolerate it, or no longer does. `PreferNoExecute` drives out what asked for it
//! with `failover.cluster`, after the time given there; tolerations play no part. `NoSchedule` moves nothing.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::{Placement, PurgeMode};
use muster_shared::k8s::{Taint, Toleration};

use crate::cluster::taints::{NO_EXECUTE, PREFER_NO_EXECUTE, evicts};

/// What governs all evictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switches {
    /// The gate `Failover`. Off: no taint moves anything, whoever put it there.
    pub failover: bool,
    /// Whether NoExecute taints evict (`--enable-no-execute-taint-eviction`).
    pub no_execute: bool,
    /// What becomes of the old copy where the policy does not say (`--no-execute-taint-eviction-purge-mode`).
    pub purge_mode: PurgeMode,
}

/// The conclusion about one workload on one cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// It stays.
    Stay(Stay),
    /// It has to leave at a moment: now, if that has come.
    Leave {
        /// The moment.
        due: Timestamp,
        /// The rule that says so.
        cause: Cause,
    },
}

/// Why a workload stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stay {
    /// The gate is off.
    #[error("feature gate Failover is off")]
    SwitchedOff,
    /// No taint that could evict.
    #[error("the cluster has no taint that evicts")]
    NoTaint,
    /// Tolerations cover every taint for ever.
    #[error("every taint of the cluster is tolerated")]
    Tolerated,
    /// Nobody knows what the workload tolerates: the decision must not be guessed (Karmada, K31).
    #[error("the binding has no placement, so its tolerations are unknown")]
    NoPlacement,
}

/// The taint and the rule by which a workload leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// The taint.
    pub taint: Taint,
    /// The rule.
    pub rule: Rule,
}

/// Why a taint makes a workload leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// No toleration matches.
    Untolerated,
    /// The first toleration that matches is for so many seconds.
    TolerationEnds(i64),
    /// The policy's `failover.cluster` asks for it after so many seconds.
    ClusterFailover(i32),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taint = &self.taint;
        match taint.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => write!(f, "taint {}={value}:{}", taint.key, taint.effect)?,
            None => write!(f, "taint {}:{}", taint.key, taint.effect)?,
        }
        match self.rule {
            Rule::Untolerated => write!(f, ", which is not tolerated"),
            Rule::TolerationEnds(seconds) => write!(f, ", which is tolerated for {seconds}s"),
            Rule::ClusterFailover(seconds) => {
                write!(f, ", on which failover.cluster moves after {seconds}s")
            }
        }
    }
}

/// How long `failover.cluster` waits when it does not say (the proposal's default).
const DEFAULT_TOLERATION_SECONDS: i32 = 300;

/// The placement that counts. The binding's own is the policy's present word; without one, what the scheduler last
/// applied.
pub fn placement(spec: &ResourceBindingSpec, applied: Option<&str>) -> Option<Placement> {
    spec.placement
        .clone()
        .or_else(|| serde_json::from_str(applied?).ok())
}

/// Judges a workload that runs on a cluster with these taints.
///
/// Each NoExecute taint is judged by the first toleration that matches it, and by no other (unlike Karmada, K32). A
/// limited toleration of a taint without `timeAdded` does not run out; the cluster controller stamps such taints.
pub fn judge(
    taints: &[Taint],
    spec: &ResourceBindingSpec,
    placement: Option<&Placement>,
    switches: &Switches,
    now: Timestamp,
) -> Judgement {
    if !switches.failover {
        return Judgement::Stay(Stay::SwitchedOff);
    }
    let counts =
        |taint: &&Taint| evicts(taint) && (taint.effect != NO_EXECUTE || switches.no_execute);
    let mut stay = Stay::NoTaint;
    let mut first: Option<(Timestamp, Cause)> = None;
    for taint in taints.iter().filter(counts) {
        let leave = if taint.effect == PREFER_NO_EXECUTE {
            asked_to_leave(taint, spec, now)
        } else if let Some(placement) = placement {
            not_tolerated(taint, &placement.cluster_tolerations, now)
        } else {
            stay = Stay::NoPlacement;
            continue;
        };
        match leave {
            Some((due, rule)) if first.as_ref().is_none_or(|(earliest, _)| due < *earliest) => {
                first = Some((
                    due,
                    Cause {
                        taint: taint.clone(),
                        rule,
                    },
                ));
            }
            None if stay == Stay::NoTaint => stay = Stay::Tolerated,
            _ => {}
        }
    }
    first.map_or(Judgement::Stay(stay), |(due, cause)| Judgement::Leave {
        due,
        cause,
    })
}

fn asked_to_leave(
    taint: &Taint,
    spec: &ResourceBindingSpec,
    now: Timestamp,
) -> Option<(Timestamp, Rule)> {
    let behavior = spec.failover.as_ref()?.cluster.as_ref()?;
    let seconds = behavior
        .toleration_seconds
        .unwrap_or(DEFAULT_TOLERATION_SECONDS);
    let due = match &taint.time_added {
        Some(added) => after(added.0, seconds.into()),
        None if seconds <= 0 => now,
        None => return None,
    };
    Some((due, Rule::ClusterFailover(seconds)))
}

fn not_tolerated(
    taint: &Taint,
    tolerations: &[Toleration],
    now: Timestamp,
) -> Option<(Timestamp, Rule)> {
    let added = taint.time_added.as_ref().map(|added| added.0);
    match tolerations
        .iter()
        .find(|toleration| tolerates(toleration, taint))
    {
        None => Some((added.map_or(now, |added| added.min(now)), Rule::Untolerated)),
        Some(toleration) => {
            let seconds = toleration.toleration_seconds?;
            Some((after(added?, seconds), Rule::TolerationEnds(seconds)))
        }
    }
}

/// Kubernetes' rule: an empty effect or key matches any; only the operators Equal (the default) and Exists match.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |value: &Option<String>| value.as_deref().unwrap_or_default().to_owned();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && match text(&toleration.operator).as_str() {
            "" | "Equal" => text(&toleration.value) == text(&taint.value),
            "Exists" => true,
            _ => false,
        }
}

fn after(moment: Timestamp, seconds: i64) -> Timestamp {
    let bound = if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    moment
        .saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(bound)
}

/// What becomes of the old copy: the policy's word, else the command line's. Old spellings mean what they meant.
pub fn purge_mode(spec: &ResourceBindingSpec, switches: &Switches) -> PurgeMode {
    let said = spec
        .failover
        .as_ref()
        .and_then(|failover| failover.cluster.as_ref());
    let mode = match said {
        Some(cluster) => cluster.purge_mode.clone().unwrap_or(PurgeMode::Gracefully),
        None => switches.purge_mode.clone(),
    };
    match mode.canonical() {
        known @ (PurgeMode::Directly | PurgeMode::Never) => known.clone(),
        // A word that we do not know must not cost anyone the old copy.
        _ => PurgeMode::Gracefully,
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
