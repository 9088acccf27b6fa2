//! Last seen statuses of the objects of each Work, of which reports are composed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use muster_shared::api::work::Work;
use muster_shared::k8s::{GroupVersionKind, ResourceExt};
use muster_shared::queue::Queue;
use parking_lot::Mutex;
use serde_json::Value;

use super::interpretation::{Interpretation, ObjectStatus, Trouble};
use crate::work::completed;
use crate::work::desired::ObjectKey;
use crate::work::manifests::{key_of, named};

/// Time within which changes of an object become one report. A rollout changes a status several
/// times a second.
const COALESCE: Duration = Duration::from_millis(200);

/// Statuses of objects by Work, and the queue of Works to report. Decides what is reported, and
/// nothing about applies (see [`Drift`](crate::work::drift::Drift)).
pub struct ObjectStatuses {
    works: Mutex<HashMap<String, Objects>>,
    queue: Queue<String>,
}

/// Objects of a Work in the order of their keys. Most Works have one object, for which a map would
/// take four times the memory.
#[derive(Default)]
struct Objects(Vec<(ObjectKey, Known)>);

/// Status and trouble of an object, as it was seen last.
#[derive(Default)]
struct Known {
    status: Option<ObjectStatus>,
    /// Reason why it cannot be interpreted.
    trouble: Option<Trouble>,
    /// Whether that was reported.
    is_reported: bool,
    /// Whether its task had run to its end when it went, so that it is not missed.
    has_run: bool,
}

impl Known {
    /// Takes over the interpretation of the object; returns whether it is new.
    fn learn(&mut self, look: Interpretation) -> bool {
        self.has_run = false;
        let mut is_new = self.trouble != look.trouble;
        if is_new {
            (self.trouble, self.is_reported) = (look.trouble, false);
        }
        if let Some(status) = look.status {
            let status = Some(status.beside(self.status.as_ref()));
            is_new |= self.status != status;
            self.status = status;
        }
        is_new
    }
}

impl Objects {
    fn get(&self, key: &ObjectKey) -> Option<&Known> {
        let place = self.place(key).ok()?;
        Some(&self.0[place].1)
    }

    fn entry(&mut self, key: &ObjectKey) -> &mut Known {
        let place = self.place(key).unwrap_or_else(|place| {
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(place, (key.clone(), Known::default()));
            place
        });
        &mut self.0[place].1
    }

    /// Returns the position of an object, or the one where it would be.
    fn place(&self, key: &ObjectKey) -> Result<usize, usize> {
        self.0
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

    /// Records an object of a Work that was seen.
    pub fn see(&self, work: &str, key: &ObjectKey, look: Interpretation) {
        // What was seen before stays until the webhook has answered.
        if look.pending.is_some() && look.status.is_none() {
            return;
        }
        let mut works = self.works.lock();
        // An interpretation without content is not stored, because the Work may be gone and would
        // not be forgotten again.
        let is_empty = look.status.is_none() && look.trouble.is_none();
        if is_empty && works.get(work).and_then(|it| it.get(key)).is_none() {
            return;
        }
        let objects = works.entry(work.to_owned()).or_default();
        if objects.entry(key).learn(look) {
            self.queue.add_after(work.to_owned(), COALESCE);
        }
    }

    /// Records an object of a Work that was read while it was applied. Counts only until the
    /// watches have seen the object: their version is never older.
    pub fn see_first(&self, work: &str, key: &ObjectKey, look: Interpretation) {
        let is_seen = |known: &Known| {
            let status = known.status.as_ref();
            known.trouble.is_some() || status.is_some_and(|status| !status.lost)
        };
        let works = self.works.lock();
        let known = works.get(work).and_then(|objects| objects.get(key));
        let is_seen = known.is_some_and(is_seen);
        drop(works);
        if !is_seen {
            self.see(work, key, look);
        }
    }

    /// Returns the objects of a Work that cannot be interpreted and were not reported before.
    pub fn new_troubles(&self, work: &str) -> Vec<(ObjectKey, Trouble)> {
        let mut works = self.works.lock();
        let objects = works.get_mut(work).into_iter().flat_map(|it| &mut it.0);
        let to_publish = objects.filter(|(_, known)| !known.is_reported);
        to_publish
            .filter_map(|(key, known)| {
                let trouble = known.trouble.clone()?;
                known.is_reported = true;
                Some((key.clone(), trouble))
            })
            .collect()
    }

    /// Returns what was seen last of an object of a Work.
    pub fn seen(&self, work: &str, key: &ObjectKey) -> Option<ObjectStatus> {
        self.works.lock().get(work)?.get(key)?.status.clone()
    }

    /// Returns the objects of a kind, with their Works, that were there when they were seen or
    /// applied last and that a watch does not show.
    pub fn unshown(
        &self,
        kind: &GroupVersionKind,
        is_shown: impl Fn(&ObjectKey) -> bool,
    ) -> Vec<(String, ObjectKey)> {
        let is_there =
            |known: &Known| !known.has_run && known.status.as_ref().is_some_and(|it| !it.lost);
        let mut unshown = Vec::new();
        for (work, objects) in &*self.works.lock() {
            let of_kind = objects.0.iter().filter(|(key, _)| key.kind == *kind);
            let missing = of_kind.filter(|(key, known)| is_there(known) && !is_shown(key));
            unshown.extend(missing.map(|(key, _)| (work.clone(), key.clone())));
        }
        unshown
    }

    /// Notes that an object went whose task has run to its end: its last status stays.
    pub fn ended(&self, work: &str, key: &ObjectKey) {
        let mut works = self.works.lock();
        if let Some(objects) = works.get_mut(work)
            && let Ok(place) = objects.place(key)
        {
            objects.0[place].1.has_run = true;
        }
    }

    /// Returns whether the task of a manifest has run to its end, by what was seen or reported of
    /// it last.
    pub fn has_run(&self, work: &Work, key: &ObjectKey, manifest: &Value) -> bool {
        if !completed::is_task(manifest) {
            return false;
        }
        let seen = self.seen(&work.name_any(), key);
        if let Some(status) = seen.filter(|seen| !seen.lost && !seen.stays) {
            let status = status.status();
            return status.is_some_and(|it| completed::says(&it, manifest));
        }
        let mut reported = named(work).iter();
        let said = reported.find(|it| key_of(&it.identifier).object() == key.object());
        said.and_then(|said| said.status.as_ref())
            .is_some_and(|status| completed::says(&status.0, manifest))
    }

    /// Forgets an object that was removed because its Work no longer wants it.
    pub fn forget_object(&self, work: &str, key: &ObjectKey) {
        if let Some(objects) = self.works.lock().get_mut(work) {
            objects.0.retain(|(known, _)| known != key);
        }
    }

    /// Forgets the objects that a Work does not want, where more are known than it wants.
    pub fn retain(&self, work: &str, most: usize, wanted: impl FnOnce() -> HashSet<ObjectKey>) {
        if let Some(objects) = self.works.lock().get_mut(work)
            && objects.0.len() > most
        {
            let wanted = wanted();
            objects.0.retain(|(key, _)| wanted.contains(key));
        }
    }

    /// Forgets a Work that is gone.
    pub fn forget(&self, work: &str) {
        self.works.lock().remove(work);
    }

    /// Returns the statuses of a Work's objects.
    pub fn of(&self, work: &str) -> HashMap<ObjectKey, ObjectStatus> {
        let works = self.works.lock();
        let objects = works.get(work).into_iter().flat_map(|it| &it.0);
        objects
            .filter_map(|(key, known)| Some((key.clone(), known.status.clone()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::api::binding::ResourceHealth;
    use serde_json::json;

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
                Interpretation::at(&object(value), &Interpreters::default()),
            );
        }
        statuses.forget_object("w", &key("c"));
        let seen = statuses.of("w");
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
            let check = Interpretation {
                status: Some(ObjectStatus::new(
                    Some(&json!(status)),
                    ResourceHealth::Healthy,
                )),
                ..Interpretation::default()
            };
            statuses.see("w", &key, check);
            queue.len()
        };
        assert_eq!((see(1), see(2), see(3)), (1, 1, 1));
        let seen = statuses.of("w");
        assert_eq!(seen[&key].status(), Some(json!(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_understood_is_reported_once_until_it_changes_and_the_last_report_stays() {
        let deployment = |replicas: Value| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {"replicas": 1}, "status": {"replicas": replicas}})
        };
        let statuses = ObjectStatuses::new(Queue::new("test"));
        let key = ObjectKey::of(&deployment(json!(1)), 0).unwrap();
        let check = |replicas: Value| {
            statuses.see(
                "w",
                &key,
                Interpretation::at(&deployment(replicas), &Interpreters::default()),
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
        for (what, replicas, shown) in cases {
            assert_eq!(check(replicas), shown, "{what}");
        }
        let seen = statuses.of("w");
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
            statuses.see(&work, &key, Interpretation::lost());
            statuses.forget(&work);
            statuses.see(&work, &key, Interpretation::default());
            // The objects of one Work take turns.
            statuses.see("one", &key, Interpretation::lost());
            statuses.retain("one", 1, || HashSet::from([key.clone()]));
        }
        let works = statuses.works.lock();
        assert_eq!(works.keys().collect::<Vec<_>>(), ["one"]);
        assert_eq!(works["one"].0.len(), 1);
    }
}
