//! Chooses the policy of a template that has none.

use std::cmp::Reverse;

use muster_shared::api::policy::PropagationSpec;

use crate::fleet::policy::Policy;
use crate::fleet::selection::{Strength, Subject, strength};

/// Returns how specific the selector of a policy is that selects the template most specifically.
pub fn implicit_priority(policy: &PropagationSpec, subject: Subject<'_>) -> Strength {
    let strengths = policy
        .resource_selectors
        .iter()
        .map(|selector| strength(selector, subject));
    strengths.max().unwrap_or(Strength::Mismatch)
}

/// Returns whether a policy selects the template at all. A namespaced one selects in its own
/// namespace only, whatever its selectors say and whoever wrote its name on the template.
pub fn selects(policy: &Policy, subject: Subject<'_>) -> bool {
    reaches(policy, subject) && implicit_priority(policy.spec(), subject) > Strength::Mismatch
}

/// Returns whether a template is in a place where a policy may select at all.
pub fn reaches(policy: &Policy, subject: Subject<'_>) -> bool {
    let namespace = policy.metadata().namespace.as_deref();
    namespace.is_none() || namespace == subject.namespace
}

/// Returns the policy that gets the template among policies of one kind: the highest explicit
/// priority, then the most specific, then the first by name. Policies that are being deleted do not
/// take part.
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
    use muster_shared::watch::outline::Labels;
    use serde_json::json;

    use super::*;
    use crate::fleet::template::Kind;

    #[test]
    fn a_namespaced_policy_selects_in_its_own_namespace_only() {
        let policy = |namespace: Option<&str>| {
            let selectors = json!([{ "apiVersion": "apps/v1", "kind": "Deployment" }]);
            let policy = json!({
                "metadata": { "namespace": namespace, "name": "p" },
                "spec": { "resourceSelectors": selectors },
            });
            Policy(serde_json::from_value(policy).unwrap())
        };
        let (near, wide) = (policy(Some("b")), policy(None));
        let kind = Kind::new("apps/v1", "Deployment");
        let subject = |namespace| Subject {
            kind: &kind,
            namespace,
            name: "web",
            labels: Labels::Map(None),
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
