//! Validates a placement: the rules of Karmada's admission, and those for valid selectors and
//! tolerations.

use std::collections::BTreeSet;

use muster_shared::api::policy::{
    ClusterAffinity, DynamicWeightFactor, Placement, ReplicaDivisionPreference,
    ReplicaSchedulingStrategy, ReplicaSchedulingType, SpreadConstraint, SpreadFieldValue,
    WorkloadAffinity,
};
use muster_shared::k8s::Toleration;
use muster_shared::selectors::{
    MOST_REQUIREMENTS, is_label_key, is_label_value, is_sound_selector, requirements,
};
use muster_shared::taints::{NO_EXECUTE, NO_SCHEDULE};

use super::problem::Findings;
use crate::scheduler::core::bounds::{MOST_AFFINITIES, Size, size_of_groups, size_of_weights};

const LABEL_KEY: &str =
    "must be a label key: a name of at most 63 characters, with an optional DNS prefix";

/// Checks a placement at the path `at`.
pub fn check(placement: &Placement, at: &str, found: &mut Findings) {
    if placement.cluster_affinity.is_some() && !placement.cluster_affinities.is_empty() {
        found.forbidden(
            format!("{at}.clusterAffinities"),
            "clusterAffinity and clusterAffinities cannot co-exist",
        );
    }
    if let Some(one) = &placement.cluster_affinity {
        affinity(one, &format!("{at}.clusterAffinity"), found);
    }
    groups(placement, at, found);
    for (index, toleration) in placement.cluster_tolerations.iter().enumerate() {
        tolerate(
            toleration,
            &format!("{at}.clusterTolerations[{index}]"),
            found,
        );
    }
    spread(
        &placement.spread_constraints,
        &format!("{at}.spreadConstraints"),
        found,
    );
    if let Some(strategy) = &placement.replica_scheduling {
        weights(strategy, &format!("{at}.replicaScheduling"), found);
    }
    if let Some(both) = &placement.workload_affinity {
        let at = format!("{at}.workloadAffinity");
        workloads(both, &at, found);
        found.warn(
            at,
            "has no effect: workloads are placed without regard to each other",
        );
    }
}

/// Checks a choice of clusters. A selector that Kubernetes would refuse selects nothing, so the
/// author must be warned of it.
pub fn affinity(affinity: &ClusterAffinity, at: &str, found: &mut Findings) {
    let requirements = requirements(affinity);
    if requirements > MOST_REQUIREMENTS {
        let limit = format!("{MOST_REQUIREMENTS} requirements in the selectors");
        found.too_many(at, requirements, &limit);
    }
    if let Some(selector) = &affinity.label_selector
        && !is_sound_selector(selector)
    {
        found.invalid(
            format!("{at}.labelSelector"),
            selector,
            "keys and values must be those of labels; In and NotIn need values, Exists and DoesNotExist take none",
        );
    }
    let fields = affinity.field_selector.iter();
    for (index, wanted) in fields.flat_map(|it| &it.match_expressions).enumerate() {
        let at = format!("{at}.fieldSelector.matchExpressions[{index}]");
        if !["provider", "region", "zone"].contains(&wanted.key.as_str()) {
            found.unsupported(
                format!("{at}.key"),
                &wanted.key,
                &["provider", "region", "zone"],
            );
        }
        if !["In", "NotIn"].contains(&wanted.operator.as_str()) {
            found.unsupported(format!("{at}.operator"), &wanted.operator, &["In", "NotIn"]);
        }
        let values = wanted.values.as_deref().unwrap_or_default();
        if values.is_empty() {
            found.required(format!("{at}.values"), "without values nothing is selected");
        }
        for value in values.iter().filter(|value| !is_label_value(value)) {
            // What a zone is called is the provider's affair.
            if wanted.key != "zone" {
                found.invalid(format!("{at}.values"), value, "must be a label value");
            }
        }
    }
}

fn groups(placement: &Placement, at: &str, found: &mut Findings) {
    bounded(
        size_of_groups(&placement.cluster_affinities),
        "groups and overflow affinities",
        &format!("{at}.clusterAffinities"),
        found,
    );
    let mut names = BTreeSet::new();
    let mut name = |name: &str, at: &str, found: &mut Findings| {
        let at = format!("{at}.affinityName");
        if !is_label_key(name) {
            found.invalid(at.as_str(), &name, LABEL_KEY);
        }
        if !names.insert(name.to_owned()) {
            found.duplicate(at, &name);
        }
    };
    for (index, term) in placement.cluster_affinities.iter().enumerate() {
        let at = format!("{at}.clusterAffinities[{index}]");
        name(&term.affinity_name, &at, found);
        affinity(&term.cluster_affinity, &at, found);
        let overflow = format!("{at}.overflowAffinities");
        if !term.overflow_affinities.is_empty() {
            if !fills_up(placement.replica_scheduling.as_ref()) {
                found.forbidden(
                    overflow.as_str(),
                    "only with replicas that are Divided and Aggregated, or Divided and Weighted with dynamicWeight",
                );
            }
            if term.cluster_affinity == ClusterAffinity::default() {
                found.required(
                    at.as_str(),
                    "a group of all clusters leaves nothing to flow over to",
                );
            }
        }
        for (index, term) in term.overflow_affinities.iter().enumerate() {
            let at = format!("{overflow}[{index}]");
            name(&term.affinity_name, &at, found);
            affinity(&term.cluster_affinity, &at, found);
        }
    }
}

/// Refuses what is too much to be compared with every cluster in one decision: a part of it would
/// have no effect.
fn bounded(size: Size, what: &str, at: &str, found: &mut Findings) {
    if size.affinities > MOST_AFFINITIES {
        let limit = format!("{MOST_AFFINITIES} {what}");
        found.too_many(at, size.affinities, &limit);
    }
    if size.requirements > MOST_REQUIREMENTS {
        let limit = format!("{MOST_REQUIREMENTS} requirements in the selectors of all {what}");
        found.too_many(at, size.requirements, &limit);
    }
}

/// Returns whether clusters are filled by the room they have, so that there can be a remainder.
fn fills_up(strategy: Option<&ReplicaSchedulingStrategy>) -> bool {
    let Some(strategy) = strategy else {
        return false;
    };
    let dynamic = || {
        let weights = strategy.weight_preference.as_ref();
        weights.is_some_and(|weights| weights.dynamic_weight.is_some())
    };
    strategy.replica_scheduling_type == Some(ReplicaSchedulingType::Divided)
        && match &strategy.replica_division_preference {
            Some(ReplicaDivisionPreference::Aggregated) => true,
            Some(ReplicaDivisionPreference::Weighted) => dynamic(),
            _ => false,
        }
}

fn tolerate(toleration: &Toleration, at: &str, found: &mut Findings) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (key, operator, effect) = (
        text(&toleration.key),
        text(&toleration.operator),
        text(&toleration.effect),
    );
    if !["", "Exists", "Equal"].contains(&operator.as_str()) {
        // Lt and Gt are Kubernetes', and nobody compares by them here (K36).
        found.unsupported(
            format!("{at}.operator"),
            &operator,
            &["", "Exists", "Equal"],
        );
    }
    if key.is_empty() && operator != "Exists" {
        found.warn(
            at,
            "tolerates nothing: a key is missing, or operator Exists",
        );
    }
    if !effect.is_empty() && effect != NO_SCHEDULE && effect != NO_EXECUTE {
        found.warn(
            at,
            "tolerates nothing: clusters are left alone or driven out of by effects NoSchedule and NoExecute",
        );
    } else if effect == NO_SCHEDULE && toleration.toleration_seconds.is_some() {
        found.warn(at, "tolerationSeconds counts for effect NoExecute only");
    }
}

fn spread(constraints: &[SpreadConstraint], at: &str, found: &mut Findings) {
    let mut fields = BTreeSet::new();
    for (index, constraint) in constraints.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let (min, max) = (constraint.min_groups, constraint.max_groups);
        if constraint.spread_by_field.is_some() && constraint.spread_by_label.is_some() {
            found.forbidden(
                at.as_str(),
                "spreadByField and spreadByLabel cannot co-exist",
            );
        }
        for (name, value) in [("minGroups", min), ("maxGroups", max)] {
            if value < 0 {
                found.invalid(format!("{at}.{name}"), &value, "must be at least 0");
            }
        }
        if max > 0 && max < min {
            found.invalid(
                format!("{at}.maxGroups"),
                &max,
                &format!("must be at least minGroups, which is {min}"),
            );
        }
        if let Some(field) = &constraint.spread_by_field
            && !fields.insert(field.clone())
        {
            found.duplicate(format!("{at}.spreadByField"), &field.as_str());
        }
        let by_label = |it: &SpreadConstraint| it.spread_by_label.is_some();
        if by_label(constraint) && constraints[index + 1..].iter().any(by_label) {
            let why = "has no effect: of several constraints by a label, the last one counts";
            found.warn(format!("{at}.spreadByLabel"), why);
        }
    }
    if !fields.is_empty() && !fields.contains(&SpreadFieldValue::Cluster) {
        found.required(
            at,
            "a constraint by field cluster has to be among those by field",
        );
    }
}

fn weights(strategy: &ReplicaSchedulingStrategy, at: &str, found: &mut Findings) {
    let Some(weights) = &strategy.weight_preference else {
        return;
    };
    let at = format!("{at}.weightPreference");
    if weights.dynamic_weight == Some(DynamicWeightFactor::AvailableReplicas)
        && !weights.static_weight_list.is_empty()
    {
        found.warn(
            format!("{at}.staticWeightList"),
            "has no effect beside dynamicWeight",
        );
    }
    bounded(
        size_of_weights(&weights.static_weight_list),
        "entries that select clusters rather than only name them",
        &format!("{at}.staticWeightList"),
        found,
    );
    for (index, weight) in weights.static_weight_list.iter().enumerate() {
        let at = format!("{at}.staticWeightList[{index}].targetCluster");
        affinity(&weight.target_cluster, &at, found);
    }
}

fn workloads(both: &WorkloadAffinity, at: &str, found: &mut Findings) {
    let near = both.affinity.as_ref().map(|term| &term.group_by_label_key);
    let far = both
        .anti_affinity
        .as_ref()
        .map(|term| &term.group_by_label_key);
    for (name, key) in [("affinity", near), ("antiAffinity", far)] {
        if let Some(key) = key.filter(|key| !is_label_key(key)) {
            found.invalid(format!("{at}.{name}.groupByLabelKey"), key, LABEL_KEY);
        }
    }
    if let Some(key) = far.filter(|key| Some(*key) == near) {
        found.invalid(
            format!("{at}.antiAffinity.groupByLabelKey"),
            key,
            "must differ from the key of affinity: the same workloads cannot run together and apart",
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(placement: Value) -> Option<String> {
        let mut found = Findings::default();
        let placement: Placement = serde_json::from_value(placement).unwrap();
        check(&placement, "spec.placement", &mut found);
        found.refusal()
    }

    #[test]
    fn what_is_too_much_for_one_decision_is_refused() {
        let selecting = |requirements: usize| {
            let labels = (0..requirements).map(|n| (format!("k{n}"), json!("v")));
            let labels: serde_json::Map<_, _> = labels.collect();
            json!({ "labelSelector": { "matchLabels": labels } })
        };
        let group = |n: usize, requirements: usize| {
            let mut group = selecting(requirements);
            group["affinityName"] = json!(format!("g{n}"));
            group
        };
        let groups = |count: usize, requirements: usize| {
            let groups: Vec<_> = (0..count).map(|n| group(n, requirements)).collect();
            json!({ "clusterAffinities": groups })
        };
        let overflowing = |count: usize| {
            let mut first = group(0, 1);
            let overflow: Vec<_> = (1..=count).map(|n| group(n, 1)).collect();
            first["overflowAffinities"] = json!(overflow);
            json!({
                "clusterAffinities": [first],
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "replicaDivisionPreference": "Aggregated",
                },
            })
        };
        let weights = |affinities: Vec<Value>| {
            let rule = |affinity| json!({ "targetCluster": affinity, "weight": 1 });
            let list: Vec<_> = affinities.into_iter().map(rule).collect();
            json!({ "replicaScheduling": { "weightPreference": { "staticWeightList": list } } })
        };
        let named = |n: usize| json!({ "clusterNames": [format!("m{n}")] });
        let one = "spec.placement.clusterAffinity";
        let list = "spec.placement.clusterAffinities";
        let rules = "spec.placement.replicaScheduling.weightPreference.staticWeightList";
        let of_groups = "groups and overflow affinities";
        let of_rules = "entries that select clusters rather than only name them";
        let too_many = |at: &str, count: usize, limit: &str| {
            Some(format!(
                "{at}: Too many: {count}: must have at most {limit}"
            ))
        };
        let in_one = "500 requirements in the selectors";
        let in_all = |of: &str| format!("{in_one} of all {of}");
        let (in_groups, in_rules) = (in_all(of_groups), in_all(of_rules));
        let hundred = |of: &str| format!("100 {of}");
        let (most_groups, most_rules) = (hundred(of_groups), hundred(of_rules));
        let affinity = |requirements| json!({ "clusterAffinity": selecting(requirements) });
        let rules_of = |requirements, count| weights(vec![selecting(requirements); count]);
        for (placement, expected) in [
            (affinity(500), None),
            (affinity(501), too_many(one, 501, in_one)),
            (groups(100, 5), None),
            (groups(101, 1), too_many(list, 101, &most_groups)),
            (groups(100, 6), too_many(list, 600, &in_groups)),
            (overflowing(99), None),
            (overflowing(100), too_many(list, 101, &most_groups)),
            (rules_of(5, 100), None),
            (rules_of(1, 101), too_many(rules, 101, &most_rules)),
            (rules_of(251, 2), too_many(rules, 502, &in_rules)),
            // The usual case: clusters of a large fleet by name.
            (weights((0..5_000).map(named).collect()), None),
        ] {
            assert_eq!(refusal(placement), expected);
        }
    }
}
