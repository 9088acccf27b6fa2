//! Kinds of Kruise.

use serde_json::{Value, json};

use super::{
    OF_TEMPLATE, aggregated, condition, dependencies, health, healthy, replicas, reported,
    retained, revised, template,
};

const V1ALPHA1: &str = "apps.kruise.io/v1alpha1";
const CLONE_SET: (&str, &str) = (V1ALPHA1, "CloneSet");
const UNITED_DEPLOYMENT: (&str, &str) = (V1ALPHA1, "UnitedDeployment");
const STATEFUL_SET: (&str, &str) = ("apps.kruise.io/v1beta1", "StatefulSet");
const DAEMON_SET: (&str, &str) = (V1ALPHA1, "DaemonSet");
const BROADCAST_JOB: (&str, &str) = (V1ALPHA1, "BroadcastJob");
const SIDECAR_SET: (&str, &str) = (V1ALPHA1, "SidecarSet");
const CRON_JOB: (&str, &str) = (V1ALPHA1, "AdvancedCronJob");

const WORKLOADS: [(&str, &str); 3] = [CLONE_SET, UNITED_DEPLOYMENT, STATEFUL_SET];

#[test]
fn workloads_are_counted_revised_and_taken_along_with_what_they_need() {
    for kind in WORKLOADS {
        let spec = json!({ "replicas": 3, "template": template("1") });
        assert_eq!(
            replicas(kind, spec.clone()),
            (3, json!({ "cpu": "1" })),
            "{kind:?}"
        );
        assert_eq!(dependencies(kind, spec.clone()), OF_TEMPLATE, "{kind:?}");
        assert_eq!(revised(kind, spec, 5)["replicas"], json!(5), "{kind:?}");
    }
}

#[test]
fn a_workload_is_healthy_when_all_its_pods_are_new_and_available() {
    let status = |observed: i32, updated: i32, available: i32| json!({ "observedGeneration": observed, "updatedReplicas": updated, "availableReplicas": available });
    for kind in WORKLOADS {
        for (status, expected) in [
            (status(2, 3, 3), true),
            (status(1, 3, 3), false),
            (status(2, 2, 2), false),
            (status(2, 3, 2), false),
        ] {
            let found = health(kind, json!({ "replicas": 3 }), status.clone());
            assert_eq!(found, Ok(expected), "{kind:?} {status}");
        }
    }
}

#[test]
fn a_workload_without_a_status_has_no_health_yet() {
    let none = |kind| health(kind, json!({}), Value::Null);
    assert!(none(CLONE_SET).is_err());
    assert!(none(STATEFUL_SET).is_err());
    assert_eq!(none(UNITED_DEPLOYMENT), Ok(false));
}

#[test]
fn counts_are_summed_and_the_generation_advances_when_all_have_seen_it() {
    let seen = |replicas: i32, generation: i32| {
        json!({
            "replicas": replicas, "readyReplicas": 1, "generation": 7, "observedGeneration": 7,
            "resourceTemplateGeneration": generation,
        })
    };
    for kind in WORKLOADS {
        let before = json!({ "observedGeneration": 1 });
        let found = aggregated(kind, before.clone(), &[seen(1, 2), seen(2, 2)]);
        assert_eq!(
            (&found["replicas"], &found["readyReplicas"]),
            (&json!(3), &json!(2))
        );
        assert_eq!(found["observedGeneration"], json!(2), "{kind:?}");
        for late in [seen(2, 1), Value::Null] {
            let found = aggregated(kind, before.clone(), &[seen(1, 2), late]);
            assert_eq!(found["observedGeneration"], json!(1), "{kind:?}");
        }
        let found = aggregated(kind, before, &[]);
        assert_eq!(
            (&found["replicas"], &found["observedGeneration"]),
            (&json!(0), &json!(2))
        );
    }
}

#[test]
fn what_a_member_reports_has_the_generations() {
    for kind in WORKLOADS.into_iter().chain([DAEMON_SET]) {
        let found = reported(kind, json!({ "observedGeneration": 2, "other": 1 }));
        let expected = json!({
            "observedGeneration": 2, "generation": 2, "resourceTemplateGeneration": 2,
        });
        assert_eq!(found, expected, "{kind:?}");
        assert_eq!(reported(kind, Value::Null), json!({}), "{kind:?}");
    }
}

#[test]
fn conditions_of_a_united_deployment_are_those_of_the_last_member_by_type() {
    let members = [
        json!({ "conditions": [condition("A", "True", "x"), condition("B", "True", "x")] }),
        json!({ "conditions": [condition("A", "False", "y")] }),
    ];
    let found = aggregated(UNITED_DEPLOYMENT, json!({}), &members);
    let expected = json!([condition("A", "False", "y"), condition("B", "True", "x")]);
    assert_eq!(found["conditions"], expected);
}

#[test]
fn a_daemon_set_is_healthy_when_every_node_runs_the_new_pod() {
    let status = |updated: i32, available: i32| {
        json!({
            "observedGeneration": 2, "desiredNumberScheduled": 3,
            "updatedNumberScheduled": updated, "numberAvailable": available,
        })
    };
    assert!(healthy(DAEMON_SET, status(3, 3)));
    assert!(!healthy(DAEMON_SET, status(2, 2)));
    assert!(!healthy(DAEMON_SET, status(3, 2)));
    let found = aggregated(DAEMON_SET, json!({}), &[status(3, 3), status(3, 2)]);
    assert_eq!(
        (&found["numberAvailable"], &found["daemonSetHash"]),
        (&json!(5), &json!(0))
    );
}

#[test]
fn a_broadcast_job_is_healthy_until_a_pod_fails() {
    let status = |desired: i32, active: i32, succeeded: i32, failed: i32| json!({ "desired": desired, "active": active, "succeeded": succeeded, "failed": failed });
    for (status, expected) in [
        (status(2, 2, 0, 0), true),
        (status(2, 0, 2, 0), true),
        (status(2, 1, 0, 1), false),
        (status(2, 0, 0, 0), false),
        (status(0, 0, 0, 0), false),
    ] {
        assert_eq!(healthy(BROADCAST_JOB, status.clone()), expected, "{status}");
    }
    let one = json!({ "parallelism": 4, "template": template("1") });
    assert_eq!(replicas(BROADCAST_JOB, one.clone()).0, 4);
    assert_eq!(
        replicas(BROADCAST_JOB, json!({ "template": template("1") })).0,
        1
    );
    assert_eq!(
        revised(BROADCAST_JOB, one.clone(), 2)["parallelism"],
        json!(2)
    );
    assert_eq!(dependencies(BROADCAST_JOB, one), OF_TEMPLATE);
    let labelled = json!({ "template": { "metadata": { "labels": { "job": "1" } } } });
    let found = retained(BROADCAST_JOB, json!({ "template": {} }), labelled.clone());
    assert_eq!(found, labelled);
}

#[test]
fn a_broadcast_job_is_complete_when_every_member_is() {
    let ended = |how: &str| json!({ "succeeded": 1, "conditions": [condition(how, "True", "")] });
    let types = |members: &[Value]| {
        let found = aggregated(BROADCAST_JOB, json!({}), members);
        let found = found["conditions"].as_array().cloned().unwrap_or_default();
        found
            .iter()
            .map(|one| one["type"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        types(&[ended("Complete"), ended("Complete")]),
        ["Completed"]
    );
    assert_eq!(types(&[ended("Complete"), ended("Failed")]), ["Failed"]);
    // A member that still runs is not complete because the one before it is.
    assert_eq!(
        types(&[ended("Complete"), json!({ "active": 1 })]),
        Vec::<Value>::new()
    );
    assert_eq!(
        types(&[ended("Complete"), Value::Null]),
        Vec::<Value>::new()
    );
}

#[test]
fn a_sidecar_set_is_healthy_when_all_pods_that_it_matches_have_it() {
    let status =
        |matched: i32, updated: i32| json!({ "matchedPods": matched, "updatedPods": updated });
    assert!(healthy(SIDECAR_SET, status(2, 2)));
    assert!(healthy(SIDECAR_SET, status(0, 0)));
    assert!(!healthy(SIDECAR_SET, status(2, 1)));
    assert!(!healthy(SIDECAR_SET, Value::Null));
    let found = aggregated(
        SIDECAR_SET,
        json!({}),
        &[status(2, 1), Value::Null, status(3, 3)],
    );
    assert_eq!(
        found,
        json!({ "matchedPods": 5, "updatedPods": 4, "readyPods": 0 })
    );
    let none = aggregated(SIDECAR_SET, json!({}), &[]);
    assert_eq!(none["matchedPods"], json!(0));
    assert_eq!(
        dependencies(SIDECAR_SET, template("1")["spec"].clone()),
        OF_TEMPLATE
    );
    assert_eq!(replicas(SIDECAR_SET, json!({})), (0, json!({})));
}

#[test]
fn an_advanced_cron_job_lists_the_active_jobs_of_all_members() {
    let member = |name: &str, time: &str| json!({ "active": [{ "name": name }], "lastScheduleTime": time, "type": "Job" });
    let found = aggregated(
        CRON_JOB,
        json!({}),
        &[member("a", "1"), Value::Null, member("b", "2")],
    );
    let expected = json!({
        "active": [{ "name": "a" }, { "name": "b" }], "lastScheduleTime": "2", "type": "Job",
    });
    assert_eq!(found, expected);
    for job in ["jobTemplate", "broadcastJobTemplate"] {
        let spec = json!({ "template": { job: { "spec": { "template": template("1") } } } });
        assert_eq!(dependencies(CRON_JOB, spec), OF_TEMPLATE, "{job}");
    }
}
