//! Selectors: which objects and which clusters they match.
//!
//! A selector that Kubernetes would reject (unknown operator, missing or superfluous values,
//! malformed key or value) matches nothing, because a selector that is not understood must not
//! match everything. kube's `Selector` has neither this rule nor `Gt` and `Lt`.
//!
//! ```
//! use muster_shared::api::cluster::Cluster;
//! use muster_shared::api::policy::ClusterAffinity;
//! use muster_shared::selectors::matches_affinity;
//! use serde_json::json;
//!
//! let cluster: Cluster = serde_json::from_value(json!({
//!     "metadata": { "name": "m1", "labels": { "tier": "gold" } },
//!     "spec": { "syncMode": "Pull", "region": "north", "zones": ["n1", "n2"] },
//! }))?;
//! for (affinity, matches) in [
//!     (json!({}), true),
//!     (json!({ "clusterNames": ["m1"], "exclude": ["m1"] }), false),
//!     (json!({ "labelSelector": { "matchLabels": { "tier": "gold" } } }), true),
//!     (json!({ "fieldSelector": { "matchExpressions": [
//!         { "key": "zone", "operator": "In", "values": ["n2", "n3"] },
//!     ] } }), true),
//!     // `In` without values is no valid requirement.
//!     (json!({ "labelSelector": { "matchExpressions": [
//!         { "key": "tier", "operator": "In" },
//!     ] } }), false),
//! ] {
//!     let affinity: ClusterAffinity = serde_json::from_value(affinity)?;
//!     assert_eq!(matches_affinity(&affinity, &cluster), matches, "{affinity:?}");
//! }
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::NodeSelectorRequirement,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

use crate::api::{
    cluster::Cluster,
    policy::{ClusterAffinity, FieldSelector},
};

type Labels = BTreeMap<String, String>;

/// A ClusterAffinity prepared for matching with many clusters: what is the same for all clusters is
/// computed once.
#[derive(Clone, Debug)]
pub struct Affinity<'a> {
    stated: &'a ClusterAffinity,
    /// Sorted.
    names: Vec<&'a str>,
    /// Whether Kubernetes would take the selectors.
    sound: bool,
}

impl<'a> Affinity<'a> {
    /// Prepares an affinity.
    pub fn new(stated: &'a ClusterAffinity) -> Self {
        let mut names: Vec<_> = stated.cluster_names.iter().map(String::as_str).collect();
        names.sort_unstable();
        Self {
            stated,
            names,
            sound: is_sound(stated),
        }
    }

    /// Returns whether the affinity matches a cluster. Every field that is set must match.
    pub fn matches(&self, cluster: &Cluster) -> bool {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        (self.names.is_empty() || self.names.binary_search(&name).is_ok())
            && self.sound
            && is_selected(self.stated, cluster)
    }
}

/// Returns whether an affinity matches a cluster. Every field that is set must match.
pub fn matches_affinity(affinity: &ClusterAffinity, cluster: &Cluster) -> bool {
    let names = &affinity.cluster_names;
    (names.is_empty() || is_listed(names, cluster))
        && is_sound(affinity)
        && is_selected(affinity, cluster)
}

/// Whether a cluster is not excluded, and has the labels and fields; the selectors are sound.
fn is_selected(affinity: &ClusterAffinity, cluster: &Cluster) -> bool {
    let labels = |selector| has_labels(selector, cluster.metadata.labels.as_ref());
    let fields = |selector| has_fields(selector, cluster);
    !is_listed(&affinity.exclude, cluster)
        && affinity.label_selector.as_ref().is_none_or(labels)
        && affinity.field_selector.as_ref().is_none_or(fields)
}

fn is_listed(names: &[String], cluster: &Cluster) -> bool {
    let own = cluster.metadata.name.as_deref().unwrap_or_default();
    names.iter().any(|name| name == own)
}

fn is_sound(affinity: &ClusterAffinity) -> bool {
    let fields = |selector: &FieldSelector| {
        let requirements = selector.match_expressions.iter();
        requirements
            // A zone is no label: what it is called is the provider's affair.
            .filter(|requirement| requirement.key != "zone")
            .all(
                |NodeSelectorRequirement {
                     key,
                     operator,
                     values,
                 }| {
                    is_sound_requirement(key, operator, values.as_deref().unwrap_or_default())
                },
            )
    };
    affinity
        .label_selector
        .as_ref()
        .is_none_or(is_sound_selector)
        && affinity.field_selector.as_ref().is_none_or(fields)
}

/// Returns whether a label selector matches labels. The empty selector matches everything.
pub fn matches_labels(selector: &LabelSelector, labels: &Labels) -> bool {
    is_sound_selector(selector) && has_labels(selector, Some(labels))
}

/// Returns whether Kubernetes would accept a label selector. A selector that it rejects matches
/// nothing.
pub fn is_sound_selector(selector: &LabelSelector) -> bool {
    let exact = |(key, value): (&String, &String)| is_label_key(key) && is_label_value(value);
    selector.match_labels.iter().flatten().all(exact)
        && selector.match_expressions.iter().flatten().all(
            |LabelSelectorRequirement {
                 key,
                 operator,
                 values,
             }| {
                // Order comparisons are for nodes only.
                !matches!(operator.as_str(), "Gt" | "Lt")
                    && is_sound_requirement(key, operator, values.as_deref().unwrap_or_default())
            },
        )
}

fn is_sound_requirement(key: &str, operator: &str, values: &[String]) -> bool {
    is_label_key(key)
        && values.iter().all(|value| is_label_value(value))
        && match operator {
            "In" | "NotIn" => !values.is_empty(),
            "Exists" | "DoesNotExist" => values.is_empty(),
            "Gt" | "Lt" => matches!(values, [limit] if limit.parse::<i64>().is_ok()),
            _ => false,
        }
}

/// Whether labels satisfy a sound selector.
fn has_labels(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    let value = |key: &str| {
        labels
            .and_then(|labels| labels.get(key))
            .map(String::as_str)
    };
    let mut exact = selector.match_labels.iter().flatten();
    exact.all(|(key, wanted)| value(key) == Some(wanted))
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|requirement| {
                let values = requirement.values.as_deref().unwrap_or_default();
                holds(&requirement.operator, values, value(&requirement.key))
            })
}

/// Whether a cluster satisfies a sound selector.
fn has_fields(selector: &FieldSelector, cluster: &Cluster) -> bool {
    selector.match_expressions.iter().all(|requirement| {
        let values = requirement.values.as_deref().unwrap_or_default();
        let operator = &requirement.operator;
        match requirement.key.as_str() {
            "zone" => zones_hold(operator, values, cluster),
            "provider" => holds(operator, values, present(cluster.spec.provider.as_deref())),
            "region" => holds(operator, values, present(cluster.spec.region.as_deref())),
            _ => holds(operator, values, None),
        }
    })
}

fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// A cluster may have several zones: `In` wants one of them in the list, `NotIn` none.
fn zones_hold(operator: &str, values: &[String], cluster: &Cluster) -> bool {
    let listed = |zone: &str| values.iter().any(|value| value == zone);
    match operator {
        "In" => cluster.zones().any(listed),
        "NotIn" => !cluster.zones().any(listed),
        "Exists" => cluster.zones().next().is_some(),
        "DoesNotExist" => cluster.zones().next().is_none(),
        _ => false,
    }
}

/// Whether a value, or its absence, satisfies a sound requirement.
fn holds(operator: &str, values: &[String], actual: Option<&str>) -> bool {
    let listed = |text: &str| values.iter().any(|value| value == text);
    let number = |text: &str| text.parse::<i64>().ok();
    let limit = || values.first().and_then(|limit| number(limit));
    match operator {
        "In" => actual.is_some_and(listed),
        "NotIn" => !actual.is_some_and(listed),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" | "Lt" => match (actual.and_then(number), limit()) {
            (Some(actual), Some(limit)) if operator == "Gt" => actual > limit,
            (Some(actual), Some(limit)) => actual < limit,
            _ => false,
        },
        _ => false,
    }
}

/// Returns whether a string is a valid label key: a name of at most 63 characters, with an optional
/// DNS prefix.
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_name(name),
        None => is_name(key),
    }
}

/// Returns whether a string is a valid label value: empty, or a name of at most 63 characters.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&text.len()) && bounded(text, inner, |byte| byte.is_ascii_alphanumeric())
}

fn is_dns_name(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let part = |part: &str| {
        bounded(
            part,
            |byte| alphanumeric(byte) || byte == b'-',
            alphanumeric,
        )
    };
    text.len() <= 253 && text.split('.').all(part)
}

/// Whether a text is not empty, made of `inner`, and begins and ends with `outer`.
fn bounded(text: &str, inner: impl Fn(u8) -> bool, outer: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().copied().all(inner)
        && bytes.first().copied().is_some_and(&outer)
        && bytes.last().copied().is_some_and(&outer)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_and_values_follow_the_syntax_of_labels() {
        for key in ["a", "A.b_c-d", "example.com/app", "x-y.z/n", "0"] {
            assert!(is_label_key(key), "{key}");
        }
        let long = "a".repeat(64);
        for key in [
            "",
            "-a",
            "a-",
            "Example.com/a",
            "a/b/c",
            "/a",
            "a/",
            "a b",
            "ä",
            long.as_str(),
        ] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("v1.2_3") && !is_label_value("a b"));
    }

    #[test]
    fn a_single_zone_counts_like_a_list_of_it() {
        let cluster: Cluster = serde_json::from_value(json!({ "spec": { "zone": "z1" } })).unwrap();
        let affinity: ClusterAffinity = serde_json::from_value(json!({
            "fieldSelector": { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["z1"] }] },
        }))
        .unwrap();
        assert!(matches_affinity(&affinity, &cluster));
    }

    #[test]
    fn what_cannot_be_understood_selects_nothing() {
        for requirement in [
            json!({ "key": "a", "operator": "Bogus" }),
            json!({ "key": "a", "operator": "In", "values": [] }),
            json!({ "key": "a", "operator": "Exists", "values": ["x"] }),
            json!({ "key": "a b", "operator": "DoesNotExist" }),
            json!({ "key": "a", "operator": "NotIn", "values": ["b c"] }),
        ] {
            let selector: LabelSelector =
                serde_json::from_value(json!({ "matchExpressions": [requirement] })).unwrap();
            assert!(!matches_labels(&selector, &Labels::new()), "{requirement}");
        }
    }
}
