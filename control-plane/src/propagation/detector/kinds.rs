//! Kinds that policies name: how many of a policy are watched, and the likely meaning of misspelt
//! ones.

use std::collections::BTreeSet;

use muster_shared::api::policy::PropagationSpec;
use strsim::levenshtein;

use crate::fleet::scope::Scope;
use crate::fleet::template::Kind;

/// Kinds of one policy that are followed: more than Kubernetes itself has. Each kind costs a watch,
/// or discovery again and again.
pub const MOST_KINDS: usize = 100;

/// Kubernetes' own kinds that may be templates, by API version.
const BUILT_IN: &[(&str, &str)] = &[
    (
        "v1",
        "ConfigMap Endpoints LimitRange Namespace PersistentVolume PersistentVolumeClaim Pod PodTemplate ReplicationController \
         ResourceQuota Secret Service ServiceAccount",
    ),
    (
        "apps/v1",
        "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    ),
    ("batch/v1", "CronJob Job"),
    ("autoscaling/v1", "HorizontalPodAutoscaler"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    (
        "networking.k8s.io/v1",
        "Ingress IngressClass IPAddress NetworkPolicy ServiceCIDR",
    ),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("policy/v1", "PodDisruptionBudget"),
    (
        "rbac.authorization.k8s.io/v1",
        "ClusterRole ClusterRoleBinding Role RoleBinding",
    ),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    (
        "storage.k8s.io/v1",
        "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass",
    ),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
];

/// Returns the kinds that have to be followed for a policy: those that may be propagated, the first
/// [`MOST_KINDS`] of them.
pub fn kinds_of(policy: &PropagationSpec, scope: &Scope) -> Vec<Kind> {
    let mut kinds = BTreeSet::new();
    for selector in &policy.resource_selectors {
        if kinds.len() == MOST_KINDS {
            break;
        }
        let kind = Kind::new(&*selector.api_version, &*selector.kind);
        if scope.admits_kind(&kind) {
            kinds.insert(kind);
        }
    }
    kinds.into_iter().collect()
}

/// Returns the kind and API version that were probably meant by a kind that Kubernetes does not
/// have. `None` is returned for kinds of others, of which nothing is known here.
pub fn meant(kind: &Kind) -> Option<String> {
    let (_, kinds) = BUILT_IN
        .iter()
        .find(|(api_version, _)| *api_version == kind.api_version)?;
    let mut kinds = kinds.split(' ');
    if kinds.clone().any(|known| known == kind.kind) {
        return None;
    }
    if let Some(known) = kinds.find(|known| is_slip(known, &kind.kind)) {
        return Some(format!("{known} of {}", kind.api_version));
    }
    let (api_version, _) = BUILT_IN
        .iter()
        .find(|(_, kinds)| kinds.split(' ').any(|known| known == kind.kind))?;
    Some(format!("{} of {api_version}", kind.kind))
}

/// Returns whether a text is probably another one that was misspelled: one or two letters differ,
/// or only upper and lower case.
fn is_slip(known: &str, text: &str) -> bool {
    let (known, text) = (known.to_lowercase(), text.to_lowercase());
    // Longer than any kind that is known here: not compared letter by letter.
    text.len() <= 64 && (known == text || levenshtein(&known, &text) <= known.len().min(8) / 4)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_told_from_a_kind_of_somebody_else() {
        for (api_version, kind, expected) in [
            ("apps/v1", "Deploymnt", Some("Deployment of apps/v1")),
            ("apps/v1", "deployment", Some("Deployment of apps/v1")),
            ("apps/v1", "Deployments", Some("Deployment of apps/v1")),
            ("v1", "Deployment", Some("Deployment of apps/v1")),
            ("v1", "ConfigMaps", Some("ConfigMap of v1")),
            ("apps/v1", "Deployment", None),
            ("apps/v1", "Wholly", None),
            ("batch/v1", "Jab", None),
            ("example.com/v1", "Deploymnt", None),
            ("apps.example.com/v1", "Deployment", None),
        ] {
            let kind = Kind::new(api_version, kind);
            assert_eq!(meant(&kind).as_deref(), expected, "{kind:?}");
        }
        assert_eq!(meant(&Kind::new("apps/v1", "x".repeat(1 << 20))), None);
    }

    #[test]
    fn a_policy_has_a_bounded_number_of_kinds_followed_and_none_that_is_reserved() {
        let mut selectors =
            vec![json!({ "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work" })];
        selectors.extend(
            (0..10_000)
                .map(|number| json!({ "apiVersion": "x.io/v1", "kind": format!("K{number}") })),
        );
        let policy = serde_json::from_value(json!({ "resourceSelectors": selectors })).unwrap();
        let kinds = kinds_of(&policy, &Scope::default());
        assert_eq!(kinds.len(), MOST_KINDS);
        assert!(kinds.iter().all(|kind| kind.kind != "Work"));
    }
}
