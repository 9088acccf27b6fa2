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

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::NodeSelectorRequirement,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

use crate::api::{
    cluster::Cluster,
    policy::{ClusterAffinity, FieldSelector},
};
use crate::names::is_subdomain;

/// Maximum number of requirements in the selectors of one affinity. Each is compared with every
/// cluster. An affinity with more matches nothing; admission rejects it.
pub const MOST_REQUIREMENTS: usize = 500;

/// A ClusterAffinity prepared for matching with many clusters: what is the same for all clusters is
/// computed once.
#[derive(Clone, Debug)]
pub struct Affinity<'a> {
    /// The affinity, with sorted lists.
    stated: Cow<'a, ClusterAffinity>,
    /// Whether Kubernetes would accept its selectors, and there are not too many.
    is_sound: bool,
}

impl<'a> Affinity<'a> {
    /// Prepares an affinity.
    pub fn new(stated: &'a ClusterAffinity) -> Self {
        let is_sound = is_sound(stated);
        let mut stated = Cow::Borrowed(stated);
        if is_sound && !is_sorted(&stated) {
            sort(stated.to_mut());
        }
        Self { stated, is_sound }
    }

    /// Returns the same affinity, independent of what it was prepared from.
    pub fn into_owned(self) -> Affinity<'static> {
        Affinity {
            stated: Cow::Owned(self.stated.into_owned()),
            is_sound: self.is_sound,
        }
    }

    /// Returns whether the affinity matches a cluster. Every field that is set must match.
    pub fn matches(&self, cluster: &Cluster) -> bool {
        let has = |list: &[String], text: &str| {
            let place = list.binary_search_by(|each| each.as_str().cmp(text));
            place.is_ok()
        };
        self.is_sound && holds(&self.stated, cluster, has)
    }
}

/// Returns whether all lists of an affinity are sorted.
fn is_sorted(affinity: &ClusterAffinity) -> bool {
    let labels = affinity.label_selector.iter();
    let labels = labels.flat_map(|it| it.match_expressions.iter().flatten());
    let fields = affinity.field_selector.iter();
    let fields = fields.flat_map(|it| &it.match_expressions);
    let values = labels
        .map(|it| &it.values)
        .chain(fields.map(|it| &it.values));
    let names = [&affinity.cluster_names, &affinity.exclude];
    let mut lists = names.into_iter().chain(values.flatten());
    lists.all(|list| list.is_sorted())
}

/// Sorts all lists of an affinity.
fn sort(affinity: &mut ClusterAffinity) {
    let labels = affinity.label_selector.iter_mut();
    let labels = labels.flat_map(|it| it.match_expressions.iter_mut().flatten());
    let fields = affinity.field_selector.iter_mut();
    let fields = fields.flat_map(|it| &mut it.match_expressions);
    let values = labels
        .map(|it| &mut it.values)
        .chain(fields.map(|it| &mut it.values));
    let names = [&mut affinity.cluster_names, &mut affinity.exclude];
    for list in names.into_iter().chain(values.flatten()) {
        list.sort_unstable();
    }
}

/// Returns the number of requirements in the selectors of an affinity, which is what a comparison
/// with a cluster costs.
pub fn requirements(affinity: &ClusterAffinity) -> usize {
    let labels = affinity.label_selector.as_ref().map_or(0, |selector| {
        selector.match_labels.as_ref().map_or(0, BTreeMap::len)
            + selector.match_expressions.as_ref().map_or(0, Vec::len)
    });
    let fields = affinity.field_selector.as_ref();
    labels + fields.map_or(0, |selector| selector.match_expressions.len())
}

/// Returns whether an affinity matches a cluster. Every field that is set must match.
pub fn matches_affinity(affinity: &ClusterAffinity, cluster: &Cluster) -> bool {
    is_sound(affinity) && holds(affinity, cluster, has)
}

/// Returns whether a list, in any order, has a text.
fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|each| each == text)
}

/// Returns whether an affinity with sound selectors matches a cluster. `has` says whether a list
/// has a text.
fn holds(
    affinity: &ClusterAffinity,
    cluster: &Cluster,
    has: impl Fn(&[String], &str) -> bool,
) -> bool {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let names = &affinity.cluster_names;
    let labels = cluster.metadata.labels.as_ref();
    let label = |key: &str| labels?.get(key).map(String::as_str);
    let selector = affinity.label_selector.as_ref();
    let fields = affinity.field_selector.iter();
    let mut fields = fields.flat_map(|it| &it.match_expressions);
    (names.is_empty() || has(names, name))
        && !has(&affinity.exclude, name)
        && selector.is_none_or(|it| selects(it, label, &has))
        && fields.all(|it| holds_for_field(it, cluster, &has))
}

/// Returns whether a sound label selector selects labels, of which `value` returns each.
fn selects<'a>(
    selector: &LabelSelector,
    value: impl Fn(&str) -> Option<&'a str>,
    has: impl Fn(&[String], &str) -> bool,
) -> bool {
    let mut exact = selector.match_labels.iter().flatten();
    let mut others = selector.match_expressions.iter().flatten();
    exact.all(|(key, wanted)| value(key) == Some(wanted.as_str()))
        && others.all(|it| {
            let values = it.values.as_deref().unwrap_or_default();
            is_met(&it.operator, values, value(&it.key), &has)
        })
}

/// Returns whether a cluster meets a requirement on its fields. It may have several zones: `In`
/// wants one of them in the list, `NotIn` none.
fn holds_for_field(
    requirement: &NodeSelectorRequirement,
    cluster: &Cluster,
    has: impl Fn(&[String], &str) -> bool,
) -> bool {
    let operator = requirement.operator.as_str();
    let values = requirement.values.as_deref().unwrap_or_default();
    let actual = match requirement.key.as_str() {
        "zone" => {
            let mut zones = cluster.zones();
            return match operator {
                "In" => zones.any(|zone| has(values, zone)),
                "NotIn" => !zones.any(|zone| has(values, zone)),
                "Exists" => zones.next().is_some(),
                "DoesNotExist" => zones.next().is_none(),
                _ => false,
            };
        }
        "provider" => cluster.spec.provider.as_deref(),
        "region" => cluster.spec.region.as_deref(),
        _ => None,
    };
    is_met(operator, values, actual.filter(|it| !it.is_empty()), has)
}

/// Returns whether a value, or its absence, meets a requirement.
fn is_met(
    operator: &str,
    values: &[String],
    actual: Option<&str>,
    has: impl Fn(&[String], &str) -> bool,
) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let limit = || values.first().and_then(|limit| number(limit));
    let compared = || actual.and_then(number).zip(limit());
    match operator {
        "In" => actual.is_some_and(|it| has(values, it)),
        "NotIn" => !actual.is_some_and(|it| has(values, it)),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => compared().is_some_and(|(it, limit)| it > limit),
        "Lt" => compared().is_some_and(|(it, limit)| it < limit),
        _ => false,
    }
}

/// Returns whether Kubernetes would accept the selectors of an affinity, and there are not too
/// many requirements in them.
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
    requirements(affinity) <= MOST_REQUIREMENTS
        && affinity
            .label_selector
            .as_ref()
            .is_none_or(is_sound_selector)
        && affinity.field_selector.as_ref().is_none_or(fields)
}

/// Returns whether a label selector matches labels, of which `value` returns each. The empty
/// selector matches everything.
pub fn matches_labels<'a>(
    selector: &LabelSelector,
    value: impl Fn(&str) -> Option<&'a str>,
) -> bool {
    // Most selectors do not match most objects, which costs less to find out.
    selects(selector, value, has) && is_sound_selector(selector)
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

/// Returns whether a string is a valid label key: a name of at most 63 characters, with an optional
/// DNS prefix.
pub fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(key),
    }
}

/// Returns whether a string is a valid label value: empty, or a name of at most 63 characters.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests;
