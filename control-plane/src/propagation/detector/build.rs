//! Builds the binding of a template from its policy.

use std::sync::Arc;

use kube::core::ObjectMeta;
use muster_interpreter::{Interpreters, Replicas};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{
    Component, ResourceBindingSpec, SchedulePriority, TargetCluster,
};
use muster_shared::api::policy::PropagationSpec;
use muster_shared::api::scope::ResourceScope;
use muster_shared::finalizers;
use muster_shared::merge;
use muster_shared::names::{self, annotation};
use serde_json::{Value, json};

use super::identity::{Owner, owner, sound_name};
use crate::fleet::claim::{Claim, Pairs};
use crate::fleet::labelled::Labelled as _;
use crate::fleet::protection::protect;
use crate::fleet::template::{TEMPLATE_FINGERPRINT, Template, TemplateKey, recorded_fingerprint};
use crate::scheduler::core::outcome::Placed;

/// Longest name of a component, by the schema of bindings.
const LONGEST_COMPONENT: usize = 32;

/// Reason why a binding cannot be built or must not be changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The template cannot be interpreted.
    #[error("interpret the template: {0}")]
    Interpret(#[from] muster_interpreter::Error),
    /// The binding is another object's, or an earlier one's of the same name.
    #[error("{0}")]
    Held(String),
    /// The name of a component, or of the binding or Work, cannot be stored.
    #[error("{0}")]
    Name(String),
}

impl Error {
    /// Returns the error about the name of a binding or Work that no API server takes.
    pub fn unsound(name: &str) -> Self {
        Self::Name(format!(
            "its binding or Work would be named {name:?}, which is no valid name: rename the template (lower-case letters, digits, \
             `-` and `.`, so that the name made of it has 253 characters at most)"
        ))
    }

    /// Returns why a binding of a template's name is not its own, `None` when it is.
    pub fn foreign(held: &AnyBinding, template: &TemplateKey, uid: Option<&str>) -> Option<Self> {
        let binding = held.metadata.name.clone().unwrap_or_default();
        match owner(held, template, uid) {
            Owner::Template => None,
            Owner::Former { uid } => Some(Self::Held(format!(
                "binding {binding:?} belongs to a former {} with uid {uid}; waiting until garbage collection has removed it",
                template.kind.kind
            ))),
            Owner::Other(of) => Some(Self::Held(format!(
                "binding {binding:?} belongs to {} {} of {}: the name of a binding is made of kind and name alone, without the API group, \
                 in lower case and with `.` for `:`, so one of the two has to be renamed to be propagated",
                of.kind, of.name, of.api_version
            ))),
        }
    }
}

/// A binding as template and policy want it. Cluster-scoped templates have a
/// `ClusterResourceBinding`.
#[derive(Debug)]
pub struct Wanted<'a> {
    template: &'a TemplateKey,
    metadata: &'a ObjectMeta,
    name: String,
    fingerprint: String,
    claim: &'a Claim,
    policy: &'a PropagationSpec,
    replicas: Option<Replicas>,
    components: Vec<Component>,
    schedule_priority: Option<i32>,
}

/// Refuses components that a binding cannot hold, or that cannot be distinguished.
fn check_names(components: &[Component]) -> Result<(), Error> {
    let is_bad = |(at, one): (usize, &Component)| {
        let before = &components[..at];
        let fits = (1..=LONGEST_COMPONENT).contains(&one.name.chars().count());
        !fits || before.iter().any(|other| other.name == one.name)
    };
    let bad = components.iter().enumerate().find(|it| is_bad(*it));
    bad.map_or(Ok(()), |(_, one)| {
        let name = &one.name;
        Err(Error::Name(format!(
            "its component {name:?} has a name that is empty, longer than {LONGEST_COMPONENT} characters, or another component's"
        )))
    })
}

impl<'a> Wanted<'a> {
    /// Reads the template by its policy. `schedule_priority` is the value of the priority class
    /// that the policy names; `by_components` says whether the pods of a workload are counted in
    /// components, where its kind has a rule for them (gate MultiplePodTemplatesScheduling).
    pub fn new(
        key: &'a TemplateKey,
        template: &'a Template,
        claim: &'a Claim,
        policy: &'a PropagationSpec,
        schedule_priority: Option<i32>,
        (interpreters, by_components): (&Interpreters, bool),
    ) -> Result<Self, Error> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let name = sound_name(&key.kind.kind, namespace, &key.name)
            .map_err(|name| Error::unsound(&name))?;
        let object = template.object(&key.kind);
        let components = if by_components {
            interpreters.components(&object)?.unwrap_or_default()
        } else {
            Vec::new()
        };
        // Either the one or the other, as in Karmada. A rule that finds no components leaves the
        // replicas to count.
        let replicas = if components.is_empty() {
            interpreters.replicas(&object)?
        } else {
            None
        };
        check_names(&components)?;
        Ok(Self {
            template: key,
            metadata: template.metadata(),
            name,
            fingerprint: template.fingerprint(),
            claim,
            policy,
            replicas,
            components,
            schedule_priority,
        })
    }

    /// Returns the binding's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the template has replicas.
    pub fn counts_replicas(&self) -> bool {
        self.replicas.is_some()
    }

    /// Returns the whole binding, for the case that it does not exist yet.
    ///
    /// `held` are the clusters that have copies by a former binding of its name: the scheduler
    /// moves them like others. Without any, `place` decides where it goes, if that can be decided
    /// now.
    ///
    /// # Errors
    /// Where the template has metadata that a binding cannot have.
    pub fn create(
        &self,
        held: Vec<TargetCluster>,
        place: impl FnOnce(&ResourceBindingSpec) -> Option<Placed>,
    ) -> Result<AnyBinding, serde_json::Error> {
        let mut spec = ResourceBindingSpec::default();
        self.apply(&mut spec);
        let is_new = held.is_empty();
        spec.clusters = held;
        let mut annotations = self.claim.annotations();
        if is_new && let Some(placed) = place(&spec) {
            spec.clusters = placed.clusters;
            annotations.insert(
                annotation::APPLIED_PLACEMENT.to_owned(),
                placed.applied_placement,
            );
        }
        let template = (self.template, self.metadata);
        let pairs = (self.claim.labels(), annotations);
        let metadata = metadata(template, self.name(), &self.fingerprint, pairs);
        let mut binding = AnyBinding::default();
        binding.metadata = serde_json::from_value(metadata)?;
        binding.spec = spec;
        Ok(binding)
    }

    /// Returns the merge patch that brings an existing binding in line, `None` when it is in line
    /// already.
    ///
    /// What others decide (clusters, eviction tasks, referrers, rescheduling, status) is not
    /// touched. A template whose version alone differs is no change, unless its fingerprint is
    /// another than the binding records: every write of a template's status makes a new version.
    /// `changed` is what a binding that records none is taken for: those from before are not all
    /// written at once. The patch holds for the version of the binding that was read: it was
    /// decided upon that one.
    pub fn patch(&self, binding: &AnyBinding, changed: bool) -> Result<Option<Value>, Error> {
        if let Some(foreign) = Error::foreign(binding, self.template, self.metadata.uid.as_deref())
        {
            return Err(foreign);
        }
        let mut patch = json!({});
        let (mut held, mut spec) = (binding.spec.clone(), binding.spec.clone());
        self.apply(&mut spec);
        if held.placement == spec.placement {
            (held.placement, spec.placement) = (None, None);
        }
        let differs = merge::difference(&json!(held), &json!(spec));
        let version_alone = |difference: &Value| {
            difference["resource"]
                .as_object()
                .is_some_and(|resource| resource.keys().eq(["resourceVersion"]))
                && difference
                    .as_object()
                    .is_some_and(|difference| difference.len() == 1)
        };
        let recorded = recorded_fingerprint(&binding.metadata);
        let changed = recorded.map_or(changed, |recorded| recorded != self.fingerprint);
        if let Some(difference) = differs.filter(|it| changed || !version_alone(it)) {
            patch["spec"] = difference;
        }
        let metadata = self.metadata_patch(&binding.metadata);
        if metadata != json!({}) {
            patch["metadata"] = metadata;
        }
        if changed {
            patch["metadata"]["annotations"][TEMPLATE_FINGERPRINT] = json!(self.fingerprint);
        }
        if patch == json!({}) {
            return Ok(None);
        }
        patch["metadata"]["resourceVersion"] = json!(binding.metadata.resource_version);
        Ok(Some(patch))
    }

    fn metadata_patch(&self, held: &ObjectMeta) -> Value {
        let mut metadata = self.claim.patch(held).unwrap_or_else(|| json!({}));
        let id_label = self.scope().binding_id_label();
        if held.label(id_label).is_none() {
            metadata["labels"][id_label] = json!(self.uid());
        }
        if let Some(all) = finalizers::with(held, self.scope().binding_finalizer()) {
            metadata["finalizers"] = json!(all);
        }
        let owners = json!([self.template.owner(self.metadata)]);
        if json!(held.owner_references) != owners {
            metadata["ownerReferences"] = owners;
        }
        metadata
    }

    /// Sets what the detector decides in a binding's spec.
    fn apply(&self, spec: &mut ResourceBindingSpec) {
        let policy = self.policy;
        spec.resource = self.template.resource(self.metadata);
        let (replicas, requirements) = match &self.replicas {
            Some(found) => (found.replicas, found.requirements.clone()),
            None => (0, None),
        };
        spec.replicas = replicas;
        spec.replica_requirements = requirements.map(Arc::new);
        spec.components.clone_from(&self.components);
        spec.propagate_deps = policy.propagate_deps;
        spec.scheduler_name = Some(
            policy
                .scheduler_name
                .clone()
                .unwrap_or_else(|| names::DEFAULT_SCHEDULER.to_owned()),
        );
        // A placement may name thousands of clusters, and mostly it is the one that is there.
        if spec.placement.as_deref() != Some(&policy.placement) {
            spec.placement = Some(Arc::new(policy.placement.clone()));
        }
        spec.schedule_priority = self
            .schedule_priority
            .map(|priority| SchedulePriority { priority });
        protect(spec, policy);
    }

    fn uid(&self) -> String {
        self.metadata.uid.clone().unwrap_or_default()
    }

    fn scope(&self) -> ResourceScope {
        ResourceScope::of(self.template.namespace.as_deref())
    }
}

/// Returns the metadata of a binding that does not exist yet, with these labels and annotations of
/// its own.
///
/// Its permanent id is the uid of the template: unique, known before the binding exists, and kept
/// as a label from then on. Karmada's admission leaves an id alone that is there.
pub fn metadata(
    (key, template): (&TemplateKey, &ObjectMeta),
    name: &str,
    fingerprint: &str,
    (mut labels, mut annotations): (Pairs, Pairs),
) -> Value {
    let scope = ResourceScope::of(key.namespace.as_deref());
    let uid = template.uid.clone().unwrap_or_default();
    labels.insert(scope.binding_id_label().to_owned(), uid);
    annotations.insert(TEMPLATE_FINGERPRINT.to_owned(), fingerprint.to_owned());
    let mut metadata = json!({
        "name": name,
        "labels": labels,
        "annotations": annotations,
        "finalizers": [scope.binding_finalizer()],
        "ownerReferences": [key.owner(template)],
    });
    if let Some(namespace) = &key.namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

/// Returns whether two states of a binding differ in something that the detector writes.
pub fn is_written_anew(old: &AnyBinding, new: &AnyBinding) -> bool {
    let (was, is) = (&old.metadata, &new.metadata);
    let is_marked_anew = was.labels != is.labels
        || was.finalizers != is.finalizers
        || was.owner_references != is.owner_references
        || recorded_fingerprint(was) != recorded_fingerprint(is)
        || Claim::on(was) != Claim::on(is);
    // A write of the status alone leaves the generation.
    let may_differ = was.generation.is_none() || was.generation != is.generation;
    is_marked_anew || may_differ && differs(&old.spec, &new.spec)
}

/// Returns whether two specs differ in something that the detector writes.
fn differs(old: &ResourceBindingSpec, new: &ResourceBindingSpec) -> bool {
    let new = ResourceBindingSpec {
        clusters: old.clusters.clone(),
        graceful_eviction_tasks: old.graceful_eviction_tasks.clone(),
        required_by: old.required_by.clone(),
        reschedule_triggered_at: old.reschedule_triggered_at.clone(),
        workload_affinity_groups: old.workload_affinity_groups.clone(),
        ..new.clone()
    };
    *old != new
}

#[cfg(test)]
mod tests;
