//! Jobs: Argo Workflows, Volcano, Kubeflow, Spark.

use serde_json::{Value, json};

use super::{
    NOW, OF_TEMPLATE, aggregated, components, condition, dependencies, healthy, replicas, reported,
    retained, revised, template,
};

const WORKFLOW: (&str, &str) = ("argoproj.io/v1alpha1", "Workflow");
const VOLCANO: (&str, &str) = ("batch.volcano.sh/v1alpha1", "Job");
const PY_TORCH: (&str, &str) = ("kubeflow.org/v1", "PyTorchJob");
const TF: (&str, &str) = ("kubeflow.org/v1", "TFJob");
const MPI: (&str, &str) = ("kubeflow.org/v2beta1", "MPIJob");
const NOTEBOOK: (&str, &str) = ("kubeflow.org/v1", "Notebook");
const SPARK: (&str, &str) = ("sparkoperator.k8s.io/v1beta2", "SparkApplication");

fn cpu(amount: &str) -> Value {
    json!({ "cpu": amount })
}

#[test]
fn a_workflow_runs_as_wide_as_it_says_and_keeps_its_progress() {
    assert_eq!(
        replicas(WORKFLOW, json!({ "parallelism": 3 })),
        (3, json!({}))
    );
    assert_eq!(replicas(WORKFLOW, json!({})).0, 1);
    assert_eq!(revised(WORKFLOW, json!({}), 2), json!({ "parallelism": 2 }));
    let found = retained(WORKFLOW, json!({}), json!({ "suspend": true }));
    assert_eq!(found, json!({ "suspend": true }));
    for (phase, expected) in [
        ("Running", true),
        ("Succeeded", true),
        ("Failed", false),
        ("Error", false),
        ("", false),
    ] {
        assert_eq!(
            healthy(WORKFLOW, json!({ "phase": phase })),
            expected,
            "{phase}"
        );
    }
    assert!(!healthy(WORKFLOW, Value::Null));
    let spec = json!({
        "executor": { "serviceAccountName": "runner" },
        "serviceAccountName": "default",
        "volumeClaimTemplates": [{ "metadata": { "name": "work" } }],
        "imagePullSecrets": [{ "name": "registry" }],
        "volumes": [
            { "name": "a", "configMap": { "name": "settings" } },
            { "name": "b", "secret": { "secretName": "key" } },
            { "name": "c", "persistentVolumeClaim": { "claimName": "data" } },
        ],
    });
    let expected = [
        "ConfigMap/settings",
        "PersistentVolumeClaim/data",
        "PersistentVolumeClaim/work",
        "Secret/key",
        "Secret/registry",
        "ServiceAccount/runner",
    ];
    assert_eq!(dependencies(WORKFLOW, spec), expected);
}

#[test]
fn a_volcano_job_has_a_component_for_each_task() {
    let spec = json!({ "tasks": [
        { "name": "a", "minAvailable": 2, "template": template("1") },
        { "template": template("2") },
    ] });
    let expected = [
        ("a".to_owned(), 2, cpu("1")),
        ("task-1".to_owned(), 1, cpu("2")),
    ];
    assert_eq!(components(VOLCANO, spec), expected);
    for (phase, expected) in [
        ("Running", true),
        ("Completed", true),
        ("Failed", false),
        ("", false),
    ] {
        assert_eq!(
            healthy(VOLCANO, json!({ "state": { "phase": phase } })),
            expected,
            "{phase}"
        );
    }
    let status = json!({ "running": 1, "other": 2, "state": { "phase": "Running" } });
    assert_eq!(
        reported(VOLCANO, status),
        json!({ "running": 1, "state": { "phase": "Running" } })
    );
}

#[test]
fn volcano_jobs_of_all_members_are_one() {
    let member = |phase: &str, running: i32, duration: &str| {
        json!({
            "state": { "phase": phase }, "running": running, "failed": 0, "version": running,
            "runningDuration": duration,
            "taskStatusCount": { "t": { "phase": { "Running": running } } },
            "conditions": [{ "status": phase, "lastTransitionTime": duration }],
        })
    };
    let found = aggregated(
        VOLCANO,
        json!({}),
        &[member("Running", 1, "2m3s"), member("Running", 2, "1h")],
    );
    let expected = json!({
        "running": 3, "version": 2, "runningDuration": "1h",
        "taskStatusCount": { "t": { "phase": { "Running": 3 } } },
        "conditions": [{ "status": "Running", "lastTransitionTime": "2m3s" }],
    });
    assert_eq!(found, expected);

    let found = aggregated(
        VOLCANO,
        json!({}),
        &[member("Completed", 1, ""), member("Failed", 1, "")],
    );
    let state = json!({
        "phase": "Failed", "reason": "VolcanoJobFailed", "message": "Job failed in clusters: m2",
        "lastTransitionTime": NOW,
    });
    assert_eq!(found["state"], state);
    assert_eq!(found["conditions"], json!([{ "status": "Failed" }]));
    let odd = json!({ "conditions": [{ "status": "" }, { "status": "Failed" }] });
    let found = aggregated(VOLCANO, json!({}), &[odd.clone(), odd]);
    assert_eq!(found["conditions"], json!([{ "status": "Failed" }]));
    let found = aggregated(
        VOLCANO,
        json!({}),
        &[member("Completed", 1, ""), member("Completed", 1, "")],
    );
    assert_eq!(found["state"]["phase"], json!("Completed"));
    // One member is the whole.
    let one = member("Running", 1, "1s");
    assert_eq!(
        aggregated(VOLCANO, json!({ "old": 1 }), std::slice::from_ref(&one)),
        one
    );
}

#[test]
fn kubeflow_jobs_have_a_component_for_each_type() {
    let specs = |field: &str, types: &[&str]| {
        let specs: serde_json::Map<_, _> = types
            .iter()
            .map(|name| {
                (
                    (*name).to_owned(),
                    json!({ "replicas": 2, "template": template("1") }),
                )
            })
            .collect();
        json!({ field: specs })
    };
    for (kind, field, types, names) in [
        (
            PY_TORCH,
            "pytorchReplicaSpecs",
            &["Master", "Worker"][..],
            &["master", "worker"][..],
        ),
        (TF, "tfReplicaSpecs", &["PS", "Chief"], &["ps", "chief"]),
        (
            MPI,
            "mpiReplicaSpecs",
            &["Launcher", "Worker"],
            &["Launcher", "Worker"],
        ),
    ] {
        let found = components(kind, specs(field, types));
        let expected: Vec<_> = names
            .iter()
            .map(|name| ((*name).to_owned(), 2, cpu("1")))
            .collect();
        assert_eq!(found, expected, "{kind:?}");
        assert_eq!(components(kind, json!({})), [], "{kind:?}");
        if kind != MPI {
            assert_eq!(
                dependencies(kind, specs(field, types)),
                OF_TEMPLATE,
                "{kind:?}"
            );
        }
    }
    let bare = json!({ "mpiReplicaSpecs": {
        "Launcher": { "template": template("1") }, "Worker": { "template": template("1") },
    } });
    let counts: Vec<_> = components(MPI, bare).into_iter().map(|one| one.1).collect();
    assert_eq!(counts, [1, 0]);
}

#[test]
fn kubeflow_jobs_are_healthy_until_they_fail() {
    for kind in [PY_TORCH, TF, MPI] {
        let with =
            |kind: &str, status: &str| json!({ "conditions": [condition(kind, status, "")] });
        assert!(healthy(kind, with("Running", "True")), "{kind:?}");
        assert!(healthy(kind, with("Failed", "False")), "{kind:?}");
        assert!(!healthy(kind, with("Failed", "True")), "{kind:?}");
        assert!(!healthy(kind, Value::Null), "{kind:?}");
    }
}

#[test]
fn a_kubeflow_job_has_failed_when_one_member_has_and_succeeded_when_all_have() {
    let member = |how: &str| {
        json!({
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-02T00:00:00Z",
            "replicaStatuses": { "Worker": { "active": 1 } },
            "conditions": [condition("Created", "True", ""), condition(how, "True", "")],
        })
    };
    for kind in [PY_TORCH, TF] {
        let types = |members: &[Value]| {
            let found = aggregated(kind, json!({}), members);
            let workers = found["replicaStatuses"]["Worker"]["active"].clone();
            assert_eq!(workers, json!(members.len()), "{kind:?}");
            let conditions = found["conditions"].as_array().cloned().unwrap_or_default();
            let types = conditions
                .iter()
                .map(|one| one["type"].as_str().unwrap().to_owned());
            types.filter(|one| one != "Created").collect::<Vec<_>>()
        };
        assert_eq!(
            types(&[member("Succeeded"), member("Succeeded")]),
            ["Succeeded"],
            "{kind:?}"
        );
        assert_eq!(
            types(&[member("Succeeded"), member("Failed")]),
            ["Failed"],
            "{kind:?}"
        );
        let running = types(&[member("Succeeded"), member("Running")]);
        let expected = if kind == PY_TORCH {
            &["Running"][..]
        } else {
            &[]
        };
        assert_eq!(running, expected, "{kind:?}");
        assert_eq!(
            aggregated(kind, json!({ "startTime": "x" }), &[]).get("startTime"),
            None
        );
    }
}

#[test]
fn an_mpi_job_has_the_latest_condition_of_each_type() {
    let member = |time: &str, status: &str| {
        json!({
            "startTime": time,
            "replicaStatuses": { "Worker": { "active": 1 } },
            "conditions": [{ "type": "Running", "status": status, "lastUpdateTime": time }, { "type": "Untimed" }],
        })
    };
    let found = aggregated(MPI, json!({}), &[member("2", "False"), member("1", "True")]);
    let expected = json!({
        "startTime": "1",
        "replicaStatuses": { "Worker": { "active": 2, "succeeded": 0, "failed": 0 } },
        "conditions": [{ "type": "Running", "status": "False", "lastUpdateTime": "2" }],
    });
    assert_eq!(found, expected);
    let status = json!({ "replicaStatuses": { "Worker": { "active": 1, "labelSelector": {} } } });
    let expected = json!({ "replicaStatuses": { "Worker": { "active": 1 } } });
    assert_eq!(reported(MPI, status), expected);
}

#[test]
fn a_notebook_is_healthy_while_its_container_runs_or_comes() {
    let state = |state: Value| json!({ "containerState": state });
    let waits = |reason: &str| state(json!({ "waiting": { "reason": reason } }));
    let ended = |how: Value| state(json!({ "terminated": how }));
    let completed = ended(json!({ "exitCode": 0, "reason": "Completed" }));
    for (status, expected) in [
        (state(json!({ "running": {} })), true),
        (waits("ContainerCreating"), true),
        (waits("ImagePullBackOff"), false),
        (completed, true),
        (ended(json!({ "exitCode": 1 })), false),
        (ended(json!({ "reason": "OOMKilled" })), false),
        (state(json!({})), false),
        (json!({}), false),
    ] {
        assert_eq!(healthy(NOTEBOOK, status.clone()), expected, "{status}");
    }
    assert_eq!(
        replicas(NOTEBOOK, json!({ "template": template("1") })),
        (1, cpu("1"))
    );
    assert_eq!(
        reported(NOTEBOOK, json!({ "other": 1 })),
        json!({ "readyReplicas": 0 })
    );
}

#[test]
fn a_time_that_a_rule_makes_stays_while_the_condition_does() {
    let running =
        json!({ "readyReplicas": 1, "containerState": { "running": { "startedAt": "1" } } });
    let waiting = json!({ "containerState": { "waiting": { "reason": "x" } } });
    let first = aggregated(NOTEBOOK, json!({}), &[running.clone(), running.clone()]);
    assert_eq!(first["conditions"][0]["type"], json!("Ready"));
    assert_eq!(first["conditions"][0]["lastTransitionTime"], json!(NOW));

    let mut known = first.clone();
    known["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
    let second = aggregated(NOTEBOOK, known.clone(), &[running.clone(), running.clone()]);
    assert_eq!(
        second["conditions"][0]["lastTransitionTime"],
        json!("2026-01-01T00:00:00Z")
    );
    let failed = aggregated(NOTEBOOK, known, &[running, waiting.clone()]);
    assert_eq!(
        failed["conditions"][0]["message"],
        json!("Notebook executed failed in member clusters: m2")
    );
    assert_eq!(failed["conditions"][0]["lastTransitionTime"], json!(NOW));
    assert_eq!(failed["containerState"], waiting["containerState"]);
}

#[test]
fn spark_asks_for_the_heap_and_what_lies_beside_it() {
    for (what, spec, driver, executor) in [
        (
            "the least overhead",
            json!({ "type": "Java", "driver": {}, "executor": { "memory": "2g" } }),
            "1408Mi",
            "2432Mi",
        ),
        (
            "more for other languages",
            json!({ "type": "Python", "driver": { "memory": "4096m" }, "executor": { "memory": "512m", "memoryOverhead": "1g" } }),
            "6012954214400m",
            "1536Mi",
        ),
        (
            "a factor of its own",
            json!({ "type": "Scala", "memoryOverheadFactor": "0.5", "driver": { "memory": "2g" }, "executor": { "memory": "1024" } }),
            "3Gi",
            "1536Mi",
        ),
    ] {
        let found: Vec<_> = components(SPARK, spec)
            .into_iter()
            .map(|one| one.2["memory"].clone())
            .collect();
        assert_eq!(found, [driver, executor], "{what}");
    }
}

#[test]
fn spark_starts_as_many_executors_as_any_setting_says() {
    let spec = json!({
        "type": "Java",
        "driver": { "cores": 2, "gpu": { "name": "nvidia.com/gpu", "quantity": 1 } },
        "executor": { "instances": 2 },
        "dynamicAllocation": { "enabled": true, "initialExecutors": 3, "minExecutors": 5 },
    });
    let found = components(SPARK, spec);
    assert_eq!((&found[0].0, found[0].1), (&"driver".to_owned(), 1));
    assert_eq!(
        (&found[0].2["cpu"], &found[0].2["nvidia.com/gpu"]),
        (&json!("2"), &json!("1"))
    );
    assert_eq!((&found[1].0, found[1].1), (&"executor".to_owned(), 5));
}

#[test]
fn a_spark_application_is_as_its_worst_member() {
    let member = |state: &str| {
        json!({
            "applicationState": { "state": state }, "executionAttempts": 1,
            "terminationTime": state, "executorState": { state: "RUNNING" },
        })
    };
    let found = aggregated(
        SPARK,
        json!({}),
        &[member("RUNNING"), member("FAILED"), member("NEW")],
    );
    let expected = json!({
        "applicationState": { "state": "FAILED" }, "executionAttempts": 3, "submissionAttempts": 0,
        "terminationTime": "RUNNING", "lastSubmissionAttemptTime": "",
        "executorState": { "RUNNING": "RUNNING", "FAILED": "RUNNING", "NEW": "RUNNING" },
    });
    assert_eq!(found, expected);
    assert!(healthy(SPARK, member("RUNNING")));
    assert!(!healthy(SPARK, member("FAILED")));
    assert!(!healthy(SPARK, json!({})));
}

#[test]
fn a_condition_of_no_type_does_not_hide_the_others() {
    let time = "2026-01-01T00:00:00Z";
    let created = json!({ "type": "Created", "status": "True", "lastUpdateTime": time });
    let odd = json!({ "status": "True", "lastUpdateTime": time });
    let member = json!({ "conditions": [odd, created] });
    let status = aggregated(MPI, Value::Null, &[member, json!({ "startTime": time })]);
    assert_eq!(status["conditions"], json!([created]));
}
