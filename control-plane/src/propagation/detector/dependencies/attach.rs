//! Binding of a template on which others depend.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{
    BindingSnapshot, ResourceBindingSpec, Suspension, TargetCluster,
};
use muster_shared::api::policy::{ConflictResolution, SuspendClusters};
use muster_shared::merge;
use muster_shared::names::{self, label};
use serde_json::{Map, Value, json};

use crate::fleet::binding::BindingKey;
use crate::fleet::binding::controller_of;
use crate::fleet::claim::Claim;
use crate::fleet::template::{TEMPLATE_FINGERPRINT, Template, TemplateKey, recorded_fingerprint};
use crate::propagation::binding::render::expects;
use crate::propagation::detector::build;
use crate::propagation::detector::identity::sound_name;

/// Referrers that a binding names, and clusters that it names for them. With a label for each
/// referrer, an object of this size stays well below what an API server takes (1.5 MB), and beyond
/// it only the clusters matter.
pub const MOST_REFERRERS: usize = 1000;
const MOST_TARGETS: usize = 5000;

/// A binding that refers to the template.
#[derive(Clone, Copy, Debug)]
pub struct Referrer<'a> {
    /// Key of the binding.
    pub key: &'a BindingKey,
    /// Permanent id of the binding.
    pub id: &'a str,
    /// Spec of the binding.
    pub spec: &'a ResourceBindingSpec,
}

impl Referrer<'_> {
    /// Returns where the referrer is. Clusters that it is leaving gracefully count: its old copy
    /// still runs there and still needs what it refers to; so do those that it is to leave at once,
    /// until a cluster is chosen for it. (Karmada leaves them out and so removes a ConfigMap that a
    /// running workload still needs.)
    fn snapshot(&self) -> BindingSnapshot {
        let mut clusters = self.spec.clusters.clone();
        for task in &self.spec.graceful_eviction_tasks {
            if expects(self.spec, &task.from_cluster)
                && !clusters
                    .iter()
                    .any(|cluster| cluster.name == task.from_cluster)
            {
                clusters.push(TargetCluster {
                    name: task.from_cluster.clone(),
                    ..TargetCluster::default()
                });
            }
        }
        BindingSnapshot {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            clusters,
        }
    }
}

/// Returns the label by which a referrer is marked on what is attached to it.
pub fn mark(referrer: &BindingKey) -> String {
    let namespace = referrer.namespace.as_deref().unwrap_or_default();
    format!(
        "{}{}",
        label::DEPENDED_BY_PREFIX,
        names::binding_reference_key(namespace, &referrer.name)
    )
}

/// Write to the API.
#[derive(Debug, PartialEq)]
pub enum Write {
    /// Creation of the binding.
    Create(Value),
    /// Merge patch of the binding.
    Patch(Value),
}

/// A template with those that refer to it.
#[derive(Debug)]
pub struct Attached<'a> {
    key: &'a TemplateKey,
    template: &'a Template,
    referrers: &'a [Referrer<'a>],
    /// Those of them that the binding names, with their clusters.
    snapshots: Vec<(BindingSnapshot, &'a Referrer<'a>)>,
    name: String,
}

impl<'a> Attached<'a> {
    /// Attaches a template to those that refer to it and have clusters, in a stable order.
    ///
    /// # Errors
    /// When no API server takes the name of its binding.
    pub fn new(
        key: &'a TemplateKey,
        template: &'a Template,
        referrers: &'a [Referrer<'a>],
    ) -> Result<Self, build::Error> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let name = sound_name(&key.kind.kind, namespace, &key.name)
            .map_err(|name| build::Error::unsound(&name))?;
        Ok(Self {
            key,
            template,
            referrers,
            snapshots: snapshots(referrers),
            name,
        })
    }

    /// Returns how many referrers the template's binding does not name.
    pub fn left_out(&self) -> usize {
        self.referrers.len() - self.snapshots.len()
    }

    /// Returns in words what the policies of the referrers disagree about; `None` where they agree.
    /// The most demanding one decides, unless the template has a policy of its own.
    pub fn disagreement(&self) -> Option<String> {
        let parted = |demands: fn(&ResourceBindingSpec) -> bool| {
            let with = |wanted: bool| {
                let mut all = self.referrers.iter();
                all.find(|it| demands(it.spec) == wanted)
            };
            Some((with(true)?.key, with(false)?.key))
        };
        let overwritten = parted(overwrites).map(|(one, other)| {
            format!("conflictResolution is Overwrite for {one}, and not for {other}")
        });
        let preserved =
            parted(ResourceBindingSpec::is_preserved_on_deletion).map(|(one, other)| {
                format!("preserveResourcesOnDeletion is true for {one}, and not for {other}")
            });
        let disputed: Vec<String> = overwritten.into_iter().chain(preserved).collect();
        (!disputed.is_empty()).then(|| {
            format!(
                "the policies of those that refer to it disagree, and the one that asks for more decides, unless it has a policy of \
                 its own: {}",
                disputed.join("; ")
            )
        })
    }

    /// Returns what has to be written. `undecided` says of which referrers it is not known
    /// what they need, or whether they exist; their snapshots stay. `changed` says whether a
    /// binding that records no fingerprint counts as one of a template that has changed.
    ///
    /// # Errors
    /// When the binding is another object's.
    pub fn write(
        &self,
        held: Option<&AnyBinding>,
        undecided: impl Fn(&BindingKey) -> bool,
        changed: bool,
    ) -> Result<Option<Write>, build::Error> {
        let Some(held) = held else {
            let wanted = !self.referrers.is_empty();
            return Ok(wanted.then(|| Write::Create(self.create())));
        };
        let uid = self.template.metadata().uid.as_deref();
        match build::Error::foreign(held, self.key, uid) {
            // Without referrers there is nothing to attach, whoever has the binding.
            Some(_) if self.referrers.is_empty() => Ok(None),
            Some(foreign) => Err(foreign),
            None => Ok(self.patch(held, undecided, changed).map(Write::Patch)),
        }
    }

    fn create(&self) -> Value {
        let mut spec = ResourceBindingSpec {
            resource: self.key.resource(self.template.metadata()),
            ..ResourceBindingSpec::default()
        };
        spec.required_by = self.snapshots.iter().map(|it| it.0.clone()).collect();
        self.inherit(&mut spec);
        let template = (self.key, self.template.metadata());
        let fingerprint = self.template.fingerprint();
        let pairs = (self.marks(), BTreeMap::new());
        json!({
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": build::metadata(template, &self.name, &fingerprint, pairs),
            "spec": spec,
        })
    }

    fn patch(
        &self,
        held: &AnyBinding,
        undecided: impl Fn(&BindingKey) -> bool,
        changed: bool,
    ) -> Option<Value> {
        let kept = |snapshot: &&BindingSnapshot| undecided(&BindingKey::of_snapshot(snapshot));
        let kept: Vec<&BindingSnapshot> = held.spec.required_by.iter().filter(kept).collect();
        let mut spec = held.spec.clone();
        spec.required_by = self.merged(&held.spec.required_by, &kept);
        let fingerprint = self.template.fingerprint();
        let recorded = recorded_fingerprint(&held.metadata);
        // The detector records the state of a template that a policy claims: by that record it sees
        // whether a lazy policy takes effect.
        let is_claimed = Claim::on(self.template).is_some() || Claim::on(&held.metadata).is_some();
        let changed = !is_claimed && recorded.map_or(changed, |recorded| recorded != fingerprint);
        if changed {
            spec.resource = self.key.resource(self.template.metadata());
        }
        if spec.placement.is_none() && kept.is_empty() && !self.referrers.is_empty() {
            self.inherit(&mut spec);
        }
        // What a referrer that goes has left here holds for what goes with it.
        let is_dropped = |it: &BindingSnapshot| {
            let mut all = spec.required_by.iter().map(BindingKey::of_snapshot);
            !all.any(|other| other == BindingKey::of_snapshot(it))
        };
        if held.spec.is_preserved_on_deletion() && held.spec.required_by.iter().any(is_dropped) {
            spec.preserve_resources_on_deletion = Some(true);
        }
        let mut patch = Map::new();
        if let Some(difference) = merge::difference(&json!(held.spec), &json!(spec)) {
            patch.insert("spec".to_owned(), difference);
        }
        let mut metadata = Map::new();
        let labels = self.label_changes(held, &kept);
        if !labels.is_empty() {
            metadata.insert("labels".to_owned(), Value::Object(labels));
        }
        if changed {
            let record = json!({ TEMPLATE_FINGERPRINT: fingerprint });
            metadata.insert("annotations".to_owned(), record);
        }
        // A binding that outlived a former template goes with this one.
        if changed && controller_of(&held.metadata).is_none() {
            let others = held.metadata.owner_references.iter().flatten();
            let own = self.key.owner(self.template.metadata());
            let owners = others.map(|owner| json!(owner)).chain([own]);
            metadata.insert("ownerReferences".to_owned(), owners.collect());
        }
        if !metadata.is_empty() {
            patch.insert("metadata".to_owned(), Value::Object(metadata));
        }
        if patch.is_empty() {
            return None;
        }
        let mut patch = Value::Object(patch);
        // The list of referrers is replaced as a whole.
        patch["metadata"]["resourceVersion"] = json!(held.metadata.resource_version);
        Some(patch)
    }

    /// Returns the present snapshots in the order in which they are held, with new ones behind
    /// them.
    fn merged(&self, held: &[BindingSnapshot], kept: &[&BindingSnapshot]) -> Vec<BindingSnapshot> {
        let keep: HashSet<BindingKey> = kept
            .iter()
            .map(|snapshot| BindingKey::of_snapshot(snapshot))
            .collect();
        let mut fresh: HashMap<BindingKey, &BindingSnapshot> = self
            .snapshots
            .iter()
            .map(|(snapshot, referrer)| (referrer.key.clone(), snapshot))
            .collect();
        let mut merged = Vec::with_capacity(fresh.len());
        for snapshot in held {
            let key = BindingKey::of_snapshot(snapshot);
            if let Some(snapshot) = fresh.remove(&key) {
                merged.push(snapshot.clone());
            } else if keep.contains(&key) {
                merged.push(snapshot.clone());
            }
        }
        let new = self.snapshots.iter();
        let new = new.filter(|(_, referrer)| fresh.contains_key(referrer.key));
        merged.extend(new.map(|(snapshot, _)| snapshot.clone()));
        merged
    }

    fn marks(&self) -> BTreeMap<String, String> {
        self.snapshots
            .iter()
            .map(|(_, referrer)| (mark(referrer.key), referrer.id.to_owned()))
            .collect()
    }

    fn label_changes(&self, held: &AnyBinding, kept: &[&BindingSnapshot]) -> Map<String, Value> {
        let wanted = self.marks();
        let kept: BTreeSet<String> = kept
            .iter()
            .map(|snapshot| mark(&BindingKey::of_snapshot(snapshot)))
            .collect();
        let labels = held.metadata.labels.as_ref();
        let differs =
            |key: &String, value: &String| labels.and_then(|labels| labels.get(key)) != Some(value);
        let missing = wanted
            .iter()
            .filter(|(key, value)| differs(key, value))
            .map(|(key, value)| (key.clone(), json!(value)));
        let stale = labels
            .into_iter()
            .flatten()
            .map(|(key, _)| key)
            .filter(|key| {
                key.starts_with(label::DEPENDED_BY_PREFIX)
                    && !wanted.contains_key(*key)
                    && !kept.contains(*key)
            });
        missing
            .chain(stale.map(|key| (key.clone(), Value::Null)))
            .collect()
    }

    /// Sets the fields of a template without a policy of its own as the most demanding of its
    /// referrers wants them.
    fn inherit(&self, spec: &mut ResourceBindingSpec) {
        // Abort is what the definition of the kind makes of nothing.
        let is_overwritten = self.referrers.iter().any(|it| overwrites(it.spec));
        spec.conflict_resolution = Some(if is_overwritten {
            ConflictResolution::Overwrite
        } else {
            ConflictResolution::Abort
        });
        let preserves = self
            .referrers
            .iter()
            .filter_map(|referrer| referrer.spec.preserve_resources_on_deletion);
        spec.preserve_resources_on_deletion = preserves.reduce(|one, other| one || other);
        // Where all referrers stay as they are for now, so does what they need.
        let placed = |is_suspended: bool| -> BTreeSet<String> {
            let referrers = self.referrers.iter();
            let clusters = referrers.flat_map(|referrer| {
                let names = referrer.snapshot().clusters.into_iter().map(|it| it.name);
                let dispatching = |it: &String| referrer.spec.dispatching_suspended_in(it);
                names.filter(move |it| dispatching(it) == is_suspended)
            });
            clusters.collect()
        };
        let suspended = &placed(true) - &placed(false);
        let suspension = Suspension {
            dispatching_on_clusters: (!suspended.is_empty()).then(|| SuspendClusters {
                cluster_names: suspended.into_iter().collect(),
            }),
            // These are the binding's own: others set them, such as a queue, or a person.
            ..spec.suspension.clone().unwrap_or_default()
        };
        spec.suspension = (suspension != Suspension::default()).then_some(suspension);
    }
}

/// Returns whether a policy has what a member has by the same name overwritten.
fn overwrites(spec: &ResourceBindingSpec) -> bool {
    spec.conflict_resolution == Some(ConflictResolution::Overwrite)
}

/// Returns the referrers that a binding names, with their clusters. All of them are named as long
/// as there is room. After that only those are named that are in a cluster where none before them
/// is, with just these clusters: wherever a referrer is, the template goes.
fn snapshots<'a>(referrers: &'a [Referrer<'a>]) -> Vec<(BindingSnapshot, &'a Referrer<'a>)> {
    let mut covered: HashSet<String> = HashSet::new();
    let mut targets = 0;
    let mut named = Vec::new();
    for referrer in referrers {
        let mut snapshot = referrer.snapshot();
        if named.len() >= MOST_REFERRERS || targets + snapshot.clusters.len() > MOST_TARGETS {
            snapshot
                .clusters
                .retain(|cluster| !covered.contains(&cluster.name));
            if snapshot.clusters.is_empty() {
                continue;
            }
        }
        targets += snapshot.clusters.len();
        covered.extend(snapshot.clusters.iter().map(|cluster| cluster.name.clone()));
        named.push((snapshot, referrer));
    }
    named
}

#[cfg(test)]
mod tests;
