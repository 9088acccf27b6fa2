//! Warnings at admission about the parts of a policy that have no effect. The policy is accepted,
//! because kinds and clusters may come later; events report what remains.

use super::policy::Policy;
use crate::fleet::scope::Scope;
use crate::propagation::detector::audit::{switched_off, unknown_clusters, written};
use crate::settings::Settings;

/// Returns the warnings about a policy. `has_cluster` says whether there is a cluster of a name, or
/// might be.
pub fn warnings(
    policy: &Policy,
    scope: &Scope,
    settings: &Settings,
    has_cluster: impl Fn(&str) -> bool,
) -> Vec<String> {
    let namespace = policy.metadata.namespace.as_deref();
    let mut found = written(&policy.spec, namespace, scope);
    found.extend(switched_off(&policy.spec, settings));
    let mut warnings: Vec<String> = found.into_iter().map(|finding| finding.note).collect();
    warnings.extend(unknown_clusters(&policy.spec, has_cluster));
    warnings
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use serde::Deserialize as _;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_policy_that_names_what_there_is_not_is_taken_with_a_warning() {
        let policy = |kind: &str, clusters: Value, more: Value| {
            let mut spec = json!({
                "resourceSelectors": [{ "apiVersion": "apps/v1", "kind": kind }],
                "placement": { "clusterAffinity": { "clusterNames": clusters } },
            });
            merge::apply(&mut spec, &more);
            let object = json!({ "metadata": { "name": "p", "namespace": "shop" }, "spec": spec });
            Policy::deserialize(object).unwrap()
        };
        let on = |clusters: Value| policy("Deployment", clusters, json!({}));
        let unknown = on(json!(["m1", "nosuch"]));
        let slip = policy("Deploymnt", json!(["m1"]), json!({}));
        let suspended = json!({ "dispatchingOnClusters": { "clusterNames": ["nosuch"] } });
        let suspended = json!({ "suspension": suspended });
        let suspended = policy("Deployment", json!(["m1"]), suspended);
        let failover = json!({ "failover": { "cluster": {} } });
        let failover = policy("Deployment", json!([]), failover);
        for (what, policy, expected) in [
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
        ] {
            let warnings = warnings(&policy, &Scope::default(), &Settings::default(), |name| {
                name == "m1"
            });
            let count = usize::from(!expected.is_empty());
            assert_eq!(warnings.len(), count, "{what}: {warnings:?}");
            let is_reported = warnings.iter().all(|it| it.contains(expected));
            assert!(is_reported, "{what}: {warnings:?}");
        }
    }
}
