//! Last seen statuses of the objects of each Work, of which reports are composed.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_shared::queue::Queue;

use super::look::{Look, ObjectStatus};
use super::news::Trouble;
use crate::work::desired::ObjectKey;

/// Time within which changes of an object become one report. A rollout changes a status several
/// times a second.
const COALESCE: Duration = Duration::from_millis(200);

/// Statuses of objects by Work, and the queue of Works to report. Decides what is reported, and
/// nothing about applies (see [`Drift`](crate::work::drift::Drift)).
pub struct ObjectStatuses {
    works: Mutex<HashMap<String, Objects>>,
    queue: Queue<String>,
}

#[derive(Default)]
struct Objects {
    /// Statuses in the order of the keys. Most Works have one object, for which a map would take
    /// four times the memory.
    seen: Vec<(ObjectKey, ObjectStatus)>,
    gone: Vec<ObjectKey>,
    /// Objects that cannot be interpreted, and whether that was reported.
    troubles: HashMap<ObjectKey, (Trouble, bool)>,
}

impl Objects {
    /// Takes over the interpretation of an object; returns whether it is new.
    fn learn(&mut self, key: &ObjectKey, look: Look) -> bool {
        let known = self.troubles.get(key).map(|(trouble, _)| trouble);
        let mut news = known != look.trouble.as_ref();
        if news {
            match look.trouble {
                Some(trouble) => _ = self.troubles.insert(key.clone(), (trouble, false)),
                None => _ = self.troubles.remove(key),
            }
        }
        let status = look.status.or_else(|| {
            let health = look.health?;
            Some(ObjectStatus::of_health(
                health,
                look.stopped,
                self.seen(key).cloned(),
            ))
        });
        if let Some(status) = status {
            match self.place(key) {
                Ok(place) if self.seen[place].1 == status => {}
                Ok(place) => {
                    self.seen[place].1 = status;
                    news = true;
                }
                Err(place) => {
                    if self.seen.is_empty() {
                        self.seen.reserve_exact(1);
                    }
                    self.seen.insert(place, (key.clone(), status));
                    news = true;
                }
            }
        }
        news
    }

    fn seen(&self, key: &ObjectKey) -> Option<&ObjectStatus> {
        let place = self.place(key).ok()?;
        Some(&self.seen[place].1)
    }

    fn forget(&mut self, key: &ObjectKey) {
        if let Ok(place) = self.place(key) {
            self.seen.remove(place);
        }
        self.troubles.remove(key);
    }

    /// Returns the position of an object's status, or the one where it would be.
    fn place(&self, key: &ObjectKey) -> Result<usize, usize> {
        self.seen
            .binary_search_by(|(known, _)| known.order().cmp(&key.order()))
    }
}

impl ObjectStatuses {
    /// Makes an empty memory; Works with new statuses are added to the queue.
    pub fn new(queue: Queue<String>) -> Self {
        Self {
            works: Mutex::default(),
            queue,
        }
    }

    /// Returns the queue of Works to report.
    pub fn queue(&self) -> &Queue<String> {
        &self.queue
    }

    /// Records an object of a Work that was seen.
    pub fn see(&self, work: &str, key: &ObjectKey, look: Look) {
        // What was seen before stays until the webhook has answered.
        if look.pending.is_some() && look.status.is_none() && look.health.is_none() {
            return;
        }
        // An interpretation without content is not stored, because the Work may be gone and would
        // not be forgotten again.
        let is_empty = look.status.is_none() && look.health.is_none() && look.trouble.is_none();
        if is_empty && !self.lock().contains_key(work) {
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

    /// Records an object of a Work that was read while it was applied. Counts only until the
    /// watches have seen the object: their version is never older.
    pub fn see_first(&self, work: &str, key: &ObjectKey, look: Look) {
        let known = self.lock().get(work).is_some_and(|objects| {
            objects.seen(key).is_some_and(|seen| !seen.lost) || objects.troubles.contains_key(key)
        });
        if !known {
            self.see(work, key, look);
        }
    }

    /// Returns the objects of a Work that cannot be interpreted and were not reported before.
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

    /// Returns what was seen last of an object of a Work.
    pub fn seen(&self, work: &str, key: &ObjectKey) -> Option<ObjectStatus> {
        self.lock().get(work)?.seen(key).cloned()
    }

    /// Forgets an object that was removed because its Work no longer wants it, and removes it from
    /// the report.
    pub fn drop_object(&self, work: &str, key: &ObjectKey) {
        let mut works = self.lock();
        let objects = works.entry(work.to_owned()).or_default();
        objects.forget(key);
        if !objects.gone.contains(key) {
            objects.gone.push(key.clone());
        }
        drop(works);
        self.queue.add(work.to_owned());
    }

    /// Adds a Work to the queue whose report has to be compared again.
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

    /// Forgets a Work that is gone.
    pub fn forget(&self, work: &str) {
        self.lock().remove(work);
    }

    /// Returns the statuses of a Work's objects, and the objects that are to be removed from the
    /// report.
    pub fn of(&self, work: &str) -> (HashMap<ObjectKey, ObjectStatus>, Vec<ObjectKey>) {
        self.lock()
            .get(work)
            .map(|objects| (objects.seen.iter().cloned().collect(), objects.gone.clone()))
            .unwrap_or_default()
    }

    /// Forgets objects that were removed from the report.
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
    use muster_interpreter::Interpreters;

    #[tokio::test(start_paused = true)]
    async fn objects_are_found_again_in_whatever_order_they_were_seen() {
        let statuses = ObjectStatuses::new(Queue::new("test"));
        let key = |name: &str| {
            let manifest =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            ObjectKey::of(&manifest, 0).unwrap()
        };
        let object = |value: u32| json!({"apiVersion": "example.io/v1", "kind": "Thing", "status": {"v": value}});
        for (name, value) in [("c", 1), ("a", 2), ("b", 3), ("a", 4)] {
            statuses.see(
                "w",
                &key(name),
                Look::at(&object(value), &Interpreters::default()),
            );
        }
        statuses.drop_object("w", &key("c"));
        let (seen, _) = statuses.of("w");
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[&key("a")].status(), Some(json!({"v": 4})));
        assert_eq!(seen[&key("b")].status(), Some(json!({"v": 3})));
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_is_reported_once_for_many_changes_and_not_at_all_for_none() {
        let queue = Queue::new("test");
        let statuses = ObjectStatuses::new(queue.clone());
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let key = ObjectKey::of(&manifest, 0).unwrap();
        let see = |status: u32| {
            let look = Look {
                status: Some(ObjectStatus::new(
                    Some(&json!(status)),
                    ResourceHealth::Healthy,
                )),
                ..Look::default()
            };
            statuses.see("w", &key, look);
            queue.len()
        };
        assert_eq!((see(1), see(2), see(3)), (1, 1, 1));
        let (seen, _) = statuses.of("w");
        assert_eq!(seen[&key].status(), Some(json!(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_understood_is_told_once_until_it_changes_and_the_last_report_stays() {
        let deployment = |replicas: Value| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {"replicas": 1}, "status": {"replicas": replicas}})
        };
        let statuses = ObjectStatuses::new(Queue::new("test"));
        let key = ObjectKey::of(&deployment(json!(1)), 0).unwrap();
        let look = |replicas: Value| {
            statuses.see(
                "w",
                &key,
                Look::at(&deployment(replicas), &Interpreters::default()),
            );
            statuses.new_troubles("w").len()
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
        let (seen, _) = statuses.of("w");
        assert_eq!(seen[&key].status(), Some(json!({"replicas": 1})));
        // It is judged by its present status alone, which says too little.
        assert_eq!(seen[&key].health, ResourceHealth::Unhealthy);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_remembered_of_works_and_objects_that_came_and_went() {
        let statuses = ObjectStatuses::new(Queue::new("test"));
        let key = |number: u32| {
            let name = format!("o{number}");
            let manifest =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            ObjectKey::of(&manifest, 0).unwrap()
        };
        for number in 0..100_000 {
            // Each is seen once more after its Work has gone, and says nothing new.
            let (work, key) = (format!("w{number}"), key(number));
            statuses.see(&work, &key, Look::lost());
            statuses.forget(&work);
            statuses.see(&work, &key, Look::default());
            // The objects of one Work take turns.
            statuses.see("one", &key, Look::lost());
            statuses.retain("one", 1, || HashSet::from([key.clone()]));
        }
        let works = statuses.lock();
        assert_eq!(works.keys().collect::<Vec<_>>(), ["one"]);
        assert_eq!(works["one"].seen.len(), 1);
    }
}
