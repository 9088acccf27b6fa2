use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering;

use http::{Method, Request, Response};
use kube::client::Body;
use muster_shared::k8s::Client;
use muster_shared::watch::Selection;

use super::*;
use crate::discovery::Discovery;
use crate::work::drift::Drift;
use crate::work::member::Member;
use crate::work::reader::tests::{Fleet, cache, work};

#[test]
fn a_finalizer_that_is_taken_off_again_is_a_failure_that_backs_off() {
    let answered = |finalizers: &[&str]| {
        let work = json!({"metadata": {"name": "w", "finalizers": finalizers}, "spec": {}});
        let after: CachedWork = serde_json::from_str(&work.to_string()).unwrap();
        promised(&after)
    };
    assert!(matches!(
        answered(&[FINALIZER]),
        Ok(Next::After(Duration::ZERO))
    ));
    assert!(matches!(answered(&["other"]), Err(Error::Finalizer)));
    assert!(matches!(answered(&[]), Err(Error::Finalizer)));
}

/// A member with ConfigMaps.
#[derive(Default)]
struct Site {
    objects: Mutex<BTreeMap<String, Value>>,
    writes: Mutex<Vec<String>>,
    /// Notified of each write.
    wrote: tokio::sync::Notify,
}

/// Time that the member takes to write an object whose name says that it is large.
const SLOW: Duration = Duration::from_secs(10);

impl Site {
    fn start(self: &Arc<Self>) -> Client {
        let site = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let site = Arc::clone(&site);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                if head.method != Method::GET && head.uri.path().contains("large") {
                    tokio::time::sleep(SLOW).await; // allowed: paused time, the work itself
                }
                let (code, answer) = site.answer(&head.method, head.uri.path(), &body);
                site.wrote.notify_one();
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let resource = json!({ "resource": "configmaps", "scope": "Namespaced", "verbs": ["get"],
            "responseKind": { "kind": "ConfigMap" } });
        let core =
            json!({ "metadata": {}, "versions": [{ "version": "v1", "resources": [resource] }] });
        match path {
            "/api" => {
                return (
                    200,
                    json!({ "kind": "APIGroupDiscoveryList", "items": [core] }),
                );
            }
            "/apis" => return (200, json!({ "kind": "APIGroupDiscoveryList", "items": [] })),
            _ => {}
        }
        if method != Method::GET {
            self.writes.lock().unwrap().push(format!("{method} {path}"));
        }
        let mut objects = self.objects.lock().unwrap();
        if method == Method::PATCH {
            let mut object: Value = serde_json::from_slice(body).unwrap();
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
        let missing =
            json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" });
        found.map_or((404, missing), |object| (200, object))
    }
}

/// A fleet with one Work, and an applier for it whose cache has room for all texts, or for some.
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
    let interpreters = Arc::new(Interpreters::default());
    let applier = Applier {
        works: cache(&api, has_room).await,
        reader: Arc::new(WorkReader::new(api.clone())),
        clusters: Informer::new(Api::all(member.clone()), Selection::everything()),
        objects: Objects {
            cluster: "m1".to_owned(),
            member: Member::new(member.clone(), Discovery::new(member), || true),
            drift: Arc::new(Drift::new(false, Arc::clone(&interpreters))),
        },
        api,
        repairs: Arc::default(),
        interpreters,
        statuses: Arc::new(ObjectStatuses::new(Queue::new("test"))),
        events: Events::nowhere(),
        clock: Arc::new(Clock::of_server(Arc::default())),
        queue: Queue::new("test"),
        fleet: fleet_id::channel().1,
        fencer: None,
        state: State::default(),
    };
    (applier.listen(), fleet, site)
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
            assert_eq!(
                fleet.reads.load(Ordering::Relaxed),
                expected,
                "{what} {has_room}"
            );
        };
        step("the finalizer", reads[0]).await;
        step("the objects", reads[1]).await;
        site.objects.lock().unwrap().clear();
        step("what is gone", reads[2]).await;
        let mut deleted = fleet.get("w");
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        fleet.put(deleted.clone());
        let cached: CachedWork = serde_json::from_str(&deleted.to_string()).unwrap();
        fleet.reads.store(0, Ordering::Relaxed);
        outcomes.push(format!("{:?}", applier.remove(&cached).await));
        assert_eq!(fleet.reads.load(Ordering::Relaxed), reads[3]);
        assert!(site.objects.lock().unwrap().is_empty());
        let (writes, patches) = (site.writes.lock().unwrap(), fleet.patches.lock().unwrap());
        assert!(
            writes.iter().any(|write| write.starts_with("DELETE")),
            "{writes:?}"
        );
        all.push((outcomes, writes.clone(), patches.clone()));
    }
    assert_eq!(all[0], all[1]);
}

#[tokio::test(start_paused = true)]
async fn a_work_that_cannot_be_read_is_tried_again_and_nothing_of_it_is_touched() {
    let (applier, fleet, site) = applier(false).await;
    reconcile(&applier).await.unwrap();
    reconcile(&applier).await.unwrap();
    let before = (
        site.writes.lock().unwrap().clone(),
        fleet.patches.lock().unwrap().len(),
    );
    fleet.is_down.store(true, Ordering::Relaxed);
    assert!(reconcile(&applier).await.is_err());
    let after = (
        site.writes.lock().unwrap().clone(),
        fleet.patches.lock().unwrap().len(),
    );
    assert_eq!(before, after);
    assert_eq!(site.objects.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn large_works_that_wait_for_their_turn_leave_the_workers_to_small_ones() {
    let large = (0..20).map(|n| work(&format!("large{n:02}"), 100_000));
    let works = large.chain([work("small", 100)]).map(|mut work| {
        work["metadata"]["finalizers"] = json!([FINALIZER]);
        work
    });
    let (applier, fleet, site) = applier_of(works, false).await;
    let queue = applier.queue.clone();
    for name in fleet.names() {
        queue.add(name);
    }
    let shutdown = tokio_util::sync::CancellationToken::new();
    let reconcile = move |name| Arc::clone(&applier).reconcile(name);
    let begun = Instant::now();
    tokio::spawn(queue.run(5, shutdown.clone(), reconcile));
    let is_made = |part: &str, count: usize| {
        let objects = site.objects.lock().unwrap();
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
