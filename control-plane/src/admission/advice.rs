//! Warnings at admission about the parts of a policy that have no effect. The policy is accepted,
//! because kinds and clusters may come later; events report what remains.

use muster_shared::api::policy::PropagationSpec;
use serde::Deserialize;
use serde_json::Value;

use super::policy::Policy;
use crate::fleet::scope::Scope;
use crate::propagation::detector::audit::{switched_off, unknown_clusters, written};
use crate::settings::Settings;

/// Returns the warnings about the policy of a review. `has_cluster` says whether there is a cluster
/// of a name, or might be; `more` returns the warnings that need other knowledge of the fleet, from
/// what a policy says and its namespace.
pub fn warnings(
    review: &[u8],
    scope: &Scope,
    settings: &Settings,
    has_cluster: impl Fn(&str) -> bool,
    more: impl Fn(&PropagationSpec, Option<&str>) -> Vec<String>,
) -> Vec<String> {
    let Ok(review) = serde_json::from_slice::<Value>(review) else {
        return Vec::new();
    };
    let Ok(policy) = Policy::deserialize(&review["request"]["object"]) else {
        return Vec::new();
    };
    if policy.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let namespace = policy.metadata.namespace.as_deref();
    let mut found = written(&policy.spec, namespace, scope);
    found.extend(switched_off(&policy.spec, settings));
    let mut warnings: Vec<String> = found.into_iter().map(|finding| finding.note).collect();
    warnings.extend(unknown_clusters(&policy.spec, has_cluster));
    warnings.extend(more(&policy.spec, namespace));
    warnings
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_that_names_what_there_is_not_is_taken_with_a_warning() {
        let review = |kind: &str, clusters: Value, more: Value| {
            let mut spec = json!({
                "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": kind }],
                "placement": { "clusterAffinity": { "clusterNames": clusters } },
            });
            merge::apply(&mut spec, &more);
            let object = json!({ "metadata": { "name": "p", "namespace": "shop" }, "spec": spec });
            json!({ "request": { "object": object } }).to_string()
        };
        let on = |clusters: Value| review("Deployment", clusters, json!({}));
        let unknown = on(json!(["m1", "nosuch"]));
        let slip = review("Deploymnt", json!(["m1"]), json!({}));
        let suspended = json!({ "dispatchingOnClusters": { "clusterNames": ["nosuch"] } });
        let suspended = json!({ "suspension": suspended });
        let suspended = review("Deployment", json!(["m1"]), suspended);
        let failover = json!({ "failover": { "cluster": {} } });
        let failover = review("Deployment", json!([]), failover);
        for (what, review, expected) in [
            ("sound", on(json!(["m1"])), ""),
            ("a slip", slip, "is Deployment of apps/v1 meant?"),
            ("no such cluster", unknown, "not in the fleet: nosuch"),
            ("no name", on(json!(["A b"])), "not in the fleet: ..."),
            ("a gate", failover, "feature gate Failover is off"),
            (
                "no such cluster to suspend",
                suspended,
                "spec.suspension.dispatchingOnClusters names clusters that are not in the fleet: nosuch",
            ),
            ("no review", "?".to_owned(), ""),
        ] {
            let warnings = warnings(
                review.as_bytes(),
                &Scope::default(),
                &Settings::default(),
                |name| name == "m1",
                |_, _| Vec::new(),
            );
            let count = usize::from(!expected.is_empty());
            assert_eq!(warnings.len(), count, "{what}: {warnings:?}");
            let is_reported = warnings.iter().all(|it| it.contains(expected));
            assert!(is_reported, "{what}: {warnings:?}");
        }
    }
}
