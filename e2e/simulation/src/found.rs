//! Plans that find bugs which were fixed: without its fix each of them violates a promise, with it
//! none does. `takebacks/run` shows both.

mod hosts;
mod simulated;

use serde_json::{Value, json};

use crate::faults::{Fault, FaultKind, Moment};
use crate::history::{Actor, Api, Process};
use crate::people::{Act, Step};
use crate::plan::{Phases, Plan};
use crate::scenarios::{quiet, replicate, short_failover};

/// A plan that finds a bug.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The bug's name: that in the reviews, or a word for one that random seeds found.
    pub name: &'static str,
    /// The oracle that reports it; empty for a bug by which the program does not come to an end.
    pub oracle: &'static str,
    /// The plan.
    pub plan: Plan,
}

/// Returns all plans that find bugs.
pub fn all() -> Vec<Found> {
    let found = |name, oracle, plan| Found { name, oracle, plan };
    let mut all = vec![
        found("F1", "rest", absent_condition()),
        found("F2", "nowhere", dead_refuge()),
        found("F3", "nowhere", unreadable_cluster()),
        found("F4", "settled", lazy_edit()),
        found("F5", "orphans", deleted_while_sent()),
        found("F6", "settled", copy_that_stays()),
        found("F7", "", many_zones()),
        found("F8", "nowhere", another_scheduler()),
        found("B4", "progress", refused_registration()),
        found("S3", "progress", claimed_identity()),
        found("stale-primary", "data", stale_primary()),
    ];
    all.extend(simulated::all());
    all.extend(hosts::all());
    all
}

const fn phases(busy: u64, calm: u64) -> Phases {
    Phases {
        busy: busy * 1_000,
        calm: calm * 1_000,
        rest: 20_000,
        fresh: 20_000,
    }
}

fn step(id: u64, seconds: u64, api: Api, act: Act) -> Step {
    let at = seconds * 1_000;
    Step { id, at, api, act }
}

fn apply(id: u64, seconds: u64, object: Value) -> Step {
    step(id, seconds, Api::Fleet, Act::Apply { object })
}

fn patch(id: u64, seconds: u64, object: Value, subresource: &str) -> Step {
    let subresource = subresource.to_owned();
    let act = Act::Patch {
        object,
        subresource,
    };
    step(id, seconds, Api::Fleet, act)
}

fn drain(id: u64, seconds: u64, cluster: &str) -> Step {
    let act = Act::Taint {
        cluster: cluster.to_owned(),
        key: "example.com/maintenance".to_owned(),
        effect: "NoExecute".to_owned(),
    };
    step(id, seconds, Api::Fleet, act)
}

fn fault(id: u64, from: u64, until: u64, kind: FaultKind) -> Fault {
    Fault {
        id,
        from: from * 1_000,
        until: until * 1_000,
        kind,
    }
}

fn cut_off(id: u64, from: u64, until: u64, member: &str) -> Fault {
    let kind = FaultKind::Partition {
        actor: Actor::Process(Process::Agent(member.to_owned())),
        api: Api::Fleet,
        silent: true,
    };
    fault(id, from, until, kind)
}

/// Kills a process at its next write.
fn crash(id: u64, from: u64, process: Process) -> Fault {
    let kind = FaultKind::Crash {
        process,
        nth: 1,
        moment: Moment::BeforeSending,
        of_all: true,
    };
    fault(id, from, from + 30, kind)
}

fn cluster(name: &str, more: Value) -> Value {
    let mut object = more;
    object["apiVersion"] = json!("cluster.karmada.io/v1alpha1");
    object["kind"] = json!("Cluster");
    object["metadata"]["name"] = json!(name);
    object
}

/// Returns an admission policy that refuses requests by a rule unless an expression holds, and its
/// binding.
fn refusal(name: &str, rule: &Value, unless: &str) -> [Value; 2] {
    let object = |kind: &str, spec: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "spec": spec})
    };
    let policy = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": unless, "message": "not today"}],
    });
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    [
        object("ValidatingAdmissionPolicy", policy),
        object("ValidatingAdmissionPolicyBinding", binding),
    ]
}

/// Returns a quiet fleet of so many members, without any policy for taints, with the workload
/// `web-1` whose policy says more.
fn fleet(members: usize, policy: &Value) -> Plan {
    let mut plan = quiet(1, members, 1);
    plan.objects
        .retain(|object| object["kind"] != "ClusterTaintPolicy");
    for object in &mut plan.objects {
        if object["kind"] == "PropagationPolicy" {
            for (field, value) in policy.as_object().into_iter().flatten() {
                object["spec"][field.as_str()] = value.clone();
            }
        }
    }
    plan
}

/// Returns a plan in which a taint policy names a condition that no cluster has: nothing is to be
/// written.
fn absent_condition() -> Plan {
    let mut plan = fleet(2, &json!({}));
    plan.objects.push(json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "ClusterTaintPolicy",
        "metadata": {"name": "absent"},
        "spec": {
            "matchConditions": [
                {"conditionType": "Nope", "operator": "In", "statusValues": ["True"]},
            ],
            "taintsToAdd": [{"key": "example.com/nope", "effect": "NoExecute"}],
        },
    }));
    plan.phases = Phases {
        busy: 6_000,
        calm: 500,
        rest: 500,
        fresh: 0,
    };
    plan
}

/// Returns a plan in which one of the two clusters of a workload is silent, and the other is
/// drained: the workload stays there.
fn dead_refuge() -> Plan {
    let placement = json!({
        "clusterAffinity": {"clusterNames": ["m1", "m2"]},
        "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
    });
    Plan {
        faults: vec![cut_off(1, 30, 200, "m2")],
        steps: vec![drain(1, 120, "m1")],
        phases: phases(200, 200),
        ..fleet(4, &json!({ "placement": placement }))
    }
}

/// Returns a plan in which a Cluster cannot be read, as beside an API server that checks nothing,
/// and the control plane is started anew: the cluster has not left.
fn unreadable_cluster() -> Plan {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definitions = muster_shared::api::crds().into_iter();
    let definitions = definitions.filter_map(|it| serde_json::to_value(it).ok());
    let mut clusters: Vec<Value> = definitions
        .filter(|it| it["metadata"]["name"] == "clusters.cluster.karmada.io")
        .collect();
    for definition in &mut clusters {
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = open.clone();
    }
    let loosened = clusters.into_iter().map(|definition| {
        let object = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": definition["metadata"]["name"]},
            "spec": {"versions": definition["spec"]["versions"]},
        });
        patch(1, 30, object, "")
    });
    let odd = json!({"status": {"nodeSummary": {"totalNum": "many"}}});
    let placement = json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}});
    Plan {
        steps: loosened
            .chain([patch(2, 50, cluster("m1", odd), "status")])
            .collect(),
        faults: vec![
            cut_off(1, 45, 75, "m1"),
            crash(2, 52, Process::ControlPlane(0)),
        ],
        phases: phases(120, 60),
        ..fleet(3, &json!({ "placement": placement }))
    }
}

/// Returns a plan in which a template of a lazy policy is edited after the control plane was
/// started anew.
fn lazy_edit() -> Plan {
    let mut plan = fleet(2, &json!({"activationPreference": "Lazy"}));
    let edited = plan.objects.iter().find(|it| it["kind"] == "Deployment");
    let edited = edited.cloned().map(|mut object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
        object
    });
    plan.steps = edited.into_iter().map(|it| apply(1, 90, it)).collect();
    plan.faults = vec![crash(1, 40, Process::ControlPlane(0))];
    plan.phases = phases(120, 60);
    plan
}

/// Returns a plan in which a workload is created and deleted while the control plane's watch of
/// Works is behind.
fn deleted_while_sent() -> Plan {
    let mut plan = fleet(2, &json!({}));
    let placed = std::mem::take(&mut plan.objects);
    let gone = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "default", "name": "web-1"}});
    let gone = Act::Delete { object: gone };
    plan.steps = (1..)
        .zip(placed)
        .map(|(id, object)| apply(id, 40, object))
        .chain([step(9, 50, Api::Fleet, gone)])
        .collect();
    let lag = FaultKind::Lag {
        actor: Actor::Process(Process::ControlPlane(0)),
        api: Api::Fleet,
        lag: 30_000,
        plural: Some("works".to_owned()),
    };
    plan.faults = vec![fault(1, 30, 100, lag)];
    plan.phases = phases(120, 120);
    plan
}

/// Returns a plan in which an application fails, its old copy has to go first, and the member's
/// admission keeps it.
fn copy_that_stays() -> Plan {
    let group = |name: &str, member: &str| json!({"affinityName": name, "clusterNames": [member]});
    let decision = json!({"tolerationSeconds": 10});
    let policy = json!({
        "propagateDeps": true,
        "placement": {"clusterAffinities": [group("first", "m1"), group("second", "m2")]},
        "failover": {"application": {"decisionConditions": decision, "purgeMode": "Directly"}},
    });
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["*"],
        "operations": ["DELETE"], "resources": ["deployments"]});
    let [policy_there, binding_there] = refusal("no-deletions", &rule, "false");
    let there = |id, object| {
        let api = Api::Member("m1".to_owned());
        step(id, 20, api, Act::Apply { object })
    };
    let greedy = json!([{"path": "/spec/template/spec/containers/0/resources", "operator": "add",
        "value": {"requests": {"cpu": "1000"}}}]);
    let overriding = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"namespace": "default", "name": "greedy"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "overrideRules": [{"targetCluster": {"clusterNames": ["m1"]},
                "overriders": {"plaintext": greedy}}],
        },
    });
    Plan {
        steps: vec![
            there(1, policy_there),
            there(2, binding_there),
            apply(3, 40, overriding),
        ],
        phases: phases(60, 1_000),
        ..fleet(3, &policy)
    }
}

/// Returns a plan in which a policy asks for more clusters than forty zones have.
fn many_zones() -> Plan {
    let placement = json!({"spreadConstraints": [
        {"spreadByField": "zone", "minGroups": 1},
        {"spreadByField": "cluster", "minGroups": 41},
    ]});
    let mut plan = fleet(10, &json!({ "placement": placement }));
    for site in &mut plan.sites {
        let zones = ["a", "b", "c", "d"].map(|zone| format!("{}-{zone}", site.name));
        site.zone = zones.join(",");
    }
    plan.phases = phases(20, 20);
    plan
}

/// Returns a plan in which a cluster is left at once beside another scheduler: something has to
/// have the workload.
fn another_scheduler() -> Plan {
    let policy = json!({
        "schedulerName": "another",
        "failover": {"cluster": {"purgeMode": "Directly"}},
    });
    let placed = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"namespace": "default", "name": "web-1-deployment"},
        "spec": {"clusters": [{"name": "m1", "replicas": 2}]},
    });
    Plan {
        steps: vec![patch(1, 20, placed, ""), drain(2, 40, "m1")],
        phases: phases(60, 60),
        ..fleet(3, &policy)
    }
}

/// Returns a plan in which a member whose agent is started anew while the fleet refuses a field of
/// its registration goes on renewing its lease.
fn refused_registration() -> Plan {
    let rule = json!({"apiGroups": ["cluster.karmada.io"], "apiVersions": ["*"],
        "operations": ["UPDATE"], "resources": ["clusters"]});
    let by_others = "!request.userInfo.username.contains('agent')";
    let [policy, binding] = refusal("no-registrations", &rule, by_others);
    let moved = cluster("m1", json!({"spec": {"region": "elsewhere"}}));
    Plan {
        steps: vec![
            apply(1, 20, policy),
            apply(2, 21, binding),
            patch(3, 30, moved, ""),
        ],
        faults: vec![crash(1, 40, Process::Agent("m1".to_owned()))],
        phases: Phases {
            fresh: 0,
            ..phases(80, 400)
        },
        ..fleet(3, &json!({}))
    }
}

/// Returns a plan in which an agent that was stolen claims the id of another member.
fn claimed_identity() -> Plan {
    let claims = Act::Claim {
        cluster: "m1".to_owned(),
        victim: "m2".to_owned(),
    };
    Plan {
        steps: vec![step(1, 30, Api::Fleet, claims)],
        phases: phases(60, 400),
        ..fleet(3, &json!({}))
    }
}

/// Returns a plan in which a member is cut off until its data is primary elsewhere. When it is back
/// its agent renews the lease at once, and its watch of Works is behind.
fn stale_primary() -> Plan {
    let mut plan = short_failover(1);
    replicate(&mut plan, &json!({ "fencing": { "afterSeconds": 54 } }));
    let kind = FaultKind::Partition {
        actor: Actor::Process(Process::Agent("m1".to_owned())),
        api: Api::Fleet,
        silent: false,
    };
    plan.faults = vec![fault(1, 44, 290, kind)];
    plan.phases = phases(330, 60);
    plan
}
