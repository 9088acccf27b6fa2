//! Warnings at admission about templates that the fleet API obeys itself. Pure.

use std::collections::BTreeSet;

use muster_shared::api::policy::PropagationSpec;
use muster_shared::check::listed;
use muster_shared::names::api_group;

/// API groups whose objects each API server obeys that has them, be they meant for members only.
const OBEYED: [&str; 3] = [
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];
/// Kinds that one warning lists.
const MOST_NAMES: usize = 5;

/// Returns a warning about objects of a policy that take effect in the fleet API as well: it asks
/// their webhooks about its own writes, for example.
pub fn advice(spec: &PropagationSpec) -> Option<String> {
    let selectors = spec.resource_selectors.iter();
    let selectors = selectors.filter(|it| OBEYED.contains(&api_group(&it.api_version)));
    let kinds: BTreeSet<&str> = selectors.map(|it| &*it.kind).collect();
    if kinds.is_empty() {
        return None;
    }
    let kinds: Vec<&str> = kinds.into_iter().collect();
    Some(format!(
        "spec.resourceSelectors: the fleet API obeys objects of these kinds itself as soon as they are there. It asks a webhook about its own \
         writes, which wait or fail where the webhook's Service answers in members only: {}",
        listed(&kinds, MOST_NAMES)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_for_what_the_fleet_api_obeys_itself_is_reported_so() {
        let (hooks, pods) = ("admissionregistration.k8s.io/v1", "v1");
        let (webhook, service) = ("ValidatingWebhookConfiguration", "APIService");
        for (selectors, expected) in [
            (&[(pods, "Pod"), ("apps/v1", "Deployment")][..], None),
            (&[(hooks, webhook), (pods, "Pod")], Some(webhook)),
            (&[("apiregistration.k8s.io/v1", service)], Some(service)),
            (&[("my.admissionregistration.k8s.io/v1", "Hook")], None),
            (
                &["A", "B", "C", "D", "E", "F"].map(|kind| (hooks, kind)),
                Some("A, B, C, D, E and 1 more"),
            ),
        ] {
            let selectors = selectors.iter();
            let selectors =
                selectors.map(|(version, kind)| json!({"apiVersion": version, "kind": kind}));
            let spec = json!({"resourceSelectors": selectors.collect::<Vec<_>>()});
            let reported = advice(&serde_json::from_value(spec).unwrap());
            let named = reported.as_deref().and_then(|it| it.rsplit(": ").next());
            assert_eq!(named, expected, "{reported:?}");
        }
    }
}
