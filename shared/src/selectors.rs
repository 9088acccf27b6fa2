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

type Labels = BTreeMap<String, String>;

/// Maximum number of requirements in the selectors of one affinity. Each is compared with every
/// cluster. An affinity with more matches nothing; admission rejects it.
pub const MOST_REQUIREMENTS: usize = 500;

/// A ClusterAffinity prepared for matching with many clusters: what is the same for all clusters is
/// computed once.
#[derive(Clone, Debug)]
pub struct Affinity<'a> {
    /// Sorted; empty means any.
    names: Vec<Cow<'a, str>>,
    /// Sorted.
    exclude: Vec<Cow<'a, str>>,
    selectors: Selectors<'a>,
}

impl<'a> Affinity<'a> {
    /// Prepares an affinity.
    pub fn new(stated: &'a ClusterAffinity) -> Self {
        Self {
            names: sorted(&stated.cluster_names),
            exclude: sorted(&stated.exclude),
            selectors: Selectors::of(stated),
        }
    }

    /// Returns the same affinity, independent of what it was prepared from.
    pub fn into_owned(self) -> Affinity<'static> {
        Affinity {
            names: owned(self.names),
            exclude: owned(self.exclude),
            selectors: Selectors {
                labels: self
                    .selectors
                    .labels
                    .into_iter()
                    .map(Requirement::into_owned)
                    .collect(),
                fields: self
                    .selectors
                    .fields
                    .into_iter()
                    .map(Requirement::into_owned)
                    .collect(),
                sound: self.selectors.sound,
            },
        }
    }

    /// Returns whether the affinity matches a cluster. Every field that is set must match.
    pub fn matches(&self, cluster: &Cluster) -> bool {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        (self.names.is_empty() || contains(&self.names, name))
            && !contains(&self.exclude, name)
            && self.selectors.hold(cluster)
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
    let names = &affinity.cluster_names;
    (names.is_empty() || is_listed(names, cluster))
        && !is_listed(&affinity.exclude, cluster)
        && Selectors::of(affinity).hold(cluster)
}

fn is_listed(names: &[String], cluster: &Cluster) -> bool {
    let own = cluster.metadata.name.as_deref().unwrap_or_default();
    names.iter().any(|name| name == own)
}

fn sorted(texts: &[String]) -> Vec<Cow<'_, str>> {
    let mut sorted: Vec<_> = texts.iter().map(|text| Cow::Borrowed(&**text)).collect();
    sorted.sort_unstable();
    sorted
}

fn contains(sorted: &[Cow<'_, str>], text: &str) -> bool {
    sorted.binary_search_by(|each| (**each).cmp(text)).is_ok()
}

fn owned(texts: Vec<Cow<'_, str>>) -> Vec<Cow<'static, str>> {
    let texts = texts.into_iter();
    texts.map(|text| Cow::Owned(text.into_owned())).collect()
}

/// The selectors of an affinity.
#[derive(Clone, Debug)]
struct Selectors<'a> {
    labels: Vec<Requirement<'a>>,
    fields: Vec<Requirement<'a>>,
    /// Whether Kubernetes would accept them, and there are not too many.
    sound: bool,
}

impl<'a> Selectors<'a> {
    fn of(affinity: &'a ClusterAffinity) -> Self {
        let labels = affinity.label_selector.as_ref();
        let fields = affinity.field_selector.as_ref();
        let sound = requirements(affinity) <= MOST_REQUIREMENTS && is_sound(affinity);
        if !sound {
            return Self {
                labels: Vec::new(),
                fields: Vec::new(),
                sound,
            };
        }
        let fields = fields.map_or(&[][..], |selector| &selector.match_expressions);
        let fields = fields.iter().map(|requirement| {
            let values = requirement.values.as_deref().unwrap_or_default();
            Requirement::of(&requirement.key, &requirement.operator, values)
        });
        Self {
            labels: labels
                .into_iter()
                .flat_map(Requirement::of_labels)
                .collect(),
            fields: fields.collect(),
            sound,
        }
    }

    fn hold(&self, cluster: &Cluster) -> bool {
        let labels = cluster.metadata.labels.as_ref();
        self.sound
            && self.labels.iter().all(|it| it.holds_for_labels(labels))
            && self.fields.iter().all(|it| it.holds_for_fields(cluster))
    }
}

/// One requirement of a sound selector.
#[derive(Clone, Debug)]
struct Requirement<'a> {
    key: Cow<'a, str>,
    test: Test<'a>,
}

#[derive(Clone, Debug)]
enum Test<'a> {
    Is(Cow<'a, str>),
    /// One of these, sorted.
    In(Vec<Cow<'a, str>>),
    /// None of these, sorted.
    NotIn(Vec<Cow<'a, str>>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
    Never,
}

impl<'a> Requirement<'a> {
    fn of(key: &'a str, operator: &str, values: &'a [String]) -> Self {
        let limit = || values.first().and_then(|limit| limit.parse().ok());
        Self {
            key: Cow::Borrowed(key),
            test: match operator {
                "In" => Test::In(sorted(values)),
                "NotIn" => Test::NotIn(sorted(values)),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::DoesNotExist,
                "Gt" => limit().map_or(Test::Never, Test::Above),
                "Lt" => limit().map_or(Test::Never, Test::Below),
                _ => Test::Never,
            },
        }
    }

    fn of_labels(selector: &'a LabelSelector) -> impl Iterator<Item = Self> {
        let exact = selector.match_labels.iter().flatten();
        let exact = exact.map(|(key, value)| Self {
            key: Cow::Borrowed(key),
            test: Test::Is(Cow::Borrowed(value)),
        });
        let others = selector.match_expressions.iter().flatten();
        let others = others.map(|requirement| {
            let values = requirement.values.as_deref().unwrap_or_default();
            Self::of(&requirement.key, &requirement.operator, values)
        });
        exact.chain(others)
    }

    fn into_owned(self) -> Requirement<'static> {
        Requirement {
            key: Cow::Owned(self.key.into_owned()),
            test: match self.test {
                Test::Is(value) => Test::Is(Cow::Owned(value.into_owned())),
                Test::In(values) => Test::In(owned(values)),
                Test::NotIn(values) => Test::NotIn(owned(values)),
                Test::Exists => Test::Exists,
                Test::DoesNotExist => Test::DoesNotExist,
                Test::Above(limit) => Test::Above(limit),
                Test::Below(limit) => Test::Below(limit),
                Test::Never => Test::Never,
            },
        }
    }

    fn holds_for_labels(&self, labels: Option<&Labels>) -> bool {
        let value = labels.and_then(|labels| labels.get(&*self.key));
        self.holds(value.map(String::as_str))
    }

    fn holds_for_fields(&self, cluster: &Cluster) -> bool {
        match &*self.key {
            "zone" => self.holds_for_zones(cluster),
            "provider" => self.holds(present(cluster.spec.provider.as_deref())),
            "region" => self.holds(present(cluster.spec.region.as_deref())),
            _ => self.holds(None),
        }
    }

    /// Returns whether the zones of a cluster will do. A cluster may have several zones: `In` wants
    /// one of them in the list, `NotIn` none.
    fn holds_for_zones(&self, cluster: &Cluster) -> bool {
        let mut zones = cluster.zones();
        match &self.test {
            Test::Is(value) => zones.any(|zone| zone == value),
            Test::In(values) => zones.any(|zone| contains(values, zone)),
            Test::NotIn(values) => !zones.any(|zone| contains(values, zone)),
            Test::Exists => zones.next().is_some(),
            Test::DoesNotExist => zones.next().is_none(),
            Test::Above(_) | Test::Below(_) | Test::Never => false,
        }
    }

    /// Returns whether a value, or its absence, will do.
    fn holds(&self, actual: Option<&str>) -> bool {
        let number = || actual.and_then(|text| text.parse::<i64>().ok());
        match &self.test {
            Test::Is(value) => actual == Some(value),
            Test::In(values) => actual.is_some_and(|text| contains(values, text)),
            Test::NotIn(values) => !actual.is_some_and(|text| contains(values, text)),
            Test::Exists => actual.is_some(),
            Test::DoesNotExist => actual.is_none(),
            Test::Above(limit) => number().is_some_and(|it| it > *limit),
            Test::Below(limit) => number().is_some_and(|it| it < *limit),
            Test::Never => false,
        }
    }
}

fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
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

/// Returns whether a label selector matches labels, of which `value` returns each. The empty
/// selector matches everything.
pub fn matches_labels<'a>(
    selector: &LabelSelector,
    value: impl Fn(&str) -> Option<&'a str>,
) -> bool {
    // Most selectors do not match most objects, which costs less to find out.
    Requirement::of_labels(selector).all(|it| it.holds(value(&it.key)))
        && is_sound_selector(selector)
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
