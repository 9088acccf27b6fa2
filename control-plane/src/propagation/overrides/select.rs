//! Chooses the override policies of a resource, and their order.

use std::sync::Arc;

use kube::ResourceExt;
use muster_shared::api::override_policy::{ClusterOverridePolicy, OverridePolicy, OverrideSpec};

use crate::fleet::selection::{Strength, Subject, strength};

/// Override policies of the fleet.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// ClusterOverridePolicies.
    pub cluster: Vec<Arc<ClusterOverridePolicy>>,
    /// OverridePolicies.
    pub namespaced: Vec<Arc<OverridePolicy>>,
}

/// A policy that applies to a resource.
#[derive(Clone, Debug)]
pub struct Selected<'a> {
    /// Namespace of the policy, `None` for a ClusterOverridePolicy.
    pub namespace: Option<String>,
    /// Name of the policy.
    pub name: String,
    /// Rules of the policy.
    pub spec: &'a OverrideSpec,
}

impl Policies {
    /// Returns the policies that apply to a resource, in the order in which they are applied.
    /// Policies that are being deleted apply to none.
    pub fn selected(&self, subject: Subject<'_>) -> Vec<Selected<'_>> {
        let cluster = self.cluster.iter().map(|policy| {
            let is_deleting = policy.metadata.deletion_timestamp.is_some();
            (policy.as_ref().name_any(), None, &policy.spec, is_deleting)
        });
        let namespaced = self.namespaced.iter().map(|policy| {
            let is_deleting = policy.metadata.deletion_timestamp.is_some();
            (
                policy.as_ref().name_any(),
                policy.namespace(),
                &policy.spec,
                is_deleting,
            )
        });
        let mut ranked: Vec<_> = cluster
            .chain(namespaced)
            .filter(|(_, _, _, is_deleting)| !is_deleting)
            .filter_map(|(name, namespace, spec, _)| {
                let strength = concerns(namespace.as_deref(), spec, subject)?;
                let selected = Selected {
                    namespace,
                    name,
                    spec,
                };
                Some((strength, selected))
            })
            .collect();
        ranked.sort_by(|(left, a), (right, b)| {
            let order = |strength: Strength, policy: &Selected<'_>| {
                (policy.namespace.is_some(), strength, policy.name.clone())
            };
            order(*left, a).cmp(&order(*right, b))
        });
        ranked.into_iter().map(|(_, selected)| selected).collect()
    }
}

/// Returns how specifically a policy selects a resource; `None` if it does not. `namespace` is that
/// of an OverridePolicy, `None` for a ClusterOverridePolicy. No selectors select every resource.
pub fn concerns(
    namespace: Option<&str>,
    spec: &OverrideSpec,
    subject: Subject<'_>,
) -> Option<Strength> {
    if namespace.is_some() && subject.namespace != namespace {
        return None;
    }
    if spec.resource_selectors.is_empty() {
        return Some(Strength::All);
    }
    spec.resource_selectors
        .iter()
        .map(|selector| strength(selector, subject))
        .max()
        .filter(|strength| *strength > Strength::Mismatch)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::template::Kind;

    fn spec(selectors: &Value) -> OverrideSpec {
        serde_json::from_value(json!({ "resourceSelectors": selectors })).unwrap()
    }

    fn near(namespace: &str, name: &str, selectors: &Value) -> Arc<OverridePolicy> {
        let mut policy = OverridePolicy::new(name, spec(selectors));
        policy.metadata.namespace = Some(namespace.to_owned());
        Arc::new(policy)
    }

    #[test]
    fn the_most_specific_policy_comes_last_and_those_of_the_namespace_after_those_of_the_fleet() {
        let deployment = |more: Value| {
            let mut selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
            selector
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!([selector])
        };
        let by_name = deployment(json!({"name": "web"}));
        let by_label = deployment(json!({"labelSelector": {"matchLabels": {"app": "web"}}}));
        let wide = |name: &str, selectors: &Value| {
            Arc::new(ClusterOverridePolicy::new(name, spec(selectors)))
        };
        let mut leaving = ClusterOverridePolicy::new("leaving", spec(&json!([])));
        leaving.metadata.deletion_timestamp = Some(muster_shared::k8s::Time(
            "2026-01-01T00:00:00Z".parse().unwrap(),
        ));
        let policies = Policies {
            cluster: vec![
                wide("named", &by_name),
                wide("z-all", &json!([])),
                wide("a-all", &json!(null)),
                wide("other", &deployment(json!({"name": "db"}))),
                Arc::new(leaving),
            ],
            namespaced: vec![
                near("shop", "named", &by_name),
                near("shop", "labelled", &by_label),
                near("shop", "kind", &deployment(json!({}))),
                near("bank", "kind", &deployment(json!({}))),
            ],
        };
        let kind = Kind::new("apps/v1", "Deployment");
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let names = |namespace: Option<&str>| {
            let subject = Subject {
                kind: &kind,
                namespace,
                name: "web",
                labels: Some(&labels),
            };
            let selected = policies.selected(subject);
            let text = |it: &Selected<'_>| {
                it.namespace.as_ref().map_or_else(
                    || it.name.clone(),
                    |namespace| format!("{namespace}/{}", it.name),
                )
            };
            selected.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(
            names(Some("shop")),
            [
                "a-all",
                "z-all",
                "named",
                "shop/kind",
                "shop/labelled",
                "shop/named"
            ]
        );
        assert_eq!(names(None), ["a-all", "z-all", "named"]);
    }
}
