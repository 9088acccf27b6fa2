//! Bugs that random seeds found.

use muster_shared::names;
use serde_json::{Value, json};

use super::{Found, apply, crash, drain, fault, fleet, patch, phases, step};
use crate::faults::FaultKind;
use crate::history::{Actor, Api, Process};
use crate::people::Act;
use crate::plan::Plan;
use crate::scenarios::quiet;

/// Returns the plans of the bugs that random seeds found.
pub(super) fn all() -> [Found; 12] {
    let found = |name, oracle, plan| Found { name, oracle, plan };
    [
        found("job", "rest", restarted_job()),
        found("record", "rest", overwritten_record()),
        found("stays", "rest", tolerated_twice()),
        found("report", "settled", report_like_the_one_before()),
        found("none", "rest", scaled_to_zero()),
        found("group", "nowhere", left_group()),
        found("share", "copies", smaller_share()),
        found("generation", "rest", changed_daemon_set()),
        found("ended", "", job_that_ended()),
        found("readable", "settled", readable_again()),
        found("clock", "asked", started_with_a_wrong_calendar()),
        found("sight", "orphans", started_with_short_lists()),
    ]
}

/// Returns a Job, and a policy that places it in a cluster.
fn job_in(cluster: &str) -> [Value; 2] {
    let labels = json!({ "app": "once" });
    let metadata = json!({ "namespace": "default", "name": "once", "labels": labels });
    let container = json!({ "name": "main", "image": "nginx:1.29" });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
        "spec": {
            "parallelism": 1, "completions": 1,
            "template": {
                "metadata": { "labels": labels },
                "spec": { "restartPolicy": "Never", "containers": [container] },
            },
        },
    });
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "namespace": "default", "name": "once" },
        "spec": {
            "resourceSelectors": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "once" }],
            "placement": { "clusterAffinity": { "clusterNames": [cluster] } },
        },
    });
    [job, policy]
}

/// Returns a plan with a Job whose selector its member filled in, and an agent that is started
/// anew: the Job is not applied again.
fn restarted_job() -> Plan {
    let [job, policy] = job_in("m1");
    Plan {
        steps: vec![apply(1, 1, job), apply(2, 1, policy)],
        phases: phases(20, 60),
        ..quiet(1, 1, 0)
    }
}

/// Returns a plan with a Job that has completed, and whose policy wants it elsewhere then: the
/// scheduler and its reports agree that it stays, and do not hand it to each other for ever.
fn job_that_ended() -> Plan {
    let ([job, policy], [_, edited]) = (job_in("m1"), job_in("m2"));
    Plan {
        steps: vec![apply(1, 1, job), apply(2, 1, policy), apply(3, 40, edited)],
        phases: phases(60, 60),
        ..quiet(1, 2, 0)
    }
}

/// Returns a plan in which the pods of a workload become ready while its agent cannot read the
/// Work: that is reported once it can. Another workload of the kind has been there for long, so
/// that the kind is watched all the time.
fn readable_again() -> Plan {
    let plan = quiet(1, 1, 2);
    let is_late = |object: &Value| object["metadata"]["name"] == "web-1";
    let (late, objects): (Vec<Value>, Vec<Value>) = plan.objects.into_iter().partition(is_late);
    let mut steps: Vec<_> = (10..)
        .zip(late)
        .map(|(id, object)| apply(id, 10, object))
        .collect();
    // The Work is seen anew, and nothing of it changes that is applied.
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {
            "namespace": names::execution_namespace("m1"),
            "name": names::work("Deployment", "web-1", "default"),
            "labels": { "seen": "anew" },
        },
    });
    steps.push(patch(1, 11, work, ""));
    let kind = FaultKind::Garble {
        actor: Actor::Process(Process::Agent("m1".to_owned())),
        api: Api::Fleet,
        share: 1_000,
    };
    Plan {
        steps,
        faults: vec![fault(1, 11, 40, kind)],
        objects,
        phases: phases(60, 120),
        ..plan
    }
}

/// Returns a plan in which a person overwrites the placement that a binding records as applied: it
/// is put right before the control plane is started anew.
fn overwritten_record() -> Plan {
    let binding = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "namespace": "default", "name": "web-1-deployment",
            "annotations": { "policy.karmada.io/applied-placement": "{" },
        },
    });
    let placement = json!({
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        },
    });
    Plan {
        steps: vec![patch(1, 10, binding, "")],
        phases: phases(20, 60),
        ..fleet(2, &json!({ "placement": placement }))
    }
}

/// Returns a plan in which an object is deleted behind the agent's back and made anew, while the
/// control plane sees its own writes late: the report that all is well again is as the one before,
/// and is shown nevertheless.
fn report_like_the_one_before() -> Plan {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": "default", "name": "web-1" },
    });
    let kind = FaultKind::Lag {
        actor: Actor::Process(Process::ControlPlane(0)),
        api: Api::Fleet,
        lag: 20_000,
        plural: Some("resourcebindings".to_owned()),
    };
    let member = Api::Member("m1".to_owned());
    Plan {
        steps: vec![step(1, 20, member, Act::Delete { object })],
        faults: vec![fault(1, 10, 60, kind)],
        phases: phases(80, 180),
        ..fleet(1, &json!({ "placement": {} }))
    }
}

/// Returns a plan in which a workload stays in two clusters whose taints it tolerates: what is said
/// of it does not depend on which of them was tainted last.
fn tolerated_twice() -> Plan {
    let tolerations: Value = json!([{ "operator": "Exists" }]);
    let placement = json!({
        "clusterTolerations": tolerations,
        "replicaScheduling": { "replicaSchedulingType": "Duplicated" },
    });
    Plan {
        steps: vec![drain(1, 10, "m2"), drain(2, 40, "m1")],
        phases: phases(80, 120),
        ..fleet(3, &json!({ "placement": placement }))
    }
}

/// Returns a plan with a workload of no replicas whose policy asks for two clusters, of which a
/// taint leaves one: that it cannot be met is said before the control plane is started anew.
fn scaled_to_zero() -> Plan {
    let constraint = json!({ "spreadByField": "cluster", "minGroups": 2, "maxGroups": 2 });
    let placement = json!({
        "spreadConstraints": [constraint],
        "replicaScheduling": { "replicaSchedulingType": "Duplicated" },
    });
    let mut plan = fleet(2, &json!({ "placement": placement }));
    for object in &mut plan.objects {
        if object["kind"] == "Deployment" {
            object["spec"]["replicas"] = json!(0);
        }
    }
    Plan {
        steps: vec![drain(1, 10, "m1")],
        phases: phases(40, 120),
        ..plan
    }
}

/// Returns a plan in which one of the two clusters of an affinity group is drained, so that the
/// workload goes to another group: the copy in the other cluster stays until the new ones are
/// healthy.
fn left_group() -> Plan {
    let group =
        |name: &str, members: [&str; 2]| json!({ "affinityName": name, "clusterNames": members });
    let constraint = json!({ "spreadByField": "cluster", "minGroups": 2, "maxGroups": 2 });
    let placement = json!({
        "clusterAffinities": [group("first", ["m1", "m2"]), group("second", ["m3", "m4"])],
        "spreadConstraints": [constraint],
        "replicaScheduling": { "replicaSchedulingType": "Duplicated" },
    });
    Plan {
        steps: vec![drain(1, 20, "m1")],
        phases: phases(80, 120),
        ..fleet(4, &json!({ "placement": placement }))
    }
}

/// Returns a plan in which a cluster with few replicas by its weight is drained, and another one is
/// open again that has a greater weight than the one that stays: that one lets no replica go before
/// the new ones are ready. What a person did counts as his wish for a quarter of an hour.
fn smaller_share() -> Plan {
    let weights = [("m1", 1), ("m2", 1), ("m3", 5)].map(
        |(name, weight)| json!({ "targetCluster": { "clusterNames": [name] }, "weight": weight }),
    );
    let placement = json!({
        "replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
            "weightPreference": { "staticWeightList": weights },
        },
    });
    let mut plan = fleet(3, &json!({ "placement": placement }));
    for object in &mut plan.objects {
        if object["kind"] == "Deployment" {
            object["spec"]["replicas"] = json!(6);
        }
    }
    let key = "example.com/closed".to_owned();
    let cluster = "m3".to_owned();
    let close = Act::Taint {
        cluster: cluster.clone(),
        key: key.clone(),
        effect: "NoSchedule".to_owned(),
    };
    let objects = std::mem::take(&mut plan.objects);
    plan.steps = (10..)
        .zip(objects)
        .map(|(id, object)| apply(id, 10, object))
        .collect();
    plan.steps.extend([
        step(1, 1, Api::Fleet, close),
        step(2, 40, Api::Fleet, Act::Untaint { cluster, key }),
        drain(3, 960, "m1"),
    ]);
    plan.phases = phases(1_000, 120);
    plan
}

/// Returns a plan in which the template of a DaemonSet is changed, of which each cluster counts the
/// generation, and the agent is started anew: nothing is applied again.
fn changed_daemon_set() -> Plan {
    let labels = json!({ "app": "everywhere" });
    let daemon_set = |image: &str| {
        let container = json!({ "name": "main", "image": image });
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "namespace": "default", "name": "everywhere", "labels": labels },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": {
                    "metadata": { "labels": labels },
                    "spec": { "containers": [container] },
                },
            },
        })
    };
    let policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "namespace": "default", "name": "everywhere" },
        "spec": {
            "resourceSelectors": [
                { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "everywhere" },
            ],
            "placement": { "clusterAffinity": { "clusterNames": ["m1"] } },
        },
    });
    let steps = [
        (1, daemon_set("nginx:1")),
        (10, daemon_set("nginx:2")),
        (30, policy),
        (50, daemon_set("nginx:3")),
    ];
    Plan {
        steps: (1..)
            .zip(steps)
            .map(|(id, (at, object))| apply(id, at, object))
            .collect(),
        phases: phases(70, 60),
        ..quiet(1, 1, 0)
    }
}

/// Returns a plan in which the control plane is started while the calendar of its machine is far
/// ahead, and a workload tolerates a taint that was added before: the wait ends as if the calendar
/// had been right.
fn started_with_a_wrong_calendar() -> Plan {
    let leader = Process::ControlPlane(0);
    let ahead = FaultKind::Skew {
        process: leader.clone(),
        jump: 2_400,
        drift: 0,
    };
    let tolerations = json!([
        { "key": "example.com/maintenance", "operator": "Exists", "tolerationSeconds": 60 },
    ]);
    Plan {
        steps: vec![drain(1, 10, "m1")],
        faults: vec![fault(1, 15, 60, ahead), crash(2, 20, leader)],
        phases: phases(60, 120),
        ..fleet(
            2,
            &json!({ "placement": { "clusterTolerations": tolerations } }),
        )
    }
}

/// Returns a plan in which the control plane is started while lists lack some clusters, and one
/// that they have is drained: the old copies go once the clusters with the others are in sight.
fn started_with_short_lists() -> Plan {
    let leader = Process::ControlPlane(0);
    let kind = FaultKind::Short {
        actor: Actor::Process(leader.clone()),
        api: Api::Fleet,
        share: 300,
        plural: Some("clusters".to_owned()),
    };
    let placement = json!({ "replicaScheduling": { "replicaSchedulingType": "Duplicated" } });
    Plan {
        steps: vec![drain(1, 60, "m1")],
        faults: vec![fault(1, 15, 80, kind), crash(2, 20, leader)],
        phases: phases(90, 120),
        ..fleet(6, &json!({ "placement": placement }))
    }
}
