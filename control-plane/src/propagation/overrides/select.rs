//! Chooses the override policies of a resource, and their order.

use std::sync::Arc;

use kube::ResourceExt;
use muster_shared::api::any_policy::AnyOverridePolicy;
use muster_shared::api::override_policy::OverrideSpec;

use crate::fleet::selection::{Strength, Subject, strength};

/// Override policies of the fleet.
#[derive(Clone, Debug, Default)]
pub struct Policies(pub Vec<Arc<AnyOverridePolicy>>);

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
    /// Returns the ClusterOverridePolicies that apply to a resource, in the order in which they are
    /// applied. Policies that are being deleted apply to none.
    pub fn wide(&self, subject: Subject<'_>) -> Vec<Selected<'_>> {
        self.selected(true, subject)
    }

    /// Returns the OverridePolicies that apply to a resource as the ClusterOverridePolicies left
    /// it, in the order in which they are applied.
    pub fn near(&self, subject: Subject<'_>) -> Vec<Selected<'_>> {
        self.selected(false, subject)
    }

    fn selected(&self, is_wide: bool, subject: Subject<'_>) -> Vec<Selected<'_>> {
        let present = self.0.iter().filter(|policy| !policy.is_deleting());
        let mut ranked: Vec<_> = present
            .filter(|policy| policy.metadata.namespace.is_none() == is_wide)
            .filter_map(|policy| {
                let namespace = policy.metadata.namespace.clone();
                let strength = concerns(namespace.as_deref(), &policy.spec, subject)?;
                let selected = Selected {
                    namespace,
                    name: policy.as_ref().name_any(),
                    spec: &policy.spec,
                };
                Some((strength, selected))
            })
            .collect();
        ranked.sort_by(|(left, a), (right, b)| (left, &a.name).cmp(&(right, &b.name)));
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

    use muster_shared::merge;
    use muster_shared::watch::outline::Labels;
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::template::Kind;

    fn policy(namespace: Option<&str>, name: &str, selectors: &Value) -> AnyOverridePolicy {
        serde_json::from_value(json!({
            "metadata": { "namespace": namespace, "name": name },
            "spec": { "resourceSelectors": selectors },
        }))
        .unwrap()
    }

    fn near(namespace: &str, name: &str, selectors: &Value) -> Arc<AnyOverridePolicy> {
        Arc::new(policy(Some(namespace), name, selectors))
    }

    #[test]
    fn the_most_specific_policy_comes_last_and_those_of_the_namespace_after_those_of_the_fleet() {
        let deployment = |more: Value| {
            let mut selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
            merge::apply(&mut selector, &more);
            json!([selector])
        };
        let by_name = deployment(json!({"name": "web"}));
        let by_label = deployment(json!({"labelSelector": {"matchLabels": {"app": "web"}}}));
        let wide = |name: &str, selectors: &Value| Arc::new(policy(None, name, selectors));
        let mut leaving = policy(None, "leaving", &json!([]));
        leaving.metadata.deletion_timestamp = Some(muster_shared::k8s::Time(
            "2026-01-01T00:00:00Z".parse().unwrap(),
        ));
        let policies = Policies(vec![
            wide("named", &by_name),
            wide("z-all", &json!([])),
            wide("a-all", &json!(null)),
            wide("other", &deployment(json!({"name": "db"}))),
            Arc::new(leaving),
            near("shop", "named", &by_name),
            near("shop", "labelled", &by_label),
            near("shop", "kind", &deployment(json!({}))),
            near("bank", "kind", &deployment(json!({}))),
        ]);
        let kind = Kind::new("apps/v1", "Deployment");
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let names = |namespace: Option<&str>| {
            let subject = Subject {
                kind: &kind,
                namespace,
                name: "web",
                labels: Labels::Map(Some(&labels)),
            };
            let [wide, near] = [policies.wide(subject), policies.near(subject)];
            let text = |it: &Selected<'_>| {
                it.namespace.as_ref().map_or_else(
                    || it.name.clone(),
                    |namespace| format!("{namespace}/{}", it.name),
                )
            };
            wide.iter().chain(&near).map(text).collect::<Vec<_>>()
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
