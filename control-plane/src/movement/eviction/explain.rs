//! What is said about evictions in conditions and events, one for each change of state.

mod condition;

use jiff::Timestamp;
use muster_shared::conditions;
use muster_shared::events::EventType;
pub use muster_shared::names::eviction::{PAUSED, STOPPED, WAITING_FOR_RATE};

pub use self::condition::{condition, merge};
use muster_shared::api::any_binding::AnyBinding;

use super::judge::Stay;
use crate::movement::eviction::inputs;

/// Type of the condition on a binding: True while the workload is to leave a cluster and has not
/// left it.
pub const CONDITION: &str = "EvictionPending";

/// Reasons of the condition of a workload that has to leave a cluster and cannot, for reasons of
/// its own.
pub const STRANDED: [&str; 3] = ["NowhereToGo", "StateNotPreserved", "NotFenced"];
/// Reason of that condition where the eviction could not be written, which is tried again.
pub const FAILED: &str = "EvictWorkloadFromClusterFailed";
/// Reason of that condition while a taint is tolerated for a time, which alone ends it.
pub const WAITING_FOR_TOLERATION: &str = "WaitingForToleration";
/// Reason of that condition until the old copy is stopped.
pub const WAITING_FOR_FENCE: &str = "WaitingForFence";
/// Reasons of that condition of a workload that waits for what is no fault of its own.
pub const WAITING: [&str; 6] = [
    WAITING_FOR_TOLERATION,
    WAITING_FOR_RATE,
    STOPPED,
    PAUSED,
    WAITING_FOR_FENCE,
    "WaitingForTemplate",
];
/// Reasons of that condition for which a workload stays where it is although its cluster has
/// taints: they say why nothing moves it.
pub const STAYING: [&str; 7] = [
    "FailoverOff",
    "NoExecuteEvictionOff",
    "FailoverNotRequested",
    "PlacementUnknown",
    "Tolerated",
    COMPLETED,
    EMPTY,
];
/// Reason of that condition where a Job stays because it has completed.
pub const COMPLETED: &str = "JobCompleted";
/// Reason of that condition where a share of zero replicas stays.
pub const EMPTY: &str = "NoReplicas";

/// A state that an eviction took, about one binding and one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The cluster.
    pub cluster: String,
    /// State of the eviction.
    pub state: EvictionState,
}

/// State of an eviction, to be reported.
#[derive(Clone, Debug, PartialEq)]
pub enum EvictionState {
    /// The taint is tolerated until a time.
    Tolerated {
        /// Taint and rule.
        cause: String,
        /// End of the toleration.
        until: Timestamp,
    },
    /// The eviction waits for the rate.
    Queued {
        /// Taint and rule.
        cause: String,
    },
    /// Too many clusters have failed: nothing is evicted. How many there are is not reported of
    /// each workload: it changes with every cluster that fails or returns.
    Stopped {
        /// Taint and rule.
        cause: String,
    },
    /// Somebody paused movement.
    Paused {
        /// Taint and rule.
        cause: String,
        /// The pause.
        why: String,
    },
    /// The control plane could not read whether the workload may leave.
    Unread {
        /// Taint and rule.
        cause: String,
        /// Object that cannot be read.
        why: String,
    },
    /// The old copy may still run, and is stopped later.
    Fencing {
        /// Taint and rule.
        cause: String,
        /// Time or event that is waited for.
        why: String,
    },
    /// The old copy may still run, and nothing stops it.
    Unfenced {
        /// Taint and rule.
        cause: String,
        /// Reason why not.
        why: String,
    },
    /// No other cluster can take the workload.
    Nowhere {
        /// Taint and rule.
        cause: String,
        /// Reason of the scheduler.
        why: String,
    },
    /// The state of the old copy cannot be preserved.
    Unpreserved {
        /// Taint and rule.
        cause: String,
        /// Reason why not.
        why: String,
    },
    /// The write failed and is tried again.
    Failed {
        /// Error of the API.
        why: String,
    },
    /// The workload was evicted.
    Evicted {
        /// Taint and rule.
        cause: String,
        /// New clusters.
        to: String,
        /// Purge mode of the eviction.
        mode: String,
        /// Time of the eviction.
        at: Timestamp,
    },
    /// The cluster lost its taints before the eviction: it recovered, or somebody took them off.
    Recovered,
    /// Another writer removed the workload from the cluster before the eviction.
    Moved,
    /// The cluster left the fleet before the eviction.
    ClusterGone,
    /// The cluster is missing from the API's list, and nobody saw it leave the fleet.
    ClusterUnseen,
    /// The workload does not have to leave.
    Stays {
        /// Rule by which it stays.
        rule: Stay,
        /// Taints of the cluster that evict others.
        taints: String,
        /// Time at which the last of these taints was added, if each of them has one.
        since: Option<Timestamp>,
    },
}

impl Note {
    /// Returns whether the note reports an eviction that took place.
    pub fn is_eviction(&self) -> bool {
        matches!(self.state, EvictionState::Evicted { .. })
    }

    /// Returns whether the note has to be written before others. That a workload waits for the rate
    /// is nothing new and may concern very many.
    pub fn is_urgent(&self) -> bool {
        self.state.reporting().is_urgent
    }

    /// Returns the reason of the condition and the event, in one word.
    pub fn reason(&self) -> &'static str {
        self.state.reason()
    }

    /// Returns the message of the condition and the event, in a sentence.
    pub fn message(&self) -> String {
        let cluster = &self.cluster;
        match &self.state {
            EvictionState::Tolerated { cause, until } => {
                format!("{cluster} has {cause}: it stays until {until:.0}")
            }
            EvictionState::Queued { cause } => {
                format!("{cluster} has {cause}: it leaves when the eviction rate allows")
            }
            EvictionState::Stopped { cause } => format!(
                "{cluster} has {cause}: it stays until enough clusters return, since more have failed than --unhealthy-cluster-threshold allows"
            ),
            EvictionState::Paused { cause, why } => {
                format!("{cluster} has {cause}: it stays, because {why}")
            }
            EvictionState::Unread { cause, why } => {
                format!("{cluster} has {cause}: it stays for the moment, because {why}")
            }
            EvictionState::Fencing { cause, why } => format!(
                "{cluster} has {cause}: it leaves when its copy there is stopped (failover.cluster.fencing): {why}"
            ),
            EvictionState::Unfenced { cause, why } => format!(
                "has to leave {cluster} and stays until that is ready and can remove its copy, because nothing stops that \
                 (failover.cluster.fencing): {why}; {cluster} has {cause}"
            ),
            EvictionState::Nowhere { cause, why } => {
                format!("has to leave {cluster} and stays: {why}; {cluster} has {cause}")
            }
            EvictionState::Unpreserved { cause, why } => format!(
                "has to leave {cluster} and stays: its state cannot be preserved: {why}; {cluster} has {cause}"
            ),
            EvictionState::Failed { why } => {
                format!("has to leave {cluster} and stays until the next attempt: {why}")
            }
            EvictionState::Evicted {
                cause, to, mode, ..
            } => {
                format!("{}{to} ({mode}): {cluster} has {cause}", left(cluster))
            }
            EvictionState::Recovered => {
                format!("{cluster} has no taint any more by which the workload has to leave it")
            }
            EvictionState::Moved => {
                format!("it is not placed in {cluster} any more, so that it need not leave")
            }
            EvictionState::ClusterGone => format!("{cluster} is not in the fleet any more"),
            EvictionState::ClusterUnseen => format!(
                "{cluster} is missing from the API's list, and nobody saw it leave: it stays there until that is listed again"
            ),
            EvictionState::Stays { rule, taints, .. } => {
                format!("stays on {cluster}, which has {taints}: {rule}")
            }
        }
    }

    /// Returns whether the workload is still to leave the cluster.
    pub fn is_pending(&self) -> bool {
        self.state.reporting().weight > EVICTED
    }

    /// Returns the type of the event: a warning or a normal one.
    pub fn severity(&self) -> EventType {
        self.state.reporting().severity
    }
}

/// Weight of an eviction that took place. What is still to leave weighs more, all else less.
const EVICTED: u8 = 3;
/// First word of the story of an eviction.
const LEFT: &str = "left ";

/// Returns the beginning of a message about an eviction from a cluster.
pub fn left(cluster: &str) -> String {
    format!("{LEFT}{cluster} for ")
}

/// Returns whether a message names a cluster, and not only one whose name contains that cluster's
/// name.
pub fn names_cluster(message: &str, cluster: &str) -> bool {
    let is_part = |symbol: char| symbol.is_ascii_alphanumeric() || matches!(symbol, '-' | '.');
    message
        .split(|symbol| !is_part(symbol))
        .any(|word| word == cluster || word.trim_end_matches('.') == cluster)
}

/// Returns whether a Job has completed in a cluster: the cluster reports it, or it reports nothing
/// and the control plane has said so from the Job's template.
pub fn has_completed(binding: &AnyBinding, cluster: &str) -> bool {
    let reported = || {
        let condition = conditions::get(&binding.status().conditions, CONDITION);
        condition.is_some_and(|it| it.reason == COMPLETED && names_cluster(&it.message, cluster))
    };
    inputs::has_completed(binding, cluster).unwrap_or_else(reported)
}

/// How the state of an eviction is reported.
struct Reporting {
    /// Reason of the condition and the event, in one word.
    reason: &'static str,
    /// How important the report is for people: of several clusters, the one with the greatest
    /// weight gives the condition its reason.
    weight: u8,
    /// Whether it is to be written before others.
    is_urgent: bool,
    /// Type of the event.
    severity: EventType,
}

impl EvictionState {
    /// Returns the reason of the condition and the event, in one word.
    pub fn reason(&self) -> &'static str {
        self.reporting().reason
    }

    fn reporting(&self) -> Reporting {
        use EventType::{Normal, Warning};
        let (reason, weight, is_urgent, severity) = match self {
            Self::Failed { .. } => (FAILED, 11, true, Warning),
            Self::Nowhere { .. } => ("NowhereToGo", 10, true, Warning),
            Self::Unpreserved { .. } => ("StateNotPreserved", 9, true, Warning),
            Self::Unfenced { .. } => ("NotFenced", 8, true, Warning),
            Self::Stopped { .. } => (STOPPED, 7, false, Warning),
            Self::Paused { .. } => (PAUSED, 7, false, Warning),
            Self::Fencing { .. } => (WAITING_FOR_FENCE, 6, true, Normal),
            Self::Unread { .. } => ("WaitingForTemplate", 6, false, Normal),
            Self::Queued { .. } => (WAITING_FOR_RATE, 5, false, Normal),
            Self::Tolerated { .. } => (WAITING_FOR_TOLERATION, 4, true, Normal),
            Self::Evicted { .. } => ("Evicted", EVICTED, true, Normal),
            Self::Stays { rule, .. } => match rule {
                Stay::SwitchedOff => ("FailoverOff", 2, false, Normal),
                Stay::NoExecuteOff => ("NoExecuteEvictionOff", 2, false, Normal),
                Stay::NotAsked => ("FailoverNotRequested", 2, false, Normal),
                Stay::NoPlacement => ("PlacementUnknown", 2, false, Warning),
                Stay::Completed => (COMPLETED, 2, false, Normal),
                Stay::Empty => (EMPTY, 2, false, Normal),
                Stay::NoTaint | Stay::Tolerated => ("Tolerated", 2, false, Normal),
            },
            Self::Recovered => ("AbandonedOnRecovery", 1, true, Normal),
            Self::Moved => ("AbandonedOnMove", 0, true, Normal),
            Self::ClusterGone => ("AbandonedClusterGone", 0, true, Normal),
            Self::ClusterUnseen => ("AbandonedClusterUnseen", 0, true, Warning),
        };
        Reporting {
            reason,
            weight,
            is_urgent,
            severity,
        }
    }
}

#[cfg(test)]
mod tests;
