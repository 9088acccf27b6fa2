use std::sync::atomic::Ordering;

use muster_interpreter::Interpreters;
use muster_shared::api::binding::ResourceHealth;
use muster_shared::k8s::GroupVersionKind;
use muster_shared::queue::Queue;
use serde_json::json;
use tokio::sync::broadcast;

use super::*;
use crate::discovery::Discovery;
use crate::fleet_id;
use crate::reflect::ObjectStatuses;
use crate::reflect::waiting::Room;
use crate::work::drift::Drift;
use crate::work::reader::WorkReader;
use crate::work::reader::tests::{Fleet, cache, work};

/// Watches of a member with Works `a` and `b`, whose texts are not kept.
async fn watches() -> (Arc<Watches>, Arc<Fleet>) {
    let (watches, fleet) = watches_of(["a", "b"].map(|name| work(name, 100_000))).await;
    for name in ["a", "b"] {
        let object = object(&fleet, name);
        watches.drift.applied(&place(name), &object, &object);
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
    let interpreters = Arc::new(Interpreters::default());
    let watches = Watches {
        works: cache(&api, false).await,
        reader: Arc::new(WorkReader::new(api)),
        member: client.clone(),
        discovery: Discovery::new(client),
        statuses: Arc::new(ObjectStatuses::new(Queue::new("test"))),
        drift: Arc::new(Drift::new(false, Arc::clone(&interpreters))),
        interpreters,
        repairs: Arc::default(),
        to_apply: Queue::new("test"),
        fleet: fleet_id::channel().1,
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
    let mut opened = None;
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
        let seen = watches
            .see(&watched(), &place, (object, None), &mut opened)
            .await;
        assert_eq!(seen.as_desired.is_some(), as_desired);
        assert!(seen.wanted && seen.key == Some(place));
        assert_eq!(fleet.reads.load(Ordering::Relaxed), reads);
    }
    assert_eq!(watches.to_apply.len(), 1, "the repair of what differs");
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_work_cannot_be_read_counts_as_wanted_and_is_looked_at_again() {
    let (watches, fleet) = watches().await;
    fleet.is_down.store(true, Ordering::Relaxed);
    let (mut opened, mut index) = (None, Index::default());
    let (at, object) = (place("a"), object(&fleet, "a"));
    let seen = watches
        .see(&watched(), &at, (object.clone(), None), &mut opened)
        .await;
    assert!(seen.wanted && seen.as_desired.is_none());
    assert_eq!(seen.again, Some(LIST_AGAIN));
    index.note(at.clone(), seen.work, seen.wanted);
    // When it disappears, the applier makes it again, which reads the Work until that succeeds.
    for name in index.remove(&at) {
        assert!(watches.lose(&watched(), &at, &name).await.is_none());
    }
    let (asked, mut applied) = tokio::sync::mpsc::unbounded_channel();
    let reconcile = move |name: String| {
        _ = asked.send(name);
        std::future::ready(Ok::<_, std::io::Error>(muster_shared::queue::Next::Done))
    };
    let queue = watches.to_apply.clone();
    let stop = tokio_util::sync::CancellationToken::new();
    tokio::spawn(queue.run(1, stop, reconcile));
    assert_eq!(applied.recv().await.as_deref(), Some("a"));
    fleet.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(LIST_AGAIN).await;
    watches.drift.applied(&at, &object, &object);
    let seen = watches
        .see(&watched(), &at, (object, None), &mut opened)
        .await;
    assert!(seen.as_desired.is_some() && seen.again.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_an_object_is_told_where_it_is_seen_and_what_cannot_be_seen_is_unknown() {
    let (watches, fleet) = watches().await;
    let (mut opened, mut index) = (None, Index::default());
    for name in ["a", "b"] {
        let raw = (object(&fleet, name), None);
        let seen = watches
            .see(&watched(), &place(name), raw, &mut opened)
            .await;
        index.note(place(name), seen.work, seen.wanted);
    }
    for name in index.remove(&place("a")) {
        watches.lose(&watched(), &place("a"), &name).await;
    }
    watches.lose_sight(&watched(), &index).await;
    let health = |name: &str| {
        let seen = watches.statuses.seen(name, &place(name)).unwrap();
        (seen.health, seen.lost)
    };
    assert_eq!(health("a"), (ResourceHealth::Unhealthy, true));
    assert_eq!(health("b"), (ResourceHealth::Unknown, false));
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
        let look = Look::of(&object, &pod, &watches.interpreters);
        watches.statuses.see("a", &key, look);
        watches.mark_again(&kind, &key, "a").await;
        let seen = watches.statuses.seen("a", &key).unwrap();
        assert_eq!(seen.lost, lost, "{restart}");
    }
}
