//! What people are told about an application that fails: one condition and one event for each turn it takes.

use jiff::Timestamp;
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::k8s::Condition;

use crate::eviction::plan::Nowhere;

/// Type of the condition on a binding: True while the application is to leave a cluster, or will be, and has not left it.
pub const CONDITION: &str = "ApplicationFailoverPending";

/// A turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// It is unhealthy, and that is tolerated until a moment.
    Tolerated {
        /// Where.
        cluster: String,
        /// Since when.
        since: Timestamp,
        /// The moment.
        until: Timestamp,
    },
    /// It has to leave and does not.
    Held {
        /// Where.
        cluster: String,
        /// Since when.
        since: Timestamp,
        /// Why it stays.
        why: Obstacle,
    },
    /// It left.
    Left {
        /// Where it was.
        cluster: String,
        /// Since when it was unhealthy there.
        since: Timestamp,
        /// Where it is placed now.
        to: String,
        /// What becomes of the old copy.
        mode: String,
    },
    /// It is not known to be unhealthy any more.
    Recovered,
}

/// Why an application stays that has to leave.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Obstacle {
    /// What it reported last may be long past; if the cluster has failed, that is the business of its taints.
    #[error("{0} is not ready, so that its last report may be out of date")]
    Unheard(String),
    /// It was moved lately.
    #[error("it was moved {moves} times lately; it may leave again from {until:.0} on")]
    Rests {
        /// How often.
        moves: u32,
        /// Until when.
        until: Timestamp,
    },
    /// Too many are leaving already.
    #[error("it leaves when --resource-eviction-rate allows")]
    Rate,
    /// The purge mode needs a feature gate.
    #[error("purgeMode Gracefully needs the feature gate GracefulEviction")]
    GateOff,
    /// There is no place for it.
    #[error(transparent)]
    Nowhere(#[from] Nowhere),
    /// The write failed; it is tried again.
    #[error("the API server refused: {0}")]
    Failed(String),
}

impl Turn {
    /// The reason, in one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Tolerated { .. } => "WaitingForToleration",
            Self::Held { why, .. } => match why {
                Obstacle::Unheard(_) => "ClusterNotReady",
                Obstacle::Rests { .. } => "MovedLately",
                Obstacle::Rate => "WaitingForRate",
                Obstacle::GateOff => "GracefulEvictionDisabled",
                Obstacle::Nowhere(Nowhere::State(_)) => "StateNotPreserved",
                Obstacle::Nowhere(_) => "NowhereToGo",
                Obstacle::Failed(_) => "EvictWorkloadFromClusterFailed",
            },
            Self::Left { .. } => "ApplicationMoved",
            Self::Recovered => "ApplicationRecovered",
        }
    }

    /// The same in a sentence.
    pub fn message(&self) -> String {
        match self {
            Self::Tolerated {
                cluster,
                since,
                until,
            } => format!(
                "the application has been unhealthy in {cluster} since {since:.0}: it stays until {until:.0}"
            ),
            Self::Held {
                cluster,
                since,
                why,
            } => format!(
                "the application has been unhealthy in {cluster} since {since:.0}, has to leave and stays: {why}"
            ),
            Self::Left {
                cluster,
                since,
                to,
                mode,
            } => format!(
                "left {cluster} for {to} ({mode}): the application had been unhealthy in {cluster} since {since:.0}"
            ),
            Self::Recovered => "the application is not known to be unhealthy any more".to_owned(),
        }
    }

    /// Whether somebody may have to do something.
    pub fn severity(&self) -> EventType {
        match self {
            Self::Held { why, .. } if !matches!(why, Obstacle::Rate) => EventType::Warning,
            _ => EventType::Normal,
        }
    }

    /// The condition that says so.
    pub fn condition(&self, now: Timestamp) -> Condition {
        let pending = matches!(self, Self::Tolerated { .. } | Self::Held { .. });
        let status = if pending { "True" } else { "False" };
        conditions::new(CONDITION, status, self.reason(), &self.message(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_names_the_cluster_and_the_reason() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (cluster, since) = ("m1".to_owned(), at(0));
        let held = |why: Obstacle| Turn::Held {
            cluster: cluster.clone(),
            since,
            why,
        };
        for (turn, reason, message) in [
            (
                Turn::Tolerated {
                    cluster: cluster.clone(),
                    since,
                    until: at(300),
                },
                "WaitingForToleration",
                "the application has been unhealthy in m1 since 1970-01-01T00:00:00Z: it stays until 1970-01-01T00:05:00Z",
            ),
            (
                held(Obstacle::Nowhere(Nowhere::Empty)),
                "NowhereToGo",
                "the application has been unhealthy in m1 since 1970-01-01T00:00:00Z, has to leave and stays: no other cluster could take it: the placement would be empty",
            ),
            (
                held(Obstacle::Rests {
                    moves: 2,
                    until: at(60),
                }),
                "MovedLately",
                "the application has been unhealthy in m1 since 1970-01-01T00:00:00Z, has to leave and stays: it was moved 2 times lately; it may leave again from 1970-01-01T00:01:00Z on",
            ),
            (
                Turn::Left {
                    cluster: cluster.clone(),
                    since,
                    to: "m2".to_owned(),
                    mode: "Gracefully".to_owned(),
                },
                "ApplicationMoved",
                "left m1 for m2 (Gracefully): the application had been unhealthy in m1 since 1970-01-01T00:00:00Z",
            ),
        ] {
            assert_eq!((turn.reason(), turn.message().as_str()), (reason, message));
        }
    }
}
