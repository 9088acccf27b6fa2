use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Method;
use muster_shared::merge;
use muster_shared::watch::Selection;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::fleet_id;
use crate::testing;
use crate::work::store::Store;
use crate::work::texts::Texts;
use crate::work::waits::{Event, Waits};

/// Namespace of the Works.
const NAMESPACE: &str = "karmada-es-m1";

/// A fleet API with Works.
#[derive(Default)]
pub(crate) struct Fleet {
    works: Mutex<BTreeMap<String, Value>>,
    /// Whether it does not answer reads of single Works.
    pub(crate) is_down: AtomicBool,
    /// Whether it does not serve the kind, as an API server that has just started.
    pub(crate) is_unserved: AtomicBool,
    /// Whether it refuses statuses for their size.
    pub(crate) refuses_statuses: AtomicBool,
    /// Names of objects in one status that it takes at most.
    pub(crate) most_names: Mutex<Option<usize>>,
    /// Reads of single Works.
    pub(crate) reads: AtomicUsize,
    /// Patches of Works, without versions and times.
    pub(crate) patches: Mutex<Vec<Value>>,
}

impl Fleet {
    /// Adds or replaces a Work.
    pub(crate) fn put(&self, mut work: Value) {
        let name = work["metadata"]["name"].as_str().unwrap().to_owned();
        work["metadata"]["namespace"] = json!(NAMESPACE);
        self.works.lock().insert(name, work);
    }

    /// Returns a Work.
    pub(crate) fn get(&self, name: &str) -> Value {
        self.works.lock()[name].clone()
    }

    /// Removes a Work; no watch reports it.
    pub(crate) fn remove(&self, name: &str) {
        self.works.lock().remove(name);
    }

    /// Returns the names of all Works.
    pub(crate) fn names(&self) -> Vec<String> {
        self.works.lock().keys().cloned().collect()
    }

    /// Starts to answer; returns the API of Works.
    pub(crate) fn start(self: &Arc<Self>) -> Api<CachedWork> {
        let fleet = Arc::clone(self);
        let client = testing::slow_api(move |head, body| {
            let fleet = Arc::clone(&fleet);
            async move {
                let query = head.uri.query().unwrap_or_default();
                if query.contains("watch=") && !query.contains("sendInitialEvents") {
                    std::future::pending::<()>().await;
                }
                fleet.answer(&head.method, head.uri.path(), query, &body)
            }
        });
        Api::namespaced(client, NAMESPACE)
    }

    fn answer(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> io::Result<(u16, Value)> {
        let refusal = |code: u16, reason: &str| json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason });
        let mut works = self.works.lock();
        let Some((_, name)) = path.split_once("/works/") else {
            if query.contains("sendInitialEvents") {
                return Ok((422, refusal(422, "Invalid")));
            }
            let items: Vec<_> = works.values().collect();
            let list = json!({ "metadata": { "resourceVersion": "1" }, "items": items });
            return Ok((200, list));
        };
        let name = name.trim_end_matches("/status");
        if method == Method::GET {
            self.reads.fetch_add(1, Ordering::Relaxed);
            if self.is_down.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        }
        if self.is_unserved.load(Ordering::Relaxed) {
            return Ok((404, json!("404 page not found")));
        }
        let Some(work) = works.get_mut(name) else {
            return Ok(testing::not_found(&json!({ "name": name })));
        };
        if method == Method::PATCH {
            let mut change: Value = serde_json::from_slice(body).unwrap();
            let names = change.pointer("/status/manifestStatuses");
            let names = names.and_then(Value::as_array).map_or(0, Vec::len);
            let is_too_long = self.most_names.lock().is_some_and(|most| names > most)
                || self.refuses_statuses.load(Ordering::Relaxed);
            if path.ends_with("/status") && is_too_long {
                let mut refusal = refusal(500, "InternalError");
                refusal["message"] = json!("trying to send message larger than max");
                return Ok((500, refusal));
            }
            if let Some(metadata) = change.get_mut("metadata").and_then(Value::as_object_mut)
                && let Some(version) = metadata.remove("resourceVersion")
                && version != work["metadata"]["resourceVersion"]
            {
                return Ok((409, refusal(409, "Conflict")));
            }
            merge::apply(work, &change);
            let version = work["metadata"]["resourceVersion"].as_str().unwrap();
            let next = version.parse::<u64>().unwrap() + 1;
            work["metadata"]["resourceVersion"] = json!(next.to_string());
            let conditions = change.pointer_mut("/status/conditions");
            let conditions = conditions.and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten() {
                let condition = condition.as_object_mut().unwrap();
                condition.remove("lastTransitionTime");
            }
            self.patches.lock().push(change);
        }
        Ok((200, work.clone()))
    }
}

/// Returns a Work with one ConfigMap of this many bytes.
pub(crate) fn work(name: &str, bytes: usize) -> Value {
    json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1" },
        "spec": { "workload": { "manifests": [{
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "shop" }, "data": { "a": "x".repeat(bytes) },
        }] } },
    })
}

/// Returns a cache of the Works that has room for some texts, or for all.
async fn cache(api: &Api<CachedWork>, has_room: bool) -> Informer<CachedWork> {
    let texts = Texts::default();
    let form = move |work: &mut CachedWork| {
        if !has_room {
            work.fit(&texts);
        }
    };
    let works = Informer::keeping(api.clone(), Selection::everything(), form);
    tokio::spawn(works.clone().run(CancellationToken::new()));
    works.synced().await;
    works
}

/// Returns a store of the Works of a fleet, whose cache has room for some texts, or for all.
pub(crate) async fn store(api: &Api<CachedWork>, has_room: bool) -> Arc<Store> {
    store_over(cache(api, has_room).await, api, false)
}

/// Returns a store of the Works of a fleet whose kinds will be listed.
pub(crate) async fn store_with_lists(api: &Api<CachedWork>) -> Arc<Store> {
    store_over(cache(api, true).await, api, true)
}

fn store_over(cache: Informer<CachedWork>, api: &Api<CachedWork>, lists_come: bool) -> Arc<Store> {
    let (interpreters, fleet) = (Arc::default(), fleet_id::channel().1);
    Store::new(cache, api.clone(), lists_come, interpreters, fleet)
}

async fn start(fleet: &Arc<Fleet>) -> Works {
    let api = fleet.start();
    Works::new(cache(&api, false).await, api)
}

fn get(works: &Works, name: &str) -> Arc<CachedWork> {
    works.cached(name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn only_a_work_whose_text_is_not_kept_is_read() {
    let fleet = Arc::new(Fleet::default());
    fleet.put(work("small", 1_000));
    fleet.put(work("large", 100_000));
    let works = start(&fleet).await;
    for (name, reads) in [("small", 0), ("large", 2)] {
        fleet.reads.store(0, Ordering::Relaxed);
        let cached = get(&works, name);
        let opened = works.open(&cached).await.unwrap().unwrap();
        let promptly = works.open_promptly(&cached).await.unwrap();
        for whole in [opened, promptly] {
            assert_eq!(whole.work.unwrap().spec.workload.manifests.len(), 1);
            assert_eq!(whole.cached.wish(), cached.wish());
        }
        assert_eq!(fleet.reads.load(Ordering::Relaxed), reads, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_work_that_is_gone_or_another_one_is_not_opened() {
    let fleet = Arc::new(Fleet::default());
    fleet.put(work("w", 100_000));
    let works = start(&fleet).await;
    let cached = get(&works, "w");
    let mut other = work("w", 100_000);
    other["metadata"]["uid"] = json!("other");
    fleet.put(other);
    assert!(works.open(&cached).await.unwrap().is_none());
    fleet.works.lock().clear();
    assert!(works.open(&cached).await.unwrap().is_none());
    assert!(works.open_promptly(&cached).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_was_read_of_a_work_counts_until_the_cache_shows_it() {
    let fleet = Arc::new(Fleet::default());
    fleet.put(work("w", 1_000));
    let works = start(&fleet).await;
    let latest = async || {
        let latest = works.latest("w").await.unwrap();
        latest.unwrap().metadata.resource_version.clone().unwrap()
    };
    assert!(works.verify("w").await.unwrap().is_some());
    assert_eq!(latest().await, "1");
    let mut changed = work("w", 1_000);
    changed["metadata"]["resourceVersion"] = json!("2");
    fleet.put(changed);
    assert_eq!(latest().await, "1", "the cache is behind");
    let fresh = works.verify("w").await.unwrap().unwrap();
    assert_eq!(fresh.metadata.resource_version.as_deref(), Some("2"));
    assert_eq!(latest().await, "2");
    fleet.works.lock().clear();
    assert!(works.verify("w").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn after_a_read_failed_watches_ask_for_none_for_a_while() {
    let fleet = Arc::new(Fleet::default());
    fleet.put(work("w", 100_000));
    let works = start(&fleet).await;
    let cached = get(&works, "w");
    fleet.is_down.store(true, Ordering::Relaxed);
    assert!(works.open(&cached).await.is_err());
    for _ in 0..10 {
        assert!(works.open_promptly(&cached).await.is_err());
    }
    assert_eq!(fleet.reads.load(Ordering::Relaxed), 2);
    fleet.is_down.store(false, Ordering::Relaxed);
    tokio::time::advance(REST).await;
    assert!(works.open_promptly(&cached).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn few_large_works_are_held_at_a_time_and_any_number_of_others() {
    let fleet = Arc::new(Fleet::default());
    fleet.put(work("small", 1_000));
    fleet.put(work("large", 100_000));
    let works = start(&fleet).await;
    let (small, large) = (get(&works, "small"), get(&works, "large"));
    let waits = Waits::default();
    let take = |work| waits.permit(work, Event::FreeToApply);
    let mut held: Vec<_> = (0..2).map(|_| take(&large)).collect();
    assert!(held.iter().all(Option::is_some));
    assert!(take(&small).is_some());
    assert!(waits.permit(&large, Event::FreeToReport).is_some());
    assert!(take(&large).is_none() && waits.to_apply.is_empty());
    held.pop();
    assert_eq!(waits.to_apply.len(), 1, "it is due when a large one ends");
    assert!(take(&large).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_cache_does_not_show_for_long_is_read_and_counts_until_it_does() {
    let fleet = Arc::new(Fleet::default());
    fleet.put(work("w", 100_000));
    let works = start(&fleet).await;
    let before = get(&works, "w");
    let change = json!({ "metadata": { "finalizers": ["f"] } });
    let patch = works.patch(&works.api, &before.metadata, None, change);
    let written = patch.await.unwrap().metadata.resource_version.clone();
    let latest = async || {
        let latest = works.latest("w").await;
        latest.map(|it| it.unwrap().metadata.resource_version.clone())
    };
    for (lag, reads) in [(0, 0), (80, 1), (0, 1), (1200, 2)] {
        tokio::time::advance(Duration::from_secs(lag)).await;
        assert_eq!(latest().await.unwrap(), written, "{lag}");
        assert_eq!(fleet.reads.load(Ordering::Relaxed), reads, "{lag}");
    }
    tokio::time::advance(Duration::from_secs(80)).await;
    fleet.is_down.store(true, Ordering::Relaxed);
    assert!(latest().await.is_err());
    fleet.is_down.store(false, Ordering::Relaxed);
    let mut foreign = fleet.get("w");
    foreign["metadata"]["resourceVersion"] = json!("5");
    fleet.put(foreign);
    assert_eq!(latest().await.unwrap().as_deref(), Some("5"));
    // The cache is still behind when it shows what the agent wrote.
    let mut shown: CachedWork = serde_json::from_value(work("w", 1)).unwrap();
    shown.metadata.resource_version = written;
    works.observe(&shown);
    assert_eq!(latest().await.unwrap().as_deref(), Some("5"));
}
