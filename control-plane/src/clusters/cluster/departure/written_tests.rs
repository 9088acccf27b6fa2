//! What is written and reported of a cluster that leaves.

use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::fleet::testing::{Bench, REFUSALS, claimed, only_condition, pass, policy};

const WORKS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works";

/// Returns a cluster that leaves.
fn leaving(ready: &str) -> Value {
    json!({
        "metadata": {
            "name": "m1", "deletionTimestamp": "2024-01-01T00:00:00Z",
            "finalizers": [finalizer::CLUSTER, "other"],
        },
        "spec": {"syncMode": "Pull"},
        "status": {"conditions": only_condition("Ready", ready)},
    })
}

fn namespace(deletion: Option<&str>) -> Value {
    json!({"metadata": {"name": "karmada-es-m1", "deletionTimestamp": deletion}})
}

fn work(name: &str, deletion: Option<&str>) -> Value {
    json!({
        "metadata": {
            "namespace": "karmada-es-m1", "name": name, "deletionTimestamp": deletion,
            "finalizers": [finalizer::WORK],
        },
        "spec": {"workload": {"manifests": []}},
    })
}

fn binding() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "web-deployment"},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
            "clusters": [{"name": "m1"}],
        },
    })
}

/// Returns a cluster that leaves, its namespace, and Works there.
fn holding(
    ready: &str,
    works: impl IntoIterator<Item = Value>,
) -> impl Iterator<Item = (&'static str, Value)> {
    let objects = [
        ("clusters", leaving(ready)),
        ("namespaces", namespace(None)),
    ];
    let works = works.into_iter().map(|it| ("works", it));
    objects.into_iter().chain(works)
}

/// Returns a fleet with a cluster that leaves, its namespace, and a Work there that its agent
/// holds.
async fn bench(ready: &str) -> Bench {
    Bench::followed(holding(ready, [work("a", None)])).await
}

/// Returns such a fleet with a list that lacks the Work, which may be being deleted.
async fn lacking(ready: &str, deletion: Option<&str>) -> Bench {
    let bench = bench(ready).await;
    bench.api.put("works", work("a", deletion));
    pass(1).await;
    bench.api.hide("works", "karmada-es-m1", "a");
    pass(5).await;
    assert_eq!(bench.fleet.works.len(), 0, "the list is short");
    bench
}

/// Returns the Work `a` of the binding [`binding`].
fn placed() -> Value {
    let mut placed = work("a", None);
    placed["metadata"]["annotations"] = json!({
        "resourcebinding.karmada.io/namespace": "shop",
        "resourcebinding.karmada.io/name": "web-deployment",
    });
    placed
}

/// Returns a fleet with a cluster that leaves, its namespace, a binding, a Work of it there, and
/// more objects.
async fn bound(
    binding: Value,
    placed: Value,
    more: impl IntoIterator<Item = (&'static str, Value)>,
) -> Bench {
    let bound = [("resourcebindings", binding)].into_iter().chain(more);
    Bench::followed(holding("True", [placed]).chain(bound)).await
}

/// Takes the next step in the removal of the cluster, and returns when to go on.
async fn step(bench: &Bench, reported: &DeletionWaits) -> Result<Next, ApiError> {
    let cluster = bench.fleet.clusters.get(None, "m1").unwrap();
    see_off(&bench.fleet, &cluster, reported).await
}

#[tokio::test(start_paused = true)]
async fn works_that_no_agent_sees_to_any_more_are_let_go_of() {
    let bench = bench("False").await;
    let reported = DeletionWaits::default();
    let next = step(&bench, &reported).await.unwrap();
    assert_eq!(next, Next::Again);
    assert_eq!(methods(&bench, "a"), [Method::DELETE]);
    pass(1).await;
    bench.api.forget();
    let next = step(&bench, &reported).await.unwrap();
    assert_eq!(next, Next::Again);
    let writes = bench.api.writes();
    let [(Method::PATCH, path, body)] = &writes[..] else {
        panic!("{writes:?}");
    };
    assert_eq!(*path, format!("{WORKS}/a"));
    assert_eq!(body["metadata"]["finalizers"], json!([]));
    assert!(body["metadata"]["resourceVersion"].is_string());
}

/// Does as an agent does before it applies a Work: it takes hold of each that is not being deleted.
fn take_hold(bench: &Bench) {
    for mut work in bench.api.all("works") {
        let metadata = &mut work["metadata"];
        let is_held = metadata["finalizers"]
            .as_array()
            .is_some_and(|it| !it.is_empty());
        if metadata["deletionTimestamp"].is_null() && !is_held {
            metadata["finalizers"] = json!([finalizer::WORK]);
            bench.api.put("works", work);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_not_ready_leaves_although_its_agent_lives() {
    // The member's API answers with errors or not at all, or refuses the credentials.
    for ready in ["False", "Unknown"] {
        let bench = bench(ready).await;
        let reported = DeletionWaits::default();
        for _ in 0..5 {
            step(&bench, &reported).await.unwrap();
            take_hold(&bench);
            pass(1).await;
        }
        assert_eq!(bench.api.all("works"), Vec::<Value>::new(), "{ready}");
        let cluster = bench.api.object("clusters", "", "m1").unwrap();
        assert_eq!(cluster["metadata"]["finalizers"], json!(["other"]));
    }
}

/// Returns a fleet of which a person removes `m1`, which fell silent a moment ago, and where the
/// scheduler has chosen `m2` for a workload whose copy stops itself after some seconds.
fn fenced(seconds: u32) -> [(&'static str, Value); 5] {
    use muster_shared::fencing::CONFIRMED;
    use muster_shared::names::{CLUSTER_NAMESPACE, annotation};
    let renewed = "2024-01-02T00:00:00.000000Z";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "namespace": CLUSTER_NAMESPACE, "name": "m1",
            "annotations": {annotation::FENCES: renewed},
        },
        "spec": {"renewTime": renewed},
    });
    let mut chosen = binding();
    chosen["metadata"]["finalizers"] = json!([finalizer::RESOURCE_BINDING]);
    chosen["spec"]["clusters"] = json!([{"name": "m2"}]);
    chosen["spec"]["failover"] = json!({"cluster": {"fencing": {"afterSeconds": seconds}}});
    let mut held = placed();
    held["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    held["status"] = json!({"conditions": [{
        "type": CONFIRMED, "status": "True", "reason": format!("After{seconds}Grace5"),
        "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z",
    }]});
    [
        ("clusters", leaving("Unknown")),
        ("namespaces", namespace(None)),
        ("leases", lease),
        ("resourcebindings", chosen),
        ("works", held),
    ]
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_copy_that_two_of_must_not_run_is_let_go_of_once_its_agent_has_stopped_it() {
    for is_listed in [true, false] {
        let bench = Bench::followed(fenced(60)).await;
        if !is_listed {
            bench.api.hide("resourcebindings", "shop", "web-deployment");
        }
        let reported = DeletionWaits::default();
        for (later, is_let_go) in [(5, false), (300, true)] {
            pass(later).await;
            assert_eq!(bench.binding("web-deployment").is_some(), is_listed);
            step(&bench, &reported).await.unwrap();
            // Without that Work nothing holds the copy in m2 back.
            let writes = bench.api.writes();
            let context = format!("{later} {is_listed}: {writes:?}");
            assert_eq!(!writes.is_empty(), is_let_go, "{context}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_waits_for_copies_to_stop_themselves_says_so() {
    let bench = Bench::followed(fenced(600)).await;
    let reported = DeletionWaits::default();
    step(&bench, &reported).await.unwrap();
    assert_eq!(bench.api.reported().await, [], "it takes a while");
    pass(150).await;
    step(&bench, &reported).await.unwrap();
    let events = bench.api.events().await;
    let [(about, reason, message)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((&**about, &**reason), ("m1", "RemoveClusterWaiting"));
    assert!(message.contains("have stopped themselves: a."), "{message}");
}

#[tokio::test(start_paused = true)]
async fn the_namespace_stays_while_there_is_a_work_that_a_list_lacks_and_that_is_deleted() {
    for deletion in [None, Some("2024-01-01T00:00:00Z")] {
        let bench = lacking("True", deletion).await;
        // Nobody else would delete a Work that the cache does not show.
        let asked = deletion.is_none().then(|| format!("{WORKS}/a"));
        let namespace = "/api/v1/namespaces/karmada-es-m1".to_owned();
        for (is_there, deleted) in [(true, asked), (false, Some(namespace))] {
            if !is_there {
                bench.api.delete("works", "karmada-es-m1", "a");
            }
            bench.api.forget();
            step(&bench, &DeletionWaits::default()).await.unwrap();
            let writes = bench.api.writes().into_iter();
            let writes: Vec<_> = writes.map(|it| (it.0, it.1)).collect();
            let deleted: Vec<_> = deleted.map(|it| (Method::DELETE, it)).into_iter().collect();
            assert_eq!(writes, deleted, "{deletion:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_preserves_stays_in_a_cluster_that_leaves_although_its_work_does_not_say_so()
{
    for (preserves, is_listed) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut policy = policy();
        policy["spec"]["preserveResourcesOnDeletion"] = json!(preserves);
        let policy = ("propagationpolicies", policy);
        let bench = bound(claimed(binding()), placed(), [policy]).await;
        if !is_listed {
            bench.api.hide("resourcebindings", "shop", "web-deployment");
            pass(5).await;
            assert!(bench.binding("web-deployment").is_none());
        }
        step(&bench, &DeletionWaits::default()).await.unwrap();
        let writes = bench.api.writes();
        let methods: Vec<_> = writes.iter().map(|it| &it.0).collect();
        let expected: &[&Method] = if preserves {
            &[&Method::PATCH, &Method::DELETE]
        } else {
            &[&Method::DELETE]
        };
        assert_eq!(methods, expected, "{preserves} {is_listed}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_works_cannot_be_removed_is_reported() {
    for (ready, method) in [
        ("False", Method::PATCH),
        ("False", Method::DELETE),
        ("True", Method::DELETE),
    ] {
        for (code, is_usual) in REFUSALS {
            let bench = bench(ready).await;
            if method == Method::PATCH {
                let deletion = Some("2024-01-01T00:00:00Z");
                bench.api.put("works", work("a", deletion));
                pass(1).await;
            }
            bench.api.refuse(method.clone(), "/works/a", code, "a");
            let next = step(&bench, &DeletionWaits::default()).await;
            assert_eq!(next.is_ok(), is_usual, "{ready} {method} {code}");
            let reported = [("m1".to_owned(), "RemoveExecutionSpaceFailed".to_owned())];
            let expected = if is_usual { &[][..] } else { &reported };
            assert_eq!(
                bench.api.reported().await,
                expected,
                "{ready} {method} {code}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_leaves_says_what_it_waits_for_once_that_takes_long() {
    let gone = Some("2024-01-01T00:00:00Z");
    let (ending, there) = (work("ending", gone), work("there", None));
    let works = vec![
        ("namespaces", namespace(None)),
        ("works", ending),
        ("works", there),
    ];
    let space = vec![("namespaces", namespace(gone))];
    for (objects, patience, expected) in [
        (works, 120, "what these Works placed: ending. If"),
        (
            space,
            120,
            "until its execution namespace karmada-es-m1 is gone: kubectl",
        ),
        (
            vec![("resourcebindings", binding())],
            30,
            "names it: Deployment shop/web. Their",
        ),
    ] {
        let cluster = [("clusters", leaving("True"))];
        let bench = Bench::followed(cluster.into_iter().chain(objects)).await;
        // It cannot be seen that what is deleted goes.
        bench
            .api
            .answer(Method::DELETE, "/works/there", 200, work("there", None));
        let reported = DeletionWaits::default();
        let next = step(&bench, &reported).await.unwrap();
        assert_eq!(next, Next::After(DELETION_RETRY));
        assert_eq!(bench.api.reported().await, [], "{expected}");
        pass(patience).await;
        step(&bench, &reported).await.unwrap();
        let events = bench.api.events().await;
        let [(about, reason, message)] = &events[..] else {
            panic!("{expected}: {events:?}");
        };
        let named = (&**about, &**reason);
        assert_eq!(named, ("m1", "RemoveClusterWaiting"));
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_nothing_holds_is_let_go_of() {
    let bench = Bench::followed([("clusters", leaving("True"))]).await;
    for (code, _) in REFUSALS {
        bench.api.refuse(Method::PATCH, "/clusters/m1", code, "m1");
        let next = step(&bench, &DeletionWaits::default()).await;
        let expected = match code {
            409 => Some(Next::Again),
            404 => Some(Next::Done),
            _ => None,
        };
        assert_eq!(next.ok(), expected, "{code}");
    }
    bench.api.answer_truly();
    bench.api.forget();
    let next = step(&bench, &DeletionWaits::default()).await.unwrap();
    assert_eq!(next, Next::Done);
    let writes = bench.api.writes();
    assert_eq!(writes[0].2["metadata"]["finalizers"], json!(["other"]));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_a_list_left_out_is_not_taken_for_gone() {
    let path = "/namespaces/karmada-es-m1";
    for (deletion, expected) in [
        (None, Some((Method::DELETE, format!("{WORKS}/a")))),
        (Some("2024-01-01T00:00:00Z"), None),
    ] {
        let objects = [("clusters", leaving("True")), ("works", work("a", None))];
        let bench = Bench::followed(objects).await;
        bench
            .api
            .answer(Method::GET, path, 200, namespace(deletion));
        step(&bench, &DeletionWaits::default()).await.unwrap();
        let writes = bench.api.writes().into_iter();
        let writes: Vec<_> = writes.map(|it| (it.0, it.1)).collect();
        assert_eq!(writes, Vec::from_iter(expected), "{deletion:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_deletion_is_refused_is_not_said_to_wait_for_works() {
    let bench = Bench::followed(holding("True", [])).await;
    bench.api.refuse(
        Method::DELETE,
        "/namespaces/karmada-es-m1",
        403,
        "karmada-es-m1",
    );
    let reported = DeletionWaits::default();
    for _ in 0..3 {
        _ = step(&bench, &reported).await;
        pass(90).await;
    }
    let events = bench.api.events().await;
    let waits = events.iter().find(|it| it.1 == "RemoveClusterWaiting");
    assert_eq!(waits, None);
}

#[tokio::test(start_paused = true)]
async fn a_dead_cluster_leaves_although_one_list_lacked_a_work() {
    for deletion in [None, Some("2024-01-01T00:00:00Z")] {
        let bench = lacking("False", deletion).await;
        bench.api.show_again("works", "karmada-es-m1", "a");
        bench.api.forget();
        let reported = DeletionWaits::default();
        for minute in 0..10 {
            // What keeps the watch of a real server from being silent.
            bench.api.put("works", work("other", None));
            bench.api.delete("works", "karmada-es-m1", "other");
            pass(60).await;
            step(&bench, &reported).await.unwrap();
            if !bench.fleet.works.list().is_empty() {
                break;
            }
            assert!(minute < 9, "{deletion:?}: the Work is not seen");
        }
        step(&bench, &reported).await.unwrap();
        pass(1).await;
        step(&bench, &reported).await.unwrap();
        let writes = bench.api.writes();
        let freed = |(method, path, _): &(Method, String, _)| {
            *method == Method::PATCH && path.ends_with("/works/a")
        };
        assert!(writes.iter().any(freed), "{deletion:?}: {writes:?}");
    }
}

/// Returns the methods of what was written about a Work.
fn methods(bench: &Bench, name: &str) -> Vec<Method> {
    let path = format!("{WORKS}/{name}");
    let writes = bench.api.writes().into_iter();
    let of_work = writes.filter(|(_, at, _)| *at == path);
    of_work.map(|(method, ..)| method).collect()
}

#[tokio::test(start_paused = true)]
async fn a_work_is_not_deleted_before_the_api_has_taken_that_its_objects_stay() {
    let mut of_namespace = work("a", None);
    of_namespace["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Namespace", "name": "shop", "uid": "u"}]);
    let bench = Bench::followed(holding("True", [of_namespace])).await;
    let path = format!("{WORKS}/a");
    bench.api.refuse(Method::PATCH, &path, 409, "a");
    _ = step(&bench, &DeletionWaits::default()).await;
    assert_eq!(methods(&bench, "a"), [Method::PATCH]);
    bench.api.answer_truly();
    bench.api.forget();
    step(&bench, &DeletionWaits::default()).await.unwrap();
    assert_eq!(methods(&bench, "a"), [Method::PATCH, Method::DELETE]);
}

#[tokio::test(start_paused = true)]
async fn a_work_about_which_nothing_can_be_decided_keeps_no_other_in_a_cluster_that_leaves() {
    let other = ("works", work("b", None));
    let bench = bound(claimed(binding()), placed(), [other]).await;
    // A policy that does not decode cannot be read, however often it is asked for.
    let policy = json!({"metadata": {"namespace": "shop", "name": "web"}, "spec": 5});
    let path = "/propagationpolicies/web";
    bench.api.answer(Method::GET, path, 200, policy);
    for _ in 0..3 {
        assert!(step(&bench, &DeletionWaits::default()).await.is_err());
        pass(10).await;
    }
    assert_eq!(methods(&bench, "a"), Vec::<Method>::new());
    assert_eq!(methods(&bench, "b"), [Method::DELETE]);
    let reported = bench.api.reported().await;
    assert!(
        reported
            .iter()
            .any(|it| it.1 == "RemoveExecutionSpaceFailed")
    );
}

#[tokio::test(start_paused = true)]
async fn a_work_that_the_api_does_not_let_go_keeps_no_other_of_a_dead_cluster() {
    let gone = Some("2024-01-01T00:00:00Z");
    let works = ["a", "b"].map(|it| work(it, gone));
    let bench = Bench::followed(holding("False", works)).await;
    bench.api.refuse(Method::PATCH, "/works/a", 422, "a");
    assert!(step(&bench, &DeletionWaits::default()).await.is_err());
    assert_eq!(methods(&bench, "b"), [Method::PATCH]);
}

#[tokio::test(start_paused = true)]
async fn what_a_policy_preserves_stays_although_a_list_lacked_the_binding() {
    let mut binding = binding();
    binding["spec"]["preserveResourcesOnDeletion"] = json!(true);
    let bench = bound(binding, placed(), []).await;
    bench.api.hide("resourcebindings", "shop", "web-deployment");
    pass(5).await;
    assert!(
        bench.binding("web-deployment").is_none(),
        "the list is short"
    );
    // An API server that has just started does not serve the kind yet.
    bench.api.refuse(Method::GET, "/web-deployment", 404, "");
    let reported = DeletionWaits::default();
    assert!(step(&bench, &reported).await.is_err(), "nobody knows");
    assert_eq!(methods(&bench, "a"), Vec::<Method>::new());
    bench.api.answer_truly();
    step(&bench, &reported).await.unwrap();
    assert_eq!(methods(&bench, "a"), [Method::PATCH, Method::DELETE]);
}

#[tokio::test(start_paused = true)]
async fn containers_and_storage_that_a_policy_placed_stay_in_a_cluster_that_leaves() {
    for (api_version, kind, stays) in [
        ("v1", "Namespace", true),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", true),
        ("v1", "PersistentVolumeClaim", true),
        ("v1", "ConfigMap", false),
    ] {
        let mut placed = placed();
        placed["spec"]["workload"]["manifests"] =
            json!([{"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}}]);
        let bench = bound(binding(), placed, []).await;
        step(&bench, &DeletionWaits::default()).await.unwrap();
        let preserved = stays.then_some(Method::PATCH).into_iter();
        let expected: Vec<_> = preserved.chain([Method::DELETE]).collect();
        assert_eq!(methods(&bench, "a"), expected, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_that_its_binding_removes_is_left_to_it() {
    let mut placed = placed();
    placed["metadata"]["uid"] = json!("w");
    let bench = bound(binding(), placed, []).await;
    let works = bench.fleet.works.list_in("karmada-es-m1");
    let uids = works.iter().filter_map(|it| it.metadata.uid.clone());
    bench.fleet.deleted_works.add(uids);
    step(&bench, &DeletionWaits::default()).await.unwrap();
    assert_eq!(methods(&bench, "a"), Vec::<Method>::new());
}

#[tokio::test(start_paused = true)]
async fn a_work_that_was_reported_to_stay_while_the_policy_was_read_is_not_reported_otherwise() {
    let mut placed = placed();
    placed["metadata"]["uid"] = json!("w");
    let policy = ("propagationpolicies", policy());
    let bench = bound(claimed(binding()), placed.clone(), [policy]).await;
    let (path, slow) = ("/propagationpolicies/web", Duration::from_secs(2));
    bench.api.delay(Method::GET, path, slow);
    let reported = DeletionWaits::default();
    // Another client says meanwhile that the object stays, and the cache shows that.
    placed["spec"]["preserveResourcesOnDeletion"] = json!(true);
    let other = async {
        pass(1).await;
        bench.api.put("works", placed);
    };
    let (stepped, ()) = tokio::join!(step(&bench, &reported), other);
    stepped.unwrap();
    let work = bench.api.object("works", "karmada-es-m1", "a").unwrap();
    let is_deleted = !work["metadata"]["deletionTimestamp"].is_null();
    let says = &work["spec"]["preserveResourcesOnDeletion"];
    assert!(
        !is_deleted || *says == json!(true),
        "the agent deletes what is to stay: {says}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_large_cluster_that_leaves_asks_a_busy_api_no_more_than_it_answers() {
    const MANY: usize = 300;
    let works = (0..MANY).map(|it| work(&format!("w{it}"), None));
    let mut bench = Bench::new(holding("True", works));
    bench.api.refuse(Method::DELETE, "", 429, "");
    bench.api.refuse(Method::PATCH, "", 429, "");
    bench.run(crate::clusters::cluster::start, 60).await;
    let asked = bench.api.writes().len();
    assert!(
        asked <= MANY,
        "{asked} requests in a minute, all of which were refused as too many"
    );
}
