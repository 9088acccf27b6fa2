//! Random policies of every shape that the API allows.

use serde_json::{Map, Value, json};

use super::fleet::Site;
use super::workloads::Template;
use super::{Dice, taints};

/// Both spellings of each purge mode.
const MODES: [&str; 5] = [
    "Directly",
    "Immediately",
    "Gracefully",
    "Graciously",
    "Never",
];

/// Draws the policy of a template. Some are for the whole fleet, and some select by labels.
pub fn draw(dice: &mut impl Dice, template: &Template, fleet: &[Site]) -> Value {
    let metadata = &template.object["metadata"];
    let mut selector = json!({
        "apiVersion": template.object["apiVersion"], "kind": template.object["kind"],
        "namespace": metadata["namespace"],
    });
    let preempts = dice.percent(5);
    if !preempts && dice.percent(25) {
        selector["labelSelector"] = json!({"matchLabels": {"app": metadata["name"]}});
    } else {
        selector["name"] = metadata["name"].clone();
    }
    let mut spec = json!({
        "resourceSelectors": [selector],
        "placement": placement(dice, fleet),
    });
    let fields = spec.as_object_mut();
    if let Some(fields) = fields {
        manners(dice, fields, fleet, preempts);
    }
    let is_wide = dice.percent(15);
    let mut policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": if is_wide { "ClusterPropagationPolicy" } else { "PropagationPolicy" },
        "metadata": {"name": metadata["name"]},
        "spec": spec,
    });
    if !is_wide {
        policy["metadata"]["namespace"] = metadata["namespace"].clone();
    }
    policy
}

/// Draws a policy that says little beside where a template goes: features are set upon it. Most
/// templates have their home in one cluster, which has most of the attention.
pub fn plain(dice: &mut impl Dice, template: &Template, fleet: &[Site], focus: usize) -> Value {
    let metadata = &template.object["metadata"];
    let one = json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
    let placement = match dice.share(&[50, 20, 15, 15]) {
        0 => {
            let mut names = names(fleet);
            names.swap(0, focus);
            let groups = names.iter().enumerate().map(|(number, name)| {
                json!({"affinityName": format!("group-{number}"), "clusterNames": [name]})
            });
            json!({"clusterAffinities": groups.collect::<Vec<Value>>()})
        }
        1 => json!({ "spreadConstraints": one }),
        2 => json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}),
        _ => json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}}}),
    };
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"namespace": metadata["namespace"], "name": metadata["name"]},
        "spec": {
            "resourceSelectors": [{
                "apiVersion": template.object["apiVersion"], "kind": template.object["kind"],
                "namespace": metadata["namespace"], "name": metadata["name"],
            }],
            "placement": placement,
        },
    })
}

fn manners(dice: &mut impl Dice, spec: &mut Map<String, Value>, fleet: &[Site], preempts: bool) {
    let mut set = |name: &str, value: Value| spec.insert(name.to_owned(), value);
    if dice.percent(60) {
        set("propagateDeps", json!(true));
    }
    if dice.percent(65) {
        set("failover", failover(dice));
    }
    if dice.percent(20) {
        set(
            "conflictResolution",
            json!(dice.one(&["Abort", "Overwrite"])),
        );
    }
    if dice.percent(20) {
        set("priority", json!(dice.between(0, 10)));
    }
    if preempts {
        set("preemption", json!("Always"));
    }
    if dice.percent(10) {
        set("activationPreference", json!("Lazy"));
    }
    if dice.percent(10) {
        set("preserveResourcesOnDeletion", json!(true));
    }
    match dice.share(&[94, 3, 3]) {
        1 => set("suspension", json!({"dispatching": true})),
        2 => {
            let name = &dice.one(fleet).name;
            let clusters = json!({"clusterNames": [name]});
            set("suspension", json!({"dispatchingOnClusters": clusters}))
        }
        _ => None,
    };
}

fn names(fleet: &[Site]) -> Vec<String> {
    fleet.iter().map(|site| site.name.clone()).collect()
}

fn affinity(dice: &mut impl Dice, fleet: &[Site]) -> Value {
    let region = dice.one(fleet).region.clone();
    match dice.share(&[40, 25, 20, 15]) {
        0 => json!({"clusterNames": dice.some(&names(fleet))}),
        1 => {
            let label = *dice.one(&["gold", "silver"]);
            json!({"labelSelector": {"matchLabels": {"tier": label}}})
        }
        2 => json!({"fieldSelector": {"matchExpressions":
            [{"key": "region", "operator": "In", "values": [region]}]}}),
        _ => json!({"exclude": [dice.one(fleet).name]}),
    }
}

fn placement(dice: &mut impl Dice, fleet: &[Site]) -> Value {
    let mut placement = json!({});
    match dice.share(&[45, 35, 20]) {
        1 => placement["clusterAffinity"] = affinity(dice, fleet),
        2 => {
            let groups = (0..dice.between(2, 3)).map(|number| {
                let mut group = affinity(dice, fleet);
                group["affinityName"] = json!(format!("group-{number}"));
                group
            });
            placement["clusterAffinities"] = groups.collect();
        }
        _ => {}
    }
    if dice.percent(30) {
        placement["clusterTolerations"] = json!([toleration(dice)]);
    }
    if dice.percent(45) {
        placement["spreadConstraints"] = spread(dice);
    }
    if let Some(strategy) = strategy(dice, fleet) {
        placement["replicaScheduling"] = strategy;
    }
    placement
}

fn toleration(dice: &mut impl Dice) -> Value {
    let mut toleration = match dice.share(&[20, 40, 40]) {
        0 => json!({"operator": "Exists"}),
        1 => json!({"key": taints::BY_HAND, "operator": "Exists"}),
        _ => json!({"key": taints::BY_HAND, "operator": "Equal", "value": ""}),
    };
    if dice.percent(50) {
        toleration["effect"] = json!("NoExecute");
        toleration["tolerationSeconds"] = json!(dice.between(0, 180));
    }
    toleration
}

fn spread(dice: &mut impl Dice) -> Value {
    let least = dice.between(1, 2);
    let clusters = json!({"spreadByField": "cluster",
        "minGroups": least, "maxGroups": least + dice.below(3)});
    let groups = |field: &str| json!({"spreadByField": field, "minGroups": 1, "maxGroups": 2});
    match dice.share(&[60, 20, 10, 5, 5]) {
        0 => json!([clusters]),
        1 => json!([groups("region"), clusters]),
        2 => json!([groups("zone"), clusters]),
        3 => json!([groups("provider"), clusters]),
        _ => json!([{"spreadByLabel": "tier", "minGroups": 1, "maxGroups": 2}, clusters]),
    }
}

fn strategy(dice: &mut impl Dice, fleet: &[Site]) -> Option<Value> {
    Some(match dice.share(&[30, 15, 20, 15, 20]) {
        0 => return None,
        1 => json!({"replicaSchedulingType": "Duplicated"}),
        2 => json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}),
        3 => {
            let weights: Vec<Value> = dice
                .some(&names(fleet))
                .into_iter()
                .map(|name| {
                    let weight = dice.between(1, 3);
                    json!({"targetCluster": {"clusterNames": [name]}, "weight": weight})
                })
                .collect();
            json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                "weightPreference": {"staticWeightList": weights}})
        }
        _ => json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"}}),
    })
}

fn failover(dice: &mut impl Dice) -> Value {
    let mut failover = json!({});
    let which = dice.share(&[50, 25, 25]);
    if which != 1 {
        let mut cluster = mode(dice);
        if dice.percent(70) {
            cluster["tolerationSeconds"] = json!(dice.between(0, 120));
        }
        failover["cluster"] = cluster;
    }
    if which != 0 {
        let mut application = mode(dice);
        application["decisionConditions"] = if dice.percent(70) {
            json!({"tolerationSeconds": dice.between(0, 180)})
        } else {
            json!({})
        };
        failover["application"] = application;
    }
    failover
}

/// Returns a purge mode with what goes with it.
fn mode(dice: &mut impl Dice) -> Value {
    let mut behavior = json!({});
    if dice.percent(85) {
        behavior["purgeMode"] = json!(dice.one(&MODES));
    }
    match behavior["purgeMode"].as_str() {
        Some("Directly" | "Immediately") if dice.percent(25) => {
            behavior["statePreservation"] = json!({"rules":
                [{"aliasLabelName": "example.com/ready", "jsonPath": "{.readyReplicas}"}]});
        }
        Some("Gracefully" | "Graciously") if dice.percent(50) => {
            behavior["gracePeriodSeconds"] = json!(dice.between(10, 300));
        }
        _ => {}
    }
    behavior
}

/// Draws an override policy for a template: another registry in a region, or requests that no node
/// can meet, so that the workload is unhealthy in one cluster.
pub fn overriding(dice: &mut impl Dice, template: &Template, fleet: &[Site]) -> Value {
    let metadata = &template.object["metadata"];
    let site = dice.one(fleet);
    let (target, overriders) = if dice.percent(50) {
        let target = json!({"fieldSelector": {"matchExpressions":
            [{"key": "region", "operator": "In", "values": [site.region]}]}});
        let registry = json!([{"component": "Registry", "operator": "replace",
            "value": format!("{}.registry.example", site.region)}]);
        (target, json!({"imageOverrider": registry}))
    } else {
        let requests = json!([{"path": "/spec/template/spec/containers/0/resources",
            "operator": "add", "value": {"requests": {"cpu": "1000"}}}]);
        (
            json!({"clusterNames": [site.name]}),
            json!({"plaintext": requests}),
        )
    };
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": {
            "resourceSelectors": [{
                "apiVersion": template.object["apiVersion"], "kind": template.object["kind"],
                "name": metadata["name"],
            }],
            "overrideRules": [{"targetCluster": target, "overriders": overriders}],
        },
    })
}
