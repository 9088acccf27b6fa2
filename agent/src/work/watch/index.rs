//! Index from the objects of one kind to their Works, as the watch of the kind has shown them.

use std::collections::{BTreeSet, HashMap};

use crate::work::desired::ObjectKey;

/// The objects of one kind with the names of the Works in their annotations. Says which Work a lost
/// or changed object belongs to, and nothing about its content.
#[derive(Default)]
pub(super) struct Index {
    /// Objects that their Works want.
    wanted: HashMap<ObjectKey, String>,
    /// Objects that another Work took over, with the Works that wanted them before and may still
    /// want them.
    former: HashMap<ObjectKey, BTreeSet<String>>,
    /// Objects whose Work is gone, or does not want them.
    strays: HashMap<ObjectKey, String>,
}

impl Index {
    /// Notes the present Work of an object.
    pub(super) fn note(&mut self, place: ObjectKey, work: Option<String>, wanted: bool) {
        let before = self.wanted.remove(&place);
        self.strays.remove(&place);
        match work {
            Some(work) if wanted => {
                self.note_former(&place, before, &work);
                self.wanted.insert(place, work);
            }
            Some(work) => _ = self.strays.insert(place, work),
            None => {}
        }
    }

    /// Notes the Works that wanted an object before its present Work.
    fn note_former(
        &mut self,
        place: &ObjectKey,
        before: impl IntoIterator<Item = String>,
        now: &str,
    ) {
        for work in before {
            if work != now {
                self.former.entry(place.clone()).or_default().insert(work);
            }
        }
        if let Some(former) = self.former.get_mut(place) {
            former.remove(now);
            if former.is_empty() {
                self.former.remove(place);
            }
        }
    }

    /// Forgets an object; returns the Works that wanted it or made it, the last one first.
    pub(super) fn remove(&mut self, place: &ObjectKey) -> Vec<String> {
        let former = self.former.remove(place).unwrap_or_default();
        // An object is in one of both.
        let (wanted, stray) = (self.wanted.remove(place), self.strays.remove(place));
        let last = wanted.into_iter().chain(stray);
        last.chain(former).collect()
    }

    /// Takes over the former Works of objects, which a list does not have, from the objects before
    /// the list. Returns the objects that are gone, with the Works that wanted them.
    pub(super) fn succeed(&mut self, before: Self) -> Vec<(ObjectKey, Vec<String>)> {
        let (mut former, mut lost) = (before.former, Vec::new());
        for (place, work) in before.wanted {
            let others = former.remove(&place).unwrap_or_default();
            let works = std::iter::once(work).chain(others);
            match self.wanted.get(&place).cloned() {
                Some(now) => self.note_former(&place, works, &now),
                None => lost.push((place, works.collect())),
            }
        }
        lost
    }

    /// Forgets former Works that are gone.
    pub(super) fn retain_former(&mut self, is_there: impl Fn(&str) -> bool) {
        self.former.retain(|_, works| {
            works.retain(|work| is_there(work));
            !works.is_empty()
        });
    }

    /// Returns the Work that wants an object.
    pub(super) fn work(&self, place: &ObjectKey) -> Option<&str> {
        self.wanted.get(place).map(String::as_str)
    }

    pub(super) fn is_wanted(&self, place: &ObjectKey) -> bool {
        self.wanted.contains_key(place)
    }

    /// Returns the objects that their Works want.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        self.wanted
            .iter()
            .map(|(place, work)| (place, work.as_str()))
    }

    /// Returns all objects.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        let strays = self.strays.iter();
        let strays = strays.map(|(place, work)| (place, work.as_str()));
        self.wanted().chain(strays)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(kind: &str, namespace: &str, name: &str) -> ObjectKey {
        let manifest = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}});
        ObjectKey::of(&manifest, 0).unwrap()
    }

    #[test]
    fn an_object_that_no_work_wants_is_known_as_well() {
        let mut index = Index::default();
        let at = place("ConfigMap", "default", "a");
        index.note(at.clone(), Some("w".into()), true);
        assert_eq!(index.work(&at), Some("w"));
        index.note(at.clone(), Some("gone".into()), false);
        assert_eq!(index.work(&at), None);
        assert_eq!(
            index.all().map(|(_, work)| work).collect::<Vec<_>>(),
            ["gone"]
        );
        index.note(at.clone(), None, false);
        assert_eq!(index.all().count(), 0);
    }

    #[test]
    fn the_works_that_wanted_an_object_before_are_known_until_it_or_they_are_gone() {
        let at = place("ConfigMap", "default", "a");
        let wanted_by = |works: &[&str]| {
            let mut index = Index::default();
            for work in works {
                index.note(at.clone(), Some((*work).to_owned()), true);
            }
            index
        };
        assert_eq!(
            wanted_by(&["a", "b", "c", "b"]).remove(&at),
            ["b", "a", "c"]
        );
        assert_eq!(wanted_by(&["a", "a"]).remove(&at), ["a"]);
        let mut index = wanted_by(&["a", "b", "c"]);
        index.retain_former(|work| work != "a");
        assert_eq!(index.remove(&at), ["c", "b"]);
        assert!(index.remove(&at).is_empty());

        let mut listed = wanted_by(&["b"]);
        assert!(listed.succeed(wanted_by(&["c", "a"])).is_empty());
        assert_eq!(listed.remove(&at), ["b", "a", "c"]);
        let lost = Index::default().succeed(wanted_by(&["a", "b"]));
        assert_eq!(lost, [(at.clone(), vec!["b".to_owned(), "a".to_owned()])]);
    }
}
