//! Objects of one kind that the watch has seen, and the Work that each was last compared with.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use muster_shared::api::work::Work;
use muster_shared::k8s::{GroupVersionKind, ResourceExt};
use serde_json::Value;

use crate::work::CachedWork;
use crate::work::desired::ObjectKey;
use crate::work::manifests::keys;
use crate::work::member::Raw;

/// A kind that is watched.
pub(super) struct Watched {
    pub(super) kind: GroupVersionKind,
    /// Whether its objects live in namespaces.
    pub(super) namespaced: bool,
}

impl Watched {
    /// Returns the key of an object.
    pub(super) fn place(&self, raw: &Raw) -> ObjectKey {
        ObjectKey {
            kind: self.kind.clone(),
            namespace: raw.namespace().unwrap_or_default(),
            name: raw.name_any(),
        }
    }

    /// Returns the key of the object of a manifest as the server stores it: without a namespace in
    /// the default one, as for kubectl, and cluster-scoped objects without a namespace.
    fn place_of(&self, manifest: &ObjectKey) -> ObjectKey {
        let namespace = match manifest.namespace.as_str() {
            _ if !self.namespaced => "",
            "" => "default",
            namespace => namespace,
        };
        ObjectKey {
            namespace: namespace.to_owned(),
            ..manifest.clone()
        }
    }
}

/// A Work that was opened, and the positions of the manifests of one kind.
pub(super) struct Opened {
    pub(super) cached: Arc<CachedWork>,
    pub(super) work: Work,
    ordinals: HashMap<ObjectKey, usize>,
}

impl Opened {
    /// `None` when the Work cannot be read.
    pub(super) fn new(watched: &Watched, cached: Arc<CachedWork>) -> Option<Self> {
        let work = cached.open().ok()?;
        let mut ordinals = HashMap::new();
        for (ordinal, key, _) in keys(&work).filter(|(_, key, _)| key.kind == watched.kind) {
            // Of two manifests for one object the first counts.
            ordinals.entry(watched.place_of(&key)).or_insert(ordinal);
        }
        Some(Self {
            cached,
            work,
            ordinals,
        })
    }

    /// Returns the key and the manifest that the Work has for the object at a place.
    pub(super) fn find(&self, place: &ObjectKey) -> Option<(ObjectKey, &Value)> {
        let ordinal = *self.ordinals.get(place)?;
        let manifest = &self.work.spec.workload.manifests.get(ordinal)?.0;
        Some((ObjectKey::of(manifest, ordinal).ok()?, manifest))
    }
}

/// Objects that are as their Works want them, with the digests of that.
pub(super) type Fits = HashMap<ObjectKey, u64>;

/// The objects of one kind with the names of the Works in their annotations.
#[derive(Default)]
pub(super) struct Known {
    /// Objects that their Works want.
    wanted: HashMap<ObjectKey, String>,
    /// Objects that another Work took over, with the Works that wanted them before and may still
    /// want them.
    former: HashMap<ObjectKey, BTreeSet<String>>,
    /// Objects whose Work is gone, or does not want them.
    strays: HashMap<ObjectKey, String>,
}

impl Known {
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

    /// Forgets an object; returns the Works that wanted it, the last one first.
    pub(super) fn remove(&mut self, place: &ObjectKey) -> Vec<String> {
        self.strays.remove(place);
        let former = self.former.remove(place).unwrap_or_default();
        self.wanted
            .remove(place)
            .into_iter()
            .chain(former)
            .collect()
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

    fn opened(watched: &Watched, manifests: &[Value]) -> Opened {
        let work =
            json!({"metadata": {"name": "w"}, "spec": {"workload": {"manifests": manifests}}});
        let cached: CachedWork = serde_json::from_str(&work.to_string()).unwrap();
        Opened::new(watched, Arc::new(cached)).unwrap()
    }

    #[test]
    fn an_object_is_found_where_the_server_puts_it() {
        let manifest = |kind: &str, namespace: Option<&str>| {
            json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": "a", "namespace": namespace}})
        };
        for (kind, namespaced, namespace, lives_in, found) in [
            ("ConfigMap", true, Some("prod"), "prod", true),
            ("ConfigMap", true, None, "default", true),
            ("ConfigMap", true, None, "prod", false),
            ("ConfigMap", true, Some("prod"), "default", false),
            ("Namespace", false, None, "", true),
            ("Namespace", false, Some("prod"), "", true),
        ] {
            let watched = Watched {
                kind: place(kind, "", "a").kind,
                namespaced,
            };
            let open = opened(&watched, &[manifest(kind, namespace)]);
            let at = place(kind, lives_in, "a");
            assert_eq!(
                open.find(&at).is_some(),
                found,
                "{kind} of {namespace:?} in {lives_in:?}"
            );
        }
    }

    #[test]
    fn an_object_that_no_work_wants_is_known_as_well() {
        let mut known = Known::default();
        let at = place("ConfigMap", "default", "a");
        known.note(at.clone(), Some("w".into()), true);
        assert_eq!(known.work(&at), Some("w"));
        known.note(at.clone(), Some("gone".into()), false);
        assert_eq!(known.work(&at), None);
        assert_eq!(
            known.all().map(|(_, work)| work).collect::<Vec<_>>(),
            ["gone"]
        );
        known.note(at.clone(), None, false);
        assert_eq!(known.all().count(), 0);
    }

    #[test]
    fn the_works_that_wanted_an_object_before_are_known_until_it_or_they_are_gone() {
        let at = place("ConfigMap", "default", "a");
        let wanted_by = |works: &[&str]| {
            let mut known = Known::default();
            for work in works {
                known.note(at.clone(), Some((*work).to_owned()), true);
            }
            known
        };
        assert_eq!(
            wanted_by(&["a", "b", "c", "b"]).remove(&at),
            ["b", "a", "c"]
        );
        assert_eq!(wanted_by(&["a", "a"]).remove(&at), ["a"]);
        let mut known = wanted_by(&["a", "b", "c"]);
        known.retain_former(|work| work != "a");
        assert_eq!(known.remove(&at), ["c", "b"]);
        assert!(known.remove(&at).is_empty());

        let mut listed = wanted_by(&["b"]);
        assert!(listed.succeed(wanted_by(&["c", "a"])).is_empty());
        assert_eq!(listed.remove(&at), ["b", "a", "c"]);
        let lost = Known::default().succeed(wanted_by(&["a", "b"]));
        assert_eq!(lost, [(at.clone(), vec!["b".to_owned(), "a".to_owned()])]);
    }
}
