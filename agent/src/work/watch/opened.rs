//! Works that a watch has opened to compare their objects.

use std::collections::HashMap;
use std::sync::Arc;

use muster_shared::api::work::Work;
use muster_shared::k8s::{GroupVersionKind, ResourceExt};
use serde_json::Value;

use crate::work::CachedWork;
use crate::work::desired::ObjectKey;
use crate::work::manifests::keys;
use crate::work::member::Raw;
use crate::work::works::Whole;

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
}

/// A Work that was opened, and the positions of the manifests of one kind.
pub(super) struct Opened {
    pub(super) cached: Arc<CachedWork>,
    pub(super) work: Work,
    /// Wish of the Work that was opened.
    wish: u64,
    ordinals: HashMap<ObjectKey, usize>,
}

impl Opened {
    /// Takes the content of a cached Work; `None` when that cannot be read.
    pub(super) fn new(watched: &Watched, cached: Arc<CachedWork>, whole: Whole) -> Option<Self> {
        let work = whole.work.ok()?;
        let mut ordinals = HashMap::new();
        for (ordinal, key, _) in keys(&work).filter(|(_, key, _)| key.kind == watched.kind) {
            // Of two manifests for one object the first counts.
            let place = key.stored(watched.namespaced);
            ordinals.entry(place).or_insert(ordinal);
        }
        Some(Self {
            cached,
            work,
            wish: whole.cached.wish(),
            ordinals,
        })
    }

    /// Returns whether a cached Work wants what was opened.
    pub(super) fn is_of(&self, cached: &CachedWork) -> bool {
        self.wish == cached.wish()
    }

    /// Returns the key and the manifest that the Work has for the object at a place.
    pub(super) fn find(&self, place: &ObjectKey) -> Option<(ObjectKey, &Value)> {
        let ordinal = *self.ordinals.get(place)?;
        let manifest = &self.work.spec.workload.manifests.get(ordinal)?.0;
        Some((ObjectKey::of(manifest, ordinal).ok()?, manifest))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::work::watch::index::tests::place;

    fn opened(watched: &Watched, manifests: &[Value]) -> Opened {
        let work =
            json!({"metadata": {"name": "w"}, "spec": {"workload": {"manifests": manifests}}});
        let cached: CachedWork = serde_json::from_str(&work.to_string()).unwrap();
        let cached = Arc::new(cached);
        let whole = Whole {
            cached: Arc::clone(&cached),
            work: cached.open().unwrap(),
        };
        Opened::new(watched, cached, whole).unwrap()
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
}
