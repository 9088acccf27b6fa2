//! States of the objects of each Work, as the watches have seen them.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_shared::queue::Queue;

use super::look::{Look, Reflection};
use super::news::Trouble;
use crate::work::desired::ObjectKey;

/// Changes of an object within this time become one report. A rollout changes a status several
/// times a second.
const COALESCE: Duration = Duration::from_millis(200);

/// The reflections by Work, and the queue of Works whose status has to be written anew.
pub struct Reflections {
    works: Mutex<HashMap<String, Objects>>,
    queue: Queue<String>,
}

#[derive(Default)]
struct Objects {
    /// In the order of their keys. Most Works have one object, for which a map would take four
    /// times the room.
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
        // What is no news leaves no trace: nobody would look at it, and forget a Work that is gone.
        if look.reflection.is_none() && look.trouble.is_none() && !self.lock().contains_key(work) {
            return;
        }
        let news = self
            .lock()
            .entry(work.to_owned())
            .or_default()
            .learn(key, look);
        if news {
            self.queue.add_after(work.to_owned(), COALESCE);
        }
    }

    /// An object of a Work was read while it was applied. Counts only until the watches have seen
    /// it: what they say is never older.
    pub fn see_first(&self, work: &str, key: &ObjectKey, look: Look) {
        let known = self.lock().get(work).is_some_and(|objects| {
            objects.seen(key).is_some_and(|seen| !seen.lost) || objects.troubles.contains_key(key)
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

    /// An object is gone from the member. What was reported last stays reported: it will be made
    /// again, or its Work goes too.
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

    /// Forgets the objects that a Work does not want, where more are known than it wants.
    pub fn retain(&self, work: &str, most: usize, wanted: impl FnOnce() -> HashSet<ObjectKey>) {
        let mut works = self.lock();
        let Some(objects) = works.get_mut(work) else {
            return;
        };
        if objects.seen.len().max(objects.troubles.len()) > most {
            let wanted = wanted();
            objects.seen.retain(|(key, _)| wanted.contains(key));
            objects.troubles.retain(|key, _| wanted.contains(key));
        }
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
    use muster_shared::api::binding::ResourceHealth;
    use serde_json::{Value, json};

    use super::*;

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

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_works_and_objects_that_came_and_went() {
        let reflections = Reflections::new(Queue::new("test"));
        let key = |number: u32| {
            let name = format!("o{number}");
            let manifest =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            ObjectKey::of(&manifest, 0).unwrap()
        };
        for number in 0..100_000 {
            // Each is seen once more after its Work has gone, and says nothing new.
            let (work, key) = (format!("w{number}"), key(number));
            reflections.see(&work, &key, Look::lost());
            reflections.forget(&work);
            let nothing = Look {
                reflection: None,
                trouble: None,
            };
            reflections.see(&work, &key, nothing);
            // The objects of one Work take turns.
            reflections.see("one", &key, Look::lost());
            reflections.retain("one", 1, || HashSet::from([key.clone()]));
        }
        let works = reflections.lock();
        assert_eq!(works.keys().collect::<Vec<_>>(), ["one"]);
        assert_eq!(works["one"].seen.len(), 1);
    }
}
