//! What a policy says when a feature is set and unset, as merge patches of its spec.

use serde_json::{Value, json};

use super::Dice;
use super::fleet::Site;
use crate::feature::{Feature, PREFERRED, TAINTS, TIER};

/// Returns what a policy says when a feature is set. `focus` is the number of a cluster that is
/// preferred.
pub fn set(dice: &mut impl Dice, feature: Feature, fleet: &[Site], focus: usize) -> Value {
    let cluster = |behavior: Value| json!({"failover": {"cluster": behavior}});
    match feature {
        Feature::SuspendDispatching => {
            json!({"suspension": {"dispatching": true, "dispatchingOnClusters": null}})
        }
        Feature::SuspendCluster => {
            let names = [dice.one(fleet).name.clone()];
            let clusters = json!({ "clusterNames": names });
            json!({"suspension": {"dispatching": null, "dispatchingOnClusters": clusters}})
        }
        Feature::Preserve => json!({"preserveResourcesOnDeletion": true}),
        Feature::PurgeDirectly if dice.percent(25) => {
            let rule =
                json!({"aliasLabelName": "example.com/ready", "jsonPath": "{.readyReplicas}"});
            mode("Directly", &Value::Null, &json!({"rules": [rule]}))
        }
        Feature::PurgeDirectly => mode("Directly", &Value::Null, &Value::Null),
        Feature::PurgeGracefully if dice.percent(60) => {
            mode("Gracefully", &json!(dice.between(5, 90)), &Value::Null)
        }
        Feature::PurgeGracefully => mode("Gracefully", &Value::Null, &Value::Null),
        Feature::PurgeNever => mode("Never", &Value::Null, &Value::Null),
        Feature::ApplicationFailover => {
            let purge = *dice.one(&["Directly", "Gracefully", "Never"]);
            let seconds = dice.between(0, 60);
            json!({"propagateDeps": true, "failover": {"application": {
                "purgeMode": purge, "decisionConditions": {"tolerationSeconds": seconds},
            }}})
        }
        Feature::Fencing => cluster(json!({"fencing": {"afterSeconds": dice.between(40, 90)}})),
        Feature::Failback => {
            let seconds = dice.between(10, 60);
            cluster(json!({"failback": {"mode": "WhenHealthy", "afterSeconds": seconds}}))
        }
        Feature::Toleration => {
            let mut toleration = json!({"key": dice.one(&TAINTS), "operator": "Exists"});
            if dice.percent(70) {
                toleration["effect"] = json!("NoExecute");
                toleration["tolerationSeconds"] = json!(dice.between(0, 60));
            }
            json!({"placement": {"clusterTolerations": [toleration]}})
        }
        Feature::Lazy => json!({"activationPreference": "Lazy"}),
        Feature::Overwrite => json!({"conflictResolution": "Overwrite"}),
        Feature::Dependencies => json!({"propagateDeps": true}),
        Feature::Spread => {
            let least = dice.between(1, 2);
            let clusters = json!({"spreadByField": "cluster",
                "minGroups": least, "maxGroups": least + dice.below(2)});
            json!({"placement": {"spreadConstraints": [clusters]}})
        }
        Feature::Weights => {
            let weights = fleet.iter().map(|site| {
                let weight = dice.between(1, 3);
                json!({"targetCluster": {"clusterNames": [site.name]}, "weight": weight})
            });
            let weights: Vec<Value> = weights.collect();
            json!({"placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": {"dynamicWeight": null, "staticWeightList": weights},
            }}})
        }
        Feature::Duplicate => json!({"placement": {"replicaScheduling": {
            "replicaSchedulingType": "Duplicated",
            "replicaDivisionPreference": null, "weightPreference": null,
        }}}),
        Feature::Aggregate => json!({"placement": {"replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
            "weightPreference": null,
        }}}),
        Feature::Select => {
            let tier = *dice.one(&["gold", "silver"]);
            let affinity = json!({"labelSelector": {"matchLabels": {TIER.0: tier}},
                "clusterNames": null});
            json!({"placement": {"clusterAffinities": null, "clusterAffinity": affinity}})
        }
        Feature::SchedulePriority => json!({"schedulePriority": {
            "priorityClassSource": "KubePriorityClass", "priorityClassName": PREFERRED,
        }}),
        _ => {
            let site = if dice.percent(50) {
                &fleet[focus]
            } else {
                dice.one(fleet)
            };
            let affinity = json!({"clusterNames": [site.name], "labelSelector": null});
            json!({"placement": {"clusterAffinities": null, "clusterAffinity": affinity}})
        }
    }
}

/// Returns what a policy says when a feature is unset: what it said in the beginning.
pub fn unset(feature: Feature, policy: &Value) -> Value {
    let cluster = |name: &str| json!({"failover": {"cluster": {name: null}}});
    match feature {
        Feature::SuspendDispatching | Feature::SuspendCluster => json!({"suspension": null}),
        Feature::Preserve => json!({"preserveResourcesOnDeletion": null}),
        Feature::ApplicationFailover => json!({"failover": {"application": null}}),
        Feature::Fencing => cluster("fencing"),
        Feature::Failback => cluster("failback"),
        Feature::Toleration => json!({"placement": {"clusterTolerations": null}}),
        Feature::Lazy => json!({"activationPreference": null}),
        Feature::Overwrite => json!({"conflictResolution": null}),
        Feature::Dependencies => json!({"propagateDeps": null}),
        Feature::SchedulePriority => json!({"schedulePriority": null}),
        Feature::Spread => {
            let constraints = &policy["spec"]["placement"]["spreadConstraints"];
            json!({"placement": {"spreadConstraints": constraints}})
        }
        Feature::Weights | Feature::Duplicate | Feature::Aggregate => {
            let mut strategy = policy["spec"]["placement"]["replicaScheduling"].clone();
            // What it did not say is taken back by a null.
            if let Some(said) = strategy.as_object_mut() {
                for field in ["replicaDivisionPreference", "weightPreference"] {
                    said.entry(field).or_insert(Value::Null);
                }
            }
            if strategy["weightPreference"].is_object() {
                strategy["weightPreference"]["staticWeightList"] = Value::Null;
            }
            json!({"placement": {"replicaScheduling": strategy}})
        }
        Feature::Narrow | Feature::Select => {
            let groups = &policy["spec"]["placement"]["clusterAffinities"];
            json!({"placement": {"clusterAffinity": null, "clusterAffinities": groups}})
        }
        _ => mode_of(&Value::Null, &Value::Null, &Value::Null),
    }
}

fn mode(mode: &str, grace: &Value, state: &Value) -> Value {
    mode_of(&json!(mode), grace, state)
}

fn mode_of(mode: &Value, grace: &Value, state: &Value) -> Value {
    json!({"failover": {"cluster": {
        "purgeMode": mode, "gracePeriodSeconds": grace, "statePreservation": state,
    }}})
}
