//! What the watches have seen of the objects of each Work.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::work::ManifestStatus;
use muster_shared::interpreter;
use muster_shared::queue::Queue;
use serde_json::Value;

use crate::apply::desired::ObjectKey;

/// Changes of an object within this time become one report. A rollout changes a status several times a second.
const COALESCE: Duration = Duration::from_millis(200);

/// What is reported of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Reflection {
    /// The part of its status that matters; `None` when it has none.
    pub status: Option<Value>,
    /// Whether it works.
    pub health: ResourceHealth,
}

impl Reflection {
    /// Interprets an object. A kind without a health rule counts as healthy, as in Karmada; one that cannot be
    /// interpreted is of unknown health.
    pub fn observe(object: &Value) -> Result<Self, interpreter::Error> {
        let health = match interpreter::health(object) {
            Ok(Some(false)) => ResourceHealth::Unhealthy,
            Ok(Some(true) | None) => ResourceHealth::Healthy,
            Err(_) => ResourceHealth::Unknown,
        };
        Ok(Self {
            status: interpreter::status(object)?,
            health,
        })
    }

    /// What a Work's status said before.
    pub fn of(status: &ManifestStatus) -> Self {
        Self {
            status: status.status.as_ref().map(|raw| raw.0.clone()),
            health: status.health.clone().unwrap_or(ResourceHealth::Unknown),
        }
    }
}

/// The reflections by Work, and the queue of Works whose status has to be written anew.
pub struct Reflections {
    works: Mutex<HashMap<String, Objects>>,
    queue: Queue<String>,
}

#[derive(Default)]
struct Objects {
    seen: HashMap<ObjectKey, Reflection>,
    gone: Vec<ObjectKey>,
}

impl Reflections {
    /// Nothing seen yet; Works with news are put on the queue.
    pub fn new(queue: Queue<String>) -> Self {
        Self {
            works: Mutex::default(),
            queue,
        }
    }

    /// An object of a Work was seen.
    pub fn see(&self, work: &str, key: &ObjectKey, reflection: Reflection) {
        let mut works = self.lock();
        let seen = &mut works.entry(work.to_owned()).or_default().seen;
        if seen.get(key) == Some(&reflection) {
            return;
        }
        seen.insert(key.clone(), reflection);
        drop(works);
        self.queue.add_after(work.to_owned(), COALESCE);
    }

    /// An object of a Work was read while it was applied. Counts only until the watches have seen it: what they say is never older.
    pub fn see_first(&self, work: &str, key: &ObjectKey, reflection: Reflection) {
        let known = self
            .lock()
            .get(work)
            .is_some_and(|objects| objects.seen.contains_key(key));
        if !known {
            self.see(work, key, reflection);
        }
    }

    /// An object is gone from the member. What was reported last stays reported: it will be made again, or its Work goes too.
    pub fn lose(&self, work: &str, key: &ObjectKey) {
        if let Some(objects) = self.lock().get_mut(work) {
            objects.seen.remove(key);
        }
    }

    /// An object was removed because its Work no longer wants it: its report goes too.
    pub fn drop_object(&self, work: &str, key: &ObjectKey) {
        let mut works = self.lock();
        let objects = works.entry(work.to_owned()).or_default();
        objects.seen.remove(key);
        objects.gone.push(key.clone());
        drop(works);
        self.queue.add(work.to_owned());
    }

    /// A Work is gone.
    pub fn forget(&self, work: &str) {
        self.lock().remove(work);
    }

    /// What was seen of a Work's objects, and which of them are gone for good.
    pub fn of(&self, work: &str) -> (HashMap<ObjectKey, Reflection>, Vec<ObjectKey>) {
        self.lock()
            .get(work)
            .map(|objects| (objects.seen.clone(), objects.gone.clone()))
            .unwrap_or_default()
    }

    /// The report that some objects are gone was written.
    pub fn settle_gone(&self, work: &str, written: &[ObjectKey]) {
        if let Some(objects) = self.lock().get_mut(work) {
            objects.gone.retain(|key| !written.contains(key));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Objects>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn health_is_what_the_rules_say_and_healthy_where_there_are_none() {
        let deployment = |available: u32| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "generation": 1},
                "spec": {"replicas": 2},
                "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": available}})
        };
        for (object, expected) in [
            (deployment(2), ResourceHealth::Healthy),
            (deployment(1), ResourceHealth::Unhealthy),
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap"}),
                ResourceHealth::Healthy,
            ),
        ] {
            assert_eq!(
                Reflection::observe(&object).unwrap().health,
                expected,
                "{object}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_is_reported_once_for_many_changes_and_not_at_all_for_none() {
        let queue = Queue::new("test");
        let reflections = Reflections::new(queue.clone());
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let key = ObjectKey::of(&manifest, 0).unwrap();
        let see = |status: u32| {
            let reflection = Reflection {
                status: Some(json!(status)),
                health: ResourceHealth::Healthy,
            };
            reflections.see("w", &key, reflection);
            queue.len()
        };
        assert_eq!((see(1), see(2), see(3)), (1, 1, 1));
        let (seen, _) = reflections.of("w");
        assert_eq!(seen[&key].status, Some(json!(3)));
    }
}
