//! Renders the Works of a binding for its targets before anything is written or removed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::core::ObjectMeta;
use muster_interpreter::Operation;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::events::EventType;
use muster_shared::names::label;
use muster_shared::queue::Next;
use serde_json::Value;

use super::about::{About, may_place};
use super::controller::Memory;
use super::error::{Error, fits, manifest_fits};
use super::namespaces;
use super::overriding;
use super::render::{Origin, Rendered, render};
use super::shrink::{self, Copy};
use super::state;
use super::write::is_leaving;
use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::completion::{held, undone};
use crate::fleet::copy::ready_replicas;
use crate::fleet::copy::retains_replicas;
use crate::fleet::labelled::Labelled as _;
use crate::fleet::selection::Subject;
use crate::fleet::template::{Template, TemplateKey};
use crate::fleet::template_event::Lookup;
use crate::fleet::works::{CachedWork, cluster_of, owner_id};
use crate::propagation::data::facts::Roles;
use crate::settings::STATEFUL_FAILOVER_INJECTION;

/// Time until a binding is tried again whose override policies cannot be listed.
const UNLISTED: Duration = Duration::from_secs(5);

/// Works of a binding for its targets, as far as they can be made.
pub(super) enum Prepared {
    /// Works to be written.
    Works {
        /// Works that could be rendered.
        rendered: Vec<Rendered>,
        /// Reasons why the other Works could not be rendered.
        refused: Vec<Error>,
        /// The clusters whose Works ask for more than their share, if there are any.
        keepers: Option<String>,
    },
    /// The binding has nothing to make.
    Nothing,
    /// The Works cannot be rendered yet.
    Later(Next),
}

/// Renders the Works of a binding for its targets.
pub(super) fn prepare(
    fleet: &Fleet,
    memory: &Memory,
    origin: &Origin,
    (binding, spec): (&AnyBinding, &ResourceBindingSpec),
    works: &[Arc<CachedWork>],
    roles: Option<&Roles>,
) -> Result<Prepared, Error> {
    let key = &origin.key;
    let template_key = TemplateKey::of(&spec.resource);
    if !may_place(key, &template_key) {
        let note = format!(
            "{template_key} is of another namespace: a binding places objects of its own namespace \
             only"
        );
        fleet.warn(binding, "SyncWorkFailed", note);
        return Ok(Prepared::Nothing);
    }
    let template = match fleet.templates.get(&template_key) {
        Lookup::Found(template) => template,
        // The binding follows it: garbage collection takes both.
        Lookup::Absent => return Ok(Prepared::Nothing),
        Lookup::Unknown => {
            let next = memory.parked.wait(&template_key.kind, key.clone());
            return Ok(Prepared::Later(next));
        }
    };
    if let Some(next) = not_yet(fleet, memory, key, binding, &template) {
        return Ok(Prepared::Later(next));
    }
    let subject = Subject::of(&template_key.kind, &template);
    let object = template.to_override(&template_key.kind);
    let inject = fleet.settings.gate(&STATEFUL_FAILOVER_INJECTION);
    let mut keepers = None;
    let completions = completions(fleet, works, &origin.id);
    report_undone(fleet, (binding, spec), &object, &completions);
    let rendered = fits(&object)
        .and_then(|()| overriding::policies(fleet, subject, &template, spec))
        .map_err(Error::Refused)
        .map(|policies| {
            let wide = policies.wide(subject);
            let all = (&policies, &*wide);
            let apply = |manifest: &mut _, cluster: &str| {
                let mut annotations = overriding::apply(fleet, all, subject, manifest, cluster)
                    .map_err(Error::Refused)?;
                annotations.extend(roles.and_then(|it| it.write(manifest, cluster)));
                manifest_fits(manifest, cluster).map_err(Error::Refused)?;
                Ok(annotations)
            };
            let interpreters = fleet.interpreters.accepting_late();
            let scales = retains_replicas(template.label(label::RETAIN_REPLICAS));
            let kept = kept(fleet, (binding, spec), works, scales);
            let is_divided = !spec.is_undivided();
            let divided = kept.as_ref().filter(|_| is_divided);
            keepers = divided.map(|kept| shrink::keepers(spec, kept));
            let spec = kept.as_ref().unwrap_or(spec);
            let held = &completions;
            let rendered = render(origin, spec, &object, inject, &interpreters, held, apply);
            if let Some(pending) = interpreters.late() {
                memory.parked.wakes(pending, key);
            }
            rendered
        });
    let fails = |error: &Error| fleet.warn(binding, "SyncWorkFailed", error.to_string());
    let rendered = match rendered {
        Ok(rendered) => rendered,
        Err(error) => {
            fails(&error);
            return Err(error);
        }
    };
    let of = rendered.len();
    let (mut rendered, mut refused) = parted(rendered);
    // The Works stay as they are about which a webhook has not answered, and the others go on.
    refused
        .retain(|error| !matches!(error, Error::Render(error) if memory.parked.waits(error, key)));
    if of > 0 && rendered.is_empty() && refused.is_empty() {
        return Ok(Prepared::Later(Next::Done));
    }
    let (uninterpreted, refused_by_policy): (Vec<&Error>, Vec<&Error>) = refused
        .iter()
        .partition(|error| matches!(error, Error::Render(_)));
    if let Some(error) = uninterpreted.first() {
        fails(error);
    }
    for error in refused_by_policy {
        report_refusal(fleet, binding, (&template_key, &*template), error);
    }
    for work in &mut rendered {
        let held = works.iter().find(|held| {
            held.metadata.namespace.as_ref() == Some(&work.namespace)
                && held.metadata.name.as_ref() == Some(&work.name)
        });
        state::keep(work, held.map(AsRef::as_ref));
        work.preserve_resources_on_deletion |= held.is_some_and(|held| namespaces::holds(held));
    }
    Ok(Prepared::Works {
        rendered,
        refused,
        keepers,
    })
}

/// Returns when to reconcile a binding again that is about to be written, or whose override
/// policies are not known: a Work that is made now would be written twice, or be wrong.
fn not_yet(
    fleet: &Fleet,
    memory: &Memory,
    key: &BindingKey,
    binding: &AnyBinding,
    template: &Template,
) -> Option<Next> {
    if let Some(pause) = outdated(fleet, memory, key, binding, template.metadata()) {
        return Some(Next::After(pause));
    }
    if !fleet.knows_overrides() {
        return Some(Next::After(UNLISTED));
    }
    // The detector is about to write the claim on the template. Claim and generation of the
    // template are part of the manifest.
    if Claim::on(&binding.metadata).is_some() && Claim::on(template).is_none() {
        return Some(Next::After(memory.waits.next(key).time));
    }
    if !is_about_to_scale(fleet, binding, template) {
        memory.scaling.forget(key);
        return None;
    }
    let wait = memory.scaling.next(key);
    if wait.is_worth_reporting {
        let note = "the binding does not say yet how many replicas each cluster gets: its works stay as they are until it does";
        fleet.warn(binding, "SyncWorkFailed", note);
    }
    Some(Next::After(wait.time))
}

/// Returns whether a binding of a workload without replicas was made of another state of its
/// template, so that it is about to say how many replicas each cluster gets: a policy is in charge
/// of it. Until then a Work would ask for all of them in each.
fn is_about_to_scale(fleet: &Fleet, binding: &AnyBinding, template: &Template) -> bool {
    let resource = &binding.spec.resource;
    let counts = || {
        let (version, kind) = (&resource.api_version, &resource.kind);
        let interpreters = &fleet.interpreters;
        interpreters.has(version, kind, Operation::InterpretReplica)
    };
    !binding.spec.is_workload()
        && Claim::on(&binding.metadata).is_some()
        && counts()
        && template.is_ahead_of(&binding.metadata)
}

/// Returns the completions of the Jobs that clusters have of a binding: nobody can change them.
fn completions<'a>(
    fleet: &Fleet,
    works: &'a [Arc<CachedWork>],
    id: &str,
) -> BTreeMap<&'a str, u64> {
    let stays = |it: &&Arc<CachedWork>| {
        it.completions.is_some() && owner_id(it) == Some(id) && !fleet.deleted_works.is_to_go(it)
    };
    held(works.iter().filter(stays).map(AsRef::as_ref))
}

/// Reports that a part of a divided Job runs nowhere: each cluster that it is placed in has a Job
/// of its own already, which takes no more completions.
fn report_undone(
    fleet: &Fleet,
    (binding, spec): (&AnyBinding, &ResourceBindingSpec),
    template: &Value,
    held: &BTreeMap<&str, u64>,
) {
    let Some((undone, all)) = undone(spec, template, held, &binding.status().aggregated_status)
    else {
        return;
    };
    let note = format!(
        "{undone} of {all} completions run in no cluster: a Job that is there takes no more of them; they run once it is placed in another \
         cluster, or is made anew"
    );
    let (reason, kind) = ("SyncWorkFailed", EventType::Warning);
    fleet.publish(binding, kind, reason, note);
}

/// Reports that an override policy cannot be applied for some clusters.
fn report_refusal(
    fleet: &Fleet,
    binding: &AnyBinding,
    (template_key, template): (&TemplateKey, &Template),
    error: &Error,
) {
    let key = BindingKey::of(binding);
    let (reason, note) = ("ApplyOverridePolicyFailed", error.to_string());
    tracing::warn!(binding = %key, error = note, "the works of some clusters stay as they are");
    fleet.warn(binding, reason, note.clone());
    fleet.warn_of_template(template_key, template, reason, note);
}

/// Returns the spec with the replicas that each Work is to have, where these differ from the
/// shares. With `members_scale` the members decide on the number of replicas, and nothing is kept.
fn kept(
    fleet: &Fleet,
    (binding, spec): (&AnyBinding, &ResourceBindingSpec),
    works: &[Arc<CachedWork>],
    members_scale: bool,
) -> Option<ResourceBindingSpec> {
    if spec.replicas <= 0 || members_scale {
        return None;
    }
    let targets = spec.clusters.iter();
    let shares: HashMap<&str, i64> = targets
        .map(|it| (&*it.name, i64::from(it.replicas)))
        .collect();
    // To read what the Works report is dear, and mostly none of them asks for more than its share.
    let shrinks = |work: &Arc<CachedWork>| {
        let share = cluster_of(work).and_then(|cluster| shares.get(cluster));
        share.is_some_and(|share| {
            is_released(spec, work) || work.replicas.is_none_or(|given| given > *share)
        })
    };
    if !works.iter().any(shrinks) {
        return None;
    }
    let copies = works
        .iter()
        .filter_map(|it| Some((cluster_of(it)?, copy(fleet, spec, it))));
    let copies: HashMap<&str, Copy> = copies.collect();
    let reports = &binding.status().aggregated_status;
    let taken = |it: &TargetCluster| {
        let given = fleet.override_lookup.given(spec, &it.name, it.replicas);
        it.replicas.saturating_sub(given)
    };
    shrink::kept(spec, reports, taken, |cluster| copies.get(cluster).copied())
}

/// Returns what a Work says of its copy.
fn copy(fleet: &Fleet, spec: &ResourceBindingSpec, work: &CachedWork) -> Copy {
    let status = work.status();
    let mut manifests = status.manifest_statuses.iter();
    let namespace = work.metadata.namespace.as_deref().unwrap_or_default();
    let ready = manifests.find_map(|it| ready_replicas(&it.status.as_ref()?.0));
    let ready = ready.unwrap_or(0);
    // What a Work said while its dispatching was suspended has taken nothing from the copy yet.
    let is_released = is_released(spec, work);
    let runs = |given: i64| if is_released { given.max(ready) } else { given };
    Copy {
        given: work.replicas.map(runs),
        ready,
        stays: !fleet.deleted_works.is_to_go(work) && !is_leaving(fleet, namespace),
    }
}

/// Returns whether the suspension of a Work ends with the next write.
fn is_released(spec: &ResourceBindingSpec, work: &CachedWork) -> bool {
    let is_suspended = |cluster: &str| spec.dispatching_suspended_in(cluster);
    work.suspend_dispatching == Some(true) && !cluster_of(work).is_some_and(is_suspended)
}

/// Parts the Works that were rendered from the reasons why others were not.
fn parted(all: Vec<Result<Rendered, Error>>) -> (Vec<Rendered>, Vec<Error>) {
    let (mut rendered, mut refused) = (Vec::new(), Vec::new());
    for one in all {
        match one {
            Ok(work) => rendered.push(work),
            Err(error) => refused.push(error),
        }
    }
    (rendered, refused)
}

/// Returns how long to wait for a binding that is about a former object: until garbage collection
/// has removed it, or the detector has brought it up to date. A binding that nobody removes and
/// nobody brings up to date within seconds is not waited for: its Works follow the name.
fn outdated(
    fleet: &Fleet,
    memory: &Memory,
    key: &BindingKey,
    binding: &AnyBinding,
    template: &ObjectMeta,
) -> Option<Duration> {
    let about = About::of(binding, template);
    if about == About::Template {
        memory.outdated.forget(key);
        return None;
    }
    let wait = memory.outdated.next(key);
    if about == About::Recorded && wait.is_long {
        return None;
    }
    if wait.is_worth_reporting {
        let resource = &binding.spec.resource;
        let note = format!(
            "the binding belongs to a former {} {} with another uid: the present one is not carried out before garbage collection has \
             removed the binding",
            resource.kind, resource.name
        );
        fleet.warn(binding, "SyncWorkFailed", note);
    }
    Some(wait.time)
}
