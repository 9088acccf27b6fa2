//! Chooses the policy of a template that has none.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use muster_shared::api::policy::{PropagationSpec, ResourceSelector};
use muster_shared::selectors::matches_labels;

use crate::fleet::policy::Policy;
use crate::fleet::template::{Kind, Template, TemplateKey};

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// What a selector is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Kind of the template.
    pub kind: &'a Kind,
    /// Its namespace, `None` for kinds without one.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Subject<'a> {
    /// A template as policies see it.
    pub fn of(key: &'a TemplateKey, template: &'a Template) -> Self {
        Self {
            kind: &key.kind,
            namespace: key.namespace.as_deref(),
            name: &key.name,
            labels: template.metadata().labels.as_ref(),
        }
    }
}

/// Specificity with which a selector matches a template. The numbers are Karmada's implicit
/// priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// No match.
    Mismatch = 0,
    /// Match of every object of the kind.
    All = 1,
    /// Match by labels.
    Labels = 2,
    /// Match by name.
    Name = 3,
}

/// How specifically one selector means the template. A name makes the labels irrelevant; an empty
/// label selector means everything and still counts as labels; one that cannot be understood means
/// nothing.
pub fn strength(selector: &ResourceSelector, subject: Subject<'_>) -> Strength {
    if selector.api_version != subject.kind.api_version || selector.kind != subject.kind.kind {
        return Strength::Mismatch;
    }
    if given(selector.namespace.as_ref())
        .is_some_and(|namespace| subject.namespace != Some(namespace))
    {
        return Strength::Mismatch;
    }
    match (given(selector.name.as_ref()), &selector.label_selector) {
        (Some(name), _) if name == subject.name => Strength::Name,
        (None, None) => Strength::All,
        (None, Some(selector))
            if matches_labels(selector, subject.labels.unwrap_or(&NO_LABELS)) =>
        {
            Strength::Labels
        }
        (Some(_), _) | (None, Some(_)) => Strength::Mismatch,
    }
}

/// Absent and empty are the same.
pub(super) fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// How specifically the most specific selector of a policy means the template.
pub fn implicit_priority(policy: &PropagationSpec, subject: Subject<'_>) -> Strength {
    let strengths = policy
        .resource_selectors
        .iter()
        .map(|selector| strength(selector, subject));
    strengths.max().unwrap_or(Strength::Mismatch)
}

/// Whether a policy selects the template at all. A namespaced one selects in its own namespace
/// only, whatever its selectors say and whoever wrote its name on the template.
pub fn selects(policy: &Policy, subject: Subject<'_>) -> bool {
    reaches(policy, subject) && implicit_priority(policy.spec(), subject) > Strength::Mismatch
}

/// Whether a template is where a policy may select at all.
pub fn reaches(policy: &Policy, subject: Subject<'_>) -> bool {
    match policy {
        Policy::Namespaced(policy) => policy.metadata.namespace.as_deref() == subject.namespace,
        Policy::Cluster(_) => true,
    }
}

/// The policy that gets the template among policies of one kind: the highest explicit priority,
/// then the most specific, then the first by name. Policies that are going away take part in
/// nothing.
pub fn winner<'p>(
    policies: impl IntoIterator<Item = &'p Policy>,
    subject: Subject<'_>,
) -> Option<&'p Policy> {
    policies
        .into_iter()
        .filter(|policy| !policy.is_deleting() && reaches(policy, subject))
        .map(|policy| {
            (
                policy.spec().priority(),
                implicit_priority(policy.spec(), subject),
                policy,
            )
        })
        .filter(|(_, strength, _)| *strength > Strength::Mismatch)
        .max_by_key(|(priority, strength, policy)| (*priority, *strength, Reverse(policy.key())))
        .map(|(_, _, policy)| policy)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_shared::api::policy::{ClusterPropagationPolicy, PropagationPolicy};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespaced_policy_selects_in_its_own_namespace_only() {
        let spec = || {
            let selectors = json!([{ "apiVersion": "apps/v1", "kind": "Deployment" }]);
            serde_json::from_value(json!({ "resourceSelectors": selectors })).unwrap()
        };
        let mut near = PropagationPolicy::new("p", spec());
        near.metadata.namespace = Some("b".into());
        let near = Policy::Namespaced(Arc::new(near));
        let wide = Policy::Cluster(Arc::new(ClusterPropagationPolicy::new("p", spec())));
        let kind = Kind::new("apps/v1", "Deployment");
        let subject = |namespace| Subject {
            kind: &kind,
            namespace,
            name: "web",
            labels: None,
        };
        for (namespace, selected) in [(Some("a"), false), (Some("b"), true), (None, false)] {
            let subject = subject(namespace);
            assert_eq!(selects(&near, subject), selected, "{namespace:?}");
            assert_eq!(
                winner([&near], subject).is_some(),
                selected,
                "{namespace:?}"
            );
            assert!(selects(&wide, subject), "{namespace:?}");
        }
    }
}
