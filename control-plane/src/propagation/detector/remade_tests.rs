//! A binding that is deleted although its template stays.

use serde_json::{Value, json};

use crate::fleet::testing::{self, Bench, FakeApi, cluster, deleting, pass};

/// Starts the controllers that make bindings and Works.
async fn start(bench: &mut Bench) {
    crate::propagation::detector::start(&bench.fleet, &mut bench.tasks);
    crate::propagation::binding::start(&bench.fleet, &mut bench.tasks);
    bench.follow().await;
}

/// Has the API delete a binding.
fn unbind(bench: &Bench, name: &str) {
    bench.api.delete("resourcebindings", "shop", name);
}

/// Returns the clusters of the binding of the Deployment, which has been made again.
fn made_again(bench: &Bench) -> Vec<String> {
    let made = bench.binding("web-deployment").expect("made again");
    let clusters = made.spec.clusters.iter();
    clusters.map(|it| it.name.clone()).collect()
}

/// Has cluster `m1` take nothing new.
async fn cordon(bench: &Bench) {
    let mut cordoned = cluster("m1");
    cordoned["metadata"]["generation"] = json!(2);
    cordoned["spec"]["taints"] = json!([{"key": "cordoned", "effect": "NoSchedule"}]);
    bench.api.put("clusters", cordoned);
    pass(10).await;
}

/// Has a person delete the binding of the Deployment, the Work of which in `m1` the API does not
/// delete for a moment, and lose patience: the finalizer is about to be taken off.
async fn delete_in_vain(bench: &Bench, work: &str) {
    let path = format!("/karmada-es-m1/works/{work}");
    bench.api.cut(http::Method::DELETE, &path);
    let bound = deleting(bench.api.binding("web-deployment"));
    bench.api.put("resourcebindings", bound);
    pass(5).await;
    bench.api.answer_truly();
    bench.api.serve_deployments();
}

/// Returns the policy `shop/web` with these words.
fn saying(words: &Value) -> Value {
    let mut policy = testing::policy();
    policy["metadata"]["generation"] = json!(1);
    policy["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    muster_shared::merge::apply(&mut policy["spec"], words);
    policy
}

/// Returns a fleet in which a policy has placed the Deployment `shop/web` and the ConfigMap
/// `shop/conf` that it needs in `m1`.
async fn placed() -> Bench {
    placed_in(&["m1"]).await
}

/// Returns such a fleet with these clusters, in the last of which the two are.
async fn placed_in(clusters: &[&str]) -> Bench {
    let policy = saying(&json!({
        "propagateDeps": true,
        "placement": {"spreadConstraints": [{
            "spreadByField": "cluster", "minGroups": 1, "maxGroups": 1,
        }]},
    }));
    let volume = json!({"name": "c", "configMap": {"name": "conf"}});
    let pod = json!({"spec": {"containers": [], "volumes": [volume]}});
    let mut template = template_of("apps/v1", "Deployment", "web");
    template["spec"] = json!({"replicas": 2, "template": pod});
    let needed = template_of("v1", "ConfigMap", "conf");
    let objects = [
        ("propagationpolicies", policy),
        ("deployments", template),
        ("configmaps", needed),
    ];
    let members = clusters.iter().map(|it| ("clusters", cluster(it)));
    let mut bench = Bench::new(members.chain(objects));
    bench.api.serve_deployments();
    bench.api.serve("/api/v1", "v1", "configmaps", "ConfigMap");
    start(&mut bench).await;
    pass(30).await;
    let last = clusters.last().expect("a cluster");
    let targets = json!([{"name": last, "replicas": 2}]);
    place(&bench, "web-deployment", targets).await;
    bench
}

/// Returns an object of the namespace `shop` that policies place.
fn template_of(api_version: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "namespace": "shop", "name": name, "uid": kind,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
    })
}

/// Returns the Works that were deleted.
fn deleted(bench: &Bench) -> Vec<String> {
    let writes = bench.api.writes().into_iter();
    let deleted = writes.filter(|it| it.0 == http::Method::DELETE && it.1.contains("/works/"));
    deleted.map(|it| it.1).collect()
}

#[tokio::test(start_paused = true)]
async fn the_copies_of_a_template_stay_while_the_api_refuses_to_make_its_binding_again() {
    // What a workload needs may leave with its binding.
    for (name, works) in [
        ("web-deployment", "/works/web-"),
        ("conf-configmap", "/works/"),
    ] {
        let bench = placed().await;
        assert_eq!(bench.fleet.works.len(), 2);
        bench.api.forget();
        refuse_bindings(&bench.api);
        unbind(&bench, name);
        pass(120).await;
        assert!(bench.binding(name).is_none());
        let deleted = deleted(&bench).into_iter();
        let deleted = deleted.filter(|it| it.contains(works));
        assert_eq!(deleted.count(), 0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_needs_stays_when_its_binding_or_its_own_is_deleted_and_made_again() {
    let bench = placed().await;
    for name in ["web-deployment", "conf-configmap"] {
        let needed = bench.binding("conf-configmap").expect("attached");
        assert_eq!(needed.spec.required_by.len(), 1, "{name}");
        assert_eq!(bench.fleet.works.len(), 2, "{name}");
        bench.api.forget();
        unbind(&bench, name);
        pass(60).await;
        assert!(bench.binding(name).is_some(), "{name} is made again");
        assert_eq!(deleted(&bench), [""; 0], "{name}");
    }
    let needed = bench.binding("conf-configmap").expect("attached");
    assert_eq!(needed.spec.required_by.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_copies_of_a_template_stay_although_none_would_be_placed_there_now() {
    let bench = placed().await;
    assert_eq!(bench.fleet.works.len(), 2);
    cordon(&bench).await;
    bench.api.forget();
    unbind(&bench, "web-deployment");
    pass(60).await;
    assert_eq!(made_again(&bench), ["m1"]);
    assert_eq!(deleted(&bench), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_made_again_names_the_clusters_that_have_its_copies() {
    let bench = placed_in(&["m1", "m2"]).await;
    // The agent of the cluster that they were in before has removed them.
    for work in bench.fleet.works.list_in("karmada-es-m1") {
        let name = work.metadata.name.as_deref().unwrap_or_default();
        bench.api.delete("works", "karmada-es-m1", name);
        pass(30).await;
    }
    assert_eq!(bench.fleet.works.list_in("karmada-es-m1").len(), 0);
    assert_eq!(bench.fleet.works.list_in("karmada-es-m2").len(), 2);
    bench.api.forget();
    unbind(&bench, "web-deployment");
    pass(60).await;
    assert_eq!(made_again(&bench), ["m2"]);
    assert_eq!(deleted(&bench), [""; 0]);
}

/// Returns a policy of the namespace `shop` that selects a kind, divides replicas where there are
/// any, and has what is needed go along.
fn policy(api_version: &str, kind: &str) -> Value {
    saying(&json!({
        "resourceSelectors": [{"apiVersion": api_version, "kind": kind}],
        "propagateDeps": true,
        "placement": {"replicaScheduling": {
            "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
        }},
    }))
}

/// Has the API keep a binding with these clusters as its scheduler would.
async fn place(bench: &Bench, name: &str, clusters: Value) {
    let named = ("resourcebindings", "shop", name);
    let mut bound = bench.api.object(named.0, named.1, named.2).expect("bound");
    bound["spec"]["clusters"] = clusters;
    bound["metadata"]["generation"] = json!(7);
    bench.api.put(named.0, bound);
    pass(30).await;
}

/// Returns a process that starts over the objects of another one. `edit` changes its API before.
async fn restarted(before: &Bench, plurals: &[&str], edit: impl Fn(&FakeApi)) -> Bench {
    let objects = plurals
        .iter()
        .flat_map(|plural| before.api.all(plural).into_iter().map(|it| (*plural, it)));
    let mut bench = Bench::new(objects);
    bench.api.serve_deployments();
    bench.api.serve("/api/v1", "v1", "configmaps", "ConfigMap");
    edit(&bench.api);
    start(&mut bench).await;
    bench
}

const ALL: [&str; 6] = [
    "clusters",
    "propagationpolicies",
    "deployments",
    "configmaps",
    "resourcebindings",
    "works",
];

/// Has the API refuse to make bindings.
fn refuse_bindings(api: &FakeApi) {
    api.refuse(http::Method::POST, "/resourcebindings", 503, "");
}

#[tokio::test(start_paused = true)]
async fn the_copies_stay_of_a_template_whose_binding_has_another_name_than_the_template() {
    for name in ["team:reader", "TeamReader"] {
        let version = "rbac.authorization.k8s.io/v1";
        let mut template = template_of(version, "Role", name);
        template["rules"] = json!([]);
        let mut bench = Bench::new([
            ("clusters", cluster("m1")),
            ("propagationpolicies", policy(version, "Role")),
            ("roles", template),
        ]);
        let path = format!("/apis/{version}");
        bench.api.serve(&path, version, "roles", "Role");
        start(&mut bench).await;
        pass(30).await;
        let binding = muster_shared::names::binding("Role", name);
        place(&bench, &binding, json!([{"name": "m1"}])).await;
        assert_eq!(bench.fleet.works.len(), 1);
        refuse_bindings(&bench.api);
        unbind(&bench, &binding);
        pass(60).await;
        assert_eq!(deleted(&bench), [""; 0], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_copies_stay_of_a_template_whose_kind_cannot_be_listed_by_a_process_that_starts() {
    let before = placed().await;
    unbind(&before, "web-deployment");
    let bench = restarted(&before, &ALL, |api| {
        api.delete("resourcebindings", "shop", "web-deployment");
        api.refuse(http::Method::GET, "/apis/apps/v1", 503, "");
    })
    .await;
    pass(120).await;
    assert_eq!(deleted(&bench), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_needs_stays_while_a_process_that_starts_cannot_find_out_what_that_is() {
    for (what, method, path) in [
        ("its kind", http::Method::GET, "/apis/apps/v1"),
        (
            "its dependencies",
            http::Method::PATCH,
            "/resourcebindings/web-deployment",
        ),
    ] {
        let before = placed().await;
        assert_eq!(before.fleet.works.len(), 2);
        let bench = restarted(&before, &ALL, |api| {
            api.delete("resourcebindings", "shop", "conf-configmap");
            refuse_bindings(api);
            api.refuse(method.clone(), path, 503, "");
            let mut bound = api.binding("web-deployment");
            let annotations = bound["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.remove(muster_shared::names::annotation::DEPENDENCIES);
            api.put("resourcebindings", bound);
        })
        .await;
        pass(120).await;
        assert_eq!(deleted(&bench), [""; 0], "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_made_again_is_placed_anew_although_its_former_works_are_still_shown() {
    let bench = placed_in(&["m2", "m1"]).await;
    cordon(&bench).await;
    let template = bench.api.deployment();
    // The cache is behind: the API has taken the deletion.
    for work in bench.api.all("works") {
        let name = work["metadata"]["name"].as_str().unwrap().to_owned();
        let path = format!("/works/{name}");
        bench.api.answer(http::Method::DELETE, &path, 200, work);
        bench.api.refuse(http::Method::GET, &path, 404, &name);
    }
    let mut again = template.clone();
    again["metadata"]["uid"] = json!("t2");
    bench.api.delete("deployments", "shop", "web");
    let bound = deleting(bench.api.binding("web-deployment"));
    bench.api.put("resourcebindings", bound);
    pass(1).await;
    assert!(bench.binding("web-deployment").is_none(), "it is gone");
    again["metadata"]["labels"] = Value::Null;
    again["metadata"]["annotations"] = Value::Null;
    bench.api.put("deployments", again);
    pass(5).await;
    assert_eq!(made_again(&bench), ["m2"]);
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_made_again_gives_each_cluster_what_it_has_whatever_the_kind_calls_it() {
    let pod = json!({"spec": {"containers": []}});
    let mut template = template_of("batch/v1", "Job", "web");
    template["spec"] = json!({"parallelism": 4, "completions": 4, "template": pod});
    let mut bench = Bench::new([
        ("clusters", cluster("m1")),
        ("clusters", cluster("m2")),
        ("propagationpolicies", policy("batch/v1", "Job")),
        ("jobs", template),
    ]);
    bench.api.serve("/apis/batch/v1", "batch/v1", "jobs", "Job");
    start(&mut bench).await;
    pass(30).await;
    let shares = json!([{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]);
    place(&bench, "web-job", shares).await;
    assert_eq!(bench.fleet.works.len(), 2);
    bench.api.forget();
    unbind(&bench, "web-job");
    pass(60).await;
    let made = bench.binding("web-job").expect("made again");
    let shares: Vec<_> = made
        .spec
        .clusters
        .iter()
        .map(|it| (&*it.name, it.replicas))
        .collect();
    let asked = |cluster: &str| {
        let namespace = muster_shared::names::execution_namespace(cluster);
        let works = bench.api.all("works").into_iter();
        let mut works = works.filter(|it| it["metadata"]["namespace"] == json!(namespace));
        works
            .next()
            .map(|it| it["spec"]["workload"]["manifests"][0]["spec"]["parallelism"].clone())
    };
    assert_eq!(["m1", "m2"].map(asked), [3, 1].map(|it| Some(json!(it))));
    assert_eq!(shares, [("m1", 3), ("m2", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_binding_of_a_lazy_policy_is_made_again_by_a_process_that_starts() {
    let before = placed().await;
    let bench = restarted(&before, &ALL, |api| {
        api.delete("resourcebindings", "shop", "web-deployment");
        let mut lazy = api.object("propagationpolicies", "shop", "web").unwrap();
        lazy["spec"]["activationPreference"] = json!("Lazy");
        lazy["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
        api.put("propagationpolicies", lazy);
    })
    .await;
    pass(120).await;
    assert_eq!(deleted(&bench), [""; 0]);
    assert_eq!(made_again(&bench), ["m1"]);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_leaves_although_the_deletion_of_a_work_there_failed_and_its_binding_is_gone() {
    for fails in [false, true] {
        let id = json!({"propagationpolicy.karmada.io/permanent-id": "p"});
        let mut template = template_of("apps/v1", "Deployment", "web");
        template["spec"] = json!({"replicas": 2, "template": {"spec": {"containers": []}}});
        template["metadata"]["labels"] = id;
        let mut leaving = cluster("m1");
        leaving["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
        let namespace =
            json!({"metadata": {"name": "karmada-es-m1", "finalizers": ["kubernetes"]}});
        let mut bench = Bench::new([
            ("clusters", leaving.clone()),
            ("namespaces", namespace),
            ("propagationpolicies", policy("apps/v1", "Deployment")),
            ("deployments", template),
        ]);
        bench.api.serve_deployments();
        crate::clusters::cluster::start(&bench.fleet, &mut bench.tasks);
        start(&mut bench).await;
        pass(30).await;
        let targets = json!([{"name": "m1", "replicas": 2}]);
        place(&bench, "web-deployment", targets).await;
        let name = muster_shared::names::work("Deployment", "web", "shop");
        let work = || bench.api.object("works", "karmada-es-m1", &name);
        assert!(work().is_some());
        if fails {
            delete_in_vain(&bench, &name).await;
        }
        // A webhook keeps it from being made again.
        refuse_bindings(&bench.api);
        unbind(&bench, "web-deployment");
        pass(60).await;
        assert!(work().is_some(), "{fails}: a policy claims its template");
        bench.api.forget();
        bench.api.put("clusters", deleting(leaving));
        pass(60 * 60).await;
        let stays = work().is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null());
        let reported = bench.api.reported().await;
        let reported = reported.iter().any(|it| it.0 == "m1");
        assert!(
            !stays || reported,
            "{fails}: it waits for an hour, and nothing says why"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_works_of_a_lost_binding_go_or_somebody_is_reported_although_nobody_finds_out_what_another_needs()
 {
    let work = || {
        let mut work = crate::fleet::testing::work("m1", "Healthy");
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        work["metadata"]["name"] = json!("old");
        work["metadata"]["annotations"]["resourcebinding.karmada.io/name"] = json!("old-configmap");
        work["spec"] = json!({"workload": {"manifests": [manifest]}});
        work
    };
    // A binding that takes along what its workload needs, of a template that is gone for good.
    for (what, api_version, kind) in [
        ("nothing else is there", "", ""),
        ("the template does not exist", "apps/v1", "Deployment"),
        ("the kind does not exist", "example.com/v1", "Widget"),
    ] {
        let mut other = crate::fleet::testing::binding();
        other["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "b"});
        other["spec"]["resource"]["apiVersion"] = json!(api_version);
        other["spec"]["resource"]["kind"] = json!(kind);
        other["spec"]["propagateDeps"] = json!(true);
        let other = (!kind.is_empty()).then_some(("resourcebindings", other));
        let objects = [("clusters", cluster("m1")), ("works", work())];
        let mut bench = Bench::new(objects.into_iter().chain(other));
        bench.api.serve_deployments();
        bench.api.serve("/api/v1", "v1", "configmaps", "ConfigMap");
        start(&mut bench).await;
        let mut is_silent = true;
        for _ in 0..24 {
            pass(60 * 60).await;
            is_silent = deleted(&bench).is_empty() && bench.api.reported().await.is_empty();
            if !is_silent {
                break;
            }
        }
        assert!(!is_silent, "{what}: silence for a day");
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_made_again_names_the_cluster_of_a_copy_whose_deletion_failed() {
    for fails in [false, true] {
        // The last cluster has the copies, and takes nothing new.
        let bench = placed_in(&["m2", "m1"]).await;
        cordon(&bench).await;
        let name = muster_shared::names::work("Deployment", "web", "shop");
        if fails {
            delete_in_vain(&bench, &name).await;
            // It answers slowly still.
            let slow = std::time::Duration::from_secs(2);
            let path = format!("/works/{name}");
            bench.api.delay(http::Method::GET, &path, slow);
        }
        unbind(&bench, "web-deployment");
        pass(5 * 60).await;
        let clusters = made_again(&bench);
        let work = bench.api.object("works", "karmada-es-m1", &name);
        let is_there = work.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(
            (clusters, is_there),
            (vec!["m1".to_owned()], true),
            "fails: {fails}: the copy in m1 runs, and was never deleted"
        );
    }
}
