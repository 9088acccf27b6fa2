//! Workloads whose data is replicated between members.

use serde_json::{Value, json};

use crate::feature::{Feature, WORKLOADS};
use crate::people::Dice as _;
use crate::plan::Plan;
use crate::random::Random;
use crate::replication;

/// Features that move workloads with data, or hold them where they are.
pub(super) const FEATURES: [Feature; 8] = [
    Feature::PauseCluster,
    Feature::SuspendScheduling,
    Feature::PurgeDirectly,
    Feature::Rebalance,
    Feature::Failback,
    Feature::Drain,
    Feature::Cordon,
    Feature::Taint,
];

/// Lets data follow each workload, in one cluster at a time. Most are stopped where they are cut
/// off; the others wait until their cluster is not silent.
pub(super) fn follow(random: &mut Random, plan: &mut Plan) {
    plan.everywhere.push(replication::definition());
    let is_workload = |it: &&Value| {
        let kind = it["kind"].as_str().unwrap_or_default().to_lowercase();
        WORKLOADS.contains(&&*format!("{kind}s"))
    };
    let workloads: Vec<Value> = plan.objects.iter().filter(is_workload).cloned().collect();
    for workload in &workloads {
        let name = &workload["metadata"]["name"];
        let policy =
            |it: &&mut Value| it["kind"] == "PropagationPolicy" && it["metadata"]["name"] == *name;
        let policy = plan.objects.iter_mut().find(policy);
        let Some(policy) = policy else { continue };
        let spec = &mut policy["spec"];
        spec["dataReplication"] = replication::rules(workload);
        spec["placement"]["replicaScheduling"] = Value::Null;
        spec["placement"]["spreadConstraints"] =
            json!([{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]);
        if random.percent(75) {
            let fencing = json!({"afterSeconds": random.between(40, 90)});
            spec["failover"] = json!({"cluster": {"fencing": fencing}});
            spec["dataReplication"]["roles"][0]["demotionSeconds"] = json!(random.between(15, 60));
        }
        plan.objects.extend(replication::objects(workload));
    }
}
