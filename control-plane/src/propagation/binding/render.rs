//! Renders the Works of a binding, as a pure function of the binding and its template.
//!
//! Labels and annotations tie the Work and its manifest to the binding, and the object in the
//! member to its Work, its template and the keys that the fleet owns (Karmada:
//! `pkg/controllers/binding/common.go`, `pkg/controllers/ctrlutil/work.go`).

use std::collections::{BTreeMap, BTreeSet};

use muster_interpreter::{Interpreters, Operation, prune, prune_server_fields};
use muster_shared::api::binding::{GracefulEvictionTask, ResourceBindingSpec, TargetCluster};
use muster_shared::api::policy::{ConflictResolution, PurgeMode};
use muster_shared::names::{self, annotation, label};
use serde_json::{Map, Value, json};

use crate::fleet::allocated::drop_blank;
use crate::fleet::binding::BindingKey;
use crate::fleet::completion::to_divide;
use crate::fleet::fencing;
use crate::scheduler::core::divide::{Party, TieBreak, webster};

/// Labels or annotations.
pub type Pairs = BTreeMap<String, String>;

/// Parts of a binding, beside the spec, that go into its Works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Key of the binding.
    pub key: BindingKey,
    /// Permanent id of the binding.
    pub id: String,
}

impl Origin {
    /// Returns the labels that a Work and its manifest get.
    pub fn labels(&self) -> Pairs {
        Pairs::from([(self.label().to_owned(), self.id.clone())])
    }

    /// Returns the name of the label that holds the permanent id.
    pub fn label(&self) -> &'static str {
        self.key.scope().binding_id_label()
    }

    fn annotations(&self) -> Pairs {
        let BindingKey { namespace, name } = &self.key;
        match namespace {
            Some(namespace) => Pairs::from([
                (
                    annotation::RESOURCE_BINDING_NAMESPACE.to_owned(),
                    namespace.clone(),
                ),
                (annotation::RESOURCE_BINDING_NAME.to_owned(), name.clone()),
            ]),
            None => Pairs::from([(
                annotation::CLUSTER_RESOURCE_BINDING_NAME.to_owned(),
                name.clone(),
            )]),
        }
    }
}

/// Desired state of one Work.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// Execution namespace of the cluster.
    pub namespace: String,
    /// Name of the Work.
    pub name: String,
    /// Labels of the Work.
    pub labels: Pairs,
    /// Annotations of the Work.
    pub annotations: Pairs,
    /// The object for the member.
    pub manifest: Value,
    /// Whether nothing is to be created or updated in the member for now.
    pub suspend_dispatching: bool,
    /// Whether the object stays in the member when the Work goes.
    pub preserve_resources_on_deletion: bool,
    /// Labels of the manifest that are the state of an application that moved.
    pub preserved: Pairs,
}

impl Rendered {
    /// Returns the spec of the Work. The manifest carries the Work's permanent id once it has one.
    pub fn spec(&self, permanent_id: Option<&str>) -> Value {
        let mut manifest = self.manifest.clone();
        if let Some(id) = permanent_id {
            manifest["metadata"]["labels"][label::WORK_ID] = json!(id);
        }
        record_managed_keys(&mut manifest);
        json!({
            "workload": { "manifests": [manifest] },
            "suspendDispatching": self.suspend_dispatching,
            "preserveResourcesOnDeletion": self.preserve_resources_on_deletion,
        })
    }
}

/// The clusters that a binding has Works in and those it gets them from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Clusters whose Works are made and updated.
    pub targets: Vec<TargetCluster>,
    /// Clusters where a Work may be: the targets, and those being left gracefully. A Work elsewhere
    /// is an orphan.
    pub expected: BTreeSet<String>,
    /// Clusters that must be empty before anything is made elsewhere (purge mode Directly). One
    /// that was chosen again is none of them: nothing removes what it has.
    pub purged_first: BTreeSet<String>,
}

impl Scope {
    /// Returns the clusters of a binding: its targets, and those in which its Works are expected.
    ///
    /// A cluster that is being left gracefully is expected, so that its Work stays, and is no
    /// target, so that the Work stays as it is: the old copy runs unchanged until the task is done.
    pub fn of(spec: &ResourceBindingSpec) -> Self {
        let mut targets = spec.clusters.clone();
        for cluster in spec
            .required_by
            .iter()
            .flat_map(|snapshot| &snapshot.clusters)
        {
            if !targets.iter().any(|target| target.name == cluster.name) {
                targets.push(cluster.clone());
            }
        }
        let mut expected: BTreeSet<String> =
            targets.iter().map(|target| target.name.clone()).collect();
        let is_target = |cluster: &str| targets.iter().any(|target| target.name == cluster);
        let mut purged_first = BTreeSet::new();
        for task in &spec.graceful_eviction_tasks {
            // With no cluster chosen yet, which is how another scheduler finds it, nothing would be
            // left in the meantime.
            let directly = !spec.clusters.is_empty() && goes_first(spec, task);
            if !directly {
                expected.insert(task.from_cluster.clone());
            } else if !is_target(&task.from_cluster) {
                purged_first.insert(task.from_cluster.clone());
            }
        }
        Self {
            targets,
            expected,
            purged_first,
        }
    }
}

/// Returns whether a Work of a binding may be in a cluster. This is what [`Scope::expected`] says
/// of one cluster, without making the lists.
pub fn expects(spec: &ResourceBindingSpec, cluster: &str) -> bool {
    let among = |clusters: &[TargetCluster]| clusters.iter().any(|target| target.name == cluster);
    among(&spec.clusters)
        || spec
            .required_by
            .iter()
            .any(|snapshot| among(&snapshot.clusters))
        || spec.graceful_eviction_tasks.iter().any(|task| {
            task.from_cluster == cluster && (spec.clusters.is_empty() || !goes_first(spec, task))
        })
}

/// Returns whether the copy that a task is about is removed before new ones are made: with purge
/// mode Directly, and where two copies must not run.
fn goes_first(spec: &ResourceBindingSpec, task: &GracefulEvictionTask) -> bool {
    match task.purge_mode.as_ref().map(PurgeMode::canonical) {
        Some(PurgeMode::Directly) => true,
        Some(PurgeMode::Never) => false,
        _ => !task.is_kept() && fencing::runs_alone(spec),
    }
}

/// Renders the Works for the targets of a binding, in their order. `inject` carries state preserved
/// by an application failover into the new copy (gate StatefulFailoverInjection). `held` are
/// the completions of the Jobs that clusters have already. `overriding` changes the manifest for a
/// cluster and returns annotations of the Work. Where it fails, or an interpreter gives no answer,
/// that cluster alone has no Work among the results.
pub fn render<E: From<muster_interpreter::Error>>(
    origin: &Origin,
    spec: &ResourceBindingSpec,
    template: &Value,
    inject: bool,
    interpreters: &Interpreters,
    held: &BTreeMap<&str, u64>,
    overriding: impl Fn(&mut Value, &str) -> Result<Pairs, E>,
) -> Vec<Result<Rendered, E>> {
    let targets = Scope::of(spec).targets;
    let mut base = template.clone();
    prune_server_fields(&mut base);
    let completions = divided_completions(spec, template, &targets, held);
    // The labels that a failover saved are for the one copy that replaces the lost one.
    let is_undivided = spec.is_undivided();
    let mut copies = targets.iter().filter(|it| is_undivided || spec.is_copy(it));
    let only = copies.next().filter(|_| inject && copies.next().is_none());
    let given = only.and_then(|it| Some((&*it.name, spec.state_given(&it.name)?)));
    let text = |key: &str| template["metadata"][key].as_str().unwrap_or_default();
    let kind = template["kind"].as_str().unwrap_or_default();
    let name = names::work(kind, text("name"), text("namespace"));
    let rendered = targets.iter().enumerate().map(|(at, target)| {
        let mut manifest = base.clone();
        let state = given.filter(|(name, _)| *name == target.name);
        let state = state.map(|(_, state)| state);
        // Components are never revised: such a target has no replicas of its own.
        let has_components = !spec.components.is_empty() || !target.components.is_empty();
        let is_revised = spec.is_workload() && !has_components;
        if is_revised && interpreters.has_for(template, Operation::ReviseReplica) {
            manifest = interpreters.revise_replica(manifest, target.replicas)?;
        }
        if let Some(share) = completions.as_ref().and_then(|shares| shares.get(at)) {
            manifest["spec"]["completions"] = json!(share);
        }
        let mut annotations = origin.annotations();
        annotations.extend(overriding(&mut manifest, &target.name)?);
        // Fields that the fleet API filled in go after the overrides: one that changes or removes
        // such a field would fail without it.
        prune(&mut manifest);
        drop_blank(&mut manifest);
        keep_when_finished(&mut manifest);
        let conflict = conflict_resolution(spec, &manifest);
        let namespace = names::execution_namespace(&target.name);
        let work = (&*namespace, &*name);
        stamp(&mut manifest, origin, template, work, conflict, state);
        // The orders that stop a copy are the difference to this manifest.
        if let Some(orders) = fencing::orders(spec, &manifest, &interpreters.exact())? {
            orders.write(&mut manifest);
        }
        annotations.insert(
            annotation::CONFLICT_RESOLUTION.to_owned(),
            conflict.to_owned(),
        );
        Ok(Rendered {
            suspend_dispatching: spec.dispatching_suspended_in(&target.name),
            preserve_resources_on_deletion: spec.is_preserved_on_deletion(),
            namespace,
            name: name.clone(),
            labels: origin.labels(),
            annotations,
            manifest,
            preserved: state.cloned().unwrap_or_default(),
        })
    });
    rendered.collect()
}

/// Renders without override policies.
#[cfg(test)]
pub fn render_plain(
    origin: &Origin,
    spec: &ResourceBindingSpec,
    template: &Value,
    inject: bool,
) -> Result<Vec<Rendered>, muster_interpreter::Error> {
    let unchanged = |_: &mut Value, _: &str| Ok(Pairs::new());
    let interpreters = Interpreters::default();
    let works = render(
        origin,
        spec,
        template,
        inject,
        &interpreters,
        &BTreeMap::new(),
        unchanged,
    );
    works.into_iter().collect()
}

/// Fields that let a member delete what is finished, beside that of Jobs: API versions, kinds,
/// parent and name.
///
/// That of a `SparkApplication` is not among them: its operator starts one anew whose spec changes.
const LIFETIMES: [(&[&str], &[&str], &str, &str); 5] = [
    (
        &KRUISE,
        &["BroadcastJob", "ImageListPullJob", "ImagePullJob"],
        "/spec/completionPolicy",
        TTL,
    ),
    (&KRUISE, &["ContainerRecreateRequest"], "/spec", TTL),
    (
        &["argoproj.io/v1alpha1"],
        &["AnalysisRun", "Workflow"],
        "/spec",
        "ttlStrategy",
    ),
    (&["jobset.x-k8s.io/v1alpha2"], &["JobSet"], "/spec", TTL),
    (&["kubeflow.org/v1"], &KUBEFLOW, "/spec/runPolicy", TTL),
];

/// API versions of Kruise.
const KRUISE: [&str; 2] = ["apps.kruise.io/v1alpha1", "apps.kruise.io/v1beta1"];

/// What the training operator runs.
const KUBEFLOW: [&str; 6] = [
    "JAXJob",
    "MPIJob",
    "PaddleJob",
    "PyTorchJob",
    "TFJob",
    "XGBoostJob",
];

const TTL: &str = "ttlSecondsAfterFinished";

/// Removes what lets the member delete a finished task on its own: the agent would make it again,
/// and it would run again (Karmada: only that of Jobs).
fn keep_when_finished(manifest: &mut Value) {
    let (version, kind) = (&manifest["apiVersion"], &manifest["kind"]);
    let among = |all: &[&str], it: &Value| all.iter().any(|one| it == one);
    let named = LIFETIMES
        .iter()
        .find(|(versions, kinds, ..)| among(versions, version) && among(kinds, kind));
    let (parent, field) = match named {
        Some((.., parent, field)) => (*parent, *field),
        None if kind == "Job" => ("/spec", TTL),
        None => return,
    };
    if let Some(Value::Object(parent)) = manifest.pointer_mut(parent) {
        parent.remove(field);
    }
}

/// Writes labels and annotations by which the object in the member is recognised as ours.
/// `namespace` and `name` are those of its Work.
fn stamp(
    manifest: &mut Value,
    origin: &Origin,
    template: &Value,
    (namespace, name): (&str, &str),
    conflict: &str,
    state: Option<&Pairs>,
) {
    let mut labels = origin.labels();
    labels.insert(label::MANAGED.to_owned(), "true".to_owned());
    labels.extend(state.cloned().unwrap_or_default());
    let mut annotations = origin.annotations();
    let marks = [
        (annotation::WORK_NAMESPACE, namespace),
        (annotation::WORK_NAME, name),
        (annotation::CONFLICT_RESOLUTION, conflict),
    ];
    annotations.extend(marks.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if let Some(uid) = template["metadata"]["uid"].as_str() {
        annotations.insert(annotation::TEMPLATE_UID.to_owned(), uid.to_owned());
    }
    if let Some(generation) = template["metadata"]["generation"]
        .as_i64()
        .filter(|generation| *generation > 0)
    {
        annotations.insert(
            annotation::TEMPLATE_GENERATION.to_owned(),
            generation.to_string(),
        );
    }
    add(manifest, "labels", &labels);
    add(manifest, "annotations", &annotations);
}

/// Writes labels or annotations, which `field` says, beside those that a manifest has.
pub(super) fn add(manifest: &mut Value, field: &str, pairs: &Pairs) {
    let held = &mut manifest["metadata"][field];
    if !held.is_object() {
        *held = Value::Object(Map::new());
    }
    for (name, value) in pairs {
        held[name] = json!(value);
    }
}

/// Lists the keys that the fleet owns in the member's object, so that the agent can remove those
/// that the template drops.
fn record_managed_keys(manifest: &mut Value) {
    let keys = |pairs: &Value| {
        pairs
            .as_object()
            .map(|pairs| pairs.keys().cloned().collect::<BTreeSet<_>>())
            .unwrap_or_default()
    };
    let list = |keys: BTreeSet<String>| json!(keys.into_iter().collect::<Vec<_>>().join(","));
    let labels = keys(&manifest["metadata"]["labels"]);
    let mut annotations = keys(&manifest["metadata"]["annotations"]);
    annotations.extend([
        annotation::MANAGED_LABELS.to_owned(),
        annotation::MANAGED_ANNOTATIONS.to_owned(),
    ]);
    manifest["metadata"]["annotations"][annotation::MANAGED_LABELS] = list(labels);
    manifest["metadata"]["annotations"][annotation::MANAGED_ANNOTATIONS] = list(annotations);
}

/// Returns how conflicts are resolved. What the annotation of the template, or of an override for
/// the cluster, says goes before what the policy says.
fn conflict_resolution(spec: &ResourceBindingSpec, manifest: &Value) -> &'static str {
    match manifest["metadata"]["annotations"][annotation::CONFLICT_RESOLUTION].as_str() {
        Some("overwrite") => "overwrite",
        Some("abort") => "abort",
        _ if spec.conflict_resolution == Some(ConflictResolution::Overwrite) => "overwrite",
        _ => "abort",
    }
}

/// Returns the shares of a Job's completions, when the placement divides. An API server lets nobody
/// change those of a Job that is there: what these leave of all is divided among the others in
/// proportion to their replicas.
fn divided_completions(
    spec: &ResourceBindingSpec,
    template: &Value,
    targets: &[TargetCluster],
    held: &BTreeMap<&str, u64>,
) -> Option<Vec<u64>> {
    let all = to_divide(spec, template)?;
    let held = |target: &TargetCluster| held.get(&*target.name).copied();
    let held: Vec<Option<u64>> = targets.iter().map(held).collect();
    if template["spec"]["completionMode"] == "Indexed" {
        return Some(indexed_completions(all, targets, &held));
    }
    let rest = all.saturating_sub(held.iter().flatten().sum());
    // Of one that is made without replicas nobody has a share, and each takes a part all the same:
    // it keeps that when the Job is scaled.
    let has_shares = targets.iter().any(|it| it.replicas > 0);
    let votes = |target: &TargetCluster, held: &Option<u64>| match held {
        Some(_) => 0,
        None if !has_shares => 1,
        None => u64::try_from(target.replicas).unwrap_or(0),
    };
    let votes = targets.iter().zip(&held).map(|(it, held)| votes(it, held));
    let named = targets.iter().zip(votes);
    let parties: Vec<Party<'_>> = named
        .map(|(target, votes)| Party {
            name: &target.name,
            votes,
        })
        .collect();
    let uid = template["metadata"]["uid"].as_str().unwrap_or_default();
    let shares = webster(&parties, rest, TieBreak::for_uid(uid));
    let shares = held.iter().zip(shares);
    Some(shares.map(|(held, share)| held.unwrap_or(share)).collect())
}

/// Returns the shares of an Indexed Job's completions: one cluster has all, because each counts its
/// indexes from 0 (Karmada divides them). That is the one that has them already, which takes
/// another number of them together with as many pods at a time (KEP-3715), else the one with the
/// most replicas of those that have no such Job yet. Where several have some, nothing changes.
fn indexed_completions(all: u64, targets: &[TargetCluster], held: &[Option<u64>]) -> Vec<u64> {
    let holders = held.iter().filter(|it| **it > Some(0)).count();
    let places = || targets.iter().zip(held);
    let free = places().filter(|(_, held)| held.is_none());
    let most = free.map(|(target, _)| target.replicas).max();
    let has_all = |(target, held): (&TargetCluster, &Option<u64>)| match holders {
        0 => held.is_none() && Some(target.replicas) == most,
        // With another number of pods at a time, members refuse the whole update.
        1 => *held > Some(0) && u64::try_from(target.replicas) == Ok(all),
        _ => false,
    };
    let place = places().position(has_all);
    let share = |(at, held): (usize, &Option<u64>)| match place {
        Some(place) if place == at => all,
        _ => held.unwrap_or(0),
    };
    held.iter().enumerate().map(share).collect()
}

#[cfg(test)]
mod tests;
