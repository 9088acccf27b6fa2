//! Conditions and events about failing applications, one for each change of state.

use jiff::{SignedDuration, Timestamp};
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::k8s::Condition;

use super::history::Move;
use crate::movement::eviction::explain::EvictionState;

/// Type of the condition on a binding: True while the application is to leave a cluster, or will
/// be, and has not left it.
pub const CONDITION: &str = "ApplicationFailoverPending";

/// Reason of the condition where dependencies would stay behind.
const DEPENDENCIES: &str = "DependenciesStayBehind";
/// Reason of the condition where the health of the kind is not known.
const HEALTH: &str = "HealthUnknown";

/// Ending of the message about a move that left the application's state behind.
const WITHOUT_STATE: &str = "; the new copy got none of the state that failover.application.statePreservation names, since the feature gate StatefulFailoverInjection is off";

/// Returns whether a condition says that the policy is not followed.
pub fn is_not_followed(condition: &Condition) -> bool {
    [DEPENDENCIES, HEALTH].contains(&condition.reason.as_str())
}

/// State of a failing application, to be reported.
#[derive(Clone, Debug, PartialEq)]
pub enum FailoverState {
    /// The application is unhealthy, and tolerated until a time.
    Tolerated {
        /// Cluster in which it is unhealthy.
        cluster: String,
        /// Start of the unhealthy time.
        since: Timestamp,
        /// End of the toleration.
        until: Timestamp,
    },
    /// The application has to leave a cluster, and stays.
    Held {
        /// Cluster to leave.
        cluster: String,
        /// Start of the unhealthy time.
        since: Timestamp,
        /// Reason why it stays.
        why: Obstacle,
    },
    /// The application was unhealthy when the cluster refused an update, and stays.
    Refused {
        /// Cluster that refuses the update.
        cluster: String,
    },
    /// The application was evicted.
    Left(Move),
    /// The application is no longer reported unhealthy.
    Recovered,
    /// The policy requests a failover that cannot be given.
    NotFollowed(Unfollowed),
    /// The policy can be followed again.
    Followed,
    /// The policy no longer requests failover.
    Withdrawn,
}

/// Reason why `failover.application` of a policy is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfollowed {
    /// The policy has no `propagateDeps`, so that dependencies would stay behind.
    #[error(
        "its policy does not say propagateDeps: true, so that it would arrive without what it needs"
    )]
    Dependencies,
    /// The feature gate `PropagateDeps` is off, so that dependencies would stay behind.
    #[error("the feature gate PropagateDeps is off, so that it would arrive without what it needs")]
    DependenciesOff,
    /// The kind has no health rule.
    #[error("there is no rule for the health of its kind")]
    Health,
}

/// Reason why an application that has to leave stays.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Obstacle {
    /// The cluster is not ready, so that its last report may be outdated. Its taints decide.
    #[error("{0} is not ready, so that its last report may be out of date")]
    NotReady(String),
    /// The cluster became ready a moment ago; its reports may be outdated.
    #[error("{cluster} came back a moment ago: its reports count from {until:.0} on")]
    Returned {
        /// Name of the cluster.
        cluster: String,
        /// Time from which its reports count.
        until: Timestamp,
    },
    /// The application was moved a short time ago.
    #[error("it was moved {moves} times lately; it may leave again from {until:.0} on")]
    Rests {
        /// Number of moves.
        moves: u32,
        /// Time from which it may be moved again.
        until: Timestamp,
    },
    /// Purge mode `Gracefully` requires a feature gate that is off.
    #[error("purgeMode Gracefully needs the feature gate GracefulEviction")]
    GateOff,
    /// State in which the evictor holds it.
    #[error("{}", why(.0))]
    Eviction(EvictionState),
}

/// Returns why an application stays in a state of its eviction.
fn why(state: &EvictionState) -> String {
    match state {
        EvictionState::Queued { .. } => "it leaves when --resource-eviction-rate allows".to_owned(),
        EvictionState::Stopped { .. } => {
            "more clusters have failed than --unhealthy-cluster-threshold allows: nothing is moved"
                .to_owned()
        }
        EvictionState::Fencing { why, .. } | EvictionState::Unfenced { why, .. } => {
            format!("its copy there is not stopped (failover.cluster.fencing): {why}")
        }
        EvictionState::Unpreserved { why, .. } => format!("its state cannot be preserved: {why}"),
        EvictionState::Failed { why } => format!("it could not be written: {why}"),
        EvictionState::Paused { why, .. } | EvictionState::Nowhere { why, .. } => why.clone(),
        state => state.reason().to_owned(),
    }
}

/// How long the reason why there is no place may be out of date: the numbers in it change with
/// every report of any cluster, and each write of the condition is a reason to search for a place
/// again.
pub const STALE: SignedDuration = SignedDuration::from_mins(5);

impl FailoverState {
    /// Returns whether the report says the same as the condition that was written at a moment,
    /// except for the numbers in the reason why there is no place.
    pub fn repeats(&self, reported: Option<&Condition>, at: Timestamp, now: Timestamp) -> bool {
        let Self::Held {
            cluster,
            since,
            why: Obstacle::Eviction(EvictionState::Nowhere { .. }),
        } = self
        else {
            return false;
        };
        now.duration_since(at) < STALE
            && reported.is_some_and(|reported| {
                reported.status == conditions::TRUE
                    && reported.reason == self.reason()
                    && reported.message.starts_with(&stays(cluster, *since))
                    && without_numbers(&reported.message).eq(without_numbers(&self.message()))
            })
    }

    /// Returns the reason of the condition and the event, in one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Tolerated { .. } => "WaitingForToleration",
            Self::Held { why, .. } => match why {
                Obstacle::NotReady(_) => "ClusterNotReady",
                Obstacle::Returned { .. } => "ClusterReturned",
                Obstacle::Rests { .. } => "MovedLately",
                Obstacle::GateOff => "GracefulEvictionDisabled",
                Obstacle::Eviction(state) => state.reason(),
            },
            Self::Refused { .. } => "UpdateNotApplied",
            Self::Left(_) => "ApplicationMoved",
            Self::Recovered => "ApplicationRecovered",
            Self::NotFollowed(Unfollowed::Dependencies | Unfollowed::DependenciesOff) => {
                DEPENDENCIES
            }
            Self::NotFollowed(Unfollowed::Health) => HEALTH,
            Self::Followed => "Followed",
            Self::Withdrawn => "NotAsked",
        }
    }

    /// Returns the message of the condition and the event, in a sentence.
    pub fn message(&self) -> String {
        match self {
            Self::Tolerated {
                cluster,
                since,
                until,
            } => format!(
                "{}since {since:.0}: it stays until {until:.0}",
                unhealthy_in(cluster)
            ),
            Self::Held {
                cluster,
                since,
                why,
            } => format!("{}{why}", stays(cluster, *since)),
            Self::Refused { cluster } => format!(
                "{}until it could not be applied there as it is now, so that its health is not known: it stays until it is applied again. status.aggregatedStatus says why it is not",
                unhealthy_in(cluster)
            ),
            Self::Left(Move {
                from: cluster,
                since,
                to,
                mode,
                without_state,
            }) => {
                let state = if *without_state { WITHOUT_STATE } else { "" };
                format!(
                    "left {cluster} for {to} ({mode}): the application had been unhealthy in {cluster} since {since:.0}{state}"
                )
            }
            Self::Recovered => "the application is not known to be unhealthy any more".to_owned(),
            Self::NotFollowed(why) => format!(
                "the application stays where it is even when it fails, although its policy has failover.application: {why}"
            ),
            Self::Followed => {
                "the application leaves a cluster where it stays unhealthy".to_owned()
            }
            Self::Withdrawn => "the policy asks for no failover of the application".to_owned(),
        }
    }

    /// Returns the type of the event: a warning where somebody may have to do something.
    pub fn severity(&self) -> EventType {
        match self {
            Self::Held { why, .. }
                if !matches!(why, Obstacle::Eviction(EvictionState::Queued { .. })) =>
            {
                EventType::Warning
            }
            Self::NotFollowed(_)
            | Self::Refused { .. }
            | Self::Left(Move {
                without_state: true,
                ..
            }) => EventType::Warning,
            _ => EventType::Normal,
        }
    }

    /// Returns the condition that reports the state of the application.
    pub fn condition(&self, now: Timestamp) -> Condition {
        let pending = matches!(
            self,
            Self::Tolerated { .. } | Self::Held { .. } | Self::Refused { .. }
        );
        let status = if pending { "True" } else { "False" };
        conditions::new(CONDITION, status, self.reason(), &self.message(), now)
    }
}

/// Returns whether a condition reports that the application is, or was last, unhealthy in a
/// cluster.
pub fn reports_failure(reported: &Condition, cluster: &str) -> bool {
    reported.status == conditions::TRUE && reported.message.starts_with(&unhealthy_in(cluster))
}

fn without_numbers(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|it| !it.is_ascii_digit())
}

fn stays(cluster: &str, since: Timestamp) -> String {
    format!(
        "{}since {since:.0}, has to leave and stays: ",
        unhealthy_in(cluster)
    )
}

fn unhealthy_in(cluster: &str) -> String {
    format!("the application has been unhealthy in {cluster} ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::at;

    fn rate() -> Obstacle {
        let cause = "failing".to_owned();
        Obstacle::Eviction(EvictionState::Queued { cause })
    }

    fn nowhere(why: &str) -> Obstacle {
        let (cause, why) = ("failing".to_owned(), why.to_owned());
        Obstacle::Eviction(EvictionState::Nowhere { cause, why })
    }

    /// Returns the state of an application that is held in a cluster since the beginning.
    fn held(cluster: &str, why: Obstacle) -> FailoverState {
        FailoverState::Held {
            cluster: cluster.to_owned(),
            since: at(0),
            why,
        }
    }

    fn left(mode: &str, without_state: bool) -> FailoverState {
        FailoverState::Left(Move {
            from: "m1".to_owned(),
            since: at(0),
            to: "m2".to_owned(),
            mode: mode.to_owned(),
            without_state,
        })
    }

    #[test]
    fn every_change_names_the_cluster_and_the_reason() {
        for (state, reason, message) in [
            (
                FailoverState::Tolerated {
                    cluster: "m1".to_owned(),
                    since: at(0),
                    until: at(300),
                },
                "WaitingForToleration",
                "the application has been unhealthy in m1 since 1970-01-01T00:00:00Z: it stays until 1970-01-01T00:05:00Z",
            ),
            (
                held(
                    "m1",
                    nowhere("no other cluster could take it: the placement would be empty"),
                ),
                "NowhereToGo",
                "the application has been unhealthy in m1 since 1970-01-01T00:00:00Z, has to leave and stays: no other cluster could take it: the placement would be empty",
            ),
            (
                held(
                    "m1",
                    Obstacle::Rests {
                        moves: 2,
                        until: at(60),
                    },
                ),
                "MovedLately",
                "the application has been unhealthy in m1 since 1970-01-01T00:00:00Z, has to leave and stays: it was moved 2 times lately; it may leave again from 1970-01-01T00:01:00Z on",
            ),
            (
                left("Gracefully", false),
                "ApplicationMoved",
                "left m1 for m2 (Gracefully): the application had been unhealthy in m1 since 1970-01-01T00:00:00Z",
            ),
            (
                left("Directly", true),
                "ApplicationMoved",
                "left m1 for m2 (Directly): the application had been unhealthy in m1 since 1970-01-01T00:00:00Z; the new copy got none of the state that failover.application.statePreservation names, since the feature gate StatefulFailoverInjection is off",
            ),
        ] {
            assert_eq!(
                (state.reason(), state.message().as_str()),
                (reason, message)
            );
        }
    }

    #[test]
    fn that_there_is_no_place_is_not_written_again_for_other_numbers() {
        let held = |cluster: &str, room: &str| held(cluster, nowhere(room));
        let reported = held("m1", "3 free").condition(at(10));
        for (state, reported, now, repeats) in [
            (held("m1", "4 free"), Some(&reported), 20, true),
            (held("m1", "4 free"), Some(&reported), 309, true),
            (held("m1", "4 free"), Some(&reported), 310, false),
            (
                held("m1", "its scheduling is suspended"),
                Some(&reported),
                20,
                false,
            ),
            (held("m2", "4 free"), Some(&reported), 20, false),
            (held("m1", "4 free"), None, 20, false),
            (FailoverState::Recovered, Some(&reported), 20, false),
        ] {
            assert_eq!(
                state.repeats(reported, at(10), at(now)),
                repeats,
                "{state:?} {now}"
            );
        }
    }

    #[test]
    fn what_somebody_may_have_to_do_something_about_is_a_warning() {
        for (state, severity) in [
            (held("m1", rate()), EventType::Normal),
            (held("m1", nowhere("full")), EventType::Warning),
            (left("Directly", false), EventType::Normal),
            (left("Directly", true), EventType::Warning),
            (FailoverState::Withdrawn, EventType::Normal),
        ] {
            assert_eq!(state.severity(), severity, "{state:?}");
        }
        for (reason, expected) in [(DEPENDENCIES, true), (HEALTH, true), ("Other", false)] {
            let condition = conditions::new(CONDITION, "False", reason, "", at(0));
            assert_eq!(is_not_followed(&condition), expected, "{reason}");
        }
    }

    #[test]
    fn a_condition_that_is_over_is_reported_again() {
        let state = held("m1", nowhere("full"));
        let mut reported = state.condition(at(1));
        assert!(state.repeats(Some(&reported), at(1), at(2)));
        reported.status = conditions::FALSE.to_owned();
        assert!(!state.repeats(Some(&reported), at(1), at(2)));
        reported.status = conditions::TRUE.to_owned();
        reported.reason = "Other".to_owned();
        assert!(!state.repeats(Some(&reported), at(1), at(2)));
        assert!(!state.repeats(None, at(1), at(2)));
    }
}
