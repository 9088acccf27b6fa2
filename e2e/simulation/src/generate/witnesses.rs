//! Members that watch each other.

use serde_json::{Value, json};

use crate::faults::{Fault, FaultKind};
use crate::history::{Actor, Api, Process};
use crate::people::Dice as _;
use crate::plan::Plan;
use crate::random::Random;

/// Flag of the control plane with the number of witnesses of a cluster.
pub const PEERS: &str = "--peers-per-cluster=";

/// Beginning of the numbers of what concerns witnesses.
const WITNESSES: u64 = 300;

/// Lets members watch each other, with policies that ask both `Ready` and `SeenByPeers`.
pub(super) fn ask(random: &mut Random, plan: &mut Plan) {
    let busy = plan.phases.busy;
    plan.flags.push(format!("{PEERS}{}", random.between(2, 4)));
    let policy = |it: &Value| it["kind"] == "ClusterTaintPolicy";
    plan.objects.retain(|it| !policy(it));
    let condition = |kind: &str, statuses: &[&str]| json!({"conditionType": kind, "operator": "In", "statusValues": statuses});
    plan.objects.push(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy",
        "metadata": {"name": "unseen"},
        "spec": {
            "matchConditions": [
                condition("Ready", &["False", "Unknown"]), condition("SeenByPeers", &["False"]),
            ],
            "taintsToAdd": [{
                "key": "example.com/unseen", "effect": "NoExecute",
                "addOnMatchSeconds": random.between(1, 60),
                "removeOnMismatchSeconds": random.between(1, 60),
            }],
        },
    }));
    let names: Vec<String> = plan.sites.iter().map(|it| it.name.clone()).collect();
    let agent = |name: &String| Actor::Process(Process::Agent(name.clone()));
    let mut kinds = Vec::new();
    for _ in 0..random.between(1, 6) {
        let (actor, member) = (agent(random.one(&names)), random.one(&names).clone());
        let silent = random.percent(60);
        let api = Api::Member(member);
        kinds.push(FaultKind::Partition { actor, api, silent });
    }
    // One is cut off from the host, and one is dead: it may be the same.
    let (cut, dead) = (random.one(&names).clone(), random.one(&names).clone());
    if random.percent(70) {
        let (actor, api, silent) = (agent(&cut), Api::Fleet, true);
        kinds.push(FaultKind::Partition { actor, api, silent });
    }
    if random.percent(60) {
        kinds.push(FaultKind::Down { member: dead });
    }
    if random.percent(70) {
        let (member, reaches) = (random.one(&names).clone(), random.percent(30));
        kinds.push(FaultKind::Lie { member, reaches });
    }
    let faults = (WITNESSES..).zip(kinds).map(|(id, kind)| {
        let from = random.below(busy / 4 * 3);
        let until = from + random.between(30_000, 400_000);
        let is_lie = matches!(kind, FaultKind::Lie { .. });
        let (from, until) = if is_lie { (0, busy) } else { (from, until) };
        Fault {
            id,
            from,
            until,
            kind,
        }
    });
    plan.faults.extend(faults.collect::<Vec<_>>());
}
