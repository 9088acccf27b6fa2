//! Small plans that are written by hand.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::faults::{Fault, FaultKind, Moment};
use crate::history::{Actor, Api, Process};
use crate::people::{Act, Site, Step};
use crate::plan::{Phases, Plan};
use crate::replication;

/// Returns a plan with one workload in one of two members, in which the member that has it is cut
/// off for ten minutes.
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

/// Returns the plan of [`one_failover`] within a quarter of an hour.
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

/// Gives the workloads of a plan data that is replicated, and their policies this behaviour when a
/// cluster fails.
pub fn replicate(plan: &mut Plan, behavior: &Value) {
    plan.everywhere.push(replication::definition());
    let workload = |it: &&Value| it["kind"] == "Deployment";
    for workload in plan.objects.clone().iter().filter(workload) {
        for policy in plan
            .objects
            .iter_mut()
            .filter(|it| it["kind"] == "PropagationPolicy")
        {
            policy["spec"]["failover"] = json!({ "cluster": behavior });
            policy["spec"]["dataReplication"] = replication::rules(workload);
        }
        plan.objects.extend(replication::objects(workload));
    }
}

/// Returns a plan with a workload whose data is replicated between two members: the one that has it
/// is drained, and the other one after that. The agent of the first is cut off for half a minute in
/// the middle, and the control plane is killed at three of its writes, which follow from the seed,
/// and loses some answers.
pub fn moves_of_data(seed: u64) -> Plan {
    let mut plan = short_failover(seed);
    (plan.faults[0].from, plan.faults[0].until) = (61_000, 91_000);
    replicate(&mut plan, &json!({ "purgeMode": "Directly" }));
    let drain = json!([{ "key": "failover.muster.io/drain", "effect": "NoExecute" }]);
    for (id, at, name, taints) in [
        (1, 60_000, "m1", &drain),
        (2, 300_000, "m1", &json!([])),
        (3, 301_000, "m2", &drain),
    ] {
        let object = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": { "name": name }, "spec": { "taints": taints },
        });
        let (api, act) = (Api::Fleet, Act::Apply { object });
        plan.steps.push(Step { id, at, api, act });
    }
    for (number, from) in [(2, 10_000), (3, 60_000), (4, 301_000)] {
        let nth = 1 + seed.wrapping_mul(number) % 11;
        let kind = FaultKind::Crash {
            process: Process::ControlPlane(0),
            nth,
            moment: Moment::BeforeSending,
            of_all: false,
        };
        plan.faults.push(Fault {
            id: number,
            from,
            until: from + 100_000,
            kind,
        });
    }
    plan.faults.push(Fault {
        id: 5,
        from: 80_000,
        until: 200_000,
        kind: FaultKind::LoseAnswers {
            actor: Actor::Process(Process::ControlPlane(0)),
            api: Api::Fleet,
            share: 200,
        },
    });
    plan.phases = Phases {
        busy: 450_000,
        calm: 400_000,
        rest: 60_000,
        fresh: 60_000,
    };
    plan
}

/// Returns a plan with a workload in two members, which is scaled again and again, and with every
/// kind of fault, one after the other.
pub fn every_fault(seed: u64) -> Plan {
    let mut plan = quiet(seed, 2, 1);
    let mut scaled = Value::Null;
    for object in &mut plan.objects {
        if object["kind"] == "PropagationPolicy" {
            object["spec"]["placement"] =
                json!({ "replicaScheduling": { "replicaSchedulingType": "Duplicated" } });
        } else if object["kind"] == "Deployment" {
            scaled = object.clone();
        }
    }
    for (kind, number) in kinds().into_iter().zip(1_u64..) {
        // Lists are read when a process begins.
        let is_of_lists = matches!(kind, FaultKind::Short { .. } | FaultKind::Stale { .. });
        plan.faults.push(fault(number, number, kind));
        if is_of_lists {
            plan.faults.push(fault(100 + number, number, crash()));
        }
        scaled["spec"]["replicas"] = json!(2 + number % 2);
        plan.steps.push(Step {
            id: number,
            at: number * EACH + 5_000,
            api: Api::Fleet,
            act: Act::Apply {
                object: scaled.clone(),
            },
        });
    }
    plan.phases = Phases {
        busy: (kinds().len() as u64 + 2) * EACH,
        calm: 400_000,
        rest: 20_000,
        fresh: 20_000,
    };
    plan
}

/// Milliseconds after which the next fault begins.
const EACH: u64 = 25_000;

/// Returns a fault that lasts for the window with this number.
const fn fault(id: u64, window: u64, kind: FaultKind) -> Fault {
    Fault {
        id,
        from: window * EACH,
        until: (window + 1) * EACH - 1_000,
        kind,
    }
}

/// Kills the control plane at its next write that is no lease.
const fn crash() -> FaultKind {
    FaultKind::Crash {
        process: Process::ControlPlane(0),
        nth: 1,
        moment: Moment::BeforeSending,
        of_all: false,
    }
}

/// Returns a fault of every kind.
fn kinds() -> Vec<FaultKind> {
    let actor = Actor::Process(Process::ControlPlane(0));
    let agent = Process::Agent("m1".to_owned());
    let (api, m1) = (Api::Fleet, Api::Member("m1".to_owned()));
    let (share, plural) = (300, None);
    vec![
        FaultKind::Quota {
            api: m1.clone(),
            evicted: 2,
        },
        FaultKind::Skew {
            process: agent.clone(),
            jump: 60,
            drift: 50,
        },
        FaultKind::ServerClock {
            api: api.clone(),
            jump: -60,
        },
        FaultKind::Clock { offset: 30 },
        FaultKind::Refuse {
            actor: actor.clone(),
            api: api.clone(),
            code: 500,
            share,
        },
        FaultKind::LoseRequests {
            actor: actor.clone(),
            api: api.clone(),
            share,
        },
        FaultKind::LoseAnswers {
            actor: actor.clone(),
            api: api.clone(),
            share,
        },
        FaultKind::Slow {
            actor: actor.clone(),
            api: api.clone(),
            delay: 500,
        },
        FaultKind::Lag {
            actor: actor.clone(),
            api: api.clone(),
            lag: 2_000,
            plural: plural.clone(),
        },
        FaultKind::Break {
            actor: actor.clone(),
            api: api.clone(),
        },
        FaultKind::Miss {
            actor: actor.clone(),
            api: api.clone(),
            pause: 2_000,
            plural,
        },
        FaultKind::Repeat {
            actor: actor.clone(),
            api: api.clone(),
        },
        FaultKind::Stale {
            actor: actor.clone(),
            api: api.clone(),
        },
        FaultKind::Garble {
            actor: actor.clone(),
            api: api.clone(),
            share,
        },
        FaultKind::Short {
            actor: actor.clone(),
            api: api.clone(),
            share,
            plural: None,
        },
        FaultKind::Nonsense {
            actor: Actor::Process(agent),
            api: m1,
            share,
        },
        FaultKind::Deny {
            api: api.clone(),
            plural: "works".to_owned(),
            fails: true,
        },
        crash(),
        FaultKind::Nodes {
            member: "m2".to_owned(),
            count: 1,
        },
        FaultKind::Down {
            member: "m2".to_owned(),
        },
        FaultKind::Partition {
            actor,
            api,
            silent: true,
        },
    ]
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

/// Returns a policy by which a cluster whose Ready is not True for a minute evicts, until it has
/// been ready for a minute.
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

/// Returns a Deployment of two replicas in one cluster, and its policy.
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
