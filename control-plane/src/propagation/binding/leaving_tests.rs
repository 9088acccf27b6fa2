//! Tests of what a binding does with the Works in clusters that it has left.

use http::Method;
use muster_shared::clock;
use muster_shared::names::annotation::DESELECTED;
use muster_shared::names::label::PROPAGATION_POLICY_ID;
use serde_json::{Value, json};

use super::replacing_tests::{apply, to};
use super::start;
use crate::fleet::template::Kind;
use crate::fleet::testing::{
    Bench, binding, claimed, cluster, deleting, deployment, pass, policy, work,
};

/// Returns the binding of a resource of namespace `shop`, which moved from `m1` to `m2`.
pub(super) fn moved(name: &str, api_version: &str, kind: &str) -> Value {
    let mut moved = binding();
    moved["metadata"]["name"] = json!(name);
    let labels = json!({
        "resourcebinding.karmada.io/permanent-id": name, PROPAGATION_POLICY_ID: "policy",
    });
    moved["metadata"]["labels"] = labels;
    moved["spec"]["resource"] = json!({
        "apiVersion": api_version, "kind": kind, "namespace": "shop", "name": "web",
    });
    moved["spec"]["clusters"] = json!([{"name": "m2", "replicas": 2}]);
    if kind != "Deployment" {
        moved["spec"]["replicas"] = json!(0);
        moved["spec"]["replicaRequirements"] = Value::Null;
        moved["spec"]["clusters"] = json!([{"name": "m2"}]);
    }
    moved
}

/// Returns the Work of such a binding in a cluster.
pub(super) fn work_of(binding: &Value, cluster: &str) -> Value {
    let mut work = work(cluster, "Healthy");
    let (name, resource) = (&binding["metadata"]["name"], &binding["spec"]["resource"]);
    work["metadata"]["name"] = name.clone();
    work["metadata"]["annotations"]["resourcebinding.karmada.io/name"] = name.clone();
    let manifest = json!({"apiVersion": resource["apiVersion"], "kind": resource["kind"]});
    work["spec"] = json!({"workload": {"manifests": [manifest]}});
    work
}

/// Returns the writes that concern a Work in `m1`: methods, and what is said of its object.
pub(super) fn written(bench: &Bench, name: &str) -> Vec<(Method, Value)> {
    let path = format!("/karmada-es-m1/works/{name}");
    let writes = bench.api.writes().into_iter();
    let of_work = writes.filter(|(_, at, _)| at.ends_with(&path));
    of_work
        .map(|(method, _, body)| (method, body["spec"]["preserveResourcesOnDeletion"].clone()))
        .collect()
}

/// Starts the controller with some objects and a kind that the API serves; it acts once that is
/// followed.
pub(super) fn started<'a>(objects: impl IntoIterator<Item = (&'a str, Value)>) -> Bench {
    let mut bench = Bench::new(objects);
    bench.api.serve_deployments();
    start(&bench.fleet, &mut bench.tasks);
    bench
}

/// Starts the controller with clusters, a Deployment, its binding and Works; it acts once they are
/// followed.
pub(super) fn bound(
    clusters: impl IntoIterator<Item = Value>,
    template: Value,
    binding: Value,
    works: impl IntoIterator<Item = Value>,
) -> Bench {
    let clusters = clusters.into_iter().map(|it| ("clusters", it));
    let works = works.into_iter().map(|it| ("works", it));
    let bound = [("deployments", template), ("resourcebindings", binding)];
    started(clusters.chain(bound).chain(works))
}

async fn bench<'a>(objects: impl IntoIterator<Item = (&'a str, Value)>) -> Bench {
    let clusters = ["m1", "m2"].map(|name| ("clusters", cluster(name)));
    let mut bench = Bench::new(clusters.into_iter().chain(objects));
    bench.run(start, 1).await;
    bench
}

/// Starts with a binding and its Works in both clusters, and with other bindings and Works.
async fn copied(
    binding: &Value,
    others: impl IntoIterator<Item = Value>,
    more: impl IntoIterator<Item = Value>,
) -> Bench {
    let works = ["m1", "m2"].map(|cluster| work_of(binding, cluster));
    let works = works.into_iter().chain(more).map(|it| ("works", it));
    let bindings = [binding.clone()].into_iter().chain(others);
    let bindings = bindings.map(|it| ("resourcebindings", it));
    bench(works.chain(bindings)).await
}

#[tokio::test(start_paused = true)]
async fn a_move_leaves_claims_in_the_member_and_removes_every_other_copy() {
    let gone = |stays| vec![(Method::PATCH, json!(stays)), (Method::DELETE, Value::Null)];
    let deleted = vec![(Method::DELETE, Value::Null)];
    let claim = "PersistentVolumeClaim";
    for (api_version, kind, preserves, says, expected) in [
        ("v1", claim, false, Value::Null, gone(true)),
        ("v1", claim, true, json!(true), deleted.clone()),
        ("v1", "ConfigMap", false, Value::Null, deleted.clone()),
        ("v1", "ConfigMap", true, json!(true), gone(false)),
        ("apps/v1", "Deployment", true, json!(true), gone(false)),
    ] {
        let mut binding = moved("web", api_version, kind);
        binding["spec"]["preserveResourcesOnDeletion"] = json!(preserves);
        let mut old = work_of(&binding, "m1");
        old["spec"]["preserveResourcesOnDeletion"] = says;
        let new = work_of(&binding, "m2");
        let objects = [
            ("resourcebindings", binding),
            ("works", old),
            ("works", new),
        ];
        let bench = bench(objects).await;
        assert_eq!(written(&bench, "web"), expected, "{kind} {preserves}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_an_edit_of_selectors_takes_away_keeps_what_is_preserved_there() {
    let released = vec![(Method::PATCH, json!(true)), (Method::DELETE, Value::Null)];
    let removed = vec![(Method::DELETE, Value::Null)];
    for (operator, taken, follows, expected) in [
        ("Exists", "m1", false, &released),
        ("Exists", "m1", true, &released),
        ("DoesNotExist", "m1", false, &removed),
        // The labels of m1 have changed.
        ("Exists", "m3", false, &removed),
        ("Exists", "m3", true, &removed),
    ] {
        let mut placed = moved("web", "v1", "ConfigMap");
        placed["metadata"]["annotations"] = json!({ DESELECTED: taken });
        placed["spec"]["preserveResourcesOnDeletion"] = json!(true);
        let selector = json!({"matchExpressions": [{"key": "tier", "operator": operator}]});
        placed["spec"]["placement"]["clusterAffinity"] = json!({"labelSelector": selector});
        let mut left = placed.clone();
        if follows {
            left = moved("conf", "v1", "Secret");
            let id = json!({"resourcebinding.karmada.io/permanent-id": "conf"});
            left["metadata"]["labels"] = id;
            let referrer =
                json!({"namespace": "shop", "name": "web", "clusters": [{"name": "m2"}]});
            left["spec"]["requiredBy"] = json!([referrer]);
            left["spec"]["placement"] = Value::Null;
            left["spec"]["clusters"] = json!([]);
            left["spec"]["preserveResourcesOnDeletion"] = json!(true);
        }
        let name = if follows { "conf" } else { "web" };
        let bench = copied(&left, [placed], []).await;
        let found = written(&bench, name);
        assert_eq!(found, *expected, "{operator}, {taken}, {follows}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_stays_until_the_next_one_is_made_although_its_dispatching_was_suspended_since() {
    for (is_applied, resumed) in [(false, false), (true, false), (false, true)] {
        let mut binding = moved("web", "apps/v1", "Deployment");
        binding["spec"]["suspension"] = json!({"dispatchingOnClusters": {"clusterNames": ["m2"]}});
        let (old, mut new) = (work_of(&binding, "m1"), work_of(&binding, "m2"));
        new["spec"]["suspendDispatching"] = json!(true);
        let applied = json!([{"type": "Applied", "status": "True", "reason": "r"}]);
        new["status"]["conditions"] = if is_applied { applied } else { json!([]) };
        let works = [("works", old), ("works", new)];
        let bench = bench(
            works
                .into_iter()
                .chain([("resourcebindings", binding.clone())]),
        )
        .await;
        if resumed {
            assert_eq!(written(&bench, "web"), []);
            binding["spec"]["suspension"] = Value::Null;
            binding["metadata"]["generation"] = json!(2);
            bench.api.put("resourcebindings", binding);
            pass(1).await;
            assert_eq!(written(&bench, "web"), []);
            apply(&bench, "m2");
            pass(60).await;
        }
        let goes = is_applied || resumed;
        let expected = goes.then_some((Method::DELETE, Value::Null));
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(written(&bench, "web"), expected, "{is_applied} {resumed}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_copy_that_is_kept_is_left_alone_once_its_dispatching_is_suspended() {
    for (suspension, expected) in [
        (Value::Null, Value::Null),
        (
            json!({"dispatchingOnClusters": {"clusterNames": ["m2"]}}),
            Value::Null,
        ),
        (
            json!({"dispatchingOnClusters": {"clusterNames": ["m1"]}}),
            json!(true),
        ),
        (json!({"dispatching": true}), json!(true)),
    ] {
        let mut binding = moved("web", "apps/v1", "Deployment");
        let task = json!({"fromCluster": "m1", "reason": "r", "producer": "p"});
        binding["spec"]["gracefulEvictionTasks"] = json!([task]);
        binding["spec"]["suspension"] = suspension.clone();
        let bench = copied(&binding, [], []).await;
        pass(60).await;
        let old = bench.api.object("works", "karmada-es-m1", "web").unwrap();
        let said = &old["spec"]["suspendDispatching"];
        assert_eq!(*said, expected, "{suspension}");
        let writes = written(&bench, "web").len();
        assert_eq!(writes, usize::from(!expected.is_null()), "{suspension}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_whose_updates_wait_for_a_fence_is_suspended_all_the_same() {
    let mut binding = to(&["m1"], 1);
    binding["spec"]["failover"] = json!({"cluster": {"fencing": {"afterSeconds": 60}}});
    binding["spec"]["suspension"] = json!({"dispatchingOnClusters": {"clusterNames": ["m1"]}});
    // A person keeps a copy from before the policy asked for fencing.
    binding["spec"]["gracefulEvictionTasks"] = json!([{
        "fromCluster": "m2", "purgeMode": "Never", "suppressDeletion": true,
        "reason": "r", "producer": "p",
    }]);
    let [mut work, old] = ["m1", "m2"].map(|it| work_of(&binding, it));
    let name = muster_shared::names::work("Deployment", "web", "shop");
    work["metadata"]["name"] = json!(name);
    let clusters = ["m1", "m2"].map(cluster);
    let mut bench = bound(clusters, deployment(2), binding, [work, old]);
    bench.follow_for(10).await;
    let work = bench.api.object("works", "karmada-es-m1", &name).unwrap();
    assert_eq!(work["spec"]["suspendDispatching"], json!(true));
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_places_beside_a_workload_leaves_a_cluster_after_the_workload() {
    let service = moved("service", "v1", "Service");
    let mut workload = moved("workload", "apps/v1", "Deployment");
    let task = json!({"fromCluster": "m1", "reason": "r", "producer": "p"});
    workload["spec"]["gracefulEvictionTasks"] = json!([task]);
    workload["metadata"]["generation"] = json!(1);
    let works = ["m1", "m2"].map(|cluster| work_of(&workload, cluster));
    let bench = copied(&service, [workload.clone()], works).await;
    assert_eq!(written(&bench, "service"), []);

    // The task has ended, and the Work of the old copy is still there.
    workload["spec"]["gracefulEvictionTasks"] = json!([]);
    workload["metadata"]["generation"] = json!(2);
    let leaving = deleting(work_of(&workload, "m1"));
    bench.api.put("works", leaving);
    bench.api.put("resourcebindings", workload);
    pass(60).await;
    assert_eq!(written(&bench, "service"), []);

    bench.api.delete("works", "karmada-es-m1", "workload");
    pass(1).await;
    assert_eq!(written(&bench, "service"), [(Method::DELETE, Value::Null)]);
}

#[tokio::test(start_paused = true)]
async fn a_workload_of_another_policy_or_namespace_keeps_nothing_beside_it() {
    let service = moved("service", "v1", "Service");
    let mut other_policy = moved("other", "apps/v1", "Deployment");
    other_policy["metadata"]["labels"][PROPAGATION_POLICY_ID] = json!("other");
    let mut other_namespace = moved("elsewhere", "apps/v1", "Deployment");
    other_namespace["metadata"]["namespace"] = json!("mall");
    for mut workload in [other_policy, other_namespace] {
        workload["spec"]["clusters"] = json!([{"name": "m1"}]);
        let bench = copied(&service, [workload], []).await;
        assert_eq!(written(&bench, "service"), [(Method::DELETE, Value::Null)]);
    }
}

/// Returns a policy that preserves what it places, and a binding of it that is being deleted.
fn preserving() -> (Value, Value) {
    let mut policy = policy();
    policy["spec"]["resourceSelectors"] = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
    policy["spec"]["preserveResourcesOnDeletion"] = json!(true);
    let mut binding = claimed(moved("web", "v1", "ConfigMap"));
    let finalizer = "karmada.io/binding-controller";
    binding["metadata"]["finalizers"] = json!([finalizer]);
    binding["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    (policy, binding)
}

#[tokio::test(start_paused = true)]
async fn what_the_policy_preserves_stays_although_the_binding_goes_in_the_same_second() {
    let (policy, binding) = preserving();
    let mut work = work_of(&binding, "m1");
    work["metadata"]["labels"] = binding["metadata"]["labels"].clone();
    let namespace = muster_shared::names::work("Namespace", "shop", "");
    let around = json!({
        "metadata": {"namespace": "karmada-es-m1", "name": namespace},
        "spec": {"workload": {"manifests": []}, "preserveResourcesOnDeletion": false},
    });
    let objects = [
        ("propagationpolicies", policy),
        ("resourcebindings", binding),
        ("works", work),
        ("works", around),
    ];
    let bench = bench(objects).await;
    let expected = [(Method::PATCH, json!(true)), (Method::DELETE, Value::Null)];
    assert_eq!(written(&bench, "web"), expected);
    let held = bench.api.object("works", "karmada-es-m1", &namespace);
    let says = &held.unwrap()["spec"]["preserveResourcesOnDeletion"];
    assert_eq!(*says, json!(true), "what stays lies in it");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_a_policy_propagates_stays_where_another_policy_preserves_something_in_it()
{
    let (policy, binding) = preserving();
    let mut work = work_of(&binding, "m1");
    work["metadata"]["labels"] = binding["metadata"]["labels"].clone();
    let deleted = "2024-01-01T00:00:00Z";
    let namespace = json!({
        "metadata": {
            "name": "shop", "uid": "n", "deletionTimestamp": deleted, "finalizers": ["kubernetes"],
        },
    });
    let mut of_namespace = json!({
        "metadata": {
            "name": "shop-namespace", "finalizers": ["karmada.io/cluster-resource-binding-controller"],
            "labels": {"clusterresourcebinding.karmada.io/permanent-id": "n"},
        },
        "spec": {
            "resource": {"apiVersion": "v1", "kind": "Namespace", "name": "shop"},
            "clusters": [{"name": "m1"}],
        },
    });
    let name = muster_shared::names::work("Namespace", "shop", "");
    let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let around = json!({
        "metadata": {
            "namespace": "karmada-es-m1", "name": name,
            "annotations": {"clusterresourcebinding.karmada.io/name": "shop-namespace"},
            "labels": {"clusterresourcebinding.karmada.io/permanent-id": "n"},
        },
        "spec": {"workload": {"manifests": [manifest]}, "preserveResourcesOnDeletion": false},
    });
    let mut bench = Bench::new([
        ("clusters", cluster("m1")),
        ("namespaces", namespace),
        ("propagationpolicies", policy),
        ("resourcebindings", binding),
        ("clusterresourcebindings", of_namespace.clone()),
        ("works", work),
        ("works", around),
    ]);
    bench.api.serve("/api/v1", "v1", "namespaces", "Namespace");
    let kind = Kind::new("v1", "Namespace");
    start(&bench.fleet, &mut bench.tasks);
    bench.fleet.follow_templates();
    bench.fleet.templates.name(&kind);
    bench.follow_for(60).await;
    of_namespace["metadata"]["deletionTimestamp"] = json!(deleted);
    bench.api.put("clusterresourcebindings", of_namespace);
    pass(60).await;
    let said = written(&bench, &name);
    assert_eq!(
        said.last(),
        Some(&(Method::DELETE, Value::Null)),
        "{said:?}"
    );
    let says_otherwise = |says: &Value| *says == json!(false);
    assert!(
        !said.iter().any(|(_, says)| says_otherwise(says)),
        "{said:?}"
    );
    assert!(said.contains(&(Method::PATCH, json!(true))), "{said:?}");
}

/// Returns a policy that preserves what it places, and the binding and the Work of a custom
/// resource in `m1`.
fn preserved_widget() -> [Value; 3] {
    let (policy, mut binding) = preserving();
    binding["spec"]["resource"]["apiVersion"] = json!("example.com/v1");
    binding["spec"]["resource"]["kind"] = json!("Widget");
    binding["spec"]["clusters"] = json!([{"name": "m1"}]);
    binding["spec"]["preserveResourcesOnDeletion"] = json!(true);
    binding["metadata"]["deletionTimestamp"] = Value::Null;
    let mut work = work_of(&binding, "m1");
    work["metadata"]["labels"] = binding["metadata"]["labels"].clone();
    [policy, binding, work]
}

const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

/// Returns a definition, its binding, and its Work in `m1`.
fn definition(plural: &str, kind: &str) -> [Value; 3] {
    let name = format!("{plural}.example.com");
    let binding = format!("{name}-customresourcedefinition");
    let labels = json!({"clusterresourcebinding.karmada.io/permanent-id": plural});
    let resource = json!({"apiVersion": DEFINITION.0, "kind": DEFINITION.1, "name": name});
    let spec = json!({"group": "example.com", "names": {"plural": plural, "kind": kind}});
    let manifest = json!({
        "apiVersion": DEFINITION.0, "kind": DEFINITION.1, "metadata": {"name": name}, "spec": spec,
    });
    let finalizer = "karmada.io/cluster-resource-binding-controller";
    let work = muster_shared::names::work(DEFINITION.1, &name, "");
    let annotations = json!({"clusterresourcebinding.karmada.io/name": binding});
    [
        json!({"metadata": {"name": name}, "spec": spec}),
        json!({
            "metadata": {"name": binding, "labels": labels, "finalizers": [finalizer]},
            "spec": {"resource": resource, "clusters": [{"name": "m1"}]},
        }),
        json!({
            "metadata": {
                "namespace": "karmada-es-m1", "name": work,
                "annotations": annotations, "labels": labels,
            },
            "spec": {"workload": {"manifests": [manifest]}, "preserveResourcesOnDeletion": false},
        }),
    ]
}

/// Starts the controller with a custom resource and definitions, and follows these.
async fn defined(
    [policy, binding, work]: [Value; 3],
    definitions: impl IntoIterator<Item = [Value; 3]>,
) -> Bench {
    let mut bench = Bench::new([
        ("clusters", cluster("m1")),
        ("propagationpolicies", policy),
        ("resourcebindings", binding),
        ("works", work),
    ]);
    for [definition, binding, work] in definitions {
        bench.api.put("customresourcedefinitions", definition);
        bench.api.put("clusterresourcebindings", binding);
        bench.api.put("works", work);
    }
    let (version, kind) = DEFINITION;
    let path = format!("/apis/{version}");
    let plural = "customresourcedefinitions";
    bench.api.serve(&path, version, plural, kind);
    start(&bench.fleet, &mut bench.tasks);
    bench.fleet.templates.name(&Kind::new(version, kind));
    bench.follow_for(60).await;
    bench
}

#[tokio::test(start_paused = true)]
async fn a_definition_stays_in_a_member_in_which_an_object_of_its_kind_is_preserved() {
    for is_needed in [false, true] {
        let mut widget = preserved_widget();
        if is_needed {
            // Its own policy says nothing, and a workload that was preserved needs it.
            let [policy, binding, work] = &mut widget;
            policy["spec"]["preserveResourcesOnDeletion"] = json!(false);
            binding["spec"]["preserveResourcesOnDeletion"] = json!(false);
            work["metadata"]["annotations"]["failover.muster.io/holds-preserved"] = json!("true");
        }
        let definitions = [
            definition("widgets", "Widget"),
            definition("others", "Other"),
        ];
        let works = definitions.each_ref().map(|it| it[2].clone());
        let mut binding = widget[1].clone();
        let bench = defined(widget, definitions).await;
        binding["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        bench.api.put("resourcebindings", binding);
        pass(60).await;
        for (work, expected) in works.iter().zip([true, false]) {
            let name = work["metadata"]["name"].as_str().unwrap();
            let held = bench.api.object("works", "karmada-es-m1", name).unwrap();
            let says = &held["spec"]["preserveResourcesOnDeletion"];
            assert_eq!(*says, json!(expected), "{name}, needed: {is_needed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_deleted_with_its_objects_stays_where_one_of_them_is_preserved() {
    for is_last in [true, false] {
        let widget = preserved_widget();
        let definition = definition("widgets", "Widget");
        let work = definition[2]["metadata"]["name"].clone();
        let mut bindings = [
            ("resourcebindings", "shop", widget[1].clone()),
            ("clusterresourcebindings", "", definition[1].clone()),
        ];
        let bench = defined(widget, [definition]).await;
        // The bindings go after what they are for, in one order or the other.
        let plural = "customresourcedefinitions";
        bench.api.delete(plural, "", "widgets.example.com");
        pass(1).await;
        if !is_last {
            bindings.reverse();
        }
        for (plural, namespace, mut binding) in bindings {
            binding["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            let name = binding["metadata"]["name"].clone();
            bench.api.put(plural, binding);
            pass(60).await;
            bench.api.delete(plural, namespace, name.as_str().unwrap());
            pass(1).await;
        }
        let said = written(&bench, work.as_str().unwrap());
        assert_eq!(said.last(), Some(&(Method::DELETE, Value::Null)));
        let last = said.iter().rfind(|(_, says)| !says.is_null());
        let last = last.map(|(_, says)| says);
        assert_eq!(last, Some(&json!(true)), "{is_last}: {said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_deleted_policy_placed_stays_together_for_a_process_that_started_since() {
    let mut service = moved("service", "v1", "Service");
    let mut workload = moved("workload", "apps/v1", "Deployment");
    for binding in [&mut service, &mut workload] {
        let labels = binding["metadata"]["labels"].as_object_mut().unwrap();
        labels.remove(PROPAGATION_POLICY_ID);
    }
    workload["spec"]["clusters"] = json!([{"name": "m1"}]);
    let bench = copied(&service, [workload], []).await;
    pass(60).await;
    assert_eq!(written(&bench, "service"), []);
}

#[tokio::test(start_paused = true)]
async fn a_target_whose_former_work_is_still_being_removed_replaces_nothing() {
    let binding = moved("web", "apps/v1", "Deployment");
    let old = work_of(&binding, "m1");
    let former = deleting(work_of(&binding, "m2"));
    let objects = [
        ("resourcebindings", binding),
        ("works", old),
        ("works", former),
    ];
    let bench = bench(objects).await;
    pass(60).await;
    assert_eq!(written(&bench, "web"), []);
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_placed_stays_beside_its_workload_when_the_policy_is_deleted() {
    let mut service = moved("service", "v1", "Service");
    let mut workload = moved("workload", "apps/v1", "Deployment");
    workload["spec"]["clusters"] = json!([{"name": "m1"}]);
    service["spec"]["clusters"] = json!([{"name": "m1"}, {"name": "m2"}]);
    service["metadata"]["generation"] = json!(1);
    let bench = copied(&service, [workload.clone()], []).await;
    for binding in [&mut service, &mut workload] {
        let labels = binding["metadata"]["labels"].as_object_mut().unwrap();
        labels.remove(PROPAGATION_POLICY_ID);
        bench.api.put("resourcebindings", binding.clone());
    }
    pass(1).await;
    service["spec"]["clusters"] = json!([{"name": "m2"}]);
    service["metadata"]["generation"] = json!(2);
    bench.api.put("resourcebindings", service);
    pass(60).await;
    assert_eq!(written(&bench, "service"), []);
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_depends_on_leaves_a_cluster_after_it() {
    let mut secret = moved("secret", "v1", "Secret");
    secret["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "secret"});
    let referrer = json!({"namespace": "shop", "name": "workload", "clusters": [{"name": "m2"}]});
    secret["spec"]["requiredBy"] = json!([referrer]);
    secret["spec"]["clusters"] = json!([]);
    secret["spec"]["placement"] = Value::Null;
    let workload = moved("workload", "apps/v1", "Deployment");
    let leaving = deleting(work_of(&workload, "m1"));
    let bench = copied(&secret, [workload], [leaving]).await;
    pass(10).await;
    assert_eq!(written(&bench, "secret"), []);
    bench.api.delete("works", "karmada-es-m1", "workload");
    pass(1).await;
    assert_eq!(written(&bench, "secret"), [(Method::DELETE, Value::Null)]);
}

#[tokio::test(start_paused = true)]
async fn what_a_copy_of_a_policy_places_waits_for_no_workload_of_the_original() {
    for (policy, waits) in [("original", true), ("copy", false)] {
        let of = |name: &str, mut binding: Value| {
            binding["metadata"]["annotations"] = json!({
                "propagationpolicy.karmada.io/namespace": "shop",
                "propagationpolicy.karmada.io/name": name,
            });
            binding
        };
        let service = of(policy, moved("service", "v1", "Service"));
        let workload = of("original", moved("workload", "apps/v1", "Deployment"));
        let mut leaving = deleting(work_of(&workload, "m1"));
        leaving["metadata"]["finalizers"] = json!(["karmada.io/execution-controller"]);
        let bench = copied(&service, [workload], [leaving]).await;
        pass(10).await;
        let deleted = written(&bench, "service");
        let is_deleted = deleted.contains(&(Method::DELETE, Value::Null));
        assert_eq!(is_deleted, !waits, "{policy}: {deleted:?}");
    }
}

/// Returns what is written in a minute of the copy in m1 of a Secret without a policy of its own
/// that is preserved as its workloads are, and that these need in m2.
async fn preserved_dependency_of(workloads: &[&Value]) -> Vec<(Method, Value)> {
    let referrers = workloads.iter().map(|it| {
        let name = &it["metadata"]["name"];
        json!({"namespace": "shop", "name": name, "clusters": [{"name": "m2"}]})
    });
    let mut secret = moved("secret", "v1", "Secret");
    secret["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "secret"});
    secret["spec"]["requiredBy"] = referrers.collect();
    secret["spec"]["clusters"] = json!([]);
    secret["spec"]["placement"] = Value::Null;
    secret["spec"]["preserveResourcesOnDeletion"] = json!(true);
    let copies = ["m1", "m2"].map(|cluster| {
        let mut work = work_of(&secret, cluster);
        work["spec"]["preserveResourcesOnDeletion"] = json!(true);
        ("works", work)
    });
    let works = workloads.iter().map(|it| ("works", work_of(it, "m2")));
    let bindings = workloads.iter().copied().chain([&secret]);
    let bindings = bindings.map(|it| ("resourcebindings", it.clone()));
    let bench = bench(copies.into_iter().chain(works).chain(bindings)).await;
    pass(60).await;
    written(&bench, "secret")
}

#[tokio::test(start_paused = true)]
async fn what_a_preserved_workload_needs_stays_with_it_and_leaves_where_it_moved_away_from() {
    let mut workload = moved("workload", "apps/v1", "Deployment");
    workload["spec"]["preserveResourcesOnDeletion"] = json!(true);
    // The copy in m1 was released when a person took the cluster out of the policy.
    let mut deselected = workload.clone();
    deselected["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m2"]);
    // This one was never in m1, and its policy names no clusters.
    let mut other = moved("other", "apps/v1", "Deployment");
    other["spec"]["placement"] = json!({});
    let stays = [(Method::DELETE, Value::Null)];
    let leaves = [(Method::PATCH, json!(false)), (Method::DELETE, Value::Null)];
    for (what, workloads, expected) in [
        ("it was deleted", &[][..], &stays[..]),
        ("its policy deselects m1", &[&deselected], &stays),
        ("another one needs it in m2", &[&deselected, &other], &stays),
        ("it moved away", &[&workload], &leaves),
    ] {
        let written = preserved_dependency_of(workloads).await;
        assert_eq!(written, expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_serves_many_workloads_is_not_reconciled_each_time_that_one_of_them_leaves() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use muster_shared::queue::{Next, Queue};
    use tokio_util::sync::CancellationToken;

    use super::companions::Companions;

    const WORKLOADS: usize = 100;
    const SERVICES: usize = 10;
    let services = (0..SERVICES).map(|it| moved(&format!("service-{it}"), "v1", "Service"));
    let services: Vec<_> = services.collect();
    let workloads = (0..WORKLOADS).map(|it| moved(&format!("w{it:02}"), "apps/v1", "Deployment"));
    let all = || services.iter().cloned().chain(workloads.clone());
    let bindings = all().map(|it| ("resourcebindings", it));
    let works = all().map(|it| ("works", work_of(&it, "m1")));
    let mut bench = Bench::new(bindings.chain(works));
    let queue = Queue::new("looks");
    let companions = Companions::default();
    companions.follow(&bench.fleet, &queue);
    bench.follow().await;
    for service in bench.fleet.bindings.iter() {
        queue.add(crate::fleet::binding::BindingKey::of(&service));
    }
    let (looks, over) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let check = {
        let (fleet, looks) = (Arc::clone(&bench.fleet), Arc::clone(&looks));
        move |key: crate::fleet::binding::BindingKey| {
            let binding = fleet.bindings.get(&key).unwrap();
            let works = fleet.work_index.of(&key);
            let kept = companions.kept(&fleet, &key, &binding, works.iter());
            looks.fetch_add(usize::from(!kept.is_empty()), Ordering::Relaxed);
            async { Ok::<_, std::convert::Infallible>(Next::Done) }
        }
    };
    let run = clock::spawn(queue.clone().run(4, over.clone(), check));
    pass(1).await;
    // An evicted cluster is left in the order of names.
    for it in 0..WORKLOADS {
        bench
            .api
            .delete("works", "karmada-es-m1", &format!("w{it:02}"));
        pass(1).await;
    }
    over.cancel();
    run.await.unwrap();
    let looks = looks.load(Ordering::Relaxed);
    assert!(looks >= SERVICES, "they wait");
    assert!(looks <= 20 * SERVICES, "{looks} looks that found nothing");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_a_workload_takes_nothing_away_from_beside_it() {
    let mut service = moved("service", "v1", "Service");
    let mut workload = moved("workload", "apps/v1", "Deployment");
    workload["spec"]["clusters"] = json!([{"name": "m1"}]);
    // A complete list that lacks it does not say that it is gone.
    workload["metadata"]["finalizers"] = json!(["karmada.io/binding-controller"]);
    service["spec"]["clusters"] = json!([{"name": "m1"}, {"name": "m2"}]);
    service["metadata"]["generation"] = json!(1);
    let other = work_of(&workload, "m1");
    let bench = copied(&service, [workload], [other]).await;
    bench.api.hide("resourcebindings", "shop", "workload");
    pass(60).await;
    let held = bench.binding("workload");
    assert!(held.is_none(), "the list is short");
    service["spec"]["clusters"] = json!([{"name": "m2"}]);
    service["metadata"]["generation"] = json!(2);
    bench.api.put("resourcebindings", service);
    pass(60).await;
    assert_eq!(written(&bench, "service"), []);
    assert_eq!(written(&bench, "workload"), []);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_leaves_although_the_binding_does_not_remove_a_work_there_any_more() {
    let mut binding = moved("web", "apps/v1", "Deployment");
    let (mut old, mut new) = (work_of(&binding, "m1"), work_of(&binding, "m2"));
    old["metadata"]["uid"] = json!("old");
    let mut leaving = cluster("m1");
    leaving["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
    let namespace = json!({"metadata": {"name": "karmada-es-m1", "finalizers": ["kubernetes"]}});
    let mut bench = Bench::new([
        ("clusters", leaving.clone()),
        ("clusters", cluster("m2")),
        ("namespaces", namespace),
        ("resourcebindings", binding.clone()),
        ("works", old),
        ("works", new.clone()),
    ]);
    crate::clusters::cluster::start(&bench.fleet, &mut bench.tasks);
    start(&bench.fleet, &mut bench.tasks);
    let path = "/karmada-es-m1/works/web";
    bench.api.refuse(Method::DELETE, path, 500, "web");
    bench.follow_for(1).await;
    let asked = written(&bench, "web").into_iter();
    assert!(asked.map(|it| it.0).any(|it| it == Method::DELETE));
    // Before the deletion is tried again, the copy becomes the last one that may run.
    binding["spec"]["suspension"] = json!({"dispatching": true});
    binding["metadata"]["generation"] = json!(2);
    new["status"]["conditions"][0]["status"] = json!("False");
    new["status"]["manifestStatuses"] = Value::Null;
    bench.api.put("works", new);
    bench.api.put("resourcebindings", binding);
    bench.api.answer_truly();
    pass(60).await;
    assert!(bench.api.object("works", "karmada-es-m1", "web").is_some());
    bench.api.put("clusters", deleting(leaving));
    pass(300).await;
    assert_eq!(bench.api.object("works", "karmada-es-m1", "web"), None);
}

#[tokio::test(start_paused = true)]
async fn a_binding_does_not_take_back_what_is_said_of_a_copy_in_a_cluster_that_leaves() {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "shop", "name": "web", "uid": "t"},
    });
    let mut binding = moved("web", "v1", "PersistentVolumeClaim");
    binding["spec"]["clusters"] = json!([{"name": "m1"}]);
    let mut leaving = cluster("m1");
    leaving["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
    let namespace = json!({"metadata": {"name": "karmada-es-m1", "finalizers": ["kubernetes"]}});
    let mut bench = Bench::new([
        ("clusters", leaving.clone()),
        ("namespaces", namespace),
        ("persistentvolumeclaims", claim),
        ("resourcebindings", binding),
    ]);
    let (plural, kind) = ("persistentvolumeclaims", "PersistentVolumeClaim");
    bench.api.serve("/api/v1", "v1", plural, kind);
    crate::clusters::cluster::start(&bench.fleet, &mut bench.tasks);
    start(&bench.fleet, &mut bench.tasks);
    bench.fleet.follow_templates();
    bench.fleet.templates.name(&Kind::new("v1", kind));
    bench.follow_for(10).await;
    let work = muster_shared::names::work(kind, "web", "shop");
    assert!(bench.api.object("works", "karmada-es-m1", &work).is_some());
    bench.api.forget();
    // The answers are slower than the watch.
    let path = format!("/works/{work}");
    bench
        .api
        .delay(Method::PATCH, &path, std::time::Duration::from_secs(2));
    bench.api.put("clusters", deleting(leaving));
    pass(10).await;
    let expected = [(Method::PATCH, json!(true)), (Method::DELETE, Value::Null)];
    assert_eq!(
        written(&bench, &work),
        expected,
        "the data stay in the member"
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_a_claim_for_storage_deletes_no_data_when_its_policy_is_deleted() {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": "shop", "name": "web", "uid": "t"},
    });
    let mut binding = moved("web", "v1", "PersistentVolumeClaim");
    binding["metadata"]["finalizers"] = json!(["karmada.io/binding-controller"]);
    binding["metadata"]["generation"] = json!(1);
    let mut work = work_of(&binding, "m2");
    work["metadata"]["labels"] = binding["metadata"]["labels"].clone();
    let mut bench = Bench::new([
        ("clusters", cluster("m2")),
        ("persistentvolumeclaims", claim),
        ("resourcebindings", binding.clone()),
        ("works", work),
    ]);
    let (plural, kind) = ("persistentvolumeclaims", "PersistentVolumeClaim");
    bench.api.serve("/api/v1", "v1", plural, kind);
    start(&bench.fleet, &mut bench.tasks);
    bench.fleet.follow_templates();
    bench.fleet.templates.name(&Kind::new("v1", kind));
    bench.follow_for(10).await;
    bench.api.forget();
    bench.api.hide(plural, "shop", "web");
    pass(5).await;
    bench.api.show_again(plural, "shop", "web");
    binding["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    binding["metadata"]["generation"] = json!(2);
    bench.api.put("resourcebindings", binding);
    pass(5).await;
    let of_work = |(method, at, body): (Method, String, Value)| {
        at.ends_with("/karmada-es-m2/works/web")
            .then(|| (method, body["spec"]["preserveResourcesOnDeletion"].clone()))
    };
    let written: Vec<_> = bench.api.writes().into_iter().filter_map(of_work).collect();
    let expected = [(Method::PATCH, json!(true)), (Method::DELETE, Value::Null)];
    assert_eq!(written, expected);
}
