use muster_shared::merge;

use super::*;
use crate::fleet::template::{Kind, Template};
use crate::fleet::testing::key;

#[test]
fn a_copy_that_is_to_go_at_once_stays_until_a_cluster_is_chosen() {
    let scope = |clusters: Value| {
        let spec = json!({
            "clusters": clusters,
            "gracefulEvictionTasks": [
                { "fromCluster": "m1", "purgeMode": "Immediately", "reason": "", "producer": "" },
            ],
        });
        let spec = serde_json::from_value(spec).unwrap();
        let scope = Scope::of(&spec);
        assert_eq!(expects(&spec, "m1"), scope.expected.contains("m1"));
        scope
    };
    let nowhere = scope(json!([]));
    assert!(nowhere.expected.contains("m1") && nowhere.purged_first.is_empty());
    // One that was chosen again is not removed, so that nothing waits for it.
    let again = scope(json!([{ "name": "m2" }, { "name": "m1" }]));
    assert!(again.expected.contains("m1") && again.purged_first.is_empty());
    let chosen = scope(json!([{ "name": "m2" }]));
    assert!(!chosen.expected.contains("m1") && chosen.purged_first.contains("m1"));
}

/// Returns the origin of the binding `w`.
fn origin() -> Origin {
    Origin {
        key: key("w"),
        id: "1".to_owned(),
    }
}

/// Returns what is rendered for the clusters `m1` and `m2`, whose manifests are changed by
/// `overriding`.
fn overridden(template: &Value, overriding: impl Fn(&mut Value, &str)) -> Vec<Rendered> {
    let origin = origin();
    let spec = json!({ "clusters": [{ "name": "m1" }, { "name": "m2" }] });
    let spec = serde_json::from_value(spec).unwrap();
    let interpreters = Interpreters::default();
    let apply = |manifest: &mut Value, cluster: &str| {
        overriding(manifest, cluster);
        Ok::<_, muster_interpreter::Error>(Pairs::new())
    };
    let held = BTreeMap::new();
    let works = render(&origin, &spec, template, false, &interpreters, &held, apply);
    works.into_iter().collect::<Result<_, _>>().unwrap()
}

#[test]
fn an_override_does_not_bring_back_what_lets_a_member_delete_a_finished_job() {
    let template = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": "once", "namespace": "shop" }, "spec": {},
    });
    let works = overridden(&template, |manifest, _| {
        manifest["spec"]["ttlSecondsAfterFinished"] = json!(60);
        manifest["spec"]["parallelism"] = json!(2);
    });
    assert_eq!(works[0].manifest["spec"], json!({ "parallelism": 2 }));
}

#[test]
fn no_member_deletes_a_finished_task_on_its_own() {
    let ttl = json!({ "ttlSecondsAfterFinished": 60 });
    let kept = |spec: Value| (spec.clone(), spec);
    for (version, kind, (given, expected)) in [
        ("batch/v1", "Job", (ttl.clone(), json!({}))),
        ("batch.volcano.sh/v1alpha1", "Job", (ttl.clone(), json!({}))),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            (ttl.clone(), json!({})),
        ),
        (
            "argoproj.io/v1alpha1",
            "Workflow",
            (
                json!({ "ttlStrategy": { "secondsAfterSuccess": 5 }, "entrypoint": "main" }),
                json!({ "entrypoint": "main" }),
            ),
        ),
        (
            "kubeflow.org/v1",
            "TFJob",
            (
                json!({ "runPolicy": { "ttlSecondsAfterFinished": 60, "backoffLimit": 2 } }),
                json!({ "runPolicy": { "backoffLimit": 2 } }),
            ),
        ),
        (
            "apps.kruise.io/v1alpha1",
            "BroadcastJob",
            (
                json!({ "completionPolicy": { "type": "Always", "ttlSecondsAfterFinished": 60 } }),
                json!({ "completionPolicy": { "type": "Always" } }),
            ),
        ),
        (
            "apps.kruise.io/v1beta1",
            "ImagePullJob",
            (
                json!({ "image": "a:1", "completionPolicy": { "ttlSecondsAfterFinished": 60 } }),
                json!({ "image": "a:1", "completionPolicy": {} }),
            ),
        ),
        (
            "apps.kruise.io/v1alpha1",
            "ContainerRecreateRequest",
            (ttl.clone(), json!({})),
        ),
        (
            "argoproj.io/v1alpha1",
            "AnalysisRun",
            (
                json!({ "ttlStrategy": { "secondsAfterCompletion": 5 } }),
                json!({}),
            ),
        ),
        // Its launcher goes, and not the whole.
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            kept(json!({ "runPolicy": { "ttlSecondsAfterFinished": 60 } })),
        ),
        // It removes the cluster that it ran on.
        ("ray.io/v1", "RayJob", kept(ttl.clone())),
        ("kubeflow.org/v1", "PyTorchJob", kept(json!({}))),
    ] {
        let template = json!({
            "apiVersion": version, "kind": kind,
            "metadata": { "name": "once", "namespace": "shop" }, "spec": given,
        });
        for work in overridden(&template, |_, _| {}) {
            assert_eq!(work.manifest["spec"], expected, "{version} {kind}");
        }
    }
}

#[test]
fn an_override_finds_what_the_fleet_api_filled_in_and_no_member_gets_it() {
    let revision = "deployment.kubernetes.io/revision";
    let revised = json!({ "annotations": { revision: "1" } });
    let at_revision = "/metadata/annotations/deployment.kubernetes.io~1revision";
    let addresses = json!({ "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"] });
    let labels = json!({ "controller-uid": "u" });
    let selector = json!({ "selector": { "matchLabels": labels } });
    let at_label = "/spec/selector/matchLabels/controller-uid";
    let limited = json!({ "ttlSecondsAfterFinished": 60 });
    for (kind, metadata, spec, path) in [
        ("Service", json!({}), addresses, "/spec/clusterIP"),
        ("Deployment", revised, json!({}), at_revision),
        ("Job", json!({}), selector, at_label),
        ("Job", json!({}), limited, "/spec/ttlSecondsAfterFinished"),
    ] {
        let template = json!({ "kind": kind, "metadata": metadata, "spec": spec });
        let works = overridden(&template, |manifest, _| {
            *manifest.pointer_mut(path).unwrap() = json!("other");
        });
        for work in works {
            assert_eq!(work.manifest.pointer(path), None, "{path}");
        }
    }
}

#[test]
fn an_override_finds_what_the_fleet_api_allocated_and_a_member_gets_what_it_writes_alone() {
    let service = json!({
        "metadata": {"namespace": "shop", "name": "web", "managedFields": [
            {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:ports": {}}}},
        ]},
        "spec": {
            "clusterIP": "10.96.0.7", "healthCheckNodePort": 31000,
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30080}],
        },
    });
    let template = Template::new(service).unwrap();
    let template = template.to_override(&Kind::new("v1", "Service"));
    let plain = json!({"ports": [{"port": 80, "protocol": "TCP"}]});
    for (path, value) in [
        ("/spec/ports/0/nodePort", json!(30080)),
        ("/spec/healthCheckNodePort", json!(31000)),
        ("/spec/ipFamilies", json!(["IPv4"])),
        ("/spec/ipFamilyPolicy", json!("SingleStack")),
    ] {
        let works = overridden(&template, |manifest, cluster| {
            let held = manifest.pointer_mut(path).unwrap();
            if cluster == "m2" {
                *held = value.clone();
            }
        });
        assert_eq!(works[0].manifest["spec"], plain, "{path}");
        assert_eq!(works[1].manifest.pointer(path), Some(&value), "{path}");
    }
}

#[test]
fn an_override_says_how_conflicts_are_resolved_in_its_cluster() {
    let template = json!({ "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "shop" } });
    let key = annotation::CONFLICT_RESOLUTION;
    let works = overridden(&template, |manifest, cluster| {
        if cluster == "m2" {
            manifest["metadata"]["annotations"][key] = json!("overwrite");
        }
    });
    for (work, expected) in works.iter().zip(["abort", "overwrite"]) {
        assert_eq!(work.annotations[key], expected);
        assert_eq!(work.manifest["metadata"]["annotations"][key], expected);
    }
}

#[test]
fn a_cluster_about_which_an_interpreter_gives_no_answer_stops_no_other() {
    let script = "function ReviseReplica(o, n)
        if n == 2 then error('not two') end
        o.spec.size = n return o end";
    let spec = json!({ "replicas": 6, "clusters": [
        { "name": "m1", "replicas": 1 }, { "name": "m2", "replicas": 2 },
        { "name": "m3", "replicas": 3 },
    ] });
    let works = rendered(&widget(), spec, &revising(script));
    let sizes: Vec<Option<&Value>> = works
        .iter()
        .map(|work| {
            work.as_ref()
                .ok()
                .map(|work| &work.manifest["spec"]["size"])
        })
        .collect();
    assert_eq!(sizes, [Some(&json!(1)), None, Some(&json!(3))]);
}

/// Returns a custom resource of size 6.
fn widget() -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": { "name": "w", "namespace": "shop" }, "spec": { "size": 6 } })
}

/// Returns interpreters of which this script revises the replicas of the custom resource.
fn revising(script: &str) -> Interpreters {
    Interpreters::of(&[muster_interpreter::lua::Customization {
        name: "w".to_owned(),
        api_version: "example.com/v1".to_owned(),
        kind: "Widget".to_owned(),
        scripts: vec![(Operation::ReviseReplica, script.to_owned())],
    }])
}

/// Returns what is rendered for a template and a spec, without override policies.
fn rendered(
    template: &Value,
    spec: Value,
    interpreters: &Interpreters,
) -> Vec<Result<Rendered, muster_interpreter::Error>> {
    rendered_beside(&BTreeMap::new(), template, spec, interpreters)
}

/// Returns the same where clusters have Jobs with these completions.
fn rendered_beside(
    held: &BTreeMap<&str, u64>,
    template: &Value,
    spec: Value,
    interpreters: &Interpreters,
) -> Vec<Result<Rendered, muster_interpreter::Error>> {
    let origin = origin();
    let spec = serde_json::from_value(spec).unwrap();
    let unchanged = |_: &mut Value, _: &str| Ok::<_, muster_interpreter::Error>(Pairs::new());
    render(
        &origin,
        &spec,
        template,
        false,
        interpreters,
        held,
        unchanged,
    )
}

/// Returns the Work in `m1` that is rendered for a template; `more` is added to the spec beside the
/// targets.
fn work(template: &Value, more: &Value, interpreters: &Interpreters) -> Rendered {
    let mut spec = json!({ "replicas": 2, "clusters": [
        { "name": "m1", "replicas": 1 }, { "name": "m2", "replicas": 1 },
    ] });
    merge::apply(&mut spec, more);
    let works = rendered(template, spec, interpreters);
    works.into_iter().next().unwrap().unwrap()
}

#[test]
fn a_copy_goes_before_its_replacement_only_where_it_may_go_and_two_must_not_run() {
    let fenced = json!({ "cluster": { "fencing": { "afterSeconds": 60 } } });
    for (mode, suppressed, failover, goes) in [
        (json!("Directly"), Value::Null, Value::Null, true),
        (json!("Immediately"), Value::Null, Value::Null, true),
        (json!("Gracefully"), Value::Null, Value::Null, false),
        (json!("Graciously"), Value::Null, Value::Null, false),
        (json!("Gracefully"), Value::Null, fenced.clone(), true),
        (Value::Null, Value::Null, fenced.clone(), true),
        (Value::Null, json!(false), fenced.clone(), true),
        (Value::Null, json!(true), fenced.clone(), false),
        (json!("Never"), Value::Null, fenced.clone(), false),
        (json!("Never"), Value::Null, Value::Null, false),
        (json!("Directly"), Value::Null, fenced.clone(), true),
    ] {
        let spec: ResourceBindingSpec = serde_json::from_value(json!({
            "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "clusters": [{ "name": "m2" }], "failover": failover,
            "gracefulEvictionTasks": [{
                "fromCluster": "m1", "purgeMode": mode, "suppressDeletion": suppressed,
            }],
        }))
        .unwrap();
        let scope = Scope::of(&spec);
        let reported = (scope.purged_first.contains("m1"), expects(&spec, "m1"));
        assert_eq!(reported, (goes, !goes), "{mode} {suppressed} {failover}");
        assert_eq!(scope.expected.contains("m1"), !goes, "{mode} {suppressed}");
        let targets: Vec<_> = scope.targets.iter().map(|it| &*it.name).collect();
        assert_eq!(targets, ["m2"], "{mode}: the old copy is no target");
    }
}

#[test]
fn replicas_are_divided_only_where_no_components_are() {
    let script = "function ReviseReplica(o, n) o.spec.size = n return o end";
    let components = json!([{ "name": "worker", "replicas": 3 }]);
    for (what, more, size) in [
        ("none", json!({}), 1),
        ("of the workload", json!({ "components": components }), 6),
        (
            "of the target",
            json!({ "clusters": [{ "name": "m1", "replicas": 1, "components": components }] }),
            6,
        ),
    ] {
        let work = work(&widget(), &more, &revising(script));
        assert_eq!(work.manifest["spec"]["size"], size, "{what}");
    }
}

#[test]
fn completions_of_a_job_are_divided_and_those_of_nothing_else() {
    let divided = json!({ "replicaScheduling": { "replicaSchedulingType": "Divided" } });
    let duplicated = json!({ "replicaScheduling": { "replicaSchedulingType": "Duplicated" } });
    for (api_version, kind, placement, replicas, expected) in [
        ("batch/v1", "Job", &divided, 2, 5),
        ("batch/v1", "Job", &duplicated, 2, 10),
        ("batch/v1", "Job", &divided, 0, 5),
        ("batch.volcano.sh/v1alpha1", "Job", &divided, 2, 10),
        ("batch/v1", "Other", &divided, 2, 10),
    ] {
        let template = json!({ "apiVersion": api_version, "kind": kind,
            "metadata": { "name": "w", "namespace": "shop", "uid": "u" }, "spec": { "completions": 10 } });
        let more = json!({ "placement": placement, "replicas": replicas });
        let work = work(&template, &more, &Interpreters::default());
        let what = format!("{api_version} {kind} {placement} {replicas}");
        assert_eq!(work.manifest["spec"]["completions"], expected, "{what}");
    }
}

#[test]
fn a_work_says_the_generation_of_its_template_if_that_has_one() {
    for (generation, expected) in [
        (json!(3), Some("3")),
        (json!(1), Some("1")),
        (json!(0), None),
        (Value::Null, None),
    ] {
        let template = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "w", "namespace": "shop", "generation": generation } });
        let work = work(&template, &json!({}), &Interpreters::default());
        let reported = &work.manifest["metadata"]["annotations"];
        let reported = reported.get(annotation::TEMPLATE_GENERATION);
        assert_eq!(reported.and_then(Value::as_str), expected, "{generation}");
    }
}

/// Renders an Indexed Job with this number of completions and of pods at a time, which are divided
/// over these clusters; they have Jobs of it with the completions of `held`.
fn indexed(
    [completions, parallelism]: [u32; 2],
    clusters: &Value,
    held: &BTreeMap<&str, u64>,
) -> Vec<Rendered> {
    let template = json!({ "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": "w", "namespace": "shop", "uid": "u" },
        "spec": {
            "completionMode": "Indexed", "completions": completions, "parallelism": parallelism,
        } });
    let spec = json!({
        "replicas": parallelism, "clusters": clusters,
        "placement": { "replicaScheduling": { "replicaSchedulingType": "Divided" } },
    });
    let works = rendered_beside(held, &template, spec, &Interpreters::default());
    let works: Result<Vec<Rendered>, _> = works.into_iter().collect();
    works.unwrap()
}

#[test]
fn each_index_of_a_divided_job_is_done_once() {
    let clusters = json!([{ "name": "m1", "replicas": 1 }, { "name": "m2", "replicas": 1 }]);
    let works = indexed([4, 2], &clusters, &BTreeMap::new());
    // Each member counts the indexes of its Job from zero.
    let completions = |work: &Rendered| work.manifest["spec"]["completions"].as_u64().unwrap();
    let mut indexes: Vec<u64> = works.iter().flat_map(|it| 0..completions(it)).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 2, 3]);
}

#[test]
fn an_indexed_job_whose_two_numbers_are_scaled_together_is_scaled_where_it_is() {
    // API servers allow both to be changed while they are the same (KEP-3715).
    for number in [8, 2] {
        let clusters = json!([{ "name": "m1", "replicas": number }]);
        let works = indexed([number; 2], &clusters, &BTreeMap::from([("m1", 4)]));
        let asked = &works[0].manifest["spec"];
        assert_eq!(asked["parallelism"], number);
        assert_eq!(asked["completions"], number);
    }
}

#[test]
fn an_indexed_job_whose_pods_are_divided_is_not_asked_for_what_api_servers_refuse() {
    // One cluster was given all 8 completions, and each half of the pods.
    let held = BTreeMap::from([("m1", 8), ("m2", 0)]);
    for number in [10, 4] {
        let half = number / 2;
        let clusters =
            json!([{ "name": "m1", "replicas": half }, { "name": "m2", "replicas": half }]);
        let works = indexed([number; 2], &clusters, &held);
        let asked = &works[0].manifest["spec"];
        let is_kept = asked["completions"] == 8;
        let is_in_tandem = asked["completions"] == asked["parallelism"];
        assert!(
            is_kept || is_in_tandem,
            "the whole update is refused: {asked}"
        );
    }
}

#[test]
fn a_state_is_for_the_one_copy_beside_which_others_have_no_replicas() {
    let template = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "shop" }, "spec": { "replicas": 2 },
    });
    let task = json!({
        "fromCluster": "m1", "purgeMode": "Directly", "reason": "ApplicationFailure",
        "producer": "p", "preservedLabelState": { "job": "7f" }, "clustersBeforeFailover": ["m1"],
    });
    let state = json!("7f");
    for (shares, expected) in [
        ([("m2", 2), ("m3", 0)], [&state, &Value::Null]),
        ([("m3", 0), ("m2", 2)], [&Value::Null, &state]),
        ([("m2", 1), ("m3", 1)], [&Value::Null, &Value::Null]),
    ] {
        let clusters = shares.map(|(name, replicas)| json!({ "name": name, "replicas": replicas }));
        let spec = json!({
            "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
            "replicas": 2, "clusters": clusters, "gracefulEvictionTasks": [task],
        });
        let spec = serde_json::from_value(spec).unwrap();
        let works = render_plain(&origin(), &spec, &template, true).unwrap();
        let labels = [0, 1].map(|at: usize| &works[at].manifest["metadata"]["labels"]["job"]);
        assert_eq!(labels, expected, "{shares:?}");
    }
}
