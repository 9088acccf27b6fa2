//! Small plans that are written by hand.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::faults::{Fault, FaultKind};
use crate::history::{Actor, Api, Process};
use crate::people::Site;
use crate::plan::{Phases, Plan};

/// One workload in one of two members, and the member that has it is cut off for ten minutes.
pub fn one_failover(seed: u64) -> Plan {
    let actor = Actor::Process(Process::Agent("m1".to_owned()));
    let cut = FaultKind::Partition {
        actor,
        api: Api::Fleet,
        silent: true,
    };
    Plan {
        faults: vec![Fault {
            id: 1,
            from: 120_000,
            until: 720_000,
            kind: cut,
        }],
        phases: Phases {
            busy: 900_000,
            ..Phases::default()
        },
        ..quiet(seed, 2, 1)
    }
}

/// The same within a quarter of an hour.
pub fn short_failover(seed: u64) -> Plan {
    let mut plan = one_failover(seed);
    plan.faults[0].from = 20_000;
    plan.faults[0].until = 300_000;
    plan.phases = Phases {
        busy: 420_000,
        calm: 300_000,
        rest: 60_000,
        fresh: 60_000,
    };
    plan
}

/// Workloads in members in which nothing goes wrong.
pub fn quiet(seed: u64, members: usize, workloads: usize) -> Plan {
    let objects = (1..=workloads).flat_map(|number| workload(&format!("web-{number}")));
    Plan {
        seed,
        replicas: 1,
        flags: [
            "--feature-gates=Failover=true",
            "--resource-eviction-rate=1",
        ]
        .map(str::to_owned)
        .to_vec(),
        agent_flags: Vec::new(),
        sites: (1..=members).map(site).collect(),
        everywhere: Vec::new(),
        objects: std::iter::once(taint_policy()).chain(objects).collect(),
        steps: Vec::new(),
        faults: Vec::new(),
        phases: Phases::default(),
    }
}

fn site(number: usize) -> Site {
    Site {
        name: format!("m{number}"),
        provider: "simulation".to_owned(),
        region: format!("region-{}", number % 2),
        zone: format!("zone-{}", number % 3),
        nodes: 2,
        cpu: 8,
        labels: BTreeMap::new(),
        push: false,
    }
}

/// A cluster whose Ready is not True for five minutes evicts, until it is ready for three.
fn taint_policy() -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy",
        "metadata": { "name": "failed-clusters" },
        "spec": {
            "matchConditions": [
                { "conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"] },
            ],
            "taintsToAdd": [{
                "key": "example.com/failed", "effect": "NoExecute",
                "addOnMatchSeconds": 60, "removeOnMismatchSeconds": 60,
            }],
        },
    })
}

/// A Deployment of two replicas in one cluster, and its policy.
fn workload(name: &str) -> [Value; 2] {
    let labels = json!({ "app": name });
    [
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": name, "namespace": "default", "labels": labels },
            "spec": {
                "replicas": 2,
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [{
                        "name": "nginx", "image": "nginx:1.29",
                        "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
                    }] },
                },
            },
        }),
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "resourceSelectors": [
                    { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
                ],
                "placement": {
                    "spreadConstraints": [
                        { "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1 },
                    ],
                    "replicaScheduling": { "replicaSchedulingType": "Duplicated" },
                },
            },
        }),
    ]
}
