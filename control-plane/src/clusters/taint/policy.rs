//! Validates a ClusterTaintPolicy, and matches its conditions with a cluster.

use muster_shared::api::taint_policy::{
    ClusterTaintPolicySpec, MatchCondition, MatchConditionOperator, Taint as PolicyTaint,
    TaintToAdd,
};
use muster_shared::conditions::TRUE;
use muster_shared::k8s::{Condition, Taint};
use muster_shared::names::condition::{REACHES, READY, SEEN_BY_PEERS};
use muster_shared::names::taint::{NOT_READY, UNREACHABLE};
use muster_shared::selectors::{is_label_key, is_label_value};
use muster_shared::taints::{
    NO_EXECUTE, NO_SCHEDULE, PREFER_NO_EXECUTE, PREFER_NO_SCHEDULE, evicts, is_of_command,
};

use super::window::Verdict;

/// Reason why a policy, or a part of it, cannot be applied. Admission rejects most of these; one
/// that was accepted is reported and skipped, so that it does not stop other policies (unlike
/// Karmada, K22).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    text: String,
    /// Name and value of the field of a taint that no taint may have.
    pub invalid: Option<(&'static str, String)>,
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        let invalid = None;
        Self { text, invalid }
    }
}

/// Returns whether a policy has both names of its target, so that it is not followed at all.
pub fn has_two_targets(spec: &ClusterTaintPolicySpec) -> bool {
    spec.target_clusters.is_some() && spec.target_cluster.is_some()
}

/// Returns the faults of a policy. Those of single taints concern these only, see [`fault`].
pub fn faults(spec: &ClusterTaintPolicySpec, reserves: bool) -> Vec<Fault> {
    let targets = has_two_targets(spec).then(|| {
        let text = "targetClusters and targetCluster are two names for the same thing: use one";
        Fault::from(text.to_owned())
    });
    let lists = [
        &spec.add_on_conditions,
        &spec.remove_on_conditions,
        &spec.match_conditions,
    ];
    let operators = lists
        .into_iter()
        .flatten()
        .filter_map(|condition| match &condition.operator {
            MatchConditionOperator::In | MatchConditionOperator::NotIn => None,
            MatchConditionOperator::Other(operator) => {
                let kind = &condition.condition_type;
                let text = format!("condition {kind:?} has operator {operator:?}: use In or NotIn");
                Some(Fault::from(text))
            }
        });
    let shipped = spec.taints.iter().map(PolicyTaint::taint);
    let shipped = shipped.map(|taint| (taint, &spec.add_on_conditions));
    let proposed = spec.taints_to_add.iter().map(TaintToAdd::taint);
    let proposed = proposed.map(|taint| (taint, &spec.match_conditions));
    let taints = shipped
        .chain(proposed)
        .filter_map(|(taint, conditions)| fault(&taint, conditions, reserves))
        .collect::<Vec<_>>();
    targets.into_iter().chain(operators).chain(taints).collect()
}

/// Effects that a policy may give a taint.
const EFFECTS: [&str; 4] = [
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    PREFER_NO_EXECUTE,
    NO_EXECUTE,
];

/// Returns why a taint cannot be put on a cluster by a policy under these conditions.
pub fn fault(taint: &Taint, conditions: &[MatchCondition], reserves: bool) -> Option<Fault> {
    taint_fault(taint, reserves).or_else(|| witnesses_alone(taint, conditions))
}

/// Returns the fault of a taint that evicts under conditions that speak of what witnesses see and
/// do not require that `Ready` is another status than True.
fn witnesses_alone(taint: &Taint, conditions: &[MatchCondition]) -> Option<Fault> {
    let asks_witnesses = conditions
        .iter()
        .any(|it| it.condition_type == SEEN_BY_PEERS || it.condition_type.starts_with(REACHES));
    let requires_trouble = conditions.iter().any(|it| {
        let lists_true = it.status_values.iter().any(|status| status == TRUE);
        it.condition_type == READY
            && match it.operator {
                MatchConditionOperator::In => !lists_true,
                MatchConditionOperator::NotIn => lists_true,
                MatchConditionOperator::Other(_) => false,
            }
    });
    let Taint { key, effect, .. } = taint;
    (evicts(effect) && asks_witnesses && !requires_trouble).then(|| {
        Fault::from(format!(
            "taint {key:?} of effect {effect} cannot follow {SEEN_BY_PEERS} alone: require a condition Ready that is not True beside it, because witnesses make a failover more certain and cause none"
        ))
    })
}

/// Returns why a taint cannot be put on a cluster by a policy. `reserves` says whether the taints
/// that follow the Ready condition are the cluster controller's (`--condition-taints`).
fn taint_fault(taint: &Taint, reserves: bool) -> Option<Fault> {
    let (key, effect) = (&*taint.key, &*taint.effect);
    let invalid = |field, value: &str, text| {
        let invalid = Some((field, value.to_owned()));
        Some(Fault { text, invalid })
    };
    if !EFFECTS.contains(&effect) {
        let text = format!(
            "taint {key:?} has effect {effect:?}: use NoSchedule, PreferNoSchedule, PreferNoExecute or NoExecute"
        );
        return invalid("effect", effect, text);
    }
    if !is_label_key(key) {
        let text = format!("taint key {key:?} is not a qualified name");
        return invalid("key", key, text);
    }
    let text = if let Some(value) = taint.value.as_ref().filter(|it| !is_label_value(it)) {
        format!("taint {key:?} has value {value:?}, which no label can have")
    } else if is_of_command(taint) {
        format!(
            "taint {key} is a person's order: kubectl muster drain and cordon put it on, undrain and uncordon take it off"
        )
    } else if reserves && effect == NO_SCHEDULE && [NOT_READY, UNREACHABLE].contains(&key) {
        format!(
            "taint {key}:NoSchedule follows the Ready condition by itself: a policy would fight with the cluster controller (unless that runs with --condition-taints=false)"
        )
    } else {
        return None;
    };
    Some(Fault::from(text))
}

/// Returns whether all of a list of match conditions hold. An empty list never does (the shipped
/// form's rule), a condition type that the cluster does not have matches nothing, and neither does
/// an unknown operator.
pub fn all_match(list: &[MatchCondition], conditions: &[Condition]) -> bool {
    !list.is_empty()
        && list
            .iter()
            .all(|wanted| matches(wanted, conditions).is_some_and(|(matches, _)| matches))
}

/// Returns the verdict of the proposed form, whose empty list always matches. A condition type that
/// the cluster does not have matches nothing, and has no transition.
pub fn verdict(list: &[MatchCondition], conditions: &[Condition]) -> Verdict {
    let mut verdict = Verdict {
        matched: true,
        statuses: String::new(),
        transition: None,
    };
    for wanted in list {
        let matched = matches(wanted, conditions);
        verdict.matched &= matched.is_some_and(|(matched, _)| matched);
        let Some((_, condition)) = matched else {
            continue;
        };
        verdict.transition = verdict
            .transition
            .max(Some(condition.last_transition_time.0));
        // Bounded, because others write conditions: the statuses themselves have at most seven
        // letters.
        let status: String = condition.status.chars().take(8).collect();
        if !verdict.statuses.is_empty() {
            verdict.statuses.push(',');
        }
        verdict.statuses.push_str(&status);
    }
    verdict
}

/// Returns whether one match condition holds, with the cluster's condition; `None`: there is none.
fn matches<'a>(
    wanted: &MatchCondition,
    conditions: &'a [Condition],
) -> Option<(bool, &'a Condition)> {
    let condition = conditions
        .iter()
        .find(|c| c.type_ == wanted.condition_type)?;
    let listed = wanted.status_values.contains(&condition.status);
    let matches = match wanted.operator {
        MatchConditionOperator::In => listed,
        MatchConditionOperator::NotIn => !listed,
        MatchConditionOperator::Other(_) => false,
    };
    Some((matches, condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taint_that_a_cluster_would_refuse_or_that_is_kept_otherwise_is_a_fault() {
        for (key, effect, valid) in [
            ("unhealthy", "NoExecute", true),
            ("example.com/unhealthy", "PreferNoExecute", true),
            ("cluster.karmada.io/not-ready", "NoExecute", true),
            ("cluster.karmada.io/not-ready", "NoSchedule", false),
            ("cluster.karmada.io/unreachable", "NoSchedule", false),
            ("failover.muster.io/drain", "NoExecute", false),
            ("failover.muster.io/cordon", "NoSchedule", false),
            ("unhealthy", "PreferNoSchedule", true),
            ("unhealthy", "PreferNothing", false),
            ("", "NoSchedule", false),
            ("-x", "NoSchedule", false),
            ("a/b/c", "NoSchedule", false),
            ("Example.com/x", "NoSchedule", false),
        ] {
            let taint = Taint {
                key: key.into(),
                effect: effect.into(),
                ..Taint::default()
            };
            assert_eq!(taint_fault(&taint, true).is_none(), valid, "{key}:{effect}");
        }
        for (value, valid) in [("", true), ("v1.2_3", true), ("a b", false), ("-x", false)] {
            let taint = Taint {
                key: "unhealthy".into(),
                effect: "NoExecute".into(),
                value: Some(value.into()),
                ..Taint::default()
            };
            assert_eq!(taint_fault(&taint, true).is_none(), valid, "{value}");
        }
    }

    #[test]
    fn the_taints_of_the_ready_condition_are_reserved_unless_they_are_left_to_policies() {
        for key in [NOT_READY, UNREACHABLE] {
            let taint = Taint {
                key: key.into(),
                effect: "NoSchedule".into(),
                ..Taint::default()
            };
            let fault = taint_fault(&taint, true).unwrap().to_string();
            assert!(fault.contains("follows the Ready condition"), "{fault}");
            assert_eq!(taint_fault(&taint, false), None);
        }
    }

    #[test]
    fn witnesses_alone_evict_nothing() {
        const LOST: (&str, &str, &str) = ("SeenByPeers", "In", "False");
        let wanted = |(kind, operator, status): &(&str, &str, &str)| MatchCondition {
            condition_type: (*kind).to_owned(),
            operator: MatchConditionOperator::from((*operator).to_owned()),
            status_values: vec![(*status).to_owned()],
        };
        for (conditions, valid) in [
            (&[][..], true),
            (&[("Ready", "In", "Unknown")], true),
            (&[LOST], false),
            (&[LOST, ("NodesReady", "In", "False")], false),
            (&[LOST, ("Ready", "In", "True")], false),
            (&[LOST, ("Ready", "NotIn", "False")], false),
            (&[LOST, ("Ready", "Near", "False")], false),
            (&[("reaches.muster.io/m2", "NotIn", "True")], false),
            (&[LOST, ("Ready", "In", "Unknown")], true),
            (
                &[("Ready", "NotIn", "True"), ("SeenByPeers", "NotIn", "True")],
                true,
            ),
        ] {
            let conditions: Vec<MatchCondition> = conditions.iter().map(wanted).collect();
            for (effect, evicts) in [
                ("NoExecute", true),
                ("PreferNoExecute", true),
                ("NoSchedule", false),
                ("PreferNoSchedule", false),
            ] {
                let taint = Taint {
                    key: "unhealthy".into(),
                    effect: effect.into(),
                    ..Taint::default()
                };
                let found = fault(&taint, &conditions, true);
                assert_eq!(found.is_none(), valid || !evicts, "{effect} {conditions:?}");
            }
        }
    }

    #[test]
    fn a_verdict_knows_the_status_of_each_condition_and_the_last_transition() {
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let wanted = |kind: &str| MatchCondition {
            condition_type: kind.to_owned(),
            operator: MatchConditionOperator::In,
            status_values: vec!["False".to_owned()],
        };
        let said = |kind: &str, status: &str, since| {
            muster_shared::conditions::new(kind, status, "R", "", at(since))
        };
        let list = [wanted("A"), wanted("Missing"), wanted("B")];
        let conditions = [said("B", "True", 7), said("A", "False", 5)];
        let found = verdict(&list, &conditions);
        assert!(!found.matched);
        assert_eq!(found.statuses, "False,True");
        assert_eq!(found.transition, Some(at(7)));
        assert!(verdict(&list[..1], &conditions).matched);
    }
}
