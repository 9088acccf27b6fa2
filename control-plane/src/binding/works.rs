//! The Works of the fleet as the control plane keeps them, and which of them belong to which binding.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use kube::Resource;
use kube::core::ObjectMeta;
use muster_shared::api::work::{Work, WorkStatus};
use muster_shared::names::{annotation, label};
use muster_shared::watch::{Change, Informer};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::kept::BindingKey;

/// A Work in the cache. Its spec, whole objects for the member, is kept as text: as a tree it takes about eight times the memory, and it
/// is only looked into when its binding is reconciled.
#[derive(Clone, Debug)]
pub struct CachedWork {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// What the agent reports.
    pub status: Option<WorkStatus>,
    spec: Box<str>,
}

impl CachedWork {
    /// What the member is to have; parsed anew at each call.
    pub fn spec(&self) -> Value {
        serde_json::from_str(&self.spec).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for CachedWork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(default)]
            metadata: ObjectMeta,
            #[serde(default)]
            status: Option<WorkStatus>,
            #[serde(default)]
            spec: Value,
        }
        let whole = Whole::deserialize(deserializer)?;
        Ok(Self {
            metadata: whole.metadata,
            status: whole.status,
            spec: whole.spec.to_string().into_boxed_str(),
        })
    }
}

impl Resource for CachedWork {
    type DynamicType = ();
    type Scope = <Work as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Work::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        Work::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        Work::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        Work::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The Works of each binding, by the binding's permanent id. Cheap to clone.
#[derive(Clone)]
pub struct WorkIndex {
    works: Informer<CachedWork>,
    // A std lock: held for map operations only.
    by_binding: Arc<Mutex<HashMap<String, BTreeSet<Place>>>>,
}

/// Namespace and name of a Work.
type Place = (String, String);

impl WorkIndex {
    /// An index that follows the cache of Works; make it before the cache starts.
    pub fn new(works: &Informer<CachedWork>) -> Self {
        let index = Self {
            works: works.clone(),
            by_binding: Arc::default(),
        };
        let kept = Arc::clone(&index.by_binding);
        works.on_change(move |change| {
            let mut by_binding = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let (old, new) = match change {
                Change::Applied { old, new } => (old.as_ref(), Some(new)),
                Change::Deleted { old } => (Some(old), None),
            };
            if old.and_then(|work| owner_id(work)) == new.and_then(|work| owner_id(work)) {
                return;
            }
            if let Some(work) = old {
                let id = owner_id(work).unwrap_or_default();
                if let Some(places) = by_binding.get_mut(id) {
                    places.remove(&place(work));
                    if places.is_empty() {
                        by_binding.remove(id);
                    }
                }
            }
            if let Some((id, work)) = new.and_then(|work| Some((owner_id(work)?, work))) {
                by_binding
                    .entry(id.to_owned())
                    .or_default()
                    .insert(place(work));
            }
        });
        index
    }

    /// The Works of a binding, those that are going away included.
    pub fn of(&self, binding_id: &str) -> Vec<Arc<CachedWork>> {
        let places = self
            .by_binding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(binding_id)
            .cloned();
        places
            .into_iter()
            .flatten()
            .filter_map(|(namespace, name)| self.works.get(Some(&namespace), &name))
            .collect()
    }
}

/// The permanent id of the binding that a Work was made for.
fn owner_id(work: &CachedWork) -> Option<&str> {
    let labels = work.metadata.labels.as_ref()?;
    let id = |key: &str| {
        labels
            .get(key)
            .map(String::as_str)
            .filter(|id| !id.is_empty())
    };
    id(label::RESOURCE_BINDING_ID).or_else(|| id(label::CLUSTER_RESOURCE_BINDING_ID))
}

/// The binding that a Work was made for.
pub fn binding_of(work: &CachedWork) -> Option<BindingKey> {
    let annotations = work.metadata.annotations.as_ref()?;
    let get = |key: &str| {
        annotations
            .get(key)
            .filter(|value| !value.is_empty())
            .cloned()
    };
    if let (Some(namespace), Some(name)) = (
        get(annotation::RESOURCE_BINDING_NAMESPACE),
        get(annotation::RESOURCE_BINDING_NAME),
    ) {
        return Some(BindingKey {
            namespace: Some(namespace),
            name,
        });
    }
    Some(BindingKey {
        namespace: None,
        name: get(annotation::CLUSTER_RESOURCE_BINDING_NAME)?,
    })
}

fn place(work: &CachedWork) -> Place {
    (
        work.metadata.namespace.clone().unwrap_or_default(),
        work.metadata.name.clone().unwrap_or_default(),
    )
}
