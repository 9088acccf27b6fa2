//! Index from the objects of one kind to their Works, as the watch of the kind has shown them.

use std::collections::{BTreeSet, HashMap};

use crate::work::desired::ObjectKey;

/// The objects of one kind with the names of the Works in their annotations. Says which Work a lost
/// or changed object belongs to, and nothing about its content.
#[derive(Default)]
pub(super) struct Index(HashMap<ObjectKey, Owners>);

/// The Works of one object.
#[derive(Default)]
struct Owners {
    /// The present Work, and whether it is there and wants the object.
    now: Option<(String, bool)>,
    /// Works that wanted the object before another one took it over, and may still want it.
    former: BTreeSet<String>,
}

impl Owners {
    /// Notes Works that wanted the object before its present Work.
    fn succeed(&mut self, before: impl IntoIterator<Item = String>) {
        self.former.extend(before);
        if let Some((now, _)) = &self.now {
            self.former.remove(now);
        }
    }

    fn wanted_by(&self) -> Option<&str> {
        let (work, wanted) = self.now.as_ref()?;
        wanted.then_some(work)
    }

    fn works(self) -> impl Iterator<Item = String> {
        let now = self.now.into_iter().map(|(work, _)| work);
        now.chain(self.former)
    }
}

impl Index {
    /// Notes the present Work of an object.
    pub(super) fn note(&mut self, place: ObjectKey, work: Option<String>, wanted: bool) {
        let mut owners = self.0.remove(&place).unwrap_or_default();
        let before = owners.wanted_by().map(str::to_owned);
        owners.now = work.map(|work| (work, wanted));
        if wanted {
            owners.succeed(before);
        }
        if owners.now.is_some() || !owners.former.is_empty() {
            self.0.insert(place, owners);
        }
    }

    /// Forgets an object; returns the Works that wanted it or made it, the last one first.
    pub(super) fn remove(&mut self, place: &ObjectKey) -> Vec<String> {
        let owners = self.0.remove(place).unwrap_or_default();
        owners.works().collect()
    }

    /// Takes over the former Works of objects, which a list does not have, from the objects before
    /// the list. Returns the objects that are gone, with the Works that wanted them.
    pub(super) fn succeed(&mut self, before: Self) -> Vec<(ObjectKey, Vec<String>)> {
        let mut lost = Vec::new();
        for (place, owners) in before.0 {
            if owners.wanted_by().is_none() {
                continue;
            }
            match self.0.get_mut(&place) {
                Some(now) if now.wanted_by().is_some() => now.succeed(owners.works()),
                _ => lost.push((place, owners.works().collect())),
            }
        }
        lost
    }

    /// Forgets former Works that are gone.
    pub(super) fn retain_former(&mut self, is_there: impl Fn(&str) -> bool) {
        self.0.retain(|_, owners| {
            owners.former.retain(|work| is_there(work));
            owners.now.is_some() || !owners.former.is_empty()
        });
    }

    /// Returns the Work that wants an object.
    pub(super) fn work(&self, place: &ObjectKey) -> Option<&str> {
        self.0.get(place)?.wanted_by()
    }

    /// Returns whether an object is there that a Work wants by this key.
    pub(super) fn shows(&self, key: &ObjectKey) -> bool {
        self.work(key).is_some() || self.work(&key.stored(true)).is_some()
    }

    /// Returns the objects that their Works want.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        let all = self.0.iter();
        all.filter_map(|(place, owners)| Some((place, owners.wanted_by()?)))
    }

    /// Returns all objects that name a Work.
    pub(super) fn all(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        let all = self.0.iter();
        all.filter_map(|(place, owners)| Some((place, owners.now.as_ref()?.0.as_str())))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::work::watch) fn place(kind: &str, namespace: &str, name: &str) -> ObjectKey {
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
