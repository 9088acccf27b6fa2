//! Tests of what goes along with workloads, and of what is told of the rest.

use serde_json::{Value, json};

use super::reports::STAY_BEHIND;
use super::*;
use crate::fleet::testing::{self, Bench, binding, claimed, cluster, deleting, pass};

/// Returns a fleet with these objects and the Deployment `shop/web` that needs the ConfigMap
/// `shop/conf`, whose dependencies have been distributed.
async fn bench<const N: usize>(objects: [(&str, Value); N]) -> Bench {
    let template = ("deployments", deployment());
    bench_with(objects.into_iter().chain([template])).await
}

/// Returns the Deployment that needs the ConfigMap.
fn deployment() -> Value {
    let volume = json!({"name": "c", "configMap": {"name": "conf"}});
    json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"template": {"spec": {"volumes": [volume]}}},
    })
}

/// Returns the binding of the Deployment, which takes along what that needs.
fn referrer() -> Value {
    let mut referrer = binding();
    referrer["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "b"});
    referrer["spec"]["propagateDeps"] = json!(true);
    referrer
}

/// Returns a fleet with these objects and the ConfigMap, whose dependencies are distributed
/// once it is followed.
fn started<'a>(objects: impl Iterator<Item = (&'a str, Value)>) -> Bench {
    let conf = json!({"metadata": {"namespace": "shop", "name": "conf", "uid": "c"}});
    let mut bench = Bench::new(objects.chain([("configmaps", conf)]));
    bench.api.serve_deployments();
    bench.api.serve("/api/v1", "v1", "configmaps", "ConfigMap");
    start(&bench.fleet, &mut bench.tasks);
    bench.fleet.follow_templates();
    bench
}

/// Returns a fleet with these objects and the ConfigMap, whose dependencies have been
/// distributed.
async fn bench_with(objects: impl Iterator<Item = (&str, Value)>) -> Bench {
    let mut bench = started(objects);
    bench.follow_for(10).await;
    bench
}

#[tokio::test(start_paused = true)]
async fn a_binding_without_a_namespace_takes_nothing_along_and_says_so_once() {
    let script = "function GetDependencies(object) return {} end";
    let rule = json!({
        "metadata": {"name": "issuers"},
        "spec": {
            "target": {"apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer"},
            "customizations": {"dependencyInterpretation": {"luaScript": script}},
        },
    });
    let rule = ("resourceinterpretercustomizations", rule);
    for (takes_along, rule, expected) in [
        (true, Some(rule.clone()), 1),
        (false, Some(rule), 0),
        (true, None, 0),
    ] {
        let mut bound = json!({
            "metadata": {"name": "ca-clusterissuer"},
            "spec": {
                "resource": {"apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer", "name": "ca"},
                "propagateDeps": takes_along,
            },
        });
        assert!(!refers(&serde_json::from_value(bound.clone()).unwrap()));
        let binding = ("clusterresourcebindings", bound.clone());
        let bench = bench_with(rule.into_iter().chain([binding])).await;
        bound["metadata"]["generation"] = json!(2);
        bench.api.put("clusterresourcebindings", bound);
        pass(10).await;
        let reported = bench.api.reported().await.into_iter();
        let reported =
            reported.filter(|it| it.1 == "DependenciesStayBehind" && it.0 == "ca-clusterissuer");
        assert_eq!(reported.count(), expected, "{takes_along}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_told_once_that_what_it_needs_lies_in_no_namespace_and_stays_behind() {
    let script = "function GetDependencies(object) \
                      return {{apiVersion = 'v1', kind = 'Namespace', name = 'keys'}} end";
    let rule = json!({
        "metadata": {"name": "deployments"},
        "spec": {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment"},
            "customizations": {"dependencyInterpretation": {"luaScript": script}},
        },
    });
    let bound = json!({
        "metadata": {"name": "keys-namespace"},
        "spec": {"resource": {"apiVersion": "v1", "kind": "Namespace", "name": "keys"}},
    });
    // Whether it is kept from going to all clusters by itself.
    for (skips, bound, expected) in [("true", None, 1), ("true", Some(bound), 0), ("", None, 0)] {
        let labels = json!({"namespace.karmada.io/skip-auto-propagation": skips});
        let mut keys = json!({"metadata": {"name": "keys", "uid": "k", "labels": labels}});
        let objects = [
            ("resourceinterpretercustomizations", rule.clone()),
            ("deployments", deployment()),
            ("resourcebindings", referrer()),
            ("namespaces", keys.clone()),
        ];
        let bound = bound.map(|it| ("clusterresourcebindings", it));
        let mut bench = Bench::new(objects.into_iter().chain(bound));
        bench.api.serve_deployments();
        bench.api.serve("/api/v1", "v1", "namespaces", "Namespace");
        start(&bench.fleet, &mut bench.tasks);
        bench.fleet.follow_templates();
        bench.follow().await;
        // Its policy may come within half a minute, whatever changes meanwhile.
        for (seconds, expected) in [(10, 0), (10, 0), (60, expected), (60, expected)] {
            pass(seconds).await;
            let reported = bench.api.reported().await.into_iter();
            let reported = reported.filter(|it| it.1 == STAY_BEHIND && it.0 == "web-deployment");
            assert_eq!(reported.count(), expected, "{skips:?}");
            keys["metadata"]["labels"]["edited"] = json!(seconds.to_string());
            bench.api.put("namespaces", keys.clone());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_workload_is_told_once_of_what_its_rule_names_without_the_namespace_that_it_lies_in() {
    let rule = |namespace: &str| {
        let script = format!(
            "function GetDependencies(object) \
                 return {{{{apiVersion = 'v1', kind = 'ConfigMap', name = 'conf'{namespace}}}}} end"
        );
        json!({
            "metadata": {"name": "deployments"},
            "spec": {
                "target": {"apiVersion": "apps/v1", "kind": "Deployment"},
                "customizations": {"dependencyInterpretation": {"luaScript": script}},
            },
        })
    };
    let sound = ", namespace = 'shop'";
    for (namespace, expected) in [("", 1), (sound, 0)] {
        let objects = [
            ("resourceinterpretercustomizations", rule(namespace)),
            ("resourcebindings", referrer()),
        ];
        let bench = bench(objects).await;
        let told = async || {
            let reported = bench.api.reported().await.into_iter();
            let reported = reported.filter(|it| it.1 == STAY_BEHIND && it.0 == "web-deployment");
            reported.count()
        };
        let mut edited = referrer();
        edited["metadata"]["generation"] = json!(2);
        bench.api.put("resourcebindings", edited);
        pass(10).await;
        assert_eq!(told().await, expected, "{namespace}");
        // Once more after it was mended; an event is a new one after ten minutes.
        for namespace in [sound, namespace] {
            let rule = rule(namespace);
            bench.api.put("resourceinterpretercustomizations", rule);
            pass(15 * 60).await;
        }
        assert_eq!(told().await, 2 * expected, "{namespace}");
    }
}

#[tokio::test(start_paused = true)]
async fn policies_that_disagree_about_what_two_workloads_need_are_reported_once() {
    for (preserves, expected) in [(true, 1), (false, 0)] {
        let bench = shared(preserves, "m2").await;
        let mut conf = bench.api.object("configmaps", "shop", "conf").unwrap();
        conf["metadata"]["labels"] = json!({"edited": "yes"});
        bench.api.put("configmaps", conf);
        pass(10).await;
        let reported = bench.api.reported().await.into_iter();
        let reported =
            reported.filter(|it| it.1 == "DependencyPolicyConflict" && it.0 == "conf-configmap");
        assert_eq!(reported.count(), expected, "{preserves}");
    }
}

#[test]
fn a_binding_for_an_object_of_another_namespace_takes_nothing_along() {
    for (what, namespace, takes_along, leaves, expected) in [
        ("its own namespace's", "shop", true, false, true),
        ("another namespace's", "bank", true, false, false),
        ("not asked to", "shop", false, false, false),
        ("going away", "shop", true, true, false),
    ] {
        let mut binding = json!({
            "metadata": { "name": "web-deployment", "namespace": "shop" },
            "spec": {
                "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": "web" },
                "propagateDeps": takes_along,
            },
        });
        if leaves {
            binding["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let binding = serde_json::from_value(binding).unwrap();
        assert_eq!(refers(&binding), expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_needs_goes_along_although_its_binding_has_no_permanent_id_yet() {
    let mut referrer = referrer();
    referrer["metadata"]["uid"] = json!("made-by-somebody");
    let labels = referrer["metadata"]["labels"].take();
    let bench = bench([("resourcebindings", referrer.clone())]).await;
    let conf = || bench.binding("conf-configmap").unwrap();
    assert_eq!(conf().spec.required_by.len(), 1);
    let marks = conf().metadata.labels.clone().unwrap_or_default();
    assert!(
        marks.values().any(|it| it == "made-by-somebody"),
        "{marks:?}"
    );
    referrer["metadata"]["labels"] = labels;
    bench.api.put("resourcebindings", referrer);
    pass(60).await;
    assert_eq!(conf().spec.required_by.len(), 1, "it has its id");
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_needs_stays_as_the_policy_said_last_when_the_workload_is_deleted() {
    let policy = |preserves: bool| {
        let mut policy = testing::policy();
        policy["spec"]["propagateDeps"] = json!(true);
        policy["spec"]["preserveResourcesOnDeletion"] = json!(preserves);
        policy
    };
    let referrer = claimed(referrer());
    let bench = bench([
        ("propagationpolicies", policy(false)),
        ("resourcebindings", referrer.clone()),
    ])
    .await;
    let conf = || bench.binding("conf-configmap");
    let named = |it: Arc<AnyBinding>| it.spec.required_by.len();
    assert_eq!(conf().map(named), Some(1));
    assert_eq!(conf().unwrap().spec.preserve_resources_on_deletion, None);
    bench.api.put("propagationpolicies", policy(true));
    bench.api.put("resourcebindings", deleting(referrer));
    pass(10).await;
    assert_eq!(conf().map(named), Some(0));
    let preserves = conf().unwrap().spec.preserve_resources_on_deletion;
    assert_eq!(preserves, Some(true));
}

/// Returns a fleet with the Deployment in m1, which may be preserved, and another one that
/// needs the ConfigMap as well and may go anywhere. The agents have applied what they
/// were sent.
async fn shared(preserves: bool, other_in: &str) -> Bench {
    let mut web = referrer();
    web["metadata"]["finalizers"] = json!(["karmada.io/binding-controller"]);
    web["spec"]["preserveResourcesOnDeletion"] = json!(preserves);
    let mut other = referrer();
    other["metadata"]["name"] = json!("other-deployment");
    other["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "o"});
    other["spec"]["resource"]["name"] = json!("other");
    other["spec"]["clusters"] = json!([{"name": other_in, "replicas": 2}]);
    other["spec"]["placement"] = json!({});
    let mut second = deployment();
    second["metadata"]["name"] = json!("other");
    let objects = [
        ("clusters", cluster("m1")),
        ("clusters", cluster("m2")),
        ("deployments", deployment()),
        ("deployments", second),
        ("resourcebindings", web),
        ("resourcebindings", other),
    ];
    let mut bench = started(objects.into_iter());
    bench.run(crate::propagation::binding::start, 60).await;
    for mut work in bench.api.all("works") {
        work["status"] = json!({"conditions": testing::only_condition("Applied", "True")});
        bench.api.put("works", work);
    }
    bench
}

/// Returns the binding of the Deployment as somebody deletes it.
fn deleted(bench: &Bench) -> Value {
    deleting(bench.api.binding("web-deployment"))
}

/// Returns whether the ConfigMap stays in m1, where its Work is going.
fn stays_in_m1(bench: &Bench) -> Value {
    let name = muster_shared::names::work("ConfigMap", "conf", "shop");
    let work = bench.api.object("works", "karmada-es-m1", &name).unwrap();
    let is_leaving = !work["metadata"]["deletionTimestamp"].is_null();
    assert!(is_leaving, "nothing of the fleet needs it there any more");
    work["spec"]["preserveResourcesOnDeletion"].clone()
}

#[tokio::test(start_paused = true)]
async fn what_a_preserved_workload_needs_stays_with_it_although_another_needs_it_as_well() {
    for (preserves, other_in) in [(false, "m2"), (true, "m2"), (false, "m1"), (true, "m1")] {
        let bench = shared(preserves, other_in).await;
        bench.api.put("resourcebindings", deleted(&bench));
        pass(60).await;
        if other_in == "m1" {
            // The ConfigMap stays for the other workload until a person deletes it.
            let name = "conf-configmap";
            let conf = deleting(bench.api.object("resourcebindings", "shop", name).unwrap());
            bench.api.delete("configmaps", "shop", "conf");
            bench.api.put("resourcebindings", conf);
            pass(60).await;
        }
        let context = format!("other in {other_in}: the pods of web go on in m1");
        assert_eq!(stays_in_m1(&bench), json!(preserves), "{context}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_preserved_workload_needs_stays_with_it_although_a_process_starts_meanwhile() {
    for preserves in [false, true] {
        let before = shared(preserves, "m2").await;
        let left = ["clusters", "deployments", "resourcebindings", "works"];
        let left = left.into_iter().flat_map(|plural| {
            let objects = before.api.all(plural).into_iter();
            objects.map(move |it| (plural, it))
        });
        let mut bench = started(left.chain([("resourcebindings", deleted(&before))]));
        bench.run(crate::propagation::binding::start, 60).await;
        assert_eq!(stays_in_m1(&bench), json!(preserves));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_chose_by_label_is_given_up_and_stays_in_the_members_only_beside_it() {
    let goes = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    for (what, metadata, spec, preserves) in [
        ("alone", json!({}), json!({"propagateDeps": false}), None),
        ("goes", goes.clone(), json!({}), None),
        (
            "goes and stays in the members",
            goes,
            json!({"preserveResourcesOnDeletion": true}),
            Some(true),
        ),
    ] {
        let (api_version, kind) = ("multicluster.x-k8s.io/v1alpha1", "ServiceImport");
        let import = json!({"metadata": {"namespace": "shop", "name": "web"}});
        let slice = |name: &str, service: &str| {
            let labels = json!({"kubernetes.io/service-name": service});
            json!({"metadata": {
                "namespace": "shop", "name": name, "uid": name, "labels": labels,
            }})
        };
        let mut referrer = referrer();
        referrer["metadata"]["name"] = json!("web-serviceimport");
        referrer["spec"]["resource"]["apiVersion"] = json!(api_version);
        referrer["spec"]["resource"]["kind"] = json!(kind);
        let objects = [
            ("serviceimports", import),
            ("endpointslices", slice("chosen", "derived-web")),
            ("endpointslices", slice("other", "derived-other")),
            ("resourcebindings", referrer.clone()),
        ];
        let mut bench = started(objects.into_iter());
        let path = "/apis/multicluster.x-k8s.io/v1alpha1";
        bench.api.serve(path, api_version, "serviceimports", kind);
        let (path, group_version) = ("/apis/discovery.k8s.io/v1", "discovery.k8s.io/v1");
        bench
            .api
            .serve(path, group_version, "endpointslices", "EndpointSlice");
        bench.follow_for(60).await;
        let chosen = || bench.binding("chosen-endpointslice").unwrap();
        assert_eq!(chosen().spec.required_by.len(), 1, "{what}");
        referrer["metadata"]["generation"] = json!(2);
        muster_shared::merge::apply(&mut referrer["metadata"], &metadata);
        muster_shared::merge::apply(&mut referrer["spec"], &spec);
        bench.api.put("resourcebindings", referrer);
        pass(60).await;
        let given_up = chosen();
        let stays = given_up.spec.preserve_resources_on_deletion;
        assert_eq!(given_up.spec.required_by.len(), 0, "{what}");
        assert_eq!(stays, preserves, "{what}");
        let other = bench.binding("other-endpointslice");
        assert!(other.is_none(), "{what}");
    }
}

/// Returns the Work of a Deployment by the report of its copy.
fn reported(generation: u32, updated: u32) -> Value {
    let mut work = testing::work("m1", "Healthy");
    work["metadata"]["finalizers"] = json!(["karmada.io/execution-controller"]);
    work["status"]["manifestStatuses"][0]["status"] = json!({
        "replicas": 2, "updatedReplicas": updated, "generation": generation,
        "observedGeneration": generation, "resourceTemplateGeneration": generation,
    });
    work
}

/// Returns how many workloads need the `ConfigMap`.
fn needed_by(bench: &Bench) -> usize {
    let conf = bench.binding("conf-configmap").unwrap();
    conf.spec.required_by.len()
}

/// Returns a fleet in which a Deployment needs another `ConfigMap` than before, and its copy is
/// not updated yet.
async fn edited() -> Bench {
    let mut referrer = referrer();
    let objects = [
        ("resourcebindings", referrer.clone()),
        ("works", reported(1, 2)),
    ];
    let process = bench(objects).await;
    assert_eq!(needed_by(&process), 1);
    let mut edited = deployment();
    edited["metadata"]["generation"] = json!(2);
    edited["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = json!("new");
    process.api.put("deployments", edited);
    pass(5).await;
    referrer["metadata"]["generation"] = json!(2);
    process.api.put("resourcebindings", referrer);
    pass(120).await;
    assert_eq!(needed_by(&process), 1, "the copy is as it was");
    process
}

#[tokio::test(start_paused = true)]
async fn what_a_copy_needed_that_goes_while_it_is_not_seen_is_given_up() {
    let process = edited().await;
    process.api.hide("works", "karmada-es-m1", "web");
    pass(120).await;
    assert_eq!(needed_by(&process), 1, "a list lacks the copy");
    process.api.lose("works", "karmada-es-m1", "web");
    pass(180).await;
    assert_eq!(needed_by(&process), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_needed_stays_until_no_pod_of_its_former_template_is_left() {
    for restarts in [false, true] {
        let mut process = edited().await;
        process.api.hide("works", "karmada-es-m1", "web");
        pass(120).await;
        assert_eq!(needed_by(&process), 1, "a list lacks the copy");
        process.api.reveal("works", "karmada-es-m1", "web");
        pass(120).await;
        if restarts {
            let left = ["deployments", "resourcebindings", "works"];
            let left = left.into_iter().flat_map(|plural| {
                let objects = process.api.all(plural).into_iter();
                objects.map(move |it| (plural, it))
            });
            let left: Vec<_> = left.collect();
            process = bench_with(left.into_iter()).await;
            assert_eq!(needed_by(&process), 1, "another process leads");
        }
        for (updated, expected) in [(1, 1), (2, 0)] {
            process.api.put("works", reported(2, updated));
            pass(10).await;
            assert_eq!(needed_by(&process), expected, "{updated} of 2 are new");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_needs_goes_along_again_when_it_was_deleted_and_made_again() {
    let bench = bench([("resourcebindings", referrer())]).await;
    let conf = || bench.binding("conf-configmap");
    assert!(conf().is_some());
    bench.api.delete("configmaps", "shop", "conf");
    bench
        .api
        .delete("resourcebindings", "shop", "conf-configmap");
    pass(60).await;
    assert!(conf().is_none(), "there is nothing to bind");
    let again = json!({"metadata": {"namespace": "shop", "name": "conf", "uid": "again"}});
    bench.api.put("configmaps", again);
    pass(60).await;
    let bound = conf().expect("it is bound again");
    assert_eq!(bound.spec.resource.uid.as_deref(), Some("again"));
    assert_eq!(bound.spec.required_by.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_needed_is_given_up_although_it_was_never_known_what_it_needs() {
    let mut referrer = referrer();
    let before = bench([("resourcebindings", referrer.clone())]).await;
    let attached = before.binding("conf-configmap").unwrap();
    let attached = serde_json::to_value(attached.as_ref()).unwrap();
    let held = [referrer.clone(), attached].map(|it| ("resourcebindings", it));
    let bench = bench_with(held.into_iter()).await;
    assert_eq!(needed_by(&bench), 1, "its template is missing");
    referrer["spec"]["propagateDeps"] = json!(false);
    referrer["metadata"]["generation"] = json!(2);
    bench.api.put("resourcebindings", referrer);
    pass(60).await;
    assert_eq!(needed_by(&bench), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_workload_needed_is_given_up_although_the_cache_lacked_the_workload_meanwhile() {
    let mut referrer = referrer();
    let bench = bench([("resourcebindings", referrer.clone())]).await;
    assert_eq!(needed_by(&bench), 1);
    for lacks_template in [false, true] {
        referrer["spec"]["propagateDeps"] = json!(true);
        referrer["metadata"]["generation"] = json!(1 + 2 * u32::from(lacks_template));
        bench.api.put("resourcebindings", referrer.clone());
        pass(60).await;
        assert_eq!(needed_by(&bench), 1);
        let (plural, name) = if lacks_template {
            ("configmaps", "conf")
        } else {
            ("resourcebindings", "web-deployment")
        };
        bench.api.hide(plural, "shop", name);
        pass(60).await;
        assert_eq!(needed_by(&bench), 1, "the list is short");
        referrer["spec"]["propagateDeps"] = json!(false);
        referrer["metadata"]["generation"] = json!(2 + 2 * u32::from(lacks_template));
        bench.api.put("resourcebindings", referrer.clone());
        pass(60).await;
        assert_eq!(needed_by(&bench), 1);
        bench.api.reveal(plural, "shop", name);
        pass(60).await;
        assert_eq!(needed_by(&bench), 0, "{plural}");
    }
}
