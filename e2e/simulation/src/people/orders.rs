//! Orders that people give beside what policies say, as `kubectl muster` writes them.

use serde_json::{Value, json};

use super::Dice;
use super::act::Act;
use super::workloads::Template;
use crate::feature::{CORDON, DRAIN, Feature, PAUSE, PAUSED, TAINTS, TIER};
use crate::history::Api;

/// Returns an order about a cluster, as `kubectl muster` writes it.
pub(super) fn order(dice: &mut impl Dice, feature: Feature, cluster: &str) -> Vec<(Api, Act)> {
    let taint = |key: &str, effect: &str| {
        let act = Act::Taint {
            cluster: cluster.to_owned(),
            key: key.to_owned(),
            effect: effect.to_owned(),
        };
        (Api::Fleet, act)
    };
    let effect = *dice.one(&["NoExecute", "NoExecute", "PreferNoExecute"]);
    match feature {
        Feature::Drain => vec![taint(DRAIN, "NoSchedule"), taint(DRAIN, "NoExecute")],
        Feature::Cordon => vec![taint(CORDON, "NoSchedule")],
        Feature::Taint => vec![taint(TAINTS[0], effect)],
        Feature::SecondTaint => vec![taint(TAINTS[1], effect)],
        Feature::Relabel => vec![(Api::Fleet, relabel(cluster, TIER.1))],
        Feature::Remove => {
            let object = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": cluster}});
            vec![(Api::Fleet, Act::Delete { object })]
        }
        _ => vec![(Api::Fleet, pause(cluster, &json!("maintenance")))],
    }
}

/// Returns the write that pauses or resumes a cluster, as a person does it with `kubectl annotate`.
pub(super) fn pause(cluster: &str, reason: &Value) -> Act {
    Act::Patch {
        object: json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": cluster, "annotations": {PAUSED: reason}},
        }),
        subresource: String::new(),
    }
}

/// Returns the write that gives a cluster another tier.
pub(super) fn relabel(cluster: &str, tier: &str) -> Act {
    Act::Patch {
        object: json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": cluster, "labels": {TIER.0: tier}}}),
        subresource: String::new(),
    }
}

pub(super) fn pause_of_fleet() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": PAUSE.0, "name": PAUSE.1},
    })
}

/// Returns the write that suspends or resumes scheduling, as a job queue does it.
pub(super) fn suspend_scheduling(template: &Template, is_held: &Value) -> Act {
    let namespace = &template.object["metadata"]["namespace"];
    Act::Patch {
        object: json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"namespace": namespace, "name": template.binding()},
            "spec": {"suspension": {"scheduling": is_held}},
        }),
        subresource: String::new(),
    }
}
