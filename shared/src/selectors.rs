//! Which objects and which clusters a selector means.
//!
//! A selector that Kubernetes would refuse (unknown operator, values missing or superfluous, malformed key or
//! value) matches nothing: what cannot be understood must not select everything.

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

/// What a cluster is chosen by.
#[derive(Clone, Debug, Default)]
pub struct ClusterTraits<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: Option<&'a Labels>,
    /// Its provider; empty when it has none.
    pub provider: &'a str,
    /// Its region; empty when it has none.
    pub region: &'a str,
    /// Its zones.
    pub zones: Vec<&'a str>,
}

impl<'a> From<&'a Cluster> for ClusterTraits<'a> {
    /// A deprecated single `zone` counts as the list of it: Karmada turns it into one on write, so a reader
    /// must not make a difference.
    fn from(cluster: &'a Cluster) -> Self {
        Self {
            name: cluster.metadata.name.as_deref().unwrap_or_default(),
            labels: cluster.metadata.labels.as_ref(),
            provider: cluster.spec.provider.as_deref().unwrap_or_default(),
            region: cluster.spec.region.as_deref().unwrap_or_default(),
            zones: cluster.zones().collect(),
        }
    }
}

/// Whether a cluster is meant. Every part that is given must hold; `exclude` comes first.
pub fn matches_affinity<'a>(
    affinity: &ClusterAffinity,
    cluster: impl Into<ClusterTraits<'a>>,
) -> bool {
    let cluster = cluster.into();
    let listed = |names: &[String]| names.iter().any(|name| name == cluster.name);
    let labels = |selector| matches_optional_labels(selector, cluster.labels);
    !listed(&affinity.exclude)
        && affinity.label_selector.as_ref().is_none_or(labels)
        && affinity
            .field_selector
            .as_ref()
            .is_none_or(|fields| matches_fields(fields, &cluster))
        && (affinity.cluster_names.is_empty() || listed(&affinity.cluster_names))
}

/// Whether labels satisfy a selector. The empty selector is satisfied by all.
pub fn matches_labels(selector: &LabelSelector, labels: &Labels) -> bool {
    matches_optional_labels(selector, Some(labels))
}

fn matches_optional_labels(selector: &LabelSelector, labels: Option<&Labels>) -> bool {
    let value = |key: &str| {
        labels
            .and_then(|labels| labels.get(key))
            .map(String::as_str)
    };
    let exact = |(key, wanted): (&String, &String)| {
        is_label_key(key) && is_label_value(wanted) && value(key) == Some(wanted)
    };
    selector.match_labels.iter().flatten().all(exact)
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|requirement| {
                let LabelSelectorRequirement {
                    key,
                    operator,
                    values,
                } = requirement;
                let values = values.as_deref().unwrap_or_default();
                // Order comparisons are for nodes only.
                !matches!(operator.as_str(), "Gt" | "Lt")
                    && holds(key, operator, values, value(key))
            })
}

fn matches_fields(selector: &FieldSelector, cluster: &ClusterTraits<'_>) -> bool {
    selector.match_expressions.iter().all(|requirement| {
        let NodeSelectorRequirement {
            key,
            operator,
            values,
        } = requirement;
        let values = values.as_deref().unwrap_or_default();
        let present = |text| Some(text).filter(|text: &&str| !text.is_empty());
        match key.as_str() {
            "zone" => zones_hold(operator, values, &cluster.zones),
            "provider" => holds(key, operator, values, present(cluster.provider)),
            "region" => holds(key, operator, values, present(cluster.region)),
            _ => holds(key, operator, values, None),
        }
    })
}

/// A cluster may have several zones: `In` wants one of them in the list, `NotIn` none.
fn zones_hold(operator: &str, values: &[String], zones: &[&str]) -> bool {
    let listed = |zone: &&str| values.iter().any(|value| value == zone);
    match operator {
        "In" => zones.iter().any(listed),
        "NotIn" => !zones.iter().any(listed),
        "Exists" => !zones.is_empty(),
        "DoesNotExist" => zones.is_empty(),
        _ => false,
    }
}

/// Whether a value, or its absence, satisfies a requirement.
fn holds(key: &str, operator: &str, values: &[String], actual: Option<&str>) -> bool {
    if !is_label_key(key) || !values.iter().all(|value| is_label_value(value)) {
        return false;
    }
    let listed = |text: &str| values.iter().any(|value| value == text);
    match operator {
        "In" => !values.is_empty() && actual.is_some_and(listed),
        "NotIn" => !values.is_empty() && !actual.is_some_and(listed),
        "Exists" => values.is_empty() && actual.is_some(),
        "DoesNotExist" => values.is_empty() && actual.is_none(),
        "Gt" | "Lt" => {
            let [limit] = values else { return false };
            match (
                actual.and_then(|text| text.parse::<i64>().ok()),
                limit.parse::<i64>(),
            ) {
                (Some(actual), Ok(limit)) if operator == "Gt" => actual > limit,
                (Some(actual), Ok(limit)) => actual < limit,
                _ => false,
            }
        }
        _ => false,
    }
}

/// Whether a text can be the key of a label: a name of at most 63 characters, with an optional DNS prefix.
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_name(name),
        None => is_name(key),
    }
}

/// Whether a text can be the value of a label: empty, or a name of at most 63 characters.
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
