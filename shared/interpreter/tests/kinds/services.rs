//! Long-running services: Flink and Ray.

use serde_json::{Value, json};

use super::{
    OF_TEMPLATE, aggregated, components, condition, dependencies, healthy, replicas, reported,
    revised, template,
};

const FLINK: (&str, &str) = ("flink.apache.org/v1beta1", "FlinkDeployment");
const RAY: &str = "ray.io/v1";
const RAY_CLUSTER: (&str, &str) = (RAY, "RayCluster");
const RAY_JOB: (&str, &str) = (RAY, "RayJob");
const RAY_SERVICE: (&str, &str) = (RAY, "RayService");

#[test]
fn a_flink_job_is_healthy_once_it_is_settled() {
    let state =
        |state: &str, error: &str| json!({ "jobStatus": { "state": state }, "error": error });
    for (status, expected) in [
        (state("RUNNING", ""), true),
        (state("FAILED", ""), true),
        (state("RESTARTING", ""), true),
        (state("CREATED", ""), false),
        (state("RECONCILING", "the cluster is gone"), false),
        // What the user has to mend is no better in another cluster.
        (state("RECONCILING", "pod: ImagePullBackOff"), true),
        (state("SOMETHING", ""), false),
        (
            json!({ "jobManagerDeploymentStatus": "READY", "lifecycleState": "STABLE" }),
            true,
        ),
        (json!({ "jobManagerDeploymentStatus": "DEPLOYING" }), false),
        (Value::Null, false),
    ] {
        assert_eq!(healthy(FLINK, status.clone()), expected, "{status}");
    }
}

#[test]
fn a_flink_job_has_as_many_task_managers_as_its_slots_need() {
    let resource = |cpu: f64, memory: &str| json!({ "resource": { "cpu": cpu, "memory": memory } });
    let spec = json!({
        "jobManager": resource(0.5, "1024m"),
        "taskManager": resource(2.0, "2048m"),
        "job": { "parallelism": 5 },
        "flinkConfiguration": { "taskmanager.numberOfTaskSlots": "2" },
        "podTemplate": { "spec": { "priorityClassName": "high" } },
    });
    assert_eq!(
        replicas(FLINK, spec.clone()),
        (4, json!({ "cpu": "2", "memory": "2048m" }))
    );
    let expected = [
        (
            "jobmanager".to_owned(),
            1,
            json!({ "cpu": "500m", "memory": "1024m" }),
        ),
        (
            "taskmanager".to_owned(),
            3,
            json!({ "cpu": "2", "memory": "2048m" }),
        ),
    ];
    assert_eq!(components(FLINK, spec), expected);
    assert_eq!(
        replicas(FLINK, json!({ "taskManager": { "replicas": 7 } })).0,
        8
    );
    assert_eq!(replicas(FLINK, json!({})).0, 2);
}

#[test]
fn the_status_of_a_flink_job_is_that_of_the_last_cluster() {
    let status =
        json!({ "jobStatus": { "state": "RUNNING", "jobId": "7" }, "observedGeneration": 3 });
    assert_eq!(
        aggregated(
            FLINK,
            json!({}),
            &[Value::Null, status.clone(), Value::Null]
        ),
        status
    );
    assert_eq!(reported(FLINK, status.clone()), status);
    let before = json!({ "jobStatus": { "state": "RUNNING" } });
    assert_eq!(aggregated(FLINK, before.clone(), &[]), before);
}

fn cluster(groups: &[(Value, &str)]) -> Value {
    let group = |(replicas, cpu): &(Value, &str)| json!({ "replicas": replicas, "template": template(cpu) });
    let groups: Vec<Value> = groups.iter().map(group).collect();
    json!({ "headGroupSpec": { "template": template("1") }, "workerGroupSpecs": groups })
}

#[test]
fn a_ray_cluster_has_a_head_and_its_groups() {
    let cpu = |cpu: &str| json!({ "cpu": cpu });
    let spec = cluster(&[(json!(3), "2"), (Value::Null, "4")]);
    let expected = [
        ("ray-head".to_owned(), 1, cpu("1")),
        ("worker-1".to_owned(), 3, cpu("2")),
        ("worker-2".to_owned(), 0, cpu("4")),
    ];
    assert_eq!(components(RAY_CLUSTER, spec.clone()), expected);
    assert_eq!(
        components(RAY_JOB, json!({ "rayClusterSpec": spec.clone() })),
        expected
    );
    let service = json!({ "rayClusterConfig": spec.clone() });
    // Each replica of a service is taken to need as much as the largest.
    assert_eq!(replicas(RAY_SERVICE, service.clone()), (4, cpu("4")));
    assert_eq!(replicas(RAY_SERVICE, json!({})), (0, json!({})));
    assert_eq!(dependencies(RAY_SERVICE, service), OF_TEMPLATE);
    assert_eq!(
        dependencies(RAY_JOB, json!({ "rayClusterSpec": spec })),
        OF_TEMPLATE
    );
    assert_eq!(
        dependencies(RAY_JOB, json!({ "submitterPodTemplate": template("1") })),
        OF_TEMPLATE
    );
}

#[test]
fn workers_of_a_ray_service_are_divided_as_they_were() {
    let divided = |groups: &[i32], replicas: i32| {
        let groups: Vec<_> = groups.iter().map(|count| (json!(count), "1")).collect();
        let spec = json!({ "rayClusterConfig": cluster(&groups) });
        let spec = revised(RAY_SERVICE, spec, replicas);
        let groups = spec["rayClusterConfig"]["workerGroupSpecs"]
            .as_array()
            .unwrap();
        groups
            .iter()
            .map(|one| one["replicas"].as_i64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(divided(&[3], 6), [5]);
    assert_eq!(divided(&[1, 2], 7), [2, 4]);
    assert_eq!(divided(&[0, 0], 6), [3, 2]);
    assert_eq!(divided(&[2, 2], 1), [0, 0]);
    assert_eq!(divided(&[2, 2], 0), [0, 0]);
    // Rounding up never makes the last group less than nothing.
    assert_eq!(divided(&[1, 1, 1, 1], 3), [1, 1, 0, 0]);
    assert_eq!(divided(&[], 3), Vec::<i64>::new());
}

#[test]
fn ray_is_healthy_by_its_conditions_and_states() {
    let conditions = |list: &[(&str, &str)]| {
        let list: Vec<_> = list
            .iter()
            .map(|(kind, status)| condition(kind, status, ""))
            .collect();
        json!({ "conditions": list })
    };
    let ready = [("HeadPodReady", "True"), ("RayClusterProvisioned", "True")];
    assert!(healthy(RAY_CLUSTER, conditions(&ready)));
    assert!(!healthy(RAY_CLUSTER, conditions(&ready[..1])));
    let failing = [ready[0], ready[1], ("RayClusterReplicaFailure", "True")];
    assert!(!healthy(RAY_CLUSTER, conditions(&failing)));
    assert!(healthy(RAY_SERVICE, conditions(&[("Ready", "True")])));
    assert!(!healthy(RAY_SERVICE, conditions(&[("Ready", "False")])));
    for (deployment, job, expected) in [
        ("Running", "", true),
        ("Complete", "SUCCEEDED", true),
        ("Complete", "FAILED", false),
        ("Failed", "RUNNING", false),
        ("Initializing", "", false),
    ] {
        let status = json!({ "jobDeploymentStatus": deployment, "jobStatus": job });
        assert_eq!(healthy(RAY_JOB, status), expected, "{deployment} {job}");
    }
}

#[test]
fn ray_clusters_of_all_members_are_one() {
    let member = |cpu: &str, time: &str| {
        json!({
            "readyWorkerReplicas": 2, "desiredCPU": cpu, "desiredMemory": "1Gi", "desiredGPU": "1",
            "lastUpdateTime": time, "state": "ready", "head": { "podIP": cpu },
            "conditions": [condition("HeadPodReady", "True", "")],
        })
    };
    let found = aggregated(
        RAY_CLUSTER,
        json!({}),
        &[member("500m", "2"), Value::Null, member("1", "1")],
    );
    assert_eq!(found["readyWorkerReplicas"], json!(4));
    assert_eq!(
        (
            &found["desiredCPU"],
            &found["desiredMemory"],
            &found["desiredGPU"],
            &found["desiredTPU"]
        ),
        (&json!("1500m"), &json!("2Gi"), &json!("2"), &json!("0"))
    );
    assert_eq!(
        (&found["lastUpdateTime"], &found["head"]),
        (&json!("2"), &json!({ "podIP": "500m" }))
    );
    assert_eq!(found["conditions"].as_array().unwrap().len(), 2);
}

#[test]
fn a_ray_job_is_as_its_worst_member() {
    let member = |deployment: &str, job: &str, reason: &str| json!({ "jobDeploymentStatus": deployment, "jobStatus": job, "reason": reason });
    let members = [
        member("Running", "RUNNING", "a"),
        member("Failed", "FAILED", "b"),
        member("Complete", "SUCCEEDED", "c"),
    ];
    let found = aggregated(RAY_JOB, json!({}), &members);
    assert_eq!(found, member("Failed", "FAILED", "b"));
}

#[test]
fn a_ray_service_shows_the_worst_of_each_application() {
    let member = |status: &str| {
        json!({
            "numServeEndpoints": 1, "serviceStatus": "Running", "observedGeneration": 2,
            "activeServiceStatus": { "name": status, "applicationStatuses": { "app": { "status": status } } },
        })
    };
    let found = aggregated(
        RAY_SERVICE,
        json!({}),
        &[member("RUNNING"), member("UNHEALTHY"), member("DEPLOYING")],
    );
    assert_eq!(found["numServeEndpoints"], json!(3));
    let expected =
        json!({ "name": "RUNNING", "applicationStatuses": { "app": { "status": "UNHEALTHY" } } });
    assert_eq!(found["activeServiceStatus"], expected);
    assert_eq!(found["serviceStatus"], json!("Running"));
}
