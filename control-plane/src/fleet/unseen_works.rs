//! Works that may exist although the cache does not show them: one that this process made a moment
//! ago, and one that a list lacks although nobody saw it leave.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::{Api, ListParams};
use muster_shared::api::work::Work;
use muster_shared::client::Head;
use muster_shared::watch::{Change, Informer};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OnceCell;

use super::Fleet;
use super::api_error::ApiError;
use super::binding::BindingKey;
use super::sets::take;
use super::works::{CachedWork, binding_named, binding_of};

/// Works in one answer of a list.
const PAGE: u32 = 500;

/// Namespace and name of a Work.
type Place = (String, String);

/// Works that the cache may not show, by the binding that they are for. Cheap to clone.
#[derive(Clone, Default)]
pub struct UnseenWorks(Arc<Inner>);

#[derive(Default)]
struct Inner {
    by_binding: Mutex<HashMap<BindingKey, BTreeSet<Place>>>,
    /// Whether those are known that former processes made.
    compared: OnceCell<()>,
}

impl UnseenWorks {
    /// Makes a memory that follows the cache of Works; make it before the cache starts.
    pub fn new(works: &Informer<CachedWork>) -> Self {
        let unseen = Self::default();
        let (kept, cache) = (unseen.clone(), works.clone());
        works.on_change(move |change| {
            let work = change.object();
            let Some(binding) = binding_of(work) else {
                return;
            };
            let place = (work.namespace().unwrap_or_default(), work.name_any());
            let is_lost = matches!(change, Change::Deleted { .. })
                && !cache.presence(Some(&place.0), &place.1).is_gone();
            if is_lost {
                kept.insert(&binding, place);
            } else {
                kept.remove(&binding, &place);
            }
        });
        unseen
    }

    /// Remembers a Work that is about to be made. Call it before the request that makes the Work:
    /// the answer may be lost.
    pub fn making(&self, binding: &BindingKey, namespace: &str, name: &str) {
        self.insert(binding, (namespace.to_owned(), name.to_owned()));
    }

    /// Reads the Works of a binding that exist and that the cache does not show.
    pub async fn read(
        &self,
        fleet: &Fleet,
        binding: &BindingKey,
    ) -> Result<Vec<Head<Work>>, ApiError> {
        let places = self.lock().get(binding).cloned().unwrap_or_default();
        let mut found = Vec::new();
        for place in places {
            let (namespace, name) = (&place.0, &place.1);
            if fleet.works.get(Some(namespace), name).is_none() {
                let api = Api::namespaced(fleet.client.clone(), namespace);
                let read = Head::<Work>::get_opt(&api, name).await;
                let read = read.map_err(ApiError::of("look for the works of", binding))?;
                let is_of = |work: &Head<Work>| {
                    binding_named(&work.metadata).is_none_or(|it| it == *binding)
                };
                if let Some(work) = read.filter(is_of) {
                    found.push(work);
                    continue;
                }
            }
            self.remove(binding, &place);
        }
        Ok(found)
    }

    /// Compares all Works with the cache, once in a process: a former one may have made some just
    /// before it ended.
    pub async fn compare(&self, fleet: &Fleet) -> Result<(), ApiError> {
        let compared = self.0.compared.get_or_try_init(|| async {
            let api = Api::all(fleet.client.clone());
            let mut page = ListParams::default().limit(PAGE);
            loop {
                let listed = Head::<Work>::list(&api, &page).await;
                let listed = listed.map_err(ApiError::of("list", &"the works of all clusters"))?;
                for work in &listed {
                    let place = (work.namespace().unwrap_or_default(), work.name_any());
                    let is_shown = fleet.works.get(Some(&place.0), &place.1).is_some();
                    if let Some(binding) = binding_named(&work.metadata).filter(|_| !is_shown) {
                        self.insert(&binding, place);
                    }
                }
                match listed.metadata.continue_.filter(|it| !it.is_empty()) {
                    Some(next) => page = page.continue_token(&next),
                    None => return Ok(()),
                }
            }
        });
        compared.await.copied()
    }

    fn insert(&self, binding: &BindingKey, place: Place) {
        let mut all = self.lock();
        all.entry(binding.clone()).or_default().insert(place);
    }

    fn remove(&self, binding: &BindingKey, place: &Place) {
        take(&mut self.lock(), binding, place);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BindingKey, BTreeSet<Place>>> {
        let all = &self.0.by_binding;
        all.lock()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::{self, Bench, pass, work};

    fn key() -> BindingKey {
        testing::key("web-deployment")
    }

    /// Returns a Work for which its agent has something to do before it can be deleted.
    fn held(cluster: &str) -> Value {
        let mut it = work(cluster, "Healthy");
        it["metadata"]["finalizers"] = json!(["karmada.io/execution-controller"]);
        it
    }

    async fn unseen(bench: &Bench) -> Vec<String> {
        let found = bench.fleet.unseen_works.read(&bench.fleet, &key()).await;
        let found = found.unwrap().into_iter();
        found.filter_map(|it| it.namespace()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_is_unseen_from_its_making_until_the_cache_shows_it() {
        let bench = Bench::followed([]).await;
        let works = &bench.fleet.unseen_works;
        works.making(&key(), "karmada-es-m1", "web");
        assert_eq!(unseen(&bench).await, [""; 0], "it was never made");
        works.making(&key(), "karmada-es-m1", "web");
        bench.api.put("works", held("m1"));
        assert_eq!(unseen(&bench).await, ["karmada-es-m1"]);
        pass(1).await;
        assert!(works.lock().is_empty(), "nothing is kept of it");
        assert_eq!(unseen(&bench).await, [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_stays_unseen_while_the_api_does_not_serve_works() {
        let bench = Bench::followed([]).await;
        let works = &bench.fleet.unseen_works;
        works.making(&key(), "karmada-es-m1", "web");
        bench.api.refuse(Method::GET, "/works/web", 404, "");
        let read = works.read(&bench.fleet, &key()).await;
        assert!(read.is_err(), "nobody knows whether it was made");
        bench.api.answer_truly();
        bench.api.put("works", held("m1"));
        assert_eq!(unseen(&bench).await, ["karmada-es-m1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_that_a_list_lacks_is_unseen_and_one_that_was_deleted_is_gone() {
        let works = ["m1", "m2"].map(|cluster| ("works", held(cluster)));
        let bench = Bench::followed(works).await;
        bench.api.delete("works", "karmada-es-m2", "web");
        pass(1).await;
        bench.api.hide("works", "karmada-es-m1", "web");
        pass(60).await;
        assert!(bench.fleet.works.list().is_empty(), "the list is short");
        assert_eq!(unseen(&bench).await, ["karmada-es-m1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn works_of_a_former_process_are_listed_once_in_pages() {
        let works = ["m1", "m2"].map(|cluster| ("works", held(cluster)));
        let mut bench = Bench::new(works);
        bench.api.hide("works", "karmada-es-m2", "web");
        bench.follow().await;
        let all = json!({"metadata": {}, "items": [held("m1"), held("m2")]});
        bench.api.answer(Method::GET, "/v1alpha1/works", 200, all);
        for _ in 0..3 {
            let compared = bench.fleet.unseen_works.compare(&bench.fleet).await;
            assert!(compared.is_ok(), "{compared:?}");
        }
        assert_eq!(unseen(&bench).await, ["karmada-es-m2"]);
        let asked = bench.api.asked().into_iter();
        let lists: Vec<_> = asked.filter(|it| it.path.ends_with("/works")).collect();
        assert_eq!(lists.len(), 1, "{lists:?}");
        assert!(lists[0].query.contains("limit=500"), "{lists:?}");
    }
}
