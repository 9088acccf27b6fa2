//! What the watches have seen of the objects of each Work.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_shared::api::binding::ResourceHealth;
use muster_shared::interpreter;
use muster_shared::queue::Queue;
use muster_shared::work_status;
use serde_json::Value;

use super::news::Trouble;
use crate::apply::desired::ObjectKey;

/// Changes of an object within this time become one report. A rollout changes a status several times a second.
const COALESCE: Duration = Duration::from_millis(200);

/// What is reported of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reflection {
    /// The part of its status that matters, as JSON: one is kept of every object of a Work, and as a tree it takes many times as much.
    status: Option<Box<str>>,
    /// Whether it works.
    pub health: ResourceHealth,
}

impl Reflection {
    /// A reflection with the part of the status that matters; `None` when there is none.
    pub fn new(status: Option<&Value>, health: ResourceHealth) -> Self {
        Self {
            status: status.map(|status| status.to_string().into()),
            health,
        }
    }

    /// The part of its status that matters; `None` when it has none.
    pub fn status(&self) -> Option<Value> {
        // It was written as JSON by ourselves.
        serde_json::from_str(self.status.as_deref()?).ok()
    }
}

/// What a look at an object told.
#[derive(Clone, Debug, PartialEq)]
pub struct Look {
    /// What is to be reported; `None` where that cannot be told, so that the last report stays.
    pub reflection: Option<Reflection>,
    /// What could not be understood.
    pub trouble: Option<Trouble>,
}

impl Look {
    /// Interprets an object. A kind without a health rule counts as healthy, as in Karmada; one that cannot be judged is of
    /// unknown health.
    pub fn at(object: &Value) -> Self {
        let status = match interpreter::status(object) {
            Ok(status) => status,
            Err(error) => {
                return Self {
                    reflection: None,
                    trouble: Some(Trouble::Status(error.to_string())),
                };
            }
        };
        let (health, trouble) = match interpreter::health(object) {
            // Whatever it says of itself, it will be gone.
            Ok(_) if is_going(object) => (ResourceHealth::Unhealthy, None),
            Ok(Some(false)) => (ResourceHealth::Unhealthy, None),
            Ok(Some(true) | None) => (ResourceHealth::Healthy, None),
            Err(error) => {
                let trouble = Trouble::Health(error.to_string());
                (ResourceHealth::Unknown, Some(trouble))
            }
        };
        let excess = status.as_ref().map(work_status::check);
        if let Some(Err(excess)) = excess {
            return Self {
                reflection: Some(Reflection::new(None, health)),
                trouble: Some(Trouble::Status(excess.to_string())),
            };
        }
        Self {
            reflection: Some(Reflection::new(status.as_ref(), health)),
            trouble,
        }
    }

    /// Of an object that cannot be read.
    pub fn unreadable(reason: String) -> Self {
        Self {
            reflection: None,
            trouble: Some(Trouble::Status(reason)),
        }
    }
}

/// Whether somebody deletes the object in the member.
fn is_going(object: &Value) -> bool {
    let deleted = object.pointer("/metadata/deletionTimestamp");
    deleted.is_some_and(|time| !time.is_null())
}

/// The reflections by Work, and the queue of Works whose status has to be written anew.
pub struct Reflections {
    works: Mutex<HashMap<String, Objects>>,
    queue: Queue<String>,
}

#[derive(Default)]
struct Objects {
    /// In the order of their keys. Most Works have one object, for which a map would take four times the room.
    seen: Vec<(ObjectKey, Reflection)>,
    gone: Vec<ObjectKey>,
    /// What is not understood, and whether that was told.
    troubles: HashMap<ObjectKey, (Trouble, bool)>,
}

impl Objects {
    /// Takes over what a look told; whether it is anything new.
    fn learn(&mut self, key: &ObjectKey, look: Look) -> bool {
        let known = self.troubles.get(key).map(|(trouble, _)| trouble);
        let mut news = known != look.trouble.as_ref();
        if news {
            match look.trouble {
                Some(trouble) => _ = self.troubles.insert(key.clone(), (trouble, false)),
                None => _ = self.troubles.remove(key),
            }
        }
        if let Some(reflection) = look.reflection {
            match self.place(key) {
                Ok(place) if self.seen[place].1 == reflection => {}
                Ok(place) => {
                    self.seen[place].1 = reflection;
                    news = true;
                }
                Err(place) => {
                    if self.seen.is_empty() {
                        self.seen.reserve_exact(1);
                    }
                    self.seen.insert(place, (key.clone(), reflection));
                    news = true;
                }
            }
        }
        news
    }

    fn seen(&self, key: &ObjectKey) -> Option<&Reflection> {
        let place = self.place(key).ok()?;
        Some(&self.seen[place].1)
    }

    fn lose(&mut self, key: &ObjectKey) {
        if let Ok(place) = self.place(key) {
            self.seen.remove(place);
        }
    }

    /// Where the reflection of an object is, or would be.
    fn place(&self, key: &ObjectKey) -> Result<usize, usize> {
        self.seen
            .binary_search_by(|(known, _)| known.order().cmp(&key.order()))
    }
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
    pub fn see(&self, work: &str, key: &ObjectKey, look: Look) {
        let news = self
            .lock()
            .entry(work.to_owned())
            .or_default()
            .learn(key, look);
        if news {
            self.queue.add_after(work.to_owned(), COALESCE);
        }
    }

    /// An object of a Work was read while it was applied. Counts only until the watches have seen it: what they say is never older.
    pub fn see_first(&self, work: &str, key: &ObjectKey, look: Look) {
        let known = self.lock().get(work).is_some_and(|objects| {
            objects.seen(key).is_some() || objects.troubles.contains_key(key)
        });
        if !known {
            self.see(work, key, look);
        }
    }

    /// What is not understood of a Work's objects and was not told before.
    pub fn new_troubles(&self, work: &str) -> Vec<(ObjectKey, Trouble)> {
        let mut works = self.lock();
        let troubles = works.get_mut(work).map(|objects| &mut objects.troubles);
        let untold = troubles
            .into_iter()
            .flatten()
            .filter(|(_, (_, told))| !told);
        untold
            .map(|(key, (trouble, told))| {
                *told = true;
                (key.clone(), trouble.clone())
            })
            .collect()
    }

    /// An object is gone from the member. What was reported last stays reported: it will be made again, or its Work goes too.
    pub fn lose(&self, work: &str, key: &ObjectKey) {
        if let Some(objects) = self.lock().get_mut(work) {
            objects.lose(key);
            objects.troubles.remove(key);
        }
    }

    /// An object was removed because its Work no longer wants it: its report goes too.
    pub fn drop_object(&self, work: &str, key: &ObjectKey) {
        let mut works = self.lock();
        let objects = works.entry(work.to_owned()).or_default();
        objects.lose(key);
        objects.troubles.remove(key);
        if !objects.gone.contains(key) {
            objects.gone.push(key.clone());
        }
        drop(works);
        self.queue.add(work.to_owned());
    }

    /// What was reported of a Work has to be looked at again.
    pub fn again(&self, work: &str, after: Duration) {
        self.queue.add_after(work.to_owned(), after);
    }

    /// A Work is gone.
    pub fn forget(&self, work: &str) {
        self.lock().remove(work);
    }

    /// What was seen of a Work's objects, and which of them are gone for good.
    pub fn of(&self, work: &str) -> (HashMap<ObjectKey, Reflection>, Vec<ObjectKey>) {
        self.lock()
            .get(work)
            .map(|objects| (objects.seen.iter().cloned().collect(), objects.gone.clone()))
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
                Look::at(&object).reflection.map(|seen| seen.health),
                Some(expected),
                "{object}"
            );
        }
    }

    #[test]
    fn an_object_that_goes_is_not_healthy_and_a_status_that_is_too_long_is_left_out_and_told() {
        let object = |status: Value, deleted: bool| {
            let mut object = json!({"apiVersion": "example.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "status": status});
            if deleted {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            object
        };
        let long = json!({"text": "x".repeat(work_status::LONGEST_STATUS)});
        for (what, object, health, status, told) in [
            (
                "well",
                object(json!({"a": 1}), false),
                ResourceHealth::Healthy,
                true,
                false,
            ),
            (
                "it goes",
                object(json!({"a": 1}), true),
                ResourceHealth::Unhealthy,
                true,
                false,
            ),
            (
                "too long",
                object(long, false),
                ResourceHealth::Healthy,
                false,
                true,
            ),
        ] {
            let look = Look::at(&object);
            let reflection = look.reflection.unwrap();
            assert_eq!(reflection.health, health, "{what}");
            assert_eq!(reflection.status().is_some(), status, "{what}");
            assert_eq!(look.trouble.is_some(), told, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_found_again_in_whatever_order_they_were_seen() {
        let reflections = Reflections::new(Queue::new("test"));
        let key = |name: &str| {
            let manifest =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            ObjectKey::of(&manifest, 0).unwrap()
        };
        let object = |value: u32| json!({"apiVersion": "example.io/v1", "kind": "Thing", "status": {"v": value}});
        for (name, value) in [("c", 1), ("a", 2), ("b", 3), ("a", 4)] {
            reflections.see("w", &key(name), Look::at(&object(value)));
        }
        reflections.lose("w", &key("c"));
        let (seen, _) = reflections.of("w");
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[&key("a")].status(), Some(json!({"v": 4})));
        assert_eq!(seen[&key("b")].status(), Some(json!({"v": 3})));
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_is_reported_once_for_many_changes_and_not_at_all_for_none() {
        let queue = Queue::new("test");
        let reflections = Reflections::new(queue.clone());
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let key = ObjectKey::of(&manifest, 0).unwrap();
        let see = |status: u32| {
            let look = Look {
                reflection: Some(Reflection::new(
                    Some(&json!(status)),
                    ResourceHealth::Healthy,
                )),
                trouble: None,
            };
            reflections.see("w", &key, look);
            queue.len()
        };
        assert_eq!((see(1), see(2), see(3)), (1, 1, 1));
        let (seen, _) = reflections.of("w");
        assert_eq!(seen[&key].status(), Some(json!(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_understood_is_told_once_until_it_changes_and_the_last_report_stays() {
        let deployment = |replicas: Value| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {"replicas": 1}, "status": {"replicas": replicas}})
        };
        let reflections = Reflections::new(Queue::new("test"));
        let key = ObjectKey::of(&deployment(json!(1)), 0).unwrap();
        let look = |replicas: Value| {
            reflections.see("w", &key, Look::at(&deployment(replicas)));
            reflections.new_troubles("w").len()
        };
        let cases = [
            ("a good status", json!(1), 0),
            ("a bad one", json!("one"), 1),
            ("still the same", json!("one"), 0),
            ("bad in another way", json!(true), 1),
            ("good again", json!(1), 0),
            ("and bad again", json!("one"), 1),
        ];
        for (what, replicas, told) in cases {
            assert_eq!(look(replicas), told, "{what}");
        }
        let (seen, _) = reflections.of("w");
        assert_eq!(seen[&key].status(), Some(json!({"replicas": 1})));
    }
}
