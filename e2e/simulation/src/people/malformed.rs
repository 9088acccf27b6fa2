//! Objects that make no sense, which people write all the same. Some of them the API refuses; of
//! the others none may stop a neighbour.

use serde_json::{Value, json};

use super::Dice;
use super::act::Act;
use super::fleet::Site;
use super::workloads::Template;

/// Draws one.
pub fn draw(dice: &mut impl Dice, number: u64, template: &Template, fleet: &[Site]) -> Act {
    let cluster = dice.one(fleet).name.clone();
    let metadata = &template.object["metadata"];
    let policy = |kind: &str, spec: Value| {
        let mut object = json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": kind,
            "metadata": {"name": format!("odd-{number}")}, "spec": spec,
        });
        if kind == "PropagationPolicy" {
            object["metadata"]["namespace"] = metadata["namespace"].clone();
        }
        Act::Apply { object }
    };
    match dice.share(&[1; 10]) {
        0 => policy(
            "PropagationPolicy",
            json!({
                "resourceSelectors": [{"apiVersion": "example.com/v9", "kind": "Nonesuch"}],
                "placement": {"clusterAffinity": {"clusterNames": ["nowhere"]}},
            }),
        ),
        1 => policy(
            "ClusterPropagationPolicy",
            json!({
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment",
                    "labelSelector": {"matchExpressions": [{"key": "a b", "operator": "Perhaps"}]}}],
            }),
        ),
        2 => policy(
            "PropagationPolicy",
            json!({
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "odd"}],
                "placement": {"spreadConstraints":
                    [{"spreadByField": "region", "minGroups": 9, "maxGroups": 2}]},
                "failover": {"cluster": {"purgeMode": "Perhaps"}},
            }),
        ),
        3 => policy(
            "ClusterTaintPolicy",
            json!({
                "matchConditions": [{"conditionType": "", "operator": "Like", "statusValues": ["?"]}],
                "taintsToAdd": [{"key": "odd key", "effect": "NoExecute"}],
            }),
        ),
        // A condition that no typed client can read.
        4 => Act::Patch {
            object: json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": cluster},
                "status": {"conditions": [{"type": "example.com/Odd", "status": "Perhaps",
                    "reason": "", "message": "", "lastTransitionTime": null}]},
            }),
            subresource: "status".to_owned(),
        },
        5 => Act::Apply {
            object: json!({
                "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                "metadata": {"namespace": format!("karmada-es-{cluster}"), "name": format!("odd-{number}")},
                "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap"}]}},
            }),
        },
        6 => Act::Apply {
            object: json!({
                "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
                "metadata": {"name": format!("odd-{number}")},
                "spec": {
                    "target": {"apiVersion": "example.com/v1", "kind": "Widget"},
                    "customizations": {"healthInterpretation":
                        {"luaScript": "function InterpretHealth(object) while true do end end"}},
                },
            }),
        },
        7 => Act::Patch {
            object: json!({
                "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                "metadata": {"namespace": metadata["namespace"], "name": template.binding(),
                    "annotations": {
                        "policy.karmada.io/applied-placement": "{",
                        "failover.muster.io/last-eviction": "[]",
                        "failover.muster.io/record": "\u{0}",
                    }},
            }),
            subresource: String::new(),
        },
        8 => Act::Patch {
            object: json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": cluster, "annotations": {"taints.muster.io/record": "{\"a\":1}"}},
            }),
            subresource: String::new(),
        },
        _ => Act::Patch {
            object: json!({
                "apiVersion": template.object["apiVersion"], "kind": template.object["kind"],
                "metadata": {"namespace": metadata["namespace"], "name": metadata["name"],
                    "annotations": {"propagationpolicy.karmada.io/name": "nonesuch",
                        "resourcetemplate.karmada.io/managed-labels": ",,"}},
            }),
            subresource: String::new(),
        },
    }
}
