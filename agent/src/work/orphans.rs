//! Finds objects in the member that were made for Works which the store does not have. After a
//! standby was promoted, those are what was written since its snapshot: they are kept and reported.
//!
//! Nothing removes them. An object is removed only with a Work that is there and is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_shared::check::first_of;
use muster_shared::fleet_id::{FleetId, Owner};
use muster_shared::k8s::{
    Api, ApiResource, Client, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, ResourceExt,
};
use muster_shared::names::{label, namespaced_key};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::ownership::{self, Origin};
use super::store::Store;
use crate::discovery::Discovery;
use crate::discovery::catalog::Catalog;
use crate::fleet_id;
use crate::fleet_server::Obeyed;

/// Pause before objects are searched for again where some were found, or not all could be read.
const AGAIN: Duration = Duration::from_mins(5);
/// Deadline for one page of a list.
const DEADLINE: Duration = Duration::from_secs(30);
/// Objects per page of a list.
const PAGE: u32 = 500;
/// Objects that are named; all are counted.
const NAMED: usize = 10;
/// Objects that are counted at most, so that memory is bounded.
const MOST: usize = 10_000;

/// The objects that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphans {
    /// Kind, namespace and name of each.
    objects: BTreeSet<String>,
    /// Kinds that could not be read.
    unread: BTreeSet<String>,
    /// Epoch of the store that does not have their Works.
    epoch: u64,
}

impl Orphans {
    /// Returns the number of objects, and a sentence about them and what to do.
    pub fn reported(&self) -> (usize, String) {
        let number = self.objects.len();
        let named: Vec<&str> = self
            .objects
            .iter()
            .take(NAMED)
            .map(String::as_str)
            .collect();
        let unread = if self.unread.is_empty() {
            String::new()
        } else {
            let unread: Vec<&str> = self.unread.iter().take(NAMED).map(String::as_str).collect();
            format!(" (not read: {})", unread.join(", "))
        };
        if number == 0 {
            let words = format!(
                "every object that this fleet made here has its Work in the store of epoch {}{unread}",
                self.epoch
            );
            return (0, words);
        }
        let (made, are, them) = match number {
            1 => (
                "1 object here was made for a Work".to_owned(),
                "It is",
                "it",
            ),
            _ => (
                format!("{number} objects here were made for Works"),
                "They are",
                "them",
            ),
        };
        let words = format!(
            "{made} that the store of epoch {} does not have: {}{unread}. {are} kept: propagate {them} again, or delete {them} \
             here with kubectl",
            self.epoch,
            first_of(&named, number)
        );
        (number, words)
    }
}

/// Returns whether an object of a kind was made by this fleet for a Work that is not there.
/// `namespace` is that of the Works.
fn is_orphan(
    kind: &str,
    metadata: &ObjectMeta,
    namespace: Option<&str>,
    fleet: &FleetId,
    has_work: impl Fn(&str) -> bool,
) -> bool {
    let object = json!({ "metadata": metadata });
    let owner = fleet.owner(ownership::fleet(&object));
    let is_without_work =
        |work: Origin<'_>| Some(work.namespace) == namespace && !has_work(work.name);
    ownership::work_of(&object).is_some_and(is_without_work)
        && metadata.deletion_timestamp.is_none()
        && matches!(owner, Owner::Ours | Owner::Unmarked)
        && !ownership::has_copied_marks(kind, &object)
}

/// Returns the resource of each kind of a catalog that can be listed, in one of its versions.
fn kinds(catalog: &Catalog) -> Vec<ApiResource> {
    let mut found = BTreeMap::new();
    for (group_version, served) in catalog.versions() {
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        for served in served.iter().filter(|it| it.watchable) {
            let kind = GroupVersionKind::gvk(group, version, &served.kind);
            let resource = ApiResource::from_gvk_with_plural(&kind, &served.name);
            let key = (group.to_owned(), served.name.clone());
            found.entry(key).or_insert(resource);
        }
    }
    found.into_values().collect()
}

/// The search for such objects.
pub struct Search {
    /// The Works, and what is known of their objects.
    pub store: Arc<Store>,
    /// The member's API.
    pub member: Client,
    /// Kinds that the member serves.
    pub discovery: Discovery,
    /// Id of the fleet.
    pub fleet: fleet_id::Known,
    /// The store that is obeyed, once there is one.
    pub obeyed: watch::Receiver<Obeyed>,
    /// Receives what was found.
    pub found: watch::Sender<Option<Orphans>>,
}

impl Search {
    /// Searches once the Works of a store that was promoted are known, and again while something is
    /// found. A store of the first epoch has lost no Works.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let search = async {
            let promoted = |it: &Obeyed| it.as_ref().is_ok_and(|epoch| *epoch > 0);
            let obeyed = self.obeyed.wait_for(promoted).await;
            let Some(epoch) = obeyed.ok().and_then(|it| it.as_ref().ok().copied()) else {
                return std::future::pending().await;
            };
            self.store.works.cache.synced().await;
            loop {
                let found = self.find(epoch).await;
                let is_done = found.objects.is_empty() && found.unread.is_empty();
                self.found.send_if_modified(|before| {
                    let differs = before.as_ref() != Some(&found);
                    if differs {
                        *before = Some(found);
                    }
                    differs
                });
                if is_done {
                    return std::future::pending::<()>().await;
                }
                tokio::time::sleep(AGAIN).await;
            }
        };
        shutdown.run_until_cancelled(search).await;
    }

    async fn find(&self, epoch: u64) -> Orphans {
        let mut found = Orphans {
            epoch,
            ..Orphans::default()
        };
        let catalog = match self.discovery.refresh().await {
            Ok(catalog) => catalog,
            Err(error) => {
                tracing::debug!(%error, "kinds of the member are those known before");
                self.discovery.catalog()
            }
        };
        let fleet = self.fleet.now();
        let works = &self.store.works;
        let namespace = works.cache.api().namespace();
        for resource in kinds(&catalog) {
            let api: Api<DynamicObject> = Api::all_with(self.member.clone(), &resource);
            let labels = format!("{}=true", label::MANAGED);
            let mut page = ListParams::default().labels(&labels).limit(PAGE);
            loop {
                let list = match timeout(DEADLINE, api.list_metadata(&page)).await {
                    Ok(Ok(list)) => list,
                    // What the agent may not read it has not made.
                    Ok(Err(kube::Error::Api(status))) if [403, 404, 405].contains(&status.code) => {
                        break;
                    }
                    _ => {
                        found.unread.insert(resource.plural.clone());
                        break;
                    }
                };
                for object in &list.items {
                    let metadata = &object.metadata;
                    let has_work = |work: &str| works.cached(work).is_some();
                    if found.objects.len() < MOST
                        && is_orphan(&resource.kind, metadata, namespace, &fleet, has_work)
                    {
                        let place = metadata.namespace.as_deref().unwrap_or_default();
                        let name = namespaced_key(place, &object.name_any());
                        found.objects.insert(format!("{} {name}", resource.kind));
                    }
                }
                match list.metadata.continue_ {
                    Some(token) if !token.is_empty() => page = page.continue_token(&token),
                    _ => break,
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::catalog::Served;

    #[test]
    fn an_object_of_this_fleet_whose_work_is_not_there_is_an_orphan() {
        use muster_shared::names::annotation::{FLEET, WORK_NAME, WORK_NAMESPACE};

        let fleet = FleetId::Known {
            id: "f".to_owned(),
            published: true,
            accepted: ["f".to_owned()].into(),
        };
        let whole = json!({
            "labels": {label::MANAGED: "true"},
            "annotations": {WORK_NAMESPACE: "karmada-es-m1", WORK_NAME: "gone", FLEET: "f"},
        });
        let noted = |key: &str, value: &str| {
            let mut changed = whole.clone();
            changed["annotations"][key] = json!(value);
            changed
        };
        let elsewhere = noted(WORK_NAMESPACE, "karmada-es-m2");
        let mut released = whole.clone();
        released["labels"][label::MANAGED] = json!("false");
        let mut deleted = whole.clone();
        deleted["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut made = whole.clone();
        made["ownerReferences"] = json!([
            {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "t", "controller": true},
        ]);
        for (what, metadata, expected) in [
            ("its Work is gone", whole.clone(), true),
            ("its Work is there", noted(WORK_NAME, "there"), false),
            ("another cluster's Work", elsewhere, false),
            ("another fleet's", noted(FLEET, "g"), false),
            ("released", released, false),
            ("being deleted", deleted, false),
            (
                "made by an operator with the marks of its owner",
                made,
                false,
            ),
            ("somebody else's", json!({}), false),
        ] {
            let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
            let works = Some("karmada-es-m1");
            let found = is_orphan("ConfigMap", &metadata, works, &fleet, |it| it == "there");
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn all_are_counted_and_some_are_named() {
        let mut orphans = Orphans {
            epoch: 2,
            ..Orphans::default()
        };
        let (number, words) = orphans.reported();
        assert!(number == 0 && words.contains("epoch 2"), "{words}");
        orphans.objects = (10..22).map(|n| format!("ConfigMap shop/c{n}")).collect();
        let (number, words) = orphans.reported();
        assert_eq!(number, 12);
        let has = |text: &str| words.contains(text);
        assert!(
            has("12 objects") && has("shop/c19 and 2 more") && has("kept"),
            "{words}"
        );
        assert!(!has("shop/c20"), "{words}");
        orphans.objects = std::iter::once("ConfigMap shop/c10".to_owned()).collect();
        let (_, words) = orphans.reported();
        assert!(words.starts_with("1 object here was made"), "{words}");
    }

    #[test]
    fn each_kind_is_searched_in_one_version() {
        let served = |name: &str, kind: &str, watchable| Served {
            name: name.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
            watchable,
        };
        let mut catalog = Catalog::default();
        catalog.insert(
            "autoscaling/v1".to_owned(),
            vec![served("scalers", "Scaler", true)],
        );
        catalog.insert(
            "autoscaling/v2".to_owned(),
            vec![served("scalers", "Scaler", true)],
        );
        catalog.insert("v1".to_owned(), vec![served("bindings", "Binding", false)]);
        let found = kinds(&catalog);
        let found: Vec<_> = found.iter().map(|it| it.api_version.as_str()).collect();
        assert_eq!(found, ["autoscaling/v1"]);
    }
}
