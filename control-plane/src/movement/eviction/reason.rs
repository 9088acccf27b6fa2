//! Reasons for an eviction, and what the policy says about each.

use jiff::Timestamp;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::api::policy::{PurgeMode, StatePreservation, StatePreservationRule};
use muster_shared::names::eviction::{
    PRODUCER_GRACEFUL_EVICTION, PRODUCER_TAINT_MANAGER, REASON_APPLICATION_FAILURE,
    REASON_NOT_APPLIED, REASON_TAINT_UNTOLERATED,
};

use super::judge::Cause;

/// Reason for an eviction.
#[derive(Clone, Copy, Debug)]
pub enum EvictionReason<'a> {
    /// The cluster has a taint.
    Taint(&'a Cause),
    /// The application has been unhealthy in the cluster for too long.
    Failure {
        /// Start of the unhealthy time.
        since: Timestamp,
        /// Controller that requests the eviction.
        producer: &'a str,
        /// Seconds after which the old copy is removed even if the new one is not healthy, with
        /// purge mode `Gracefully`.
        grace_seconds: Option<i32>,
    },
    /// The cluster has not carried out the order for the workload.
    Refused {
        /// Time since when it says so.
        since: Timestamp,
        /// Reason that its agent gives.
        why: &'a str,
    },
}

impl<'a> EvictionReason<'a> {
    /// Returns the reason in one word, as eviction tasks have it.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Taint(_) => REASON_TAINT_UNTOLERATED,
            Self::Failure { .. } => REASON_APPLICATION_FAILURE,
            Self::Refused { .. } => REASON_NOT_APPLIED,
        }
    }

    /// Returns the name of the producer that wants the eviction.
    pub fn producer(&self) -> &'a str {
        match *self {
            Self::Taint(_) => PRODUCER_TAINT_MANAGER,
            Self::Failure { producer, .. } => producer,
            Self::Refused { .. } => PRODUCER_GRACEFUL_EVICTION,
        }
    }

    /// Returns the reason in a sentence.
    pub fn message(&self, cluster: &str) -> String {
        match self {
            Self::Taint(cause) => format!("{cluster} has {cause}"),
            Self::Failure { since, .. } => {
                format!("the application has been unhealthy in {cluster} since {since:.0}")
            }
            Self::Refused { since, why } => {
                format!("{cluster} could not apply it since {since:.0}: {why}")
            }
        }
    }

    /// Returns how long the old copy waits for the new one at most, in seconds; with `None` it
    /// waits until there is a healthy one.
    pub fn grace_seconds(&self, spec: &ResourceBindingSpec, mode: &PurgeMode) -> Option<i32> {
        if *mode != PurgeMode::Gracefully {
            return None;
        }
        match self {
            Self::Taint(_) => spec.cluster_failover()?.grace_period_seconds,
            Self::Failure { grace_seconds, .. } => *grace_seconds,
            Self::Refused { .. } => None,
        }
    }

    /// Returns the rules for the state that is passed on to the new copy.
    pub fn rules(&self, spec: &'a ResourceBindingSpec) -> &'a [StatePreservationRule] {
        let state = match self {
            Self::Taint(_) => {
                let failover = spec.cluster_failover();
                failover.and_then(|it| it.state_preservation.as_ref())
            }
            Self::Failure { .. } => {
                let failover = spec.application_failover();
                failover.and_then(|it| it.state_preservation.as_ref())
            }
            Self::Refused { .. } => None,
        };
        state.map_or(&[], |StatePreservation { rules }| rules)
    }

    /// Returns whether the task stays even where nothing of the old copy is to be kept. Before the
    /// new copy is healthy, a failed application must not be placed where it failed, nor any
    /// workload where it could not be applied, and only the task says that. For a taint this is
    /// not needed: the cluster has it.
    pub fn outlives_the_copy(&self) -> bool {
        !matches!(self, Self::Taint(_))
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::k8s::Taint;
    use serde_json::json;

    use super::*;
    use crate::movement::eviction::judge::Rule;

    #[test]
    fn a_taint_asks_the_rules_for_clusters_and_a_failure_those_for_applications() {
        let rule = |name: &str| json!({"rules": [{"aliasLabelName": name, "jsonPath": "{.a}"}]});
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "failover": {
                "cluster": {"statePreservation": rule("of-cluster")},
                "application": {"decisionConditions": {}, "statePreservation": rule("of-application")},
            },
        }))
        .unwrap();
        let cause = Cause {
            taint: Taint::default(),
            rule: Rule::Untolerated,
        };
        let failure = EvictionReason::Failure {
            since: Timestamp::UNIX_EPOCH,
            producer: "p",
            grace_seconds: None,
        };
        // Only a failed application has nothing but its task to say where it failed.
        for (reason, expected, outlives) in [
            (EvictionReason::Taint(&cause), "of-cluster", false),
            (failure, "of-application", true),
        ] {
            let names: Vec<&str> = reason
                .rules(&spec)
                .iter()
                .map(|rule| rule.alias_label_name.as_str())
                .collect();
            assert_eq!(names, [expected]);
            assert_eq!(reason.outlives_the_copy(), outlives);
            assert!(reason.rules(&ResourceBindingSpec::default()).is_empty());
        }
    }
}
