use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{Request, Response};
use kube::client::Body;
use muster_shared::api::binding::ResourceHealth;
use muster_shared::k8s::{ApiResource, Client, GroupVersionKind};
use muster_shared::watch::{Event, Refused};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::index::Index;
use super::opened::Watched;
use super::stream::{LIST_AGAIN, Stream, hides};
use super::*;
use crate::discovery::Discovery;
use crate::testing;
use crate::work::desired::ObjectKey;
use crate::work::manifests::desired_for;
use crate::work::observed::Interpretation;
use crate::work::works::tests::{Fleet, store, work};

/// Watches of a member with Works `a` and `b`, whose texts are not kept.
async fn watches() -> (Arc<Watches>, Arc<Fleet>) {
    let (watches, fleet) = watches_of(["a", "b"].map(|name| work(name, 100_000))).await;
    for name in ["a", "b"] {
        let object = object(&fleet, name);
        watches.store.drift.applied(&place(name), &object, &object);
    }
    (watches, fleet)
}

async fn watches_of(works: impl IntoIterator<Item = Value>) -> (Arc<Watches>, Arc<Fleet>) {
    let fleet = Arc::new(Fleet::default());
    for mut applied in works {
        applied["status"]["conditions"] = json!([{ "type": "Applied", "status": "True",
            "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        fleet.put(applied);
    }
    let api = fleet.start();
    let client = api.clone().into_client();
    let watches = Watches {
        store: store(&api, false).await,
        member: client.clone(),
        discovery: Discovery::new(client),
        waiting: Room::default(),
        kinds_changed: Arc::default(),
        readable: broadcast::channel(1).0,
    };
    (Arc::new(watches), fleet)
}

fn watched() -> Watched {
    Watched {
        kind: GroupVersionKind::gvk("", "v1", "ConfigMap"),
        namespaced: true,
    }
}

/// Returns the watch of a kind.
fn stream(watches: &Arc<Watches>, of: Watched) -> Stream {
    let resource = ApiResource::from_gvk(&of.kind);
    Stream::new(watches, of, resource, false)
}

fn place(name: &str) -> ObjectKey {
    ObjectKey {
        kind: watched().kind,
        namespace: "shop".to_owned(),
        name: name.to_owned(),
    }
}

/// Returns the object of a Work as the member has it.
fn object(fleet: &Fleet, name: &str) -> Value {
    let work: muster_shared::api::work::Work = serde_json::from_value(fleet.get(name)).unwrap();
    desired_for(&work, &work.spec.workload.manifests[0].0, None)
}

#[tokio::test(start_paused = true)]
async fn the_work_of_an_object_is_read_once_while_only_its_objects_change() {
    let (watches, fleet) = watches().await;
    let mut stream = stream(&watches, watched());
    for (name, data, reads, as_desired) in [
        ("a", None, 1, true),
        ("a", Some("other"), 1, false),
        ("a", None, 1, true),
        ("b", None, 2, true),
    ] {
        let mut object = object(&fleet, name);
        if let Some(data) = data {
            object["data"]["a"] = json!(data);
        }
        let place = place(name);
        let seen = stream.see(&place, (object, None)).await;
        assert_eq!(seen.as_desired.is_some(), as_desired);
        assert!(seen.wanted && seen.key == Some(place));
        assert_eq!(fleet.reads.load(Ordering::Relaxed), reads);
    }
    assert_eq!(
        watches.store.waits.to_apply.len(),
        1,
        "the repair of what differs"
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_work_cannot_be_read_counts_as_wanted_and_is_reconciled_again() {
    let (watches, fleet) = watches().await;
    fleet.is_down.store(true, Ordering::Relaxed);
    let (mut stream, mut index) = (stream(&watches, watched()), Index::default());
    let (at, object) = (place("a"), object(&fleet, "a"));
    let seen = stream.see(&at, (object.clone(), None)).await;
    assert!(seen.wanted && seen.as_desired.is_none());
    assert_eq!(seen.again, Some(LIST_AGAIN));
    index.note(at.clone(), seen.work, seen.wanted);
    // When it disappears, the applier makes it again, which reads the Work until that succeeds.
    for name in index.remove(&at) {
        assert!(stream.lose(&at, &name, true).await.is_none());
    }
    let (asked, mut applied) = tokio::sync::mpsc::unbounded_channel();
    let reconcile = move |name: String| {
        _ = asked.send(name);
        std::future::ready(Ok::<_, std::io::Error>(muster_shared::queue::Next::Done))
    };
    let queue = watches.store.waits.to_apply.clone();
    let stop = tokio_util::sync::CancellationToken::new();
    tokio::spawn(queue.run(1, stop, reconcile));
    assert_eq!(applied.recv().await.as_deref(), Some("a"));
    fleet.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(LIST_AGAIN).await;
    watches.store.drift.applied(&at, &object, &object);
    let seen = stream.see(&at, (object, None)).await;
    assert!(seen.as_desired.is_some() && seen.again.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_an_object_is_reported_where_it_is_seen_and_what_cannot_be_seen_is_unknown() {
    let (watches, fleet) = watches().await;
    let mut stream = stream(&watches, watched());
    for name in ["a", "b"] {
        let raw = (object(&fleet, name), None);
        let seen = stream.see(&place(name), raw).await;
        stream.index.note(place(name), seen.work, seen.wanted);
    }
    for name in stream.index.remove(&place("a")) {
        stream.lose(&place("a"), &name, true).await;
    }
    stream.lose_sight().await;
    let health = |name: &str| {
        let seen = watches.store.statuses.seen(name, &place(name)).unwrap();
        (seen.health, seen.lost)
    };
    assert_eq!(health("a"), (ResourceHealth::Unhealthy, true));
    assert_eq!(health("b"), (ResourceHealth::Unknown, false));
}

#[test]
fn objects_are_hidden_by_a_refusal_and_by_a_conversion_that_fails() {
    for (group, code, expected) in [
        ("apps", Some(403), true),
        ("example.io", Some(500), true),
        // It fails at everything: the health of the cluster says so.
        ("apps", Some(500), false),
        ("example.io", Some(503), false),
        ("example.io", None, false),
    ] {
        let kind = GroupVersionKind::gvk(group, "v1", "Thing");
        let words = "refused".to_owned();
        let hidden = hides(&kind, &Refused { code, words });
        assert_eq!(hidden, expected, "{group} {code:?}");
    }
}

/// Returns a client of an API server that serves no kind, or of a proxy that finds none.
fn unserved(is_proxys: bool) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_list = ["/api", "/apis"].contains(&request.uri().path());
        let (code, body) = if is_list && !is_proxys {
            (200, r#"{"kind": "APIGroupDiscoveryList", "items": []}"#)
        } else {
            (404, "404 page not found\n")
        };
        let body = Body::from(body.as_bytes().to_vec());
        let answer = Response::builder().status(code).body(body).unwrap();
        async { Ok::<_, Infallible>(answer) }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_member_serves_no_more_is_looked_up_again_and_its_works_report_it() {
    for is_proxys in [false, true] {
        let (mut watches, fleet) = watches().await;
        let client = unserved(is_proxys);
        let changed = Arc::get_mut(&mut watches).unwrap();
        changed.member = client.clone();
        changed.discovery = Discovery::new(client);
        let mut stream = stream(&watches, watched());
        let seen = stream.see(&place("a"), (object(&fleet, "a"), None)).await;
        stream.index.note(place("a"), seen.work, seen.wanted);
        let (statuses, queue) = (&watches.store.statuses, &watches.store.waits.to_apply);
        assert!(queue.is_empty(), "it is at rest");
        let run = stream.run(CancellationToken::new());
        let run = tokio::time::timeout(std::time::Duration::from_mins(10), run);
        assert_eq!(run.await.is_err(), is_proxys, "a proxy knows nothing");
        let seen = statuses.seen("a", &place("a")).unwrap();
        let is_unknown = seen.health == ResourceHealth::Unknown;
        assert_eq!((is_unknown, seen.lost), (!is_proxys, false));
        assert_eq!(queue.is_empty(), is_proxys);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_in_another_scope_than_before_is_watched_anew() {
    for (scope, ends) in [("Namespaced", false), ("Cluster", true)] {
        let (mut watches, _fleet) = watches().await;
        let mut core = testing::group("", &[("configmaps", "ConfigMap")]);
        core["versions"][0]["resources"][0]["scope"] = json!(scope);
        let client = testing::member(vec![core], |_, _| testing::not_found(&json!({})));
        let changed = Arc::get_mut(&mut watches).unwrap();
        changed.member = client.clone();
        changed.discovery = Discovery::new(client);
        changed.discovery.refresh().await.unwrap();
        let run = stream(&watches, watched()).run(CancellationToken::new());
        let run = tokio::time::timeout(std::time::Duration::from_mins(10), run);
        assert_eq!(run.await.is_ok(), ends, "{scope}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_succeeded_is_not_lost_with_the_marks_of_its_object() {
    for (restart, lost) in [("Never", false), ("Always", true)] {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "a", "namespace": "shop" }, "spec": { "restartPolicy": restart } });
        let mut work = work("a", 1);
        work["spec"]["workload"]["manifests"] = json!([pod]);
        let (watches, _fleet) = watches_of([work]).await;
        let kind = Watched {
            kind: GroupVersionKind::gvk("", "v1", "Pod"),
            namespaced: true,
        };
        let key = ObjectKey::of(&pod, 0).unwrap();
        let mut object = pod.clone();
        object["status"] = json!({ "phase": "Succeeded" });
        let check = Interpretation::of(&object, &pod, &watches.store.interpreters);
        watches.store.statuses.see("a", &key, check);
        stream(&watches, kind).lose(&key, "a", false).await;
        let seen = watches.store.statuses.seen("a", &key).unwrap();
        assert_eq!(seen.lost, lost, "{restart}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_found_no_room_has_its_kind_listed_when_its_question_is_answered() {
    let (watches, fleet) = watches().await;
    let mut stream = stream(&watches, watched());
    let is_listed = async |stream: &mut Stream, seconds: u64| {
        let wait = std::time::Duration::from_secs(seconds);
        tokio::time::timeout(wait, stream.relist.due())
            .await
            .is_ok()
    };
    assert!(!is_listed(&mut stream, 29).await);
    stream
        .interpret_again(&place("a"), Some(object(&fleet, "a")))
        .await;
    assert!(!is_listed(&mut stream, 60).await, "it had room");
    stream.interpret_again(&place("a"), None).await;
    assert!(is_listed(&mut stream, 2).await);
    stream.interpret_again(&place("a"), None).await;
    assert!(!is_listed(&mut stream, 28).await, "lists have their pauses");
    assert!(is_listed(&mut stream, 3).await);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_replaces_another_one_has_the_works_of_its_kind_applied_after_its_list() {
    for (is_behind, applied) in [(false, 0), (true, 2)] {
        let (watches, _fleet) = watches().await;
        for (kind, applied) in [("Secret", 0), ("ConfigMap", applied)] {
            let of = Watched {
                kind: GroupVersionKind::gvk("", "v1", kind),
                namespaced: true,
            };
            let resource = ApiResource::from_gvk(&of.kind);
            let mut stream = Stream::new(&watches, of, resource, is_behind);
            let queue = &watches.store.waits.to_apply;
            stream.follow(Event::Init).await;
            assert!(queue.is_empty(), "the list is not complete");
            stream.follow(Event::InitDone).await;
            assert_eq!(queue.len(), applied, "{kind} {is_behind}");
            for _ in 0..2 {
                stream.follow(Event::InitDone).await;
            }
            assert_eq!(queue.len(), applied, "once");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_applied_and_went_between_two_lists_is_applied_again() {
    let (watches, fleet) = watches().await;
    let mut stream = stream(&watches, watched());
    let queue = &watches.store.waits.to_apply;
    let raw = || serde_json::from_value(object(&fleet, "b")).unwrap();
    for name in ["a", "b"] {
        let object = object(&fleet, name);
        let check = Interpretation::of(&object, &object, &watches.store.interpreters);
        let statuses = &watches.store.statuses;
        statuses.see_first(name, &place(name), check);
    }
    stream.follow(Event::Init).await;
    stream.follow(Event::InitApply(raw())).await;
    stream.follow(Event::InitDone).await;
    assert_eq!(queue.len(), 1, "a is not there");
    // An object that was reported as lost is repaired after pauses of its own.
    let statuses = &watches.store.statuses;
    statuses.see("a", &place("a"), Interpretation::lost());
    assert_eq!(statuses.unshown(&watched().kind, |_| false).len(), 1);
    // A task that has run to its end may go, and is not missed until it is seen again.
    statuses.ended("b", &place("b"));
    assert!(statuses.unshown(&watched().kind, |_| false).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_stopped_is_not_as_desired_although_its_work_says_nothing_of_that() {
    let (watches, fleet) = watches().await;
    let mut stream = stream(&watches, watched());
    let mut object = object(&fleet, "a");
    let marks = json!({ "f:work.karmada.io/name": {}, "f:work.karmada.io/namespace": {} });
    object["metadata"]["managedFields"] = json!([{ "manager": "muster-agent", "operation": "Apply",
        "fieldsV1": { "f:data": { "f:a": {} }, "f:metadata": { "f:annotations": marks,
            "f:labels": { "f:karmada.io/managed": {} } } } }]);
    let seen = stream.see(&place("a"), (object.clone(), None)).await;
    assert!(seen.as_desired.is_some(), "it is at rest");
    let order = json!({ "immutable": true });
    testing::stop(&mut object, &order);
    let seen = stream.see(&place("a"), (object, None)).await;
    assert!(seen.wanted && seen.as_desired.is_none());
    let queue = &watches.store.waits.to_apply;
    assert_eq!(queue.len(), 1, "the applier looks at it");
}
