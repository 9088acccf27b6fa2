//! Reconciles the status of a binding and of its template from the binding's Works.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{
    AggregatedStatusItem, ObjectReference, ResourceBindingSpec, ResourceHealth,
};
use muster_shared::api::cluster::Cluster;
use muster_shared::client;
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::k8s::{Condition, RawExtension};
use muster_shared::names;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Expectations, Informer};

use super::aggregate::{Applied, fully_applied, items, patch};
use super::applied;
use super::places::Places;
use super::reflect::{Shown, is_reported, reflect, report_failure, with_silent};
use super::silence::{self, Silence, Silent};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::{BindingKey, event_reference};
use crate::fleet::completion::says_completed;
use crate::fleet::fencing;
use crate::fleet::fencing::fenced_condition::{self, Copy};
use crate::fleet::last_patches::LastPatches;
use crate::fleet::memory::Backoff;
use crate::fleet::parked::Parked;
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::TemplateEvent;
use crate::fleet::works::CachedWork;
use crate::fleet::works::{binding_of, cluster_of, owner_id};
use crate::fleet::write::Written;
use crate::propagation::binding::render::Scope;

/// Reports of several clusters about one binding come in bunches; one write says them all.
const GATHERING: Duration = Duration::from_millis(100);

/// First and longest pause between attempts to write a status that the API does not serve.
const UNSERVED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(10));

/// The step that an error names.
pub(super) const STEP: &str = "write the status of";

/// Reason why a status could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("aggregate the status: {0}")]
    Aggregate(#[from] muster_interpreter::Error),
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl Error {
    /// Returns whether trying again does not help until somebody changes something, so that
    /// that has to be reported.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Aggregate(_) => true,
            Self::Api(error) => error.is_lasting(),
        }
    }

    /// Returns whether the API answers as one that does not serve the status: for a while, as one
    /// that has just started, or always, as an aggregated one whose kind has none.
    fn is_unserved(&self) -> bool {
        matches!(self, Self::Api(error) if client::is_not_found(&error.source))
    }
}

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    fleet.follow_templates();
    let workers = fleet.settings.concurrent_work_syncs;
    let queue = Queue::new("binding status");
    let written = Arc::new(Expectations::default());
    let memory = Arc::new(Memory {
        parked: Parked::new(&fleet.templates, &queue),
        written: Arc::clone(&written),
        shown: Expectations::default(),
        patches: LastPatches::default(),
        unserved: Backoff::between(UNSERVED.0, UNSERVED.1),
        places: Places::of(workers),
    });
    Controller::with(fleet, "binding status", &queue)
        .gathers(GATHERING, &fleet.bindings, move |_, change| {
            judged_anew(&written, change)
        })
        .watches(&*fleet.interpreters, Fleet::interpreted_anew)
        .gathers(GATHERING, &fleet.works, |_, change| {
            let is_update = change.differs(|old, new| {
                !new.reports_as(old)
                    || owner_id(new) != owner_id(old)
                    || old.metadata.deletion_timestamp.is_some()
                        != new.metadata.deletion_timestamp.is_some()
            });
            binding_of(change.object()).filter(|_| is_update)
        })
        .gathers(GATHERING, &fleet.templates, |fleet, change| {
            let concerns_us = match change.event {
                // A claim on a template, or its end, is a new generation of many kinds, which the
                // status has to have observed.
                TemplateEvent::Marked => true,
                // The list before may have lacked it. Whoever needs the first list waits for it.
                TemplateEvent::Appeared => fleet.templates.is_known(&change.key.kind),
                // A change or the end of a template changes its binding as well.
                TemplateEvent::Changed | TemplateEvent::Gone => false,
            };
            concerns_us.then(|| BindingKey::for_template(&change.key))
        })
        .gathers(GATHERING, &fleet.clusters, silenced)
        .run(tasks, workers, memory, |fleet, memory, key| async move {
            reconcile(&fleet, &memory, &key).await
        });
}

/// Returns the bindings with Works in a cluster that has fallen silent or reports again.
fn silenced(fleet: &Fleet, change: &Change<Cluster>) -> Vec<BindingKey> {
    let (old, new) = change.sides();
    if old.and_then(Silence::of) == new.and_then(Silence::of) {
        return Vec::new();
    }
    let namespace = names::execution_namespace(&change.object().name_any());
    let works = fleet.works.iter_of(Some(&namespace));
    works.filter_map(|work| binding_of(&work)).collect()
}

/// Returns the silent ones of the clusters that hold Works of a binding.
fn silent(clusters: &Informer<Cluster>, items: &[AggregatedStatusItem]) -> Silent {
    let names = items.iter().map(|item| &item.cluster_name);
    names
        .filter_map(|name| {
            let silence = Silence::of(clusters.get(None, name)?.as_ref())?;
            Some((name.clone(), silence))
        })
        .collect()
}

/// Returns a binding that has to be judged anew: its clusters have changed, it was scheduled for
/// the first time, somebody else wrote what the clusters report, or the cache showed nothing new of
/// it for long.
fn judged_anew(
    written: &Expectations<BindingKey>,
    change: &Change<AnyBinding>,
) -> Option<BindingKey> {
    let key = BindingKey::of(change.object());
    match change {
        Change::Applied { old, new } => {
            let is_ours = written.is_last_write(&key, &new.metadata);
            written.observe(&key, &new.metadata);
            let is_scheduled =
                |binding: &AnyBinding| binding.status().last_scheduled_time.is_some();
            let seen = |old: &Arc<AnyBinding>| {
                old.metadata.generation == new.metadata.generation
                    && is_scheduled(old) == is_scheduled(new)
                    && (is_ours || old.status().aggregated_status == new.status().aggregated_status)
            };
            (!old.as_ref().is_some_and(seen)).then_some(key)
        }
        // A binding that is gone is forgotten.
        Change::Deleted { .. } => {
            written.forget(&key);
            Some(key)
        }
    }
}

/// What the controller remembers. May be lost.
pub(super) struct Memory {
    pub(super) parked: Parked<BindingKey>,
    /// Bindings that were written and that the cache does not show yet.
    written: Arc<Expectations<BindingKey>>,
    /// Templates whose status was written and whose cache does not show it yet, by their bindings.
    pub(super) shown: Expectations<BindingKey>,
    /// The last patch of the status of each binding's template.
    pub(super) patches: LastPatches<BindingKey>,
    /// Bindings of templates whose status the API does not serve.
    pub(super) unserved: Backoff<BindingKey>,
    /// Number of templates of each kind that may be written at a time.
    pub(super) places: Places,
}

async fn reconcile(fleet: &Fleet, memory: &Memory, key: &BindingKey) -> Result<Next, Error> {
    let client = fleet.status_writer.when_idle().await;
    let Some(binding) = fleet.bindings.get(key) else {
        memory.patches.forget(key);
        memory.unserved.forget(key);
        memory.shown.forget(key);
        memory.parked.leave(key);
        return Ok(Next::Done);
    };
    if binding.metadata.deletion_timestamp.is_some() || binding.permanent_id().is_none() {
        return Ok(Next::Done);
    }
    // A report that is as the one before the last write would not be written.
    if let Some(pause) = memory.written.pause(key, &binding.metadata) {
        return Ok(Next::After(pause));
    }
    let (spec, status) = (&binding.spec, binding.status());
    let mut works = fleet.work_index.of(key);
    works.retain(|work| is_made_for(work, binding.permanent_id()));
    let Scope {
        expected, targets, ..
    } = Scope::of(spec);
    let is_target = |name: &String| targets.iter().any(|target| target.name == *name);
    let mut kept: BTreeSet<String> = BTreeSet::new();
    if !targets.is_empty() {
        kept.extend(expected.iter().filter(|it| !is_target(it)).cloned());
    }
    let taken = taken(fleet, key, &spec.resource, &expected, &works);
    let reported = |work: &Arc<CachedWork>| work.is_reported();
    // What is to have no replicas has no clusters, and is as it should be.
    let is_scheduled = status.last_scheduled_time.is_some();
    let is_for_none = is_scheduled && spec.is_scaled_to_zero();
    let has_reports = !status.aggregated_status.is_empty() || works.iter().any(reported);
    let template = TemplateKey::of(&spec.resource);
    let shown = Shown {
        items: &[],
        kept: &kept,
        spec,
        works: &works,
    };
    let uid = spec.resource.uid.as_deref();
    if !has_reports && taken.is_empty() && !(is_for_none && spec.clusters.is_empty()) {
        // No agent has said anything yet: there is nothing to judge, and a write less while a fleet
        // is being filled. What the template says of copies that are gone must not stay.
        if !is_scheduled || is_reported(fleet, &template) == Some(false) {
            return Ok(Next::Done);
        }
        let items = &with_silent(&expected, &[]);
        let shown = Shown { items, ..shown };
        let outcome = reflect(fleet, &client, memory, key, (&template, uid), shown).await;
        return report_outcome(fleet, memory, binding.as_ref(), &template, outcome);
    }
    let mut items = items(works.iter().map(AsRef::as_ref), &spec.resource, taken);
    let silent = silent_of(fleet, spec, &items);
    let is_nowhere = expected.is_empty() && items.is_empty();
    let applied = match fully_applied(&expected, &items) {
        true if silent.is_empty() => Applied::Fully,
        false if is_nowhere && is_for_none => Applied::Fully,
        true => Applied::Silent(silence::all_silent(&silent)),
        false => Applied::NotFully,
    };
    silence::mark(&mut items, &silent);
    let version = binding.metadata.resource_version.as_deref();
    let fenced = fenced(fleet, spec, &status.conditions, &works);
    let unfenced = fenced.clone().filter(|said| {
        let known = conditions::get(&status.conditions, &said.type_);
        said.reason == fenced_condition::NOT_ALL
            && known.is_none_or(|known| known.message != said.message)
    });
    if let Some(patch) = patch(status, version, &items, &applied, fenced, fleet.clock.now()) {
        if !fleet.leadership.is_current() {
            return Ok(Next::Done);
        }
        match key.merge_status(&client, STEP, &patch).await? {
            Written::Done(after) => {
                let written = &memory.written;
                written.written(key.clone(), &binding.metadata, &after.metadata, ());
                if let Some(Condition {
                    reason, message, ..
                }) = unfenced
                {
                    fleet.publish(&binding, EventType::Warning, &reason, message);
                }
                let heard: Vec<_> = items
                    .iter()
                    .filter(|item| !silent.contains_key(&item.cluster_name))
                    .cloned()
                    .collect();
                let full = applied == Applied::Fully;
                if let Some((kind, reason, note)) = applied::reported(status, &heard, full) {
                    let template = event_reference(&spec.resource);
                    fleet.events.publish_about(template, kind, reason, note);
                }
            }
            late => return Ok(late.next()),
        }
    }
    let counted = silence::counted(&items, &silent);
    let items = &with_silent(&expected, &counted);
    let shown = Shown { items, ..shown };
    let outcome = reflect(fleet, &client, memory, key, (&template, uid), shown).await;
    report_outcome(fleet, memory, binding.as_ref(), &template, outcome)
}

/// Returns the silent clusters of a workload, of which the state of a copy is not known.
fn silent_of(fleet: &Fleet, spec: &ResourceBindingSpec, items: &[AggregatedStatusItem]) -> Silent {
    let mut silent = silent(&fleet.clusters, items);
    for item in items {
        let name = &item.cluster_name;
        if silent.contains_key(name) && leaves_nothing_open(spec, item) {
            silent.remove(name);
        }
    }
    silent
}

/// Returns whether the silence of a cluster leaves nothing open, as its last report says: the
/// workload has completed there, or is to have no replicas there
/// (`--enable-empty-workload-propagation`), and had none.
fn leaves_nothing_open(spec: &ResourceBindingSpec, item: &AggregatedStatusItem) -> bool {
    let Some(RawExtension(status)) = &item.status else {
        return false;
    };
    let cluster = &item.cluster_name;
    let runs_none = || item.applied && status["replicas"].as_i64().unwrap_or(0) == 0;
    let is_empty = || spec.target(cluster).is_some() && !spec.has_copy(cluster);
    says_completed(&spec.resource, status)
        || spec.resource.is_counted() && runs_none() && is_empty()
}

/// Returns the same outcome, and reports a failure that only a person can end. A status
/// that the API does not serve is written again after pauses that grow, and reported when they are
/// long.
fn report_outcome(
    fleet: &Fleet,
    memory: &Memory,
    binding: &AnyBinding,
    template: &TemplateKey,
    outcome: Result<Next, Error>,
) -> Result<Next, Error> {
    match &outcome {
        Err(error) if error.is_unserved() => {
            let wait = memory.unserved.next(&BindingKey::of(binding));
            if wait.is_worth_reporting {
                report_failure(fleet, binding, template, error);
            }
            return Ok(Next::After(wait.time));
        }
        Err(error) if error.is_lasting() => report_failure(fleet, binding, template, error),
        _ => {}
    }
    outcome
}

/// Returns the condition that says whether the copies would be stopped when their clusters are cut
/// off.
fn fenced(
    fleet: &Fleet,
    spec: &ResourceBindingSpec,
    before: &[Condition],
    works: &[Arc<CachedWork>],
) -> Option<Condition> {
    let is_asked = fencing::asked(spec).is_some();
    let reports: Vec<_> = works
        .iter()
        .filter(|work| is_asked && work.metadata.deletion_timestamp.is_none())
        .filter_map(|work| Some((cluster_of(work)?, work.status().conditions)))
        .collect();
    let copies: Vec<_> = reports
        .iter()
        .map(|(name, reported)| Copy {
            cluster: name,
            mode: fleet
                .clusters
                .get(None, name)
                .map(|it| it.spec.sync_mode.clone()),
            reported,
        })
        .collect();
    fenced_condition::condition(is_asked, &copies, before, fleet.clock.now())
}

/// Returns what is said of the expected clusters whose Work of this name is another binding's, or
/// nobody's.
fn taken(
    fleet: &Fleet,
    key: &BindingKey,
    resource: &ObjectReference,
    expected: &BTreeSet<String>,
    works: &[Arc<CachedWork>],
) -> Vec<AggregatedStatusItem> {
    let namespace = resource.namespace.as_deref().unwrap_or_default();
    let name = names::work(&resource.kind, &resource.name, namespace);
    let places: HashSet<_> = works
        .iter()
        .filter_map(|work| work.metadata.namespace.as_deref())
        .collect();
    let taken = |cluster: &String| {
        let place = names::execution_namespace(cluster);
        if places.contains(place.as_str()) {
            return None;
        }
        let work = fleet.works.get(Some(&place), &name)?;
        let owner = match binding_of(&work) {
            Some(other) if other == *key => return None,
            Some(other) => format!("belongs to {other}"),
            None if owner_id(&work).is_some() => return None,
            None => "names no binding".to_owned(),
        };
        let message = format!(
            "work {place}/{name} {owner}: the names of works end in a hash that two namespaces may share; rename the resource, or its namespace"
        );
        Some(AggregatedStatusItem {
            cluster_name: cluster.clone(),
            applied_message: Some(message),
            health: Some(ResourceHealth::Unknown),
            ..AggregatedStatusItem::default()
        })
    };
    expected.iter().filter_map(taken).collect()
}

/// Returns whether a Work was made for the binding with this permanent id, or does not say. One
/// that a former binding of the same name left behind reports a former object: a Job that has
/// ended, while the present one has not begun.
fn is_made_for(work: &CachedWork, id: Option<&str>) -> bool {
    owner_id(work).is_none_or(|made_for| Some(made_for) == id)
}

#[cfg(test)]
mod shown_tests;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_works_of_a_former_binding_say_does_not_count() {
        for (label, expected) in [
            (
                json!({ "resourcebinding.karmada.io/permanent-id": "id" }),
                true,
            ),
            (
                json!({ "resourcebinding.karmada.io/permanent-id": "former" }),
                false,
            ),
            (
                json!({ "clusterresourcebinding.karmada.io/permanent-id": "former" }),
                false,
            ),
            (json!({}), true),
        ] {
            let work = json!({ "metadata": { "namespace": "karmada-es-m1", "name": "sum", "labels": label } });
            let work: CachedWork = serde_json::from_value(work).unwrap();
            assert_eq!(is_made_for(&work, Some("id")), expected, "{label}");
        }
    }

    #[test]
    fn a_binding_is_judged_anew_when_it_is_scheduled_for_the_first_time() {
        let binding = |status: serde_json::Value| -> Arc<AnyBinding> {
            let metadata = json!({"namespace": "shop", "name": "web", "generation": 1});
            let binding = json!({"metadata": metadata, "spec": {}, "status": status});
            Arc::new(serde_json::from_value(binding).unwrap())
        };
        let at =
            |minute: u8| json!({"lastScheduledTime": format!("2026-01-01T00:{minute:02}:00Z")});
        for (old, new, expected) in [
            (json!({}), at(1), true),
            (at(1), at(2), false),
            (json!({}), json!({}), false),
        ] {
            let change = Change::Applied {
                old: Some(binding(old.clone())),
                new: binding(new.clone()),
            };
            let anew = judged_anew(&Expectations::default(), &change).is_some();
            assert_eq!(anew, expected, "{old} {new}");
        }
    }
}
