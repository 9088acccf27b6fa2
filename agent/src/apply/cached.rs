//! The Works as the agent keeps them: as text, beside it what is asked of them too often to read the text for it.
//!
//! A manifest as a tree of values takes about six times the memory of its text, and an agent keeps every Work of its member for as long
//! as it runs, while it reads one only when something happened to it or to its objects.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use muster_shared::api::work::{Work, WorkSpec, WorkStatus};
use muster_shared::conditions;
use muster_shared::k8s::{GroupVersionKind, ObjectMeta, Resource};
use muster_shared::names::condition::APPLIED;
use muster_shared::pool::Pool;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;

use super::desired::ObjectKey;

/// A Work in the cache.
#[derive(Clone, Debug)]
pub struct CachedWork {
    /// Namespace, name, uid, version and time of deletion. All of it is in the text.
    pub metadata: ObjectMeta,
    /// The whole Work as JSON, without `managedFields`.
    text: Box<str>,
    /// The fingerprint of what asks for work here, apart from the metadata above.
    wish: u64,
    /// The kinds of its objects, each once.
    kinds: Box<[Arc<GroupVersionKind>]>,
    /// Whether nothing is created or updated for now.
    pub suspended: bool,
    /// Whether its status says that everything was applied.
    applied: bool,
    /// Whether its status says that something could not be applied.
    failed: bool,
}

impl CachedWork {
    /// The Work itself; read from the text at each call.
    ///
    /// # Panics
    /// Never: every part of the text was read when the Work came.
    pub fn open(&self) -> Work {
        serde_json::from_str(&self.text)
            .expect("its parts were read when it came: that is the invariant of a cached Work")
    }

    /// The kinds of its objects, each once. Manifests that cannot be read have none.
    pub fn kinds(&self) -> impl Iterator<Item = &GroupVersionKind> {
        self.kinds.iter().map(AsRef::as_ref)
    }

    /// Keeps kinds that others have, too, once for all.
    pub fn share(&mut self, kinds: &Pool<GroupVersionKind>) {
        self.kinds.iter_mut().for_each(|kind| kinds.share(kind));
    }

    /// Whether a change of a Work asks for work here: status is ours and Karmada's to write, and says nothing new.
    pub fn concerns_us(old: Option<&Self>, new: &Self) -> bool {
        old.is_none_or(|old| {
            old.metadata.uid != new.metadata.uid
                || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
                || old.wish != new.wish
        })
    }

    /// Whether something is left to do for the Work: it goes, or was not applied.
    pub fn is_pending(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || !self.applied
    }

    /// Whether the objects of the Work shall be as it says. While it cannot be applied, its queue keeps the time of the next attempt.
    pub fn is_to_be_kept(&self) -> bool {
        !self.failed && self.metadata.deletion_timestamp.is_none() && !self.suspended
    }

    fn read(raw: &RawValue) -> Result<Self, serde_json::Error> {
        let mut parts: Parts<'_> = serde_json::from_str(raw.get())?;
        parts.metadata.managed_fields = None;
        // Read now, so that what does not decode is refused when it comes, like every other object.
        let spec: WorkSpec = part(parts.spec)?.unwrap_or_default();
        let status: WorkStatus = part(parts.status)?.unwrap_or_default();
        let text = serde_json::to_string(&parts)?.into();
        let metadata = parts.metadata;
        let says = |value| conditions::status(&status.conditions, APPLIED) == Some(value);
        Ok(Self {
            text,
            wish: fingerprint(&metadata, &spec),
            kinds: kinds(&spec),
            suspended: spec.suspend_dispatching == Some(true),
            applied: says(conditions::TRUE),
            failed: says(conditions::FALSE),
            metadata: ObjectMeta {
                namespace: metadata.namespace,
                name: metadata.name,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                deletion_timestamp: metadata.deletion_timestamp,
                ..ObjectMeta::default()
            },
        })
    }
}

/// A Work of which only the metadata is read; the rest stays as it was sent.
#[derive(Serialize, Deserialize)]
struct Parts<'a> {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(borrow, default, deserialize_with = "present")]
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    status: Option<&'a RawValue>,
}

/// A spec that is there: null is none that could be read, where an absent one is empty.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(spec: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(spec).map(Some)
}

fn part<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Result<Option<T>, serde_json::Error> {
    raw.map(|raw| serde_json::from_str(raw.get())).transpose()
}

/// A number that differs when what is asked of us does. The names say all fields, so that a further one is not forgotten.
fn fingerprint(metadata: &ObjectMeta, spec: &WorkSpec) -> u64 {
    let WorkSpec {
        workload,
        suspend_dispatching,
        preserve_resources_on_deletion,
    } = spec;
    let mut hasher = DefaultHasher::new();
    (&metadata.finalizers, &metadata.annotations).hash(&mut hasher);
    (suspend_dispatching, preserve_resources_on_deletion).hash(&mut hasher);
    for manifest in &workload.manifests {
        manifest.0.hash(&mut hasher);
    }
    hasher.finish()
}

fn kinds(spec: &WorkSpec) -> Box<[Arc<GroupVersionKind>]> {
    let mut kinds: Vec<Arc<GroupVersionKind>> = Vec::new();
    for (ordinal, manifest) in spec.workload.manifests.iter().enumerate() {
        if let Ok(key) = ObjectKey::of(&manifest.0, ordinal)
            && !kinds.iter().any(|known| **known == key.kind)
        {
            kinds.push(Arc::new(key.kind));
        }
    }
    kinds.into()
}

impl<'de> Deserialize<'de> for CachedWork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::read(&raw).map_err(D::Error::custom)
    }
}

impl Resource for CachedWork {
    type DynamicType = ();
    type Scope = <Work as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Work::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        Work::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        Work::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        Work::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn whole() -> Value {
        json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": "w", "namespace": "karmada-es-m1", "uid": "1", "resourceVersion": "7", "generation": 2,
                "labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["f"],
                "managedFields": [{"manager": "kubectl", "operation": "Apply"}]},
            "spec": {"workload": {"manifests": [
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"pi": 3.10, "none": null}},
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}},
                {"kind": "Unreadable"}]}},
            "status": {"conditions": [{"type": "Applied", "status": "True", "reason": "r", "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        })
    }

    fn cached(work: &Value) -> CachedWork {
        serde_json::from_str(&work.to_string()).unwrap()
    }

    #[test]
    fn what_is_kept_is_the_work_as_it_came_but_for_the_record_of_who_set_what() {
        let mut expected: Work = serde_json::from_value(whole()).unwrap();
        expected.metadata.managed_fields = None;
        assert_eq!(cached(&whole()).open(), expected);
        let bare = json!({"metadata": {"name": "w"}, "status": null});
        let expected: Work = serde_json::from_value(bare.clone()).unwrap();
        assert_eq!(cached(&bare).open(), expected);
    }

    #[test]
    fn a_work_that_does_not_decode_is_refused_when_it_comes() {
        type Edit = fn(&mut Value);
        let edits: [(&str, Edit); 4] = [
            ("metadata", |work| {
                work["metadata"]["finalizers"] = json!("f");
            }),
            ("a spec", |work| work["spec"]["workload"] = json!(1)),
            ("no spec", |work| work["spec"] = Value::Null),
            ("a status", |work| work["status"]["conditions"] = json!({})),
        ];
        for (what, edit) in edits {
            let mut work = whole();
            edit(&mut work);
            assert!(
                serde_json::from_value::<Work>(work.clone()).is_err(),
                "{what}"
            );
            let kept = serde_json::from_str::<CachedWork>(&work.to_string());
            assert!(kept.is_err(), "{what}");
        }
    }

    #[test]
    fn the_kinds_of_its_objects_are_named_once_and_held_once_by_all_works() {
        let pool = Pool::default();
        let (mut one, mut other) = (cached(&whole()), cached(&whole()));
        one.share(&pool);
        other.share(&pool);
        let kinds: Vec<_> = one.kinds().collect();
        assert_eq!(kinds, [&GroupVersionKind::gvk("", "v1", "ConfigMap")]);
        assert!(Arc::ptr_eq(&one.kinds[0], &other.kinds[0]));
    }

    #[test]
    fn a_status_asks_for_no_work_and_what_is_wanted_does() {
        type Edit = fn(&mut Value);
        let edits: [(&str, bool, Edit); 9] = [
            ("our own report", false, |work| {
                work["status"]["manifestStatuses"] = json!([]);
            }),
            ("a version", false, |work| {
                work["metadata"]["resourceVersion"] = json!("8");
            }),
            ("a label", false, |work| {
                work["metadata"]["labels"] = json!({});
            }),
            ("a manifest", true, |work| {
                work["spec"]["workload"]["manifests"][0]["data"]["pi"] = json!(3);
            }),
            ("suspension", true, |work| {
                work["spec"]["suspendDispatching"] = json!(true);
            }),
            ("an annotation", true, |work| {
                work["metadata"]["annotations"]["a"] = json!("2");
            }),
            ("a finalizer", true, |work| {
                work["metadata"]["finalizers"] = json!([]);
            }),
            ("the time of its deletion", true, |work| {
                work["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
            ("another object of its name", true, |work| {
                work["metadata"]["uid"] = json!("2");
            }),
        ];
        let old = cached(&whole());
        for (what, concerns, edit) in edits {
            let mut new = whole();
            edit(&mut new);
            let new = cached(&new);
            assert_eq!(
                CachedWork::concerns_us(Some(&old), &new),
                concerns,
                "{what}"
            );
        }
        assert!(CachedWork::concerns_us(None, &old));
    }

    #[test]
    fn what_is_left_to_do_follows_from_what_the_work_says() {
        type Edit = fn(&mut Value);
        // Pending, and whether drift is repaired.
        let edits: [(&str, bool, bool, Edit); 5] = [
            ("applied", false, true, |_| {}),
            ("never reported", true, true, |work| {
                work["status"] = Value::Null;
            }),
            ("it could not be applied", true, false, |work| {
                work["status"]["conditions"][0]["status"] = json!("False");
            }),
            ("it is suspended", false, false, |work| {
                work["spec"]["suspendDispatching"] = json!(true);
            }),
            ("it goes", true, false, |work| {
                work["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
        ];
        for (what, pending, kept, edit) in edits {
            let mut work = whole();
            edit(&mut work);
            let work = cached(&work);
            assert_eq!(
                (work.is_pending(), work.is_to_be_kept()),
                (pending, kept),
                "{what}"
            );
        }
    }
}
