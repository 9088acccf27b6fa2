//! Random ClusterTaintPolicies of both forms.

use serde_json::{Value, json};

use super::Dice;

/// Key of the taints that people set by hand.
pub const BY_HAND: &str = "example.com/maintenance";
/// Prefix of the keys of the taints of policies.
const OF_POLICIES: &str = "example.com/failed";

/// Draws the policy of a number.
pub fn draw(dice: &mut impl Dice, number: u64) -> Value {
    let key = format!("{OF_POLICIES}-{number}");
    // Most follow Ready; some name a condition that no cluster has.
    let condition = *dice.one(&[
        "Ready",
        "Ready",
        "Ready",
        "WorksUpToDate",
        "example.com/Absent",
    ]);
    let failing = if dice.percent(70) {
        json!({"conditionType": condition, "operator": "In", "statusValues": ["False", "Unknown"]})
    } else {
        json!({"conditionType": condition, "operator": "NotIn", "statusValues": ["True"]})
    };
    let well = json!({"conditionType": condition, "operator": "In", "statusValues": ["True"]});
    let effect = *dice.one(&["NoExecute", "NoExecute", "PreferNoExecute", "NoSchedule"]);
    let mut spec = if dice.percent(70) {
        json!({
            "matchConditions": [failing],
            "taintsToAdd": [{
                "key": key, "effect": effect,
                "addOnMatchSeconds": dice.between(1, 120),
                "removeOnMismatchSeconds": dice.between(1, 120),
            }],
        })
    } else {
        json!({
            "addOnConditions": [failing],
            "removeOnConditions": [well],
            "taints": [{"key": key, "effect": effect}],
        })
    };
    if dice.percent(20) {
        let field = if spec["taints"].is_null() {
            "targetCluster"
        } else {
            "targetClusters"
        };
        spec[field] = json!({"labelSelector": {"matchLabels": {"tier": "gold"}}});
    }
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy",
        "metadata": {"name": format!("failed-{number}")},
        "spec": spec,
    })
}
