//! Garbage collection: objects whose owners are gone go too; foreground and orphan deletions are
//! carried out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::Inside;
use crate::context::Notice;
use crate::registry::Served;
use crate::store::Object;
use crate::verbs::DeleteOptions;
use crate::wire::metadata;

/// Where an object is: group and plural of its resource, and its key.
type Place = (String, String, Arc<str>);

/// The garbage collector.
pub struct Garbage {
    inside: Inside,
    /// Objects by the identity of an owner.
    dependents: HashMap<Box<str>, HashSet<Place>>,
    /// Owners that wait for their dependents to go or to be orphaned.
    waiting: HashSet<Place>,
}

impl Garbage {
    /// Returns a collector that has seen nothing yet.
    pub fn new(inside: Inside) -> Self {
        Self {
            inside,
            dependents: HashMap::new(),
            waiting: HashSet::new(),
        }
    }

    /// Takes note of a change.
    pub async fn observe(&mut self, notice: &Notice) {
        let object = &notice.object;
        let place = (
            notice.group.clone(),
            notice.plural.clone(),
            Arc::clone(&object.head.key),
        );
        if notice.gone {
            self.waiting.remove(&place);
            for owner in &object.head.owners {
                if let Some(places) = self.dependents.get_mut(owner) {
                    places.remove(&place);
                    if places.is_empty() {
                        self.dependents.remove(owner);
                    }
                }
            }
            for dependent in self.dependents.remove(&object.head.uid).unwrap_or_default() {
                self.judge(&dependent).await;
            }
            if !object.head.owners.is_empty() && !self.waiting.is_empty() {
                self.again().await;
            }
            return;
        }
        if !object.head.owners.is_empty() {
            for owner in &object.head.owners {
                self.dependents
                    .entry(owner.clone())
                    .or_default()
                    .insert(place.clone());
            }
            self.judge(&place).await;
        }
        if object.head.deleting {
            self.finish(&place).await;
        }
    }

    /// Goes on with what waits.
    pub async fn again(&mut self) {
        for place in self.waiting.clone() {
            self.finish(&place).await;
        }
    }

    fn find(&self, (group, plural, key): &Place) -> Option<(Served, Arc<Object>)> {
        let registry = &self.inside.server.registry;
        let all = registry.all();
        let resource = all
            .iter()
            .find(|r| r.group == *group && r.plural == *plural)?;
        let served = registry.find(group, &resource.version.name, plural)?;
        let object = served.resource.collection.get(key)?;
        Some((served, object))
    }

    /// Returns whether the owner that a reference names is there.
    fn is_there(&self, reference: &Value, namespace: &str) -> bool {
        let text = |key: &str| reference[key].as_str().unwrap_or_default();
        let Some(owner) = self
            .inside
            .server
            .registry
            .of_kind(text("apiVersion"), text("kind"))
        else {
            // A kind that nobody knows: no judgement.
            return true;
        };
        let key = owner.resource.key(namespace, text("name"));
        owner
            .resource
            .collection
            .get(&key)
            .is_some_and(|o| *o.head.uid == *text("uid"))
    }

    /// Deletes an object none of whose owners is there; drops references to those that are gone.
    async fn judge(&self, place: &Place) {
        let Some((served, object)) = self.find(place) else {
            return;
        };
        let (namespace, name) = (object.head.namespace(), object.head.name());
        let value = object.value();
        let references = value["metadata"]["ownerReferences"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let gone: Vec<&Value> = references
            .iter()
            .filter(|r| !self.is_there(r, namespace))
            .collect();
        if gone.is_empty() {
            return;
        }
        if gone.len() == references.len() {
            if object.head.deleting {
                return;
            }
            let policy = metadata::finalizers(&value)
                .iter()
                .find_map(|f| match *f {
                    "orphan" => Some("Orphan"),
                    "foregroundDeletion" => Some("Foreground"),
                    _ => None,
                })
                .unwrap_or("Background");
            let options = DeleteOptions {
                uid: Some(object.head.uid.to_string()),
                propagation: Some(policy.to_owned()),
                ..DeleteOptions::default()
            };
            if let Err(refusal) = self.inside.delete(&served, namespace, name, &options).await {
                tracing::debug!(object = &*object.head.key, %refusal, "collecting garbage");
            }
            return;
        }
        let uids: Vec<&str> = gone.iter().filter_map(|r| r["uid"].as_str()).collect();
        self.disown(&served, &object, &uids).await;
    }

    /// Takes owner references away.
    async fn disown(&self, served: &Served, object: &Object, uids: &[&str]) {
        let at = (object.head.namespace(), object.head.name(), "");
        let changed = self.inside.change(served, at, |old| {
            let mut new = old.clone();
            let references = new["metadata"]["ownerReferences"].as_array_mut()?;
            references.retain(|r| r["uid"].as_str().is_none_or(|uid| !uids.contains(&uid)));
            if references.is_empty() {
                metadata::of(&mut new).remove("ownerReferences");
            }
            Some(new)
        });
        if let Err(refusal) = changed.await {
            tracing::debug!(object = &*object.head.key, %refusal, "dropping owner references");
        }
    }

    /// Carries out what the finalizers of the garbage collector ask for.
    async fn finish(&mut self, place: &Place) {
        let Some((served, owner)) = self.find(place) else {
            self.waiting.remove(place);
            return;
        };
        let value = owner.value();
        let finalizers = metadata::finalizers(&value);
        let wanted = ["orphan", "foregroundDeletion"]
            .into_iter()
            .find(|f| finalizers.contains(f));
        let Some(wanted) = wanted.filter(|_| owner.head.deleting) else {
            self.waiting.remove(place);
            return;
        };
        self.waiting.insert(place.clone());
        let dependents: Vec<Place> = self
            .dependents
            .get(&owner.head.uid)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let mut blocked = false;
        for dependent in &dependents {
            let Some((dependent_served, object)) = self.find(dependent) else {
                continue;
            };
            if wanted == "orphan" {
                self.disown(&dependent_served, &object, &[&owner.head.uid])
                    .await;
                continue;
            }
            let held = object.value();
            let references = held["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten();
            let mut ours = references.filter(|r| r["uid"] == *owner.head.uid);
            blocked |= ours.any(|r| r["blockOwnerDeletion"] == true);
            if !object.head.deleting {
                self.delete_dependent(&dependent_served, &object).await;
            }
            // It may have gone at once.
            if blocked && self.find(dependent).is_none() {
                blocked = false;
            }
        }
        if wanted == "foregroundDeletion" && blocked {
            return;
        }
        if wanted == "orphan" {
            self.dependents.remove(&owner.head.uid);
        }
        self.waiting.remove(place);
        let released = self.inside.change(
            &served,
            (owner.head.namespace(), owner.head.name(), ""),
            |old| {
                let mut new = old.clone();
                new["metadata"]["finalizers"]
                    .as_array_mut()?
                    .retain(|f| f != wanted);
                Some(new)
            },
        );
        if let Err(refusal) = released.await {
            tracing::debug!(object = &*owner.head.key, %refusal, "releasing an owner");
        }
    }

    async fn delete_dependent(&self, served: &Served, object: &Object) {
        let options = DeleteOptions {
            uid: Some(object.head.uid.to_string()),
            propagation: Some("Foreground".to_owned()),
            ..DeleteOptions::default()
        };
        let head = &object.head;
        let deleted = self
            .inside
            .delete(served, head.namespace(), head.name(), &options);
        if let Err(refusal) = deleted.await {
            tracing::debug!(object = &*head.key, %refusal, "deleting a dependent");
        }
    }
}
