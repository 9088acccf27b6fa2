//! What a binding that could not be scheduled waits for.

use muster_shared::api::binding::ResourceBindingSpec;

use crate::scheduler::core::cycle::Attempt;
use crate::scheduler::core::divide::DivideError;
use crate::scheduler::core::fit_error::FitError;
use crate::scheduler::core::select::SelectError;

/// Change that a binding waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Kind of change that is waited for.
    pub wish: WaitsFor,
    /// Replicas for which room has to appear at least, if it is room.
    pub lacking: i64,
}

/// Change of clusters after which a waiting binding is scheduled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitsFor {
    /// No change helps: the placement cannot be met.
    Nothing,
    /// A cluster admits the workload that did not before.
    Admission,
    /// A cluster admits the workload, or has more capacity.
    Room,
    /// Any change that affects the selection, including the loss of a cluster: the present
    /// selection failed.
    Anything,
}

impl Wait {
    /// Returns what a binding waits for after these attempts, of which none did.
    pub fn after(spec: &ResourceBindingSpec, attempts: &[Attempt]) -> Self {
        let constrained = spec
            .placement
            .as_ref()
            .is_some_and(|placement| !placement.spread_constraints.is_empty());
        let failures = attempts
            .iter()
            .filter_map(|attempt| attempt.failure.as_ref());
        let lacking = failures.clone().filter_map(|failure| match failure {
            FitError::Divide(error) => error.lacking(),
            _ => None,
        });
        let wish = |failure: &FitError| match failure {
            FitError::NoPlacement
            | FitError::Select(SelectError::Unsupported)
            | FitError::Divide(DivideError::Unsupported { .. }) => WaitsFor::Nothing,
            FitError::NoClusterFit(_)
            | FitError::Select(SelectError::TooFewClusters | SelectError::TooFewGroups(_)) => {
                WaitsFor::Admission
            }
            FitError::Divide(_) if !constrained => WaitsFor::Room,
            FitError::Divide(_) | FitError::Select(_) | FitError::Unknown(_) => WaitsFor::Anything,
        };
        Self {
            wish: failures.map(wish).max().unwrap_or(WaitsFor::Nothing),
            lacking: lacking.min().unwrap_or(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::api::binding::ResourceBindingStatus;
    use serde_json::json;

    use super::*;
    use crate::scheduler::core::{Cycle, Options};
    use crate::scheduler::tests::fixtures::{aggregated, cluster, deployment, snapshot};

    #[test]
    fn a_failure_says_what_a_binding_waits_for() {
        use WaitsFor::{Admission, Anything, Nothing, Room};
        let spread = |field: &str, least: u32| {
            let mut placement = aggregated();
            placement["spreadConstraints"] =
                json!([{ "spreadByField": field, "minGroups": least }]);
            placement
        };
        let groups = |first: &str, second: &str| {
            let group = |name: &str| json!({ "affinityName": name, "clusterNames": [name] });
            let mut placement = aggregated();
            placement["clusterAffinities"] = json!([group(first), group(second)]);
            placement
        };
        let nowhere = json!({ "clusterAffinity": { "clusterNames": ["none"] } });
        let mut one = spread("cluster", 1);
        one["spreadConstraints"][0]["maxGroups"] = json!(1);
        let unsupported = json!({ "replicaScheduling": { "replicaSchedulingType": "Divided" } });
        for (placement, expected) in [
            (nowhere, Admission),
            (aggregated(), Room),
            (spread("cluster", 3), Admission),
            (spread("region", 1), Admission),
            (one, Anything),
            // Another choice of clusters may have the room.
            (spread("provider", 1), Anything),
            // Of several groups the one counts that is helped most easily.
            (groups("none", "m1"), Room),
            (unsupported, Nothing),
        ] {
            let spec = deployment(30, &placement);
            let clusters = snapshot(&["m1", "m2"].map(|name| {
                let mut cluster = cluster(name, 10);
                cluster["spec"]["provider"] = json!("p");
                cluster
            }));
            let pass = Cycle::run(
                &spec,
                &ResourceBindingStatus::default(),
                &clusters,
                &Options::default(),
            );
            assert!(pass.result.is_err(), "{placement}");
            let wait = Wait::after(&spec, &pass.attempts);
            assert_eq!(wait.wish, expected, "{placement}");
            // Twenty of thirty replicas fit in all, ten on the one cluster of a group.
            let lacking = match wait.wish {
                WaitsFor::Room if placement["clusterAffinities"].is_null() => 10,
                WaitsFor::Room => 20,
                _ => continue,
            };
            assert_eq!(wait.lacking, lacking, "{placement}");
        }
    }
}
