//! What people are told about an eviction: one condition and one event on the binding for each turn it takes.

use jiff::Timestamp;
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::k8s::Condition;

use super::judge::Stay;
use super::rate::FleetHealth;

/// Type of the condition on a binding: True while the workload is to leave a cluster and has not left it.
pub const CONDITION: &str = "EvictionPending";

/// A turn that an eviction took, about one binding and one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The cluster.
    pub cluster: String,
    /// What happened.
    pub turn: Turn,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// It is tolerated until a moment.
    Tolerated {
        /// Taint and rule.
        cause: String,
        /// The moment.
        until: Timestamp,
    },
    /// It waits for its turn in the queue.
    Queued {
        /// Taint and rule.
        cause: String,
    },
    /// Too many clusters have failed: nothing is evicted.
    Stopped {
        /// How many.
        health: FleetHealth,
    },
    /// No other cluster could take it.
    Nowhere {
        /// What the scheduler says.
        why: String,
    },
    /// The new copy could not be told the state of the old one.
    Unpreserved {
        /// What is missing.
        why: String,
    },
    /// The write failed; it is tried again.
    Failed {
        /// What the API says.
        why: String,
    },
    /// It left.
    Evicted {
        /// Taint and rule.
        cause: String,
        /// Where it is placed now.
        to: String,
        /// What becomes of the old copy.
        mode: String,
    },
    /// The cluster recovered before its turn came.
    Recovered,
    /// It does not have to leave.
    Stays(Stay),
}

impl Note {
    /// Whether others can wait for this one. Waiting for the rate is nothing new and may concern very many.
    pub fn is_urgent(&self) -> bool {
        !matches!(
            self.turn,
            Turn::Queued { .. } | Turn::Stopped { .. } | Turn::Stays(_)
        )
    }

    /// The reason, in one word.
    pub fn reason(&self) -> &'static str {
        match self.turn {
            Turn::Tolerated { .. } => "WaitingForToleration",
            Turn::Queued { .. } => "WaitingForRate",
            Turn::Stopped { .. } => "StoppedByThreshold",
            Turn::Nowhere { .. } => "NowhereToGo",
            Turn::Unpreserved { .. } => "StateNotPreserved",
            Turn::Failed { .. } => "EvictWorkloadFromClusterFailed",
            Turn::Evicted { .. } => "Evicted",
            Turn::Recovered => "AbandonedOnRecovery",
            Turn::Stays(Stay::NotAsked) => "FailoverNotRequested",
            Turn::Stays(Stay::NoPlacement) => "PlacementUnknown",
            Turn::Stays(_) => "Tolerated",
        }
    }

    /// The same in a sentence.
    pub fn message(&self) -> String {
        let cluster = &self.cluster;
        match &self.turn {
            Turn::Tolerated { cause, until } => {
                format!("{cluster} has {cause}: it stays until {until:.0}")
            }
            Turn::Queued { cause } => {
                format!("{cluster} has {cause}: it leaves when the eviction rate allows")
            }
            Turn::Stopped { health } => format!(
                "has to leave {cluster}, but {} of {} clusters have failed: nothing is evicted until enough of them return",
                health.failed, health.total
            ),
            Turn::Nowhere { why } => format!("has to leave {cluster} and stays: {why}"),
            Turn::Unpreserved { why } => {
                format!("has to leave {cluster} and stays: its state cannot be preserved: {why}")
            }
            Turn::Failed { why } => format!("Evict from cluster {cluster} failed: {why}"),
            Turn::Evicted { cause, to, mode } => {
                format!("left {cluster} for {to} ({mode}): {cluster} has {cause}")
            }
            Turn::Recovered => format!("{cluster} recovered before the workload had to leave it"),
            Turn::Stays(why) => format!("stays on {cluster}: {why}"),
        }
    }

    /// The condition on the binding.
    pub fn condition(&self, now: Timestamp) -> Condition {
        let pending = !matches!(
            self.turn,
            Turn::Evicted { .. } | Turn::Recovered | Turn::Stays(_)
        );
        let status = if pending {
            conditions::TRUE
        } else {
            conditions::FALSE
        };
        conditions::new(CONDITION, status, self.reason(), &self.message(), now)
    }

    /// How serious the event is.
    pub fn severity(&self) -> EventType {
        match self.turn {
            Turn::Stopped { .. }
            | Turn::Nowhere { .. }
            | Turn::Unpreserved { .. }
            | Turn::Failed { .. }
            | Turn::Stays(Stay::NoPlacement) => EventType::Warning,
            _ => EventType::Normal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_cluster_taint_and_rule() {
        let note = |turn| Note {
            cluster: "member1".into(),
            turn,
        };
        let cause = || "taint down:NoExecute, which is not tolerated".to_owned();
        for (turn, status, reason, message) in [
            (
                Turn::Queued { cause: cause() },
                "True",
                "WaitingForRate",
                "member1 has taint down:NoExecute, which is not tolerated: it leaves when the eviction rate allows",
            ),
            (
                Turn::Stopped {
                    health: FleetHealth {
                        total: 8,
                        failed: 5,
                    },
                },
                "True",
                "StoppedByThreshold",
                "has to leave member1, but 5 of 8 clusters have failed: nothing is evicted until enough of them return",
            ),
            (
                Turn::Evicted {
                    cause: cause(),
                    to: "member2".into(),
                    mode: "Gracefully".into(),
                },
                "False",
                "Evicted",
                "left member1 for member2 (Gracefully): member1 has taint down:NoExecute, which is not tolerated",
            ),
            (
                Turn::Stays(Stay::Tolerated),
                "False",
                "Tolerated",
                "stays on member1: every taint of the cluster is tolerated",
            ),
        ] {
            let condition = note(turn).condition(Timestamp::UNIX_EPOCH);
            assert_eq!(
                (&*condition.status, &*condition.reason, &*condition.message),
                (status, reason, message)
            );
        }
    }
}
