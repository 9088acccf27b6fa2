//! Suite `estimator_general`: number of replicas that fit into a cluster.

use serde_json::{Value, json};

use super::{decode, replay};
use muster_shared::api::binding::{Component, ReplicaRequirements};

use crate::scheduler::core::capacity::{Capacity, Demand, Part};
use crate::settings::grade_rule::GradeRule;

#[test]
fn room_is_estimated_as_recorded() {
    replay("estimator_general", evaluate, |_, _| {});
}

fn evaluate(input: &Value) -> Value {
    let capacity = Capacity::of(&decode(&input["cluster"]));
    let rule = GradeRule::Minimums;
    if !input["components"].is_null() {
        let components: Vec<Component> = decode(&input["components"]);
        let parts: Vec<Part> = components.iter().map(Part::of).collect();
        return json!({ "maxSets": capacity.map_or(0, |capacity| capacity.sets(&parts)) });
    }
    let requirements: Option<ReplicaRequirements> = decode(&input["replicaRequirements"]);
    let demand = requirements.map(|requirements| Demand::new(&requirements.resource_request));
    json!({ "maxReplicas": capacity.map_or(0, |capacity| capacity.replicas(demand.as_ref(), rule)) })
}
