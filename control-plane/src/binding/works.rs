//! Which Works belong to which binding.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use muster_shared::api::work::Work;
use muster_shared::names::{annotation, label};
use muster_shared::watch::{Change, Informer};

use super::kept::BindingKey;

/// The Works of each binding, by the binding's permanent id. Cheap to clone.
#[derive(Clone)]
pub struct WorkIndex {
    works: Informer<Work>,
    // A std lock: held for map operations only.
    by_binding: Arc<Mutex<HashMap<String, BTreeSet<Place>>>>,
}

/// Namespace and name of a Work.
type Place = (String, String);

impl WorkIndex {
    /// An index that follows the cache of Works; make it before the cache starts.
    pub fn new(works: &Informer<Work>) -> Self {
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
    pub fn of(&self, binding_id: &str) -> Vec<Arc<Work>> {
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
fn owner_id(work: &Work) -> Option<&str> {
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
pub fn binding_of(work: &Work) -> Option<BindingKey> {
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

fn place(work: &Work) -> Place {
    (
        work.metadata.namespace.clone().unwrap_or_default(),
        work.metadata.name.clone().unwrap_or_default(),
    )
}
