//! Cached Works, and the index of Works by binding.

mod removal;
mod report;
mod role;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kube::core::ObjectMeta;
use muster_shared::api::binding::ObjectReference;
use muster_shared::api::work::{ResourceIdentifier, Work, WorkStatus};
use muster_shared::names::{annotation, cluster_of_execution_namespace, label};
use muster_shared::watch::packing::{Codec, Parts};
use muster_shared::watch::{Change, Informer};
use muster_shared::work_status::Excess;
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

pub use self::removal::Doomed;
use self::report::Report;
pub use self::role::Role;
use super::binding::BindingKey;
use super::labelled::Labelled as _;

/// A Work in the cache: what is asked of it, in as little memory as that takes. A fleet has at
/// least as many Works as workloads, each with a whole object in it, and all that we want to know
/// of the object is whether it is the one that we would write.
#[derive(Clone, Debug)]
pub struct CachedWork {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// The fingerprint of the objects that the member is to have.
    pub manifests: u64,
    /// Replicas that the first of them asks for: its `spec.replicas` or, of a Job,
    /// `spec.parallelism`.
    pub replicas: Option<i64>,
    /// Completions that it asks for, if it is a Job.
    pub completions: Option<u64>,
    /// Role of the first of them in the member.
    pub role: Role,
    /// Whether nothing is created or updated for now.
    pub suspend_dispatching: Option<bool>,
    /// Whether the objects stay in the member when the Work is deleted.
    pub preserve_resources_on_deletion: Option<bool>,
    /// Report of the agent.
    report: Option<Report>,
}

impl CachedWork {
    /// Returns whether an agent has reported on the Work.
    pub fn is_reported(&self) -> bool {
        self.report.is_some()
    }

    /// Returns whether the agent reports the same as in a former version of the Work.
    pub fn reports_as(&self, former: &Self) -> bool {
        self.report == former.report
    }

    /// Returns what the agent reports; it is parsed anew at each call.
    pub fn status(&self) -> WorkStatus {
        let report = self.report.as_ref();
        report.map(Report::read).unwrap_or_default()
    }

    /// Returns why the status of an object is left out of what the agent reports, if one is.
    pub fn excess(&self) -> Option<&Excess> {
        self.report.as_ref()?.excess()
    }
}

/// Returns a fingerprint of a value, by which two values are compared.
pub fn fingerprint(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Returns a fingerprint of the manifests of a Work. A field that is null counts as absent: a
/// server leaves it out of each list that a merge patch writes.
pub fn fingerprint_of_manifests(manifests: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    hash_without_nulls(manifests, &mut hasher);
    hasher.finish()
}

fn hash_without_nulls(value: &Value, hasher: &mut DefaultHasher) {
    match value {
        Value::Object(fields) => {
            let present = || fields.iter().filter(|(_, value)| !value.is_null());
            (b'{', present().count()).hash(hasher);
            for (name, value) in present() {
                name.hash(hasher);
                hash_without_nulls(value, hasher);
            }
        }
        Value::Array(entries) => {
            (b'[', entries.len()).hash(hasher);
            for entry in entries {
                hash_without_nulls(entry, hasher);
            }
        }
        other => other.hash(hasher),
    }
}

impl<'de> Deserialize<'de> for CachedWork {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(default)]
            metadata: ObjectMeta,
            #[serde(default)]
            status: Option<Report>,
            #[serde(default)]
            spec: Value,
        }
        let whole = Whole::deserialize(deserializer)?;
        Ok(Self {
            metadata: whole.metadata,
            manifests: fingerprint_of_manifests(&whole.spec["workload"]["manifests"]),
            replicas: replicas_of(&whole.spec["workload"]["manifests"][0]),
            completions: completions_of(&whole.spec["workload"]["manifests"][0]),
            role: Role::of_manifest(&whole.spec["workload"]["manifests"][0]),
            suspend_dispatching: whole.spec["suspendDispatching"].as_bool(),
            preserve_resources_on_deletion: whole.spec["preserveResourcesOnDeletion"].as_bool(),
            report: whole.status,
        })
    }
}

/// Returns the codec of Works: what is kept of them, one after the other.
pub fn codec() -> Codec<CachedWork> {
    Codec {
        pack: |it| {
            let asked = (it.manifests, it.replicas, it.completions, it.role);
            let said = (it.suspend_dispatching, it.preserve_resources_on_deletion);
            Ok(Parts {
                text: serde_json::to_vec(&(&it.metadata, asked, said, it.report.as_ref()))?,
                ..Parts::default()
            })
        },
        unpack: |text, _| {
            let (metadata, asked, said, report): (_, _, _, Option<report::Kept>) =
                serde_json::from_slice(text)?;
            let (manifests, replicas, completions, role) = asked;
            let (suspend_dispatching, preserve_resources_on_deletion) = said;
            Ok(CachedWork {
                metadata,
                manifests,
                replicas,
                completions,
                role,
                suspend_dispatching,
                preserve_resources_on_deletion,
                report: report.map(Report::from),
            })
        },
    }
}

/// Returns the replicas that a manifest asks for.
pub(crate) fn replicas_of(manifest: &Value) -> Option<i64> {
    let field = if is_job(manifest) {
        "parallelism"
    } else {
        "replicas"
    };
    manifest["spec"][field].as_i64()
}

/// Returns the completions that a manifest asks for, if it is a Job.
fn completions_of(manifest: &Value) -> Option<u64> {
    manifest["spec"]["completions"]
        .as_u64()
        .filter(|_| is_job(manifest))
}

/// Returns whether an object is a Job of Kubernetes.
pub fn is_job(object: &Value) -> bool {
    object["apiVersion"] == "batch/v1" && object["kind"] == "Job"
}

muster_shared::resource_as!(CachedWork as Work);

/// The Works of each binding, by the binding that they name. Cheap to clone.
///
/// Karmada finds them by permanent id, which two bindings share when one was copied from the other.
#[derive(Clone)]
pub struct WorkIndex {
    works: Informer<CachedWork>,
    by_binding: Arc<Mutex<ByBinding>>,
}

/// Namespaces and names of Works, those of each binding in their order. Most have one.
type ByBinding = HashMap<Arc<BindingKey>, Vec<(Box<str>, Box<str>)>>;

impl WorkIndex {
    /// Makes an index that follows the cache of Works; make it before the cache starts.
    pub fn new(works: &Informer<CachedWork>) -> Self {
        let by_binding = Arc::<Mutex<ByBinding>>::default();
        let kept = Arc::clone(&by_binding);
        works.on_change(move |change| follow(&mut kept.lock(), change));
        Self {
            works: works.clone(),
            by_binding,
        }
    }

    /// Returns the Works that name a binding, including those that are being deleted, in whatever
    /// namespace they are.
    pub fn of(&self, binding: &BindingKey) -> Vec<Arc<CachedWork>> {
        let places = self.by_binding.lock().get(binding).cloned();
        let works = places.into_iter().flatten();
        works
            .filter_map(|(namespace, name)| self.works.get(Some(&namespace), &name))
            .filter(|work| binding_of(work).as_ref() == Some(binding))
            .collect()
    }

    /// Returns the clusters of the Works that name a binding, without reading these Works.
    pub fn clusters_of(&self, binding: &BindingKey) -> HashSet<String> {
        let index = self.by_binding.lock();
        let places = index.get(binding).into_iter().flatten();
        places
            .filter_map(|(namespace, _)| cluster_of_execution_namespace(namespace))
            .map(str::to_owned)
            .collect()
    }
}

/// Keeps the index as the cache is after a change.
fn follow(by_binding: &mut ByBinding, change: &Change<CachedWork>) {
    let (old, new) = change.sides();
    let (was, is) = (old.and_then(binding_of), new.and_then(binding_of));
    if was == is {
        return;
    }
    let place = place(change.object());
    let search = |works: &[(Box<str>, Box<str>)]| {
        works.binary_search_by(|(namespace, name)| (&**namespace, &**name).cmp(&place))
    };
    if let Some(binding) = was
        && let Entry::Occupied(mut works) = by_binding.entry(Arc::new(binding))
    {
        if let Ok(at) = search(works.get()) {
            works.get_mut().remove(at);
        }
        if works.get().is_empty() {
            works.remove();
        }
    }
    if let Some(binding) = is {
        let works = by_binding.entry(binding.shared()).or_default();
        if let Err(at) = search(works) {
            works.reserve_exact(1);
            works.insert(at, (place.0.into(), place.1.into()));
        }
    }
}

/// Returns whether an agent's report is about the resource.
pub fn means(reported: &ResourceIdentifier, resource: &ObjectReference) -> bool {
    let group = reported.group.as_deref().unwrap_or_default();
    let api_version = if group.is_empty() {
        reported.version.clone()
    } else {
        format!("{group}/{}", reported.version)
    };
    api_version == resource.api_version
        && reported.kind == resource.kind
        && reported.name == resource.name
        && reported.namespace.as_deref().unwrap_or_default()
            == resource.namespace.as_deref().unwrap_or_default()
}

/// Returns whether a Work brings a namespace of the fleet to a member, and belongs to no binding.
pub fn is_of_namespace(work: &ObjectMeta) -> bool {
    let mut owners = work.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "Namespace")
}

/// Returns the permanent id of the binding that a Work was made for.
pub fn owner_id(work: &CachedWork) -> Option<&str> {
    let id = |key: &str| work.metadata.label(key).filter(|id| !id.is_empty());
    id(label::RESOURCE_BINDING_ID).or_else(|| id(label::CLUSTER_RESOURCE_BINDING_ID))
}

/// Returns the cluster that a Work is for.
pub fn cluster_of(work: &CachedWork) -> Option<&str> {
    cluster_of_execution_namespace(work.metadata.namespace.as_deref()?)
}

/// Returns the first of some Works that is for a cluster.
pub fn in_cluster<'a>(works: &'a [Arc<CachedWork>], cluster: &str) -> Option<&'a Arc<CachedWork>> {
    works.iter().find(|work| cluster_of(work) == Some(cluster))
}

/// Returns the binding that a Work was made for.
pub fn binding_of(work: &CachedWork) -> Option<BindingKey> {
    binding_named(&work.metadata)
}

/// Returns the binding that the annotations of a Work name.
pub fn binding_named(work: &ObjectMeta) -> Option<BindingKey> {
    let get = |key: &str| {
        let value = work.annotation(key).filter(|value| !value.is_empty());
        value.map(str::to_owned)
    };
    if let (Some(namespace), Some(name)) = (
        get(annotation::RESOURCE_BINDING_NAMESPACE),
        get(annotation::RESOURCE_BINDING_NAME),
    ) {
        return Some(BindingKey {
            namespace: Some(namespace),
            name,
        });
    }
    Some(BindingKey {
        namespace: None,
        name: get(annotation::CLUSTER_RESOURCE_BINDING_NAME)?,
    })
}

/// Returns the namespace and name of a Work.
fn place(work: &CachedWork) -> (&str, &str) {
    let metadata = &work.metadata;
    (
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::key;

    fn work(cluster: &str, binding: &str, id: &str) -> Arc<CachedWork> {
        let work = json!({ "metadata": {
            "namespace": format!("karmada-es-{cluster}"), "name": "web-1",
            "labels": { label::RESOURCE_BINDING_ID: id },
            "annotations": {
                annotation::RESOURCE_BINDING_NAMESPACE: "shop",
                annotation::RESOURCE_BINDING_NAME: binding,
            },
        }});
        Arc::new(serde_json::from_value(work).unwrap())
    }

    /// Returns the clusters whose Works a binding has after changes.
    fn clusters(index: &ByBinding, name: &str) -> Vec<String> {
        let works = index.get(&key(name)).into_iter().flatten();
        works.map(|(namespace, _)| namespace.to_string()).collect()
    }

    fn put(index: &mut ByBinding, old: Option<Arc<CachedWork>>, new: Arc<CachedWork>) {
        follow(index, &Change::Applied { old, new });
    }

    #[test]
    fn bindings_with_the_same_permanent_id_do_not_share_works() {
        let mut index = ByBinding::default();
        put(&mut index, None, work("m1", "web", "id"));
        put(&mut index, None, work("m2", "copy", "id"));
        assert_eq!(clusters(&index, "web"), ["karmada-es-m1"]);
        assert_eq!(clusters(&index, "copy"), ["karmada-es-m2"]);
    }

    #[test]
    fn a_binding_that_was_made_again_finds_the_works_that_it_had_before() {
        let mut index = ByBinding::default();
        let (before, now) = (work("m1", "web", "before"), work("m1", "web", "now"));
        put(&mut index, None, Arc::clone(&before));
        put(&mut index, Some(before), Arc::clone(&now));
        assert_eq!(clusters(&index, "web"), ["karmada-es-m1"]);
        let other = work("m1", "other", "now");
        put(&mut index, Some(now), Arc::clone(&other));
        assert_eq!(clusters(&index, "web"), [""; 0]);
        follow(&mut index, &Change::Deleted { old: other });
        assert!(
            index.is_empty(),
            "nothing is left of a binding without Works"
        );
    }
}
