use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use http::Method;
use muster_shared::api::binding::ResourceHealth;
use muster_shared::k8s::Client;
use muster_shared::merge;
use muster_shared::watch::Selection;
use parking_lot::Mutex;

use super::*;
use crate::discovery::Discovery;
use crate::testing;
use crate::work::member::Member;
use crate::work::works::tests::{Fleet, store, work};

#[test]
fn a_finalizer_that_is_taken_off_again_is_a_failure_that_backs_off() {
    let answered = |finalizers: &[&str]| {
        let work = json!({"metadata": {"name": "w", "finalizers": finalizers}, "spec": {}});
        let after: CachedWork = serde_json::from_str(&work.to_string()).unwrap();
        promised(&after)
    };
    let again = answered(&[FINALIZER]);
    assert!(matches!(again, Ok(Next::After(Duration::ZERO))));
    assert!(matches!(answered(&["other"]), Err(Error::Finalizer)));
    assert!(matches!(answered(&[]), Err(Error::Finalizer)));
}

/// A member with ConfigMaps, pods and namespaces. It refuses to change an object whose name says
/// so, or that its namespace is being deleted, and only marks one as deleted whose name says that
/// it is slow.
#[derive(Default)]
struct Site {
    objects: Mutex<BTreeMap<String, Value>>,
    reads: Mutex<Vec<String>>,
    writes: Mutex<Vec<String>>,
    /// Notified of each write.
    wrote: tokio::sync::Notify,
}

/// Time that the member takes to write an object whose name says that it is large.
const SLOW: Duration = Duration::from_secs(10);

impl Site {
    fn start(self: &Arc<Self>) -> Client {
        let site = Arc::clone(self);
        testing::slow_api(move |head, body| {
            let site = Arc::clone(&site);
            async move {
                if head.method != Method::GET && head.uri.path().contains("large") {
                    tokio::time::sleep(SLOW).await; // allowed: paused time, the work itself
                }
                let kind = head.headers.get(http::header::CONTENT_TYPE);
                let is_merge = kind.is_some_and(|kind| kind == "application/merge-patch+json");
                let answer = site.answer(&head.method, head.uri.path(), &body, is_merge);
                site.wrote.notify_one();
                Ok(answer)
            }
        })
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8], is_merge: bool) -> (u16, Value) {
        let resource = |name: &str, scope: &str, kind: &str| {
            json!({ "resource": name, "scope": scope, "verbs": ["get"],
            "responseKind": { "kind": kind } })
        };
        let resources = [
            resource("configmaps", "Namespaced", "ConfigMap"),
            resource("namespaces", "Cluster", "Namespace"),
            resource("pods", "Namespaced", "Pod"),
        ];
        let core =
            json!({ "metadata": {}, "versions": [{ "version": "v1", "resources": resources }] });
        let stale = json!({ "metadata": { "name": "stale.example.io" },
            "versions": [{ "version": "v1", "freshness": "Stale", "resources": [] }] });
        let refusal = |code: u16| json!({ "kind": "Status", "status": "Failure", "code": code });
        let groups = |group: Value| json!({ "kind": "APIGroupDiscoveryList", "items": [group] });
        match path {
            "/api" => return (200, groups(core)),
            "/apis" => return (200, groups(stale)),
            "/apis/silent.example.io" => return (503, refusal(503)),
            _ => {}
        }
        if method == Method::GET {
            self.reads.lock().push(path.to_owned());
        } else {
            self.writes.lock().push(format!("{method} {path}"));
            if path.contains("refused") {
                return (500, refusal(500));
            }
            if path.contains("terminating") {
                let cause = json!({ "reason": "NamespaceTerminating", "message": "",
                    "field": "metadata.namespace" });
                let mut terminating = refusal(403);
                terminating["details"] = json!({ "causes": [cause] });
                return (403, terminating);
            }
        }
        let mut objects = self.objects.lock();
        if method == Method::DELETE
            && path.contains("slow")
            && let Some(object) = objects.get_mut(path)
        {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            return (200, object.clone());
        }
        if method == Method::PATCH {
            let mut object: Value = serde_json::from_slice(body).unwrap();
            if is_merge {
                let mut merged = objects[path].clone();
                merge::apply(&mut merged, &object);
                object = merged;
            }
            object["metadata"]["uid"] = json!("u");
            object["metadata"]["resourceVersion"] = json!("7");
            objects.insert(path.to_owned(), object.clone());
            return (200, object);
        }
        let found = if method == Method::DELETE {
            objects.remove(path)
        } else {
            objects.get(path).cloned()
        };
        let mut missing = refusal(404);
        missing["reason"] = json!("NotFound");
        found.map_or((404, missing), |object| (200, object))
    }
}

/// Returns a fleet with one Work, and an applier for it whose cache has room for all texts, or for
/// some.
async fn applier(has_room: bool) -> (Arc<Applier>, Arc<Fleet>, Arc<Site>) {
    applier_of([work("w", 100_000)], has_room).await
}

async fn applier_of(
    works: impl IntoIterator<Item = Value>,
    has_room: bool,
) -> (Arc<Applier>, Arc<Fleet>, Arc<Site>) {
    let (fleet, site) = (Arc::new(Fleet::default()), Arc::new(Site::default()));
    works.into_iter().for_each(|work| fleet.put(work));
    let (api, member) = (fleet.start(), site.start());
    let store = store(&api, has_room).await;
    let applier = Applier {
        clusters: Informer::new(Api::all(member.clone()), Selection::everything()),
        objects: Objects {
            cluster: "m1".to_owned(),
            member: Member::new(member.clone(), Discovery::new(member), || true),
            drift: Arc::clone(&store.drift),
        },
        api,
        events: Events::nowhere(),
        clock: Arc::new(Clock::of_server(Arc::default())),
        fencer: None,
        store,
    };
    applier.store.follow(true, true);
    (Arc::new(applier), fleet, site)
}

/// Has the Work deleted at this time; returns it as a cache has it.
fn deleted(fleet: &Fleet, time: &str) -> CachedWork {
    let mut work = fleet.get("w");
    work["metadata"]["deletionTimestamp"] = json!(time);
    fleet.put(work);
    serde_json::from_str(&fleet.get("w").to_string()).unwrap()
}

async fn reconcile(applier: &Arc<Applier>) -> Result<Next, Error> {
    Arc::clone(applier).reconcile("w".to_owned()).await
}

#[tokio::test(start_paused = true)]
async fn a_work_whose_text_is_not_kept_is_applied_repaired_and_removed_as_any_other() {
    let mut all = Vec::new();
    for (has_room, reads) in [(true, [0, 0, 0, 1]), (false, [1, 1, 1, 1])] {
        let (applier, fleet, site) = applier(has_room).await;
        let mut outcomes = Vec::new();
        let mut step = async |what: &str, expected: usize| {
            fleet.reads.store(0, Ordering::Relaxed);
            outcomes.push(format!("{what}: {:?}", reconcile(&applier).await));
            let reads = fleet.reads.load(Ordering::Relaxed);
            assert_eq!(reads, expected, "{what} {has_room}");
        };
        step("the finalizer", reads[0]).await;
        step("the objects", reads[1]).await;
        site.objects.lock().clear();
        step("what is gone", reads[2]).await;
        let cached = deleted(&fleet, "2026-01-01T00:00:00Z");
        fleet.reads.store(0, Ordering::Relaxed);
        outcomes.push(format!("{:?}", applier.remove(&cached).await));
        assert_eq!(fleet.reads.load(Ordering::Relaxed), reads[3]);
        assert!(site.objects.lock().is_empty());
        let (writes, patches) = (site.writes.lock(), fleet.patches.lock());
        let is_deletion = |write: &String| write.starts_with("DELETE");
        assert!(writes.iter().any(is_deletion), "{writes:?}");
        all.push((outcomes, writes.clone(), patches.clone()));
    }
    assert_eq!(all[0], all[1]);
}

#[tokio::test(start_paused = true)]
async fn a_work_that_cannot_be_read_is_tried_again_and_nothing_of_it_is_touched() {
    let (applier, fleet, site) = applier(false).await;
    reconcile(&applier).await.unwrap();
    reconcile(&applier).await.unwrap();
    let before = (site.writes.lock().clone(), fleet.patches.lock().len());
    fleet.is_down.store(true, Ordering::Relaxed);
    assert!(reconcile(&applier).await.is_err());
    let after = (site.writes.lock().clone(), fleet.patches.lock().len());
    assert_eq!(before, after);
    assert_eq!(site.objects.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_kind_that_the_member_does_not_serve_is_of_unknown_health() {
    for (api_version, expected) in [
        ("example.io/v1", Some(ResourceHealth::Unknown)),
        // A member that does not say what it serves may serve the kind: the health that was
        // reported stays.
        ("stale.example.io/v1", None),
    ] {
        let thing = json!({ "apiVersion": api_version, "kind": "Thing",
            "metadata": { "name": "a", "namespace": "shop" } });
        let mut work = work("w", 1);
        work["metadata"]["finalizers"] = json!([FINALIZER]);
        work["spec"]["workload"]["manifests"] = json!([thing]);
        let (applier, ..) = applier_of([work], true).await;
        assert!(reconcile(&applier).await.is_err());
        let key = ObjectKey::of(&thing, 0).unwrap();
        let seen = applier.store.statuses.seen("w", &key);
        assert!(seen.as_ref().is_none_or(|it| !it.lost));
        assert_eq!(seen.map(|it| it.health), expected, "{api_version}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_waits_for_others_where_its_kind_or_its_namespace_is_to_come() {
    let (applier, ..) = applier(true).await;
    let fleet = applier.store.fleet.now();
    let unserved = json!({ "apiVersion": "example.io/v1", "kind": "Thing",
        "metadata": { "name": "unserved", "namespace": "shop" } });
    for (manifest, expected) in [
        (config_map("refused"), false),
        (config_map("terminating"), true),
        (unserved, true),
    ] {
        let key = ObjectKey::of(&manifest, 0).unwrap();
        let outcome = applier.objects.ensure_applied(&key, &manifest, &fleet);
        let error = outcome.await.unwrap_err();
        assert_eq!(waits_for_others(&error), expected, "{key}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_that_is_deleted_is_let_go_once_the_api_serves_works_again() {
    let (applier, fleet, _site) = applier(true).await;
    reconcile(&applier).await.unwrap();
    let cached = deleted(&fleet, "2026-01-01T00:00:00Z");
    fleet.is_unserved.store(true, Ordering::Relaxed);
    assert!(applier.remove(&cached).await.is_err());
    fleet.is_unserved.store(false, Ordering::Relaxed);
    assert!(matches!(applier.remove(&cached).await, Ok(Next::Done)));
    assert_eq!(fleet.get("w")["metadata"]["finalizers"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn large_works_that_wait_leave_the_workers_to_small_ones() {
    let large = (0..20).map(|n| work(&format!("large{n:02}"), 100_000));
    let works = large.chain([work("small", 100)]).map(|mut work| {
        work["metadata"]["finalizers"] = json!([FINALIZER]);
        work
    });
    let (applier, fleet, site) = applier_of(works, false).await;
    let queue = applier.store.waits.to_apply.clone();
    for name in fleet.names() {
        queue.add(name);
    }
    let shutdown = tokio_util::sync::CancellationToken::new();
    let reconcile = move |name| Arc::clone(&applier).reconcile(name);
    let begun = Instant::now();
    tokio::spawn(queue.run(5, shutdown.clone(), reconcile));
    let is_made = |part: &str, count: usize| {
        let objects = site.objects.lock();
        objects.keys().filter(|key| key.contains(part)).count() == count
    };
    while !is_made("small", 1) {
        site.wrote.notified().await;
    }
    assert!(begun.elapsed() < SLOW, "{:?}", begun.elapsed());
    while !is_made("large", 20) {
        site.wrote.notified().await;
    }
    assert!(begun.elapsed() <= 11 * SLOW, "{:?}", begun.elapsed());
    shutdown.cancel();
}

/// Returns a Work `w` with these objects, which has the finalizer and names its objects in its
/// status.
fn work_of(manifests: &[Value]) -> Value {
    let mut work = work("w", 1);
    work["metadata"]["finalizers"] = json!([FINALIZER]);
    work["spec"]["workload"]["manifests"] = json!(manifests);
    let named = manifests.iter().enumerate().map(|(ordinal, manifest)| {
        let metadata = &manifest["metadata"];
        json!({ "identifier": { "ordinal": ordinal, "version": "v1", "kind": manifest["kind"],
            "resource": "", "namespace": metadata["namespace"], "name": metadata["name"] } })
    });
    work["status"] = json!({ "manifestStatuses": named.collect::<Vec<_>>() });
    work
}

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "shop" }, "data": { "a": "b" } })
}

/// Returns the manifest of a ConfigMap with fencing orders; without `stop` it is deleted while the
/// member is cut off.
fn fenced(name: &str, stop: Option<Value>) -> Value {
    let mut manifest = config_map(name);
    testing::fence(&mut manifest, stop);
    manifest
}

fn place(name: &str) -> String {
    format!("/api/v1/namespaces/shop/configmaps/{name}")
}

/// Returns status and reason of a condition of the Work.
fn reported(fleet: &Fleet, condition: &str) -> (String, String) {
    let work: Work = serde_json::from_value(fleet.get("w")).unwrap();
    let conditions = work.status.unwrap().conditions;
    let found = muster_shared::conditions::get(&conditions, condition).unwrap();
    (found.status.clone(), found.reason.clone())
}

#[tokio::test(start_paused = true)]
async fn one_object_in_trouble_keeps_no_other_one_of_a_suspended_work_stopped() {
    let order = json!({ "data": { "a": "stopped" } });
    let names = ["refused", "well"];
    let manifests = names.map(|name| fenced(name, Some(order.clone())));
    let mut work = work_of(&manifests);
    work["spec"]["suspendDispatching"] = json!(true);
    let (applier, fleet, site) = applier_of([work.clone()], true).await;
    for (name, manifest) in names.iter().zip(&manifests) {
        let object = stopped(&work, manifest, &order);
        site.objects.lock().insert(place(name), object);
    }
    assert!(reconcile(&applier).await.is_err());
    let objects = site.objects.lock().clone();
    let value = |name: &str| &objects[&place(name)]["data"]["a"];
    assert_eq!(names.map(value), ["stopped", "b"]);
    let suspended = ("False".to_owned(), "SuspendDispatching".to_owned());
    assert_eq!(reported(&fleet, "Dispatching"), suspended);
}

#[tokio::test(start_paused = true)]
async fn what_fencing_has_deleted_comes_back_while_its_work_is_suspended_and_nothing_else() {
    let order = json!({ "data": { "a": "stopped" } });
    let mut work = work_of(&[
        fenced("deleted", None),
        fenced("stopped", Some(order)),
        config_map("plain"),
    ]);
    work["spec"]["suspendDispatching"] = json!(true);
    let (applier, fleet, site) = applier_of([work], true).await;
    reconcile(&applier).await.unwrap();
    let objects = site.objects.lock().clone();
    assert_eq!(objects.keys().collect::<Vec<_>>(), [&place("deleted")]);
    assert_eq!(reported(&fleet, "Applied").1, "ObjectsMissing");
}

#[tokio::test(start_paused = true)]
async fn an_object_of_a_suspended_work_is_not_missed_while_its_part_of_the_api_is_silent() {
    for (group, is_missed) in [("silent.example.io", false), ("gone.example.io", true)] {
        let thing = json!({ "apiVersion": format!("{group}/v1"), "kind": "Thing",
            "metadata": { "name": "a", "namespace": "shop" } });
        let mut work = work_of(std::slice::from_ref(&thing));
        work["spec"]["suspendDispatching"] = json!(true);
        work["status"]["manifestStatuses"][0]["identifier"]["group"] = json!(group);
        let (applier, _fleet, _site) = applier_of([work], true).await;
        let outcome = reconcile(&applier).await;
        assert_eq!(outcome.is_ok(), is_missed, "{group}: {outcome:?}");
        let key = ObjectKey::of(&thing, 0).unwrap();
        let seen = applier.store.statuses.seen("w", &key);
        assert_eq!(seen.is_some_and(|it| it.lost), is_missed, "{group}");
    }
}

#[tokio::test(start_paused = true)]
async fn data_whose_role_was_taken_away_is_not_promoted_again_while_its_work_is_suspended() {
    let order = json!({ "data": { "a": "secondary" } });
    let mut before = fenced("db", Some(order.clone()));
    before["data"]["a"] = json!("primary");
    // The control plane took it for demoted, and has promoted another copy.
    let mut now = before.clone();
    now["data"]["a"] = json!("secondary");
    now["metadata"]["annotations"][muster_shared::names::annotation::DATA_ROLE] = json!("2");
    let mut work = work_of(&[now]);
    work["spec"]["suspendDispatching"] = json!(true);
    let object = stopped(&work, &before, &order);
    let (applier, _fleet, site) = applier_of([work], true).await;
    site.objects.lock().insert(place("db"), object);
    reconcile(&applier).await.unwrap();
    let object = site.objects.lock()[&place("db")].clone();
    assert_eq!(object["data"]["a"], "secondary");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_takes_long_to_go_has_the_others_deleted_once() {
    let names = ["a", "b", "slow"];
    let (applier, fleet, site) = applier_of([work_of(&names.map(config_map))], true).await;
    reconcile(&applier).await.unwrap();
    assert_eq!(site.objects.lock().len(), 3);
    let cached = deleted(&fleet, "2026-01-01T00:00:00Z");
    let wait = applier.remove(&cached).await.unwrap();
    assert!(matches!(wait, Next::After(_)), "{wait:?}");
    site.reads.lock().clear();
    applier.remove(&cached).await.unwrap();
    assert_eq!(*site.reads.lock(), [place("slow")]);
    site.objects.lock().clear();
    assert!(matches!(applier.remove(&cached).await, Ok(Next::Done)));
    assert_eq!(fleet.get("w")["metadata"]["finalizers"], json!([]));
    let after: Work = serde_json::from_value(fleet.get("w")).unwrap();
    let waits = &applier.store.waits;
    assert!(waits.deletion(&after, |it| it.objects.is_empty()));
}

/// Returns a client of a fleet API with one Cluster, and the events that are written there.
fn fleet_of(cluster: Value) -> (Client, tokio::sync::mpsc::UnboundedReceiver<Value>) {
    let (sender, written) = tokio::sync::mpsc::unbounded_channel();
    let client = testing::slow_api(move |head, body| {
        let (cluster, sender) = (cluster.clone(), sender.clone());
        async move {
            if head.method != Method::GET {
                let event: Value = serde_json::from_slice(&body).unwrap();
                sender.send(event.clone()).ok();
                return Ok((201, event));
            }
            let query = head.uri.query().unwrap_or_default();
            if query.contains("sendInitialEvents") {
                let refusal = json!({ "kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid" });
                return Ok((422, refusal));
            }
            if query.contains("watch=") {
                std::future::pending::<()>().await;
            }
            let list = json!({ "metadata": { "resourceVersion": "1" }, "items": [cluster] });
            Ok((200, list))
        }
    });
    (client, written)
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_leaves_is_not_held_by_a_silent_api_and_says_that_objects_stay_there() {
    let token = tokio_util::sync::CancellationToken::new;
    for is_leaving in [false, true] {
        let mut cluster = json!({ "metadata": { "name": "m1", "uid": "u", "resourceVersion": "1" },
            "spec": { "syncMode": "Pull" } });
        if is_leaving {
            cluster["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let (client, mut written) = fleet_of(cluster);
        let thing = json!({ "apiVersion": "silent.example.io/v1", "kind": "Thing",
            "metadata": { "name": "a", "namespace": "shop" } });
        let mut work = work_of(std::slice::from_ref(&thing));
        work["status"]["manifestStatuses"][0]["identifier"]["group"] = json!("silent.example.io");
        let (mut applier, fleet, _site) = applier_of([work], true).await;
        let clusters: Informer<Cluster> =
            Informer::new(Api::all(client.clone()), Selection::everything());
        tokio::spawn(clusters.clone().run(token()));
        clusters.synced().await;
        Arc::get_mut(&mut applier).unwrap().clusters = clusters;
        let cached = deleted(&fleet, "2026-01-01T00:00:00Z");
        assert!(applier.remove(&cached).await.is_err(), "it is asked again");
        tokio::time::advance(Duration::from_mins(2)).await;
        let (events, delivery) = Events::new(client, "agent", token());
        tokio::spawn(delivery);
        Arc::get_mut(&mut applier).unwrap().events = events;
        let outcome = applier.remove(&cached).await;
        assert_eq!(outcome.is_ok(), is_leaving, "{outcome:?}");
        let after = fleet.get("w");
        let finalizers = &after["metadata"]["finalizers"];
        let is_released = *finalizers == json!([]);
        assert_eq!(is_released, is_leaving, "{finalizers}");
        if is_leaving {
            let event = tokio::time::timeout(Duration::from_mins(1), written.recv()).await;
            assert_eq!(event.unwrap().unwrap()["reason"], "LeftBehind");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_waits_for_the_objects_of_other_works_by_the_agents_own_time() {
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
    let mut user = work("user", 1);
    user["metadata"]["finalizers"] = json!([FINALIZER]);
    let (applier, fleet, site) = applier_of([work_of(&[namespace]), user], true).await;
    reconcile(&applier).await.unwrap();
    // The clock of the fleet API is far behind that of the agent.
    let cached = deleted(&fleet, "2020-01-01T00:00:00Z");
    let begun = Instant::now();
    while let Next::After(pause) = applier.remove(&cached).await.unwrap() {
        let waits = ("False".to_owned(), "Terminating".to_owned());
        assert_eq!(reported(&fleet, "Applied"), waits);
        tokio::time::advance(pause).await;
    }
    let expected = Duration::from_secs(30)..Duration::from_mins(2);
    assert!(expected.contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let object = site.objects.lock()["/api/v1/namespaces/shop"].clone();
    assert_eq!(object["metadata"]["labels"], json!({}), "it is released");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_refused_for_its_size_does_not_keep_the_objects_from_being_made() {
    let mut work = work_of(&[config_map("a")]);
    work["status"] = json!({});
    let (applier, fleet, site) = applier_of([work], true).await;
    fleet.refuses_statuses.store(true, Ordering::Relaxed);
    assert!(
        reconcile(&applier).await.is_err(),
        "it is reported again later"
    );
    assert!(site.objects.lock().contains_key(&place("a")));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_succeeded_is_neither_awaited_nor_lost_when_its_object_goes() {
    let pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "sum", "namespace": "shop" }, "spec": { "restartPolicy": "Never" } });
    let mut complete = pod.clone();
    complete["status"] = json!({ "phase": "Succeeded" });
    let mut goes = complete.clone();
    goes["metadata"]["labels"] = json!({ "karmada.io/managed": "true" });
    goes["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut foreign = pod.clone();
    foreign["metadata"]["labels"] = json!({ "owner": "somebody" });
    for (what, found, applied) in [
        ("it goes", Some(goes), "True"),
        ("it is gone", None, "True"),
        ("another one is in its place", Some(foreign), "False"),
    ] {
        let (applier, fleet, site) = applier_of([work_of(std::slice::from_ref(&pod))], true).await;
        let key = ObjectKey::of(&pod, 0).unwrap();
        let check = Interpretation::of(&complete, &pod, &applier.store.interpreters);
        applier.store.statuses.see("w", &key, check);
        if let Some(object) = found {
            let path = "/api/v1/namespaces/shop/pods/sum".to_owned();
            site.objects.lock().insert(path, object);
        }
        _ = reconcile(&applier).await;
        assert_eq!(reported(&fleet, "Applied").0, applied, "{what}");
        let seen = applier.store.statuses.seen("w", &key).unwrap();
        assert!(!seen.lost, "{what}");
        assert!(site.writes.lock().is_empty(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_the_work_no_longer_has_leaves_the_member_and_then_the_status() {
    let (work, old) = work_without_old(&[config_map("a")]);
    let (applier, fleet, site) = applier_of([work], true).await;
    site.objects.lock().insert(place("old"), old);
    reconcile(&applier).await.unwrap();
    let objects = site.objects.lock().clone();
    assert_eq!(objects.keys().collect::<Vec<_>>(), [&place("a")]);
    assert_eq!(named_in(&fleet), ["a"]);
    assert_eq!(fleet.patches.lock().len(), 1, "with the conditions");
}

/// Returns a Work with these objects that had an object `old` before, and that object as the member
/// has it.
fn work_without_old(manifests: &[Value]) -> (Value, Value) {
    let mut work = work_of(&[manifests, &[config_map("old")]].concat());
    let old = in_member(&work, &config_map("old"));
    work["spec"]["workload"]["manifests"] = json!(manifests);
    (work, old)
}

/// Returns an object of a Work as the member has it.
fn in_member(work: &Value, manifest: &Value) -> Value {
    let mut work: Work = serde_json::from_value(work.clone()).unwrap();
    work.metadata.namespace = Some("karmada-es-m1".to_owned());
    desired_for(&work, manifest, None)
}

/// Returns an object of a Work as the agent has stopped it in the member.
fn stopped(work: &Value, manifest: &Value, order: &Value) -> Value {
    let mut object = in_member(work, manifest);
    testing::stop(&mut object, order);
    object
}

/// Returns the names of the objects in the status of the Work.
fn named_in(fleet: &Fleet) -> Vec<Value> {
    let statuses = fleet.get("w")["status"]["manifestStatuses"].clone();
    let names = statuses.as_array().unwrap().iter();
    let names = names.map(|it| it["identifier"]["name"].clone());
    names.collect()
}

#[tokio::test(start_paused = true)]
async fn names_that_are_refused_for_their_size_do_not_keep_the_conditions_from_being_reported() {
    let (mut work, old) = work_without_old(&["a", "b"].map(config_map));
    let named = work["status"]["manifestStatuses"].as_array_mut();
    named.unwrap().drain(..2);
    let (applier, fleet, site) = applier_of([work], true).await;
    *fleet.most_names.lock() = Some(1);
    site.objects.lock().insert(place("old"), old);
    reconcile(&applier).await.unwrap();
    let objects = site.objects.lock().clone();
    let objects: Vec<_> = objects.keys().collect();
    assert_eq!(objects, [&place("a"), &place("b")]);
    assert_eq!(reported(&fleet, "Applied").0, "True");
    assert!(named_in(&fleet).is_empty());
}

#[tokio::test(start_paused = true)]
async fn all_objects_of_a_deleted_work_go_although_a_manifest_of_it_cannot_be_read() {
    let (mut work, old) = work_without_old(&[config_map("a")]);
    let made = in_member(&work, &config_map("a"));
    work["spec"]["workload"]["manifests"][0]["metadata"]["name"] = json!("a/b");
    let (applier, fleet, site) = applier_of([work], true).await;
    site.objects.lock().insert(place("old"), old);
    site.objects.lock().insert(place("a"), made);
    let cached = deleted(&fleet, "2026-01-01T00:00:00Z");
    assert!(matches!(applier.remove(&cached).await, Ok(Next::Done)));
    assert_eq!(fleet.get("w")["metadata"]["finalizers"], json!([]));
    let left = site.objects.lock().clone();
    assert!(left.is_empty(), "{:?}", left.keys());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_leaves_the_status_while_a_webhook_is_asked_about_another_one() {
    let (work, old) = work_without_old(&[config_map("a")]);
    let mut changed = in_member(&work, &config_map("a"));
    changed["data"]["a"] = json!("changed");
    let (applier, fleet, site) = applier_of([work], true).await;
    testing::ask_webhook(&applier.store.interpreters, "*");
    site.objects.lock().insert(place("old"), old);
    site.objects.lock().insert(place("a"), changed);
    assert!(matches!(reconcile(&applier).await, Ok(Next::Done)));
    let objects = site.objects.lock().clone();
    assert_eq!(objects.keys().collect::<Vec<_>>(), [&place("a")]);
    assert_eq!(named_in(&fleet), ["a"]);
    let patches = fleet.patches.lock().clone();
    let conditions = patches[0]["status"].get("conditions");
    assert_eq!(conditions, None, "{patches:?}");
}

/// Gives an applier a fencer of a member whose lease was not renewed yet; returns the times of
/// renewals.
fn with_fencer(applier: &mut Arc<Applier>, site: &Arc<Site>) -> crate::work::fencing::Silence {
    let silence = crate::work::fencing::Silence::begin(Duration::from_mins(1), || None);
    let (member, store) = (site.start(), Arc::clone(&applier.store));
    let fencer = Fencer::new(crate::work::fencing::Setup {
        cluster: "m1".to_owned(),
        namespace: "here".to_owned(),
        member: member.clone(),
        discovery: Discovery::new(member),
        silence: silence.clone(),
        machine: crate::work::fencing::Machine::of_runtime,
        leadership: muster_shared::lease::Leadership::always(),
        is_elected: false,
        lease: Duration::from_secs(40),
        interval: Duration::from_secs(10),
        fleet: crate::fleet_id::channel().1,
        works: store.works.cache.clone(),
        to_apply: store.waits.to_apply.clone(),
    });
    Arc::get_mut(applier).unwrap().fencer = Some(Arc::new(fencer));
    silence
}

/// Returns a Work of which its agent has confirmed that it fences, and whose manifest has no orders
/// any more, with its object as the agent has stopped it.
fn fenced_until_now() -> (Value, Value) {
    let mut work = work_of(&[config_map("w")]);
    work["status"]["conditions"] = json!([{ "type": "Fenced", "status": "True",
        "reason": "After60Grace0", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    let order = json!({ "data": { "a": "stopped" } });
    let object = stopped(&work, &fenced("w", Some(order.clone())), &order);
    (work, object)
}

#[tokio::test(start_paused = true)]
async fn what_was_stopped_by_orders_that_its_work_has_no_more_is_not_started_during_the_cut() {
    for suspended in [false, true] {
        let (mut work, object) = fenced_until_now();
        work["spec"]["suspendDispatching"] = json!(suspended);
        let (mut applier, _fleet, site) = applier_of([work], true).await;
        with_fencer(&mut applier, &site);
        site.objects.lock().insert(place("w"), object);
        reconcile(&applier).await.unwrap();
        let object = site.objects.lock()[&place("w")].clone();
        assert_eq!(object["data"]["a"], "stopped", "{suspended}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_more_of_a_work_is_started_when_its_member_is_cut_off_in_the_midst_of_it() {
    let order = json!({ "data": { "a": "stopped" } });
    let names: Vec<String> = (0..9).map(|n| format!("large{n}")).collect();
    let manifests = names.iter().map(|name| fenced(name, Some(order.clone())));
    let manifests: Vec<Value> = manifests.collect();
    for suspended in [false, true] {
        let mut work = work_of(&manifests);
        work["spec"]["suspendDispatching"] = json!(suspended);
        let (mut applier, _fleet, site) = applier_of([work.clone()], true).await;
        let silence = with_fencer(&mut applier, &site);
        for (name, manifest) in names.iter().zip(&manifests) {
            let object = stopped(&work, manifest, &order);
            site.objects.lock().insert(place(name), object);
        }
        // Each write takes ten seconds, and the objects are stopped after sixty.
        silence.acknowledged(Instant::now(), false);
        assert_eq!(reconcile(&applier).await.unwrap(), CUT_OFF, "{suspended}");
        let objects = site.objects.lock().clone();
        let is_started = |name: &&String| objects[&place(name)]["data"]["a"] == "b";
        let started = names.iter().filter(is_started).count();
        assert!((1..=6).contains(&started), "{suspended}: {started}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_was_withdrawn_is_not_started_although_its_work_has_no_orders_any_more() {
    let (work, object) = fenced_until_now();
    let (mut applier, fleet, site) = applier_of([work], true).await;
    let silence = with_fencer(&mut applier, &site);
    site.objects.lock().insert(place("w"), object);
    // The member was cut off meanwhile, and the cache does not show yet what happened.
    let mut withdrawn = fleet.get("w");
    withdrawn["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    withdrawn["metadata"]["resourceVersion"] = json!("2");
    fleet.put(withdrawn);
    silence.acknowledged(Instant::now(), false);
    reconcile(&applier).await.unwrap();
    assert!(site.writes.lock().is_empty(), "{:?}", site.writes.lock());
}

#[tokio::test(start_paused = true)]
async fn what_is_older_than_the_read_that_permitted_it_is_not_applied() {
    let order = json!({ "data": { "a": "stopped" } });
    let work = work_of(&[fenced("w", Some(order))]);
    let (mut applier, fleet, site) = applier_of([work], true).await;
    let silence = with_fencer(&mut applier, &site);
    silence.acknowledged(Instant::now(), false);
    let value = || site.objects.lock()[&place("w")]["data"]["a"].clone();
    // The cache shows version 1. The control plane has written twice since.
    let mut newest = fleet.get("w");
    newest["metadata"]["resourceVersion"] = json!("3");
    newest["spec"]["workload"]["manifests"][0]["data"]["a"] = json!("newest");
    fleet.put(newest);
    reconcile(&applier).await.unwrap();
    assert!(site.writes.lock().is_empty(), "it has changed");
    reconcile(&applier).await.unwrap();
    assert_eq!(value(), "newest");
    // The watch is slow, and brings what was there between the two.
    let mut between: CachedWork = serde_json::from_str(&fleet.get("w").to_string()).unwrap();
    between.metadata.resource_version = Some("2".to_owned());
    applier.store.works.observe(&between);
    reconcile(&applier).await.unwrap();
    assert_eq!(value(), "newest");
}

#[tokio::test(start_paused = true)]
async fn what_another_agent_removed_while_it_led_is_not_made_again_by_its_successor() {
    let (applier, fleet, site) = applier_of([work_of(&[config_map("w")])], true).await;
    // The other one has removed the object and its Work, which no watch has shown.
    applier.store.works.stand_by();
    fleet.remove("w");
    reconcile(&applier).await.unwrap();
    assert!(site.writes.lock().is_empty(), "{:?}", site.writes.lock());
}
