//! Objects of one kind that the watch has seen, and the Work that each was last compared with.

use std::collections::HashMap;
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
    /// What an object is and where.
    pub(super) fn place(&self, raw: &Raw) -> ObjectKey {
        ObjectKey {
            kind: self.kind.clone(),
            namespace: raw.namespace().unwrap_or_default(),
            name: raw.name_any(),
        }
    }

    /// Where an object is that a manifest names: without a namespace in the default one, as for
    /// kubectl, and a namespace of an object that has none is passed over, as the server does.
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

/// A Work that was opened, and where its objects of one kind are among its manifests.
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

    /// What the Work calls the object at a place, and what it wants of it.
    pub(super) fn find(&self, place: &ObjectKey) -> Option<(ObjectKey, &Value)> {
        let ordinal = *self.ordinals.get(place)?;
        let manifest = &self.work.spec.workload.manifests.get(ordinal)?.0;
        Some((ObjectKey::of(manifest, ordinal).ok()?, manifest))
    }
}

/// Objects that are as their Works want them, with the digests of that.
pub(super) type Fits = HashMap<ObjectKey, u64>;

/// The objects of one kind with the names of the Works that they say they are from.
#[derive(Default)]
pub(super) struct Known {
    /// Those that their Works want.
    wanted: HashMap<ObjectKey, String>,
    /// The others: the Work is gone, or never wanted them.
    strays: HashMap<ObjectKey, String>,
}

impl Known {
    /// Notes what an object says now.
    pub(super) fn note(&mut self, place: ObjectKey, work: Option<String>, wanted: bool) {
        self.wanted.remove(&place);
        self.strays.remove(&place);
        if let Some(work) = work {
            let objects = if wanted {
                &mut self.wanted
            } else {
                &mut self.strays
            };
            objects.insert(place, work);
        }
    }

    /// Forgets an object; gives the Work that wanted it.
    pub(super) fn remove(&mut self, place: &ObjectKey) -> Option<String> {
        self.strays.remove(place);
        self.wanted.remove(place)
    }

    /// The Work that wants an object.
    pub(super) fn work(&self, place: &ObjectKey) -> Option<&str> {
        self.wanted.get(place).map(String::as_str)
    }

    pub(super) fn is_wanted(&self, place: &ObjectKey) -> bool {
        self.wanted.contains_key(place)
    }

    /// The objects that their Works want.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        self.wanted
            .iter()
            .map(|(place, work)| (place, work.as_str()))
    }

    /// All objects.
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
}
