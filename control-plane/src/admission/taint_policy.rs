//! Validates a ClusterTaintPolicy.
//!
//! The definition checks effects, operators and that there is one target only, and sets the
//! defaults.

use muster_shared::api::taint_policy::{
    ClusterTaintPolicySpec, MatchCondition, Taint as PolicyTaint, TaintToAdd,
};
use muster_shared::conditions::{FALSE, TRUE, UNKNOWN};
use muster_shared::k8s::Taint;
use muster_shared::taints::{NO_EXECUTE, PREFER_NO_SCHEDULE};
use serde::Deserialize;

use super::placement;
use super::problem::Findings;
use crate::clusters::taint::policy::fault;

/// A policy, as far as admission is concerned.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// What it says.
    pub spec: ClusterTaintPolicySpec,
}

/// Returns everything that is wrong with a policy. `allow_no_execute` is Karmada's
/// `--allow-no-execute-taint-policy`; `reserves` says whether the taints that follow the Ready
/// condition are the cluster controller's.
pub fn check(policy: &Policy, allow_no_execute: bool, reserves: bool) -> Findings {
    let mut found = Findings::default();
    let spec = &policy.spec;
    for (name, target) in [
        ("targetClusters", &spec.target_clusters),
        ("targetCluster", &spec.target_cluster),
    ] {
        if let Some(target) = target {
            placement::affinity(target, &format!("spec.{name}"), &mut found);
        }
    }
    for (name, list) in [
        ("addOnConditions", &spec.add_on_conditions),
        ("removeOnConditions", &spec.remove_on_conditions),
        ("matchConditions", &spec.match_conditions),
    ] {
        conditions(list, &format!("spec.{name}"), &mut found);
    }
    let shipped: Vec<Taint> = spec.taints.iter().map(PolicyTaint::taint).collect();
    let proposed: Vec<Taint> = spec.taints_to_add.iter().map(TaintToAdd::taint).collect();
    let rules = (allow_no_execute, reserves);
    let shipped = (&*shipped, &*spec.add_on_conditions);
    taints(shipped, "spec.taints", rules, &mut found);
    let proposed = (&*proposed, &*spec.match_conditions);
    taints(proposed, "spec.taintsToAdd", rules, &mut found);
    idle_parts(spec, &mut found);
    found
}

fn conditions(list: &[MatchCondition], at: &str, found: &mut Findings) {
    const STATUSES: [&str; 3] = [TRUE, FALSE, UNKNOWN];
    for (index, condition) in list.iter().enumerate() {
        let at = format!("{at}[{index}].statusValues");
        if condition.status_values.is_empty() {
            found.required(at.as_str(), "a condition is compared with something");
        }
        for value in &condition.status_values {
            if !STATUSES.contains(&value.as_str()) {
                found.unsupported(at.as_str(), value, &STATUSES);
            }
        }
    }
}

fn taints(
    (list, conditions): (&[Taint], &[MatchCondition]),
    at: &str,
    (allow_no_execute, reserves): (bool, bool),
    found: &mut Findings,
) {
    for (index, taint) in list.iter().enumerate() {
        let at = format!("{at}[{index}]");
        if taint.effect == NO_EXECUTE && !allow_no_execute {
            found.forbidden(
                at.as_str(),
                "effect NoExecute drives workloads out: the control plane has to be started with --allow-no-execute-taint-policy",
            );
        }
        if taint.effect == PREFER_NO_SCHEDULE {
            found.warn(
                at.as_str(),
                "effect PreferNoSchedule keeps nothing away, it only has other clusters preferred; and Karmada's API server refuses it",
            );
        }
        if let Some(fault) = fault(taint, conditions, reserves) {
            match &fault.invalid {
                Some((field, value)) => {
                    found.invalid(format!("{at}.{field}"), value, &fault.to_string());
                }
                None => found.forbidden(at.as_str(), &fault.to_string()),
            }
        }
        let same = |other: &Taint| other.key == taint.key && other.effect == taint.effect;
        if list[..index].iter().any(same) {
            found.duplicate(at, &format!("{}:{}", taint.key, taint.effect));
        }
    }
}

/// Parts without what they are for.
fn idle_parts(spec: &ClusterTaintPolicySpec, found: &mut Findings) {
    let (adds, removes) = (
        !spec.add_on_conditions.is_empty(),
        !spec.remove_on_conditions.is_empty(),
    );
    if spec.taints.is_empty() && (adds || removes) {
        found.warn(
            "spec.addOnConditions and spec.removeOnConditions",
            "have no effect without taints",
        );
    }
    if !spec.taints.is_empty() && !adds && !removes {
        found.warn(
            "spec.taints",
            "have no effect without addOnConditions and removeOnConditions",
        );
    }
    if spec.taints_to_add.is_empty() && !spec.match_conditions.is_empty() {
        found.warn("spec.matchConditions", "has no effect without taintsToAdd");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(spec: &Value, allow: bool) -> String {
        let policy = Policy::deserialize(&json!({ "spec": spec })).unwrap();
        check(&policy, allow, true).refusal().unwrap_or_default()
    }

    #[test]
    fn an_effect_that_keeps_nothing_away_is_taken_and_warned_of() {
        for (field, effect, warned) in [
            ("taints", "PreferNoSchedule", true),
            ("taintsToAdd", "PreferNoSchedule", true),
            ("taints", "NoSchedule", false),
        ] {
            let ready =
                json!([{ "conditionType": "Ready", "operator": "In", "statusValues": ["False"] }]);
            let spec = json!({
                "addOnConditions": ready, "matchConditions": ready,
                "taints": [{ "key": "a", "effect": "NoSchedule" }], "taintsToAdd": [{ "key": "a", "effect": "NoSchedule" }],
                field: [{ "key": "a", "effect": effect }],
            });
            let policy = Policy::deserialize(&json!({ "spec": spec })).unwrap();
            let found = check(&policy, false, true);
            assert_eq!(found.refusal(), None, "{field} {effect}");
            let says = found
                .warnings
                .iter()
                .any(|it| it.contains("PreferNoSchedule"));
            assert_eq!(says, warned, "{field} {effect}");
        }
    }

    #[test]
    fn taints_are_checked_in_both_forms() {
        let execute = json!([{ "key": "a", "effect": "NoExecute" }]);
        let twice = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoExecute" }, { "key": "a", "effect": "NoSchedule", "value": "v" }]);
        let reserved = json!([{ "key": "cluster.karmada.io/not-ready", "effect": "NoSchedule" }]);
        let malformed = json!([{ "key": "a..b/c", "effect": "PreferNoExecute" }]);
        for (field, conditions) in [
            ("taints", "addOnConditions"),
            ("taintsToAdd", "matchConditions"),
        ] {
            let ready =
                json!([{ "conditionType": "Ready", "operator": "In", "statusValues": ["False"] }]);
            let spec = |taints: &Value| json!({ conditions: ready, field: taints });
            for (taints, allow, expected) in [
                (&execute, true, ""),
                (
                    &execute,
                    false,
                    "[0]: Forbidden: effect NoExecute drives workloads out: the control plane has to be started with --allow-no-execute-taint-policy",
                ),
                (&twice, true, r#"[2]: Duplicate value: "a:NoSchedule""#),
                (
                    &reserved,
                    true,
                    "[0]: Forbidden: taint cluster.karmada.io/not-ready:NoSchedule follows the Ready condition by itself: a policy would fight with the cluster controller (unless that runs with --condition-taints=false)",
                ),
                (
                    &malformed,
                    true,
                    r#"[0].key: Invalid value: "a..b/c": taint key "a..b/c" is not a qualified name"#,
                ),
            ] {
                let expected = match expected {
                    "" => String::new(),
                    fault => format!("spec.{field}{fault}"),
                };
                assert_eq!(refusal(&spec(taints), allow), expected, "{taints}");
            }
        }
    }

    #[test]
    fn a_taint_that_evicts_on_the_word_of_witnesses_alone_is_refused() {
        let condition = |kind: &str, status: &str| json!({ "conditionType": kind, "operator": "In", "statusValues": [status] });
        let lost = condition("SeenByPeers", "False");
        for (field, conditions) in [
            ("taints", "addOnConditions"),
            ("taintsToAdd", "matchConditions"),
        ] {
            for (effect, others, expected) in [
                ("NoExecute", json!([lost]), true),
                ("PreferNoExecute", json!([lost]), true),
                ("NoSchedule", json!([lost]), false),
                (
                    "NoExecute",
                    json!([condition("Ready", "Unknown"), lost]),
                    false,
                ),
            ] {
                let spec = json!({ conditions: others, field: [{ "key": "a", "effect": effect }] });
                let refused = refusal(&spec, true);
                let begins = format!("spec.{field}[0]: Forbidden: taint");
                assert_eq!(refused.starts_with(&begins), expected, "{refused}");
                assert_eq!(refused.contains("SeenByPeers alone"), expected, "{refused}");
            }
        }
    }

    #[test]
    fn the_policies_of_the_page_about_detection_are_taken_as_they_are() {
        let page = include_str!("../../../.github/manual/detection.md");
        let mut effects = Vec::new();
        for pasted in page.split("<<'YAML'\n").skip(1) {
            let yaml = pasted.split("\nYAML\n").next().unwrap();
            let policies: Vec<Policy> = serde_saphyr::from_multiple(yaml).unwrap();
            for policy in policies {
                let found = check(&policy, false, true);
                assert_eq!(found.refusal(), None, "{policy:?}");
                assert_eq!(found.warnings, [""; 0], "{policy:?}");
                let taints = policy.spec.taints_to_add.iter();
                effects.extend(taints.map(|it| it.taint().effect));
            }
        }
        assert_eq!(effects.len(), 6, "{effects:?}");
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let spec = json!({
            "targetClusters": { "fieldSelector": { "matchExpressions": [{ "key": "planet", "operator": "Gt", "values": ["a"] }] } },
            "addOnConditions": [{ "conditionType": "Ready", "operator": "In", "statusValues": ["true"] }],
            "removeOnConditions": [{ "conditionType": "Ready", "operator": "In", "statusValues": [] }],
            "taints": [{ "key": "a", "effect": "NoSchedule" }],
        });
        assert_eq!(
            refusal(&spec, false),
            r#"[spec.targetClusters.fieldSelector.matchExpressions[0].key: Unsupported value: "planet": supported values: "provider", "region", "zone", spec.targetClusters.fieldSelector.matchExpressions[0].operator: Unsupported value: "Gt": supported values: "In", "NotIn", spec.addOnConditions[0].statusValues: Unsupported value: "true": supported values: "True", "False", "Unknown", spec.removeOnConditions[0].statusValues: Required value: a condition is compared with something]"#
        );
    }

    #[test]
    fn a_part_without_effect_is_a_warning() {
        let ready =
            json!([{ "conditionType": "Ready", "operator": "In", "statusValues": ["False"] }]);
        let taint = json!([{ "key": "a", "effect": "NoSchedule" }]);
        for (spec, warnings) in [
            (json!({ "taints": taint }), 1),
            (json!({ "taintsToAdd": taint, "addOnConditions": ready }), 1),
            (json!({ "taints": taint, "matchConditions": ready }), 2),
            (json!({ "taintsToAdd": taint }), 0),
            (json!({ "taints": taint, "removeOnConditions": ready }), 0),
        ] {
            let policy = Policy::deserialize(&json!({ "spec": spec })).unwrap();
            let found = check(&policy, false, true);
            assert_eq!(
                (found.problems.len(), found.warnings.len()),
                (0, warnings),
                "{spec} {found:?}"
            );
        }
    }
}
