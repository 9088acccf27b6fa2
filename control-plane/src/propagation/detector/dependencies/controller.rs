//! Maintains the index of dependencies, and the bindings of templates on which others depend.

mod reports;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use muster_interpreter::Dependency;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::controller::Controller;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::outline::Outline;
use muster_shared::watch::{Change, Doubt, Presence};
use parking_lot::Mutex;

use self::reports::report_unknown_needs;
use super::attach::{Attached, MOST_REFERRERS, Referrer};
use super::former::{still_needed, without};
use super::index::{Index, Touched, kinds_of};
use super::writes::{preserve, record, recorded, release, send};
use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, Bindings};
use crate::fleet::binding_index::Trait;
use crate::fleet::lookups::Dependencies;
use crate::fleet::parked::Parked;
use crate::fleet::protection::preserves_on_deletion;
use crate::fleet::remade::Remade;
use crate::fleet::selection::Subject;
use crate::fleet::template::{Template, TemplateKey};
use crate::fleet::template_event::{KindState, Lookup, TemplateEvent};
use crate::fleet::works::{CachedWork, binding_of};
use crate::propagation::binding::absence::is_made_again;
use crate::propagation::detector::build;
use crate::propagation::detector::controller::LATER;
use crate::propagation::detector::error::Error;
use crate::propagation::detector::reported::Reported;

struct Distributor {
    referrers: Queue<BindingKey>,
    templates: Queue<TemplateKey>,
    index: Mutex<Index>,
    /// Referrers that are going away, as they were last, until it is known whether what they refer
    /// to stays in the members. May be lost: the copies of their policies count then.
    leaving: Mutex<HashMap<BindingKey, Arc<AnyBinding>>>,
    /// Referrers with copies that may have pods of their former template. May be lost: a process
    /// that starts reconciles each referrer.
    behind: Mutex<HashSet<BindingKey>>,
    /// Referrers that wait for the kind of their template to be listed.
    parked: Parked<BindingKey>,
    reported: Reported,
    /// Templates whose bindings went.
    remade: Remade<TemplateKey>,
}

/// How long to wait for a binding that is going away or another object's; its disappearance is
/// seen earlier.
const LEAVING: Duration = Duration::from_secs(5);
/// Time after a report on a copy within which others mostly follow, as in a rolling update.
const REPORTING: Duration = Duration::from_secs(5);

/// Starts distributing dependencies.
pub(in crate::propagation::detector) fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let referrers = Queue::new("referrers");
    let distributor = Arc::new(Distributor {
        parked: Parked::new(&fleet.templates, &referrers),
        referrers,
        templates: Queue::new("dependencies"),
        index: Mutex::default(),
        leaving: Mutex::default(),
        behind: Mutex::default(),
        reported: Reported::default(),
        remade: Remade::default(),
    });
    let to = Arc::clone(&distributor);
    fleet.bindings.on_change(move |change| to.observe(change));
    let to = Arc::clone(&distributor);
    fleet.works.on_change(move |change| to.observe_copy(change));
    _ = fleet.dependencies.set(Box::new(Answerer {
        distributor: Arc::clone(&distributor),
        bindings: fleet.bindings.clone(),
    }));
    let to = Arc::clone(&distributor);
    let bindings = fleet.bindings.clone();
    fleet.templates.on_change(move |change| {
        match change.event {
            TemplateEvent::Gone => to.reported.forget(&change.key),
            // The binding of a template may have moved while a list had left the template out, and
            // referrers may have given it up.
            TemplateEvent::Appeared => {
                let key = BindingKey::for_template(&change.key);
                let binding = bindings.get(&key);
                let spec = binding.as_ref().map(|it| &it.spec);
                if spec.is_some_and(|it| !it.required_by.is_empty()) {
                    to.templates.add(change.key.clone());
                }
                if spec.is_some_and(|it| it.propagate_deps) {
                    to.referrers.add(key);
                }
            }
            TemplateEvent::Changed | TemplateEvent::Marked => {}
        }
        if to.index.lock().concerns(&change.key) {
            to.templates.add(change.key.clone());
        }
    });
    let workers = fleet.settings.concurrent_resource_template_syncs;
    Controller::with(fleet, "referrers", &distributor.referrers)
        .watches(&*fleet.interpreters, Fleet::interpreted_anew)
        .run(
            tasks,
            workers,
            Arc::clone(&distributor),
            |fleet, distributor, key| async move { distributor.survey(&fleet, key).await },
        );
    let queue = distributor.templates.clone();
    Controller::with(fleet, "dependencies", &queue).run(
        tasks,
        workers,
        distributor,
        |fleet, distributor, key| async move { distributor.attach(&fleet, key).await },
    );
}

/// Answers what workloads need.
struct Answerer {
    distributor: Arc<Distributor>,
    bindings: Bindings,
}

impl Dependencies for Answerer {
    fn has(&self, key: &TemplateKey, template: &Template) -> bool {
        let index = self.distributor.index.lock();
        !index.referrers(key, template).is_empty()
    }

    fn is_open(&self, namespace: &str) -> bool {
        let near = self.bindings.having(Trait::HasFollowers, Some(namespace));
        let mut referrers = near.filter(|it| refers(it));
        let index = self.distributor.index.lock();
        referrers.any(|it| !index.knows(&BindingKey::of(it.as_ref())))
    }
}

impl Distributor {
    fn observe(&self, change: &Change<AnyBinding>) {
        let new = change.object();
        let (old, gone) = match change {
            Change::Applied { old, .. } => (old.as_ref(), false),
            Change::Deleted { .. } => (None, true),
        };
        let same = old.is_some_and(|old| old.metadata.generation == new.metadata.generation);
        let leaving = new.metadata.deletion_timestamp.is_some();
        if same && !leaving {
            return;
        }
        // A binding that the cache had lost may have changed meanwhile.
        let key = BindingKey::of(new.as_ref());
        let did = match old {
            Some(old) => old.spec.propagate_deps,
            None => self.index.lock().knows(&key),
        };
        if (gone || leaving) && new.spec.propagate_deps {
            self.leaving.lock().insert(key.clone(), Arc::clone(new));
        } else {
            // A binding that a list had lacked is there, or one was made again.
            self.leaving.lock().remove(&key);
        }
        if gone || leaving || new.spec.propagate_deps || did {
            self.referrers.add(key);
        }
        // Snapshots of referrers that went while no process was running are found on what they
        // referred to, a binding that somebody deleted is made again, and what was decided on an
        // older state of a cache is decided again.
        let none = Vec::new();
        let held = old.map_or(&none, |old| &old.spec.required_by);
        if gone || *held != new.spec.required_by {
            let template = TemplateKey::of(&new.spec.resource);
            let pause = if gone {
                self.remade.pause(template.clone())
            } else {
                Duration::ZERO
            };
            self.templates.add_after(template, pause);
        }
    }

    /// Queues a referrer with copies that may have pods of its former template when one of them
    /// changes or reports.
    fn observe_copy(&self, change: &Change<CachedWork>) {
        if self.behind.lock().is_empty() {
            return;
        }
        let referrer = binding_of(change.object());
        let behind = referrer.filter(|it| self.behind.lock().contains(it));
        if let Some(referrer) = behind {
            self.referrers.add_after(referrer, REPORTING);
        }
    }

    /// Finds out what a binding refers to.
    async fn survey(&self, fleet: &Fleet, key: BindingKey) -> Result<Next, Error> {
        let binding = fleet.bindings.get(&key);
        if binding.is_none() && is_made_again(fleet, &key) {
            return Ok(Next::After(LEAVING));
        }
        if binding.is_none() && key.exists(fleet).await? {
            // A binding that merely cannot be seen needs what it needed.
            return Ok(Next::Done);
        }
        let Some(binding) = binding.clone().filter(|binding| refers(binding)) else {
            let left = self.leaving.lock().get(&key).cloned();
            let needs = self.needs(fleet, &key, left.as_deref());
            if let Some(left) = left
                && preserves_on_deletion(fleet, left.as_ref()).await?
            {
                for template in &needs {
                    if !preserve(fleet, template, &left.spec).await? {
                        return Ok(Next::Again);
                    }
                }
            }
            self.leaving.lock().remove(&key);
            self.parked.leave(&key);
            self.behind.lock().remove(&key);
            let touched = self.index.lock().forget(&key);
            self.touch(fleet, touched);
            for template in needs {
                self.templates.add(template);
            }
            return match binding {
                Some(binding) => {
                    self.report_cluster_wide(fleet, &binding);
                    self.report_placeless(fleet, &key, &binding, &[]);
                    release(fleet, &key, &binding).await
                }
                None => Ok(Next::Done),
            };
        };
        let template_key = TemplateKey::of(&binding.spec.resource);
        let template = match fleet.templates.get(&template_key) {
            Lookup::Found(template) => template.object(&template_key.kind),
            Lookup::Absent => {
                report_unknown_needs(fleet, &binding, &template_key);
                return Ok(Next::Done);
            }
            Lookup::Unknown => {
                if fleet.templates.kind_state(&template_key.kind) == KindState::Missing {
                    report_unknown_needs(fleet, &binding, &template_key);
                }
                return Ok(self.parked.wait(&template_key.kind, key));
            }
        };
        let interpreters = fleet.interpreters.accepting_late();
        let mut needs = match interpreters.dependencies(&template) {
            Ok(needs) => {
                if let Some(pending) = interpreters.late() {
                    self.parked.wakes(pending, &key);
                }
                needs.unwrap_or_default()
            }
            Err(error) if self.parked.waits(&error, &key) => return Ok(Next::Done),
            Err(error) => {
                fleet.warn(&binding, "GetDependenciesFailed", error.to_string());
                // Another try mostly finds the same; a change of the template is seen.
                return Ok(error.retry_after().map_or(Next::Done, Next::After));
            }
        };
        let former = self.former(fleet, &key, &binding, &needs);
        if !former.is_empty() {
            // Before the reports are read: one that comes meanwhile counts.
            self.behind.lock().insert(key.clone());
        }
        let generation = template["metadata"]["generation"].as_i64().unwrap_or(0);
        let (former, next) = still_needed(fleet, (&key, &binding.spec), generation, former).await?;
        if former.is_empty() {
            self.behind.lock().remove(&key);
        }
        let present = needs.len();
        needs.extend(former);
        if !record(fleet, &key, &binding, &needs).await? {
            return Ok(Next::Again);
        }
        for kind in kinds_of(&needs) {
            fleet.templates.name(&kind);
        }
        self.report_placeless(fleet, &key, &binding, &needs[..present]);
        let touched = self.index.lock().set(&key, needs);
        self.touch(fleet, touched);
        Ok(next)
    }

    /// Queues the templates that a change of the index concerns, and unnames the kinds that the
    /// referrer named before.
    fn touch(&self, fleet: &Fleet, touched: Touched) {
        for (kind, namespace) in &touched.ranges {
            let near = fleet.templates.list(kind, Some(namespace));
            let kind = Arc::new(kind.clone());
            for template in near.into_iter().flatten() {
                let key = TemplateKey::of_template(&kind, &template);
                self.templates.add(key);
            }
        }
        for template in touched.templates {
            self.templates.add(template);
        }
        for kind in &touched.kinds {
            fleet.templates.unname(kind);
        }
    }

    /// Returns the templates that a referrer needs, by name or by label. Of a referrer that was
    /// going away (`left`) before this process reconciled it, they are those that its annotation
    /// shows ([`recorded`]) and whose bindings name it.
    fn needs(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        left: Option<&AnyBinding>,
    ) -> BTreeSet<TemplateKey> {
        let known = self.index.lock().dependencies(key);
        let is_known = known.is_some();
        let shown = || left.map(recorded).unwrap_or_default();
        let mut own = Index::default();
        own.set(key, known.unwrap_or_else(shown));
        let mut needs = own.needs(key);
        for (kind, namespace) in own.ranges(key) {
            let kind = Arc::new(kind);
            let is_chosen = |it: Outline<'_>| own.chooses(key, Subject::at(&kind, it));
            let chosen = fleet.templates.select(&kind, Some(&namespace), is_chosen);
            let chosen = chosen.into_iter().flatten();
            needs.extend(chosen.map(|it| TemplateKey::of_template(&kind, &it)));
        }
        // The annotation alone proves nothing: its author may name templates of other people.
        needs.retain(|template| is_known || is_attached(fleet, template, key));
        needs
    }

    /// Returns what the template of a referrer referred to, as far as it is known, beside what it
    /// needs now. After a restart that is what its annotation shows ([`recorded`]) and is attached
    /// to it.
    fn former(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        binding: &AnyBinding,
        needs: &[Dependency],
    ) -> Vec<Dependency> {
        let known = self.index.lock().dependencies(key);
        let is_known = known.is_some();
        let mut former = without(known.unwrap_or_else(|| recorded(binding)), needs);
        // Very many may be attached to one template: mostly no more is needed of it than before.
        former.retain(|it| {
            is_known
                || TemplateKey::of_dependency(it).is_some_and(|it| is_attached(fleet, &it, key))
        });
        former
    }

    /// Brings the binding of a template in line with its referrers.
    async fn attach(&self, fleet: &Fleet, key: TemplateKey) -> Result<Next, Error> {
        let template = match fleet.templates.get(&key) {
            Lookup::Found(template) => template,
            // It may come later, and so may its kind: either is seen then.
            Lookup::Absent | Lookup::Unknown => {
                self.reported.forget(&key);
                return Ok(Next::Done);
            }
        };
        if template.is_deleting() || !fleet.scope.admits(&key) {
            return Ok(Next::Done);
        }
        if key.namespace.is_none() {
            return Ok(self.report_left_behind(fleet, &key, &template));
        }
        let binding_key = BindingKey::for_template(&key);
        let held = match fleet.bindings.presence(&binding_key) {
            Presence::There(held) => Some(held),
            Presence::Unknown(Doubt::Unreadable { .. }) => {
                let binding = binding_key;
                let note = Error::Unreadable { binding }.to_string();
                self.report(fleet, &key, &template, "AttachFailed", note);
                return Ok(Next::After(LATER));
            }
            Presence::Gone | Presence::Unknown(_) => None,
        };
        if held
            .as_ref()
            .is_some_and(|held| held.metadata.deletion_timestamp.is_some())
        {
            return Ok(Next::After(LEAVING));
        }
        let bindings: Vec<_> = self
            .index
            .lock()
            .referrers(&key, &template)
            .into_iter()
            .filter_map(|referrer| Some((fleet.bindings.get(&referrer)?, referrer)))
            .collect();
        let referrers: Vec<_> = bindings
            .iter()
            .filter(|(binding, _)| {
                !binding.spec.clusters.is_empty()
                    || !binding.spec.graceful_eviction_tasks.is_empty()
            })
            .filter_map(|(binding, key)| {
                // A binding that somebody made without a permanent id is given its uid as one.
                let uid = binding.metadata.uid.as_deref();
                Some(Referrer {
                    key,
                    id: binding.permanent_id().or(uid)?,
                    spec: &binding.spec,
                })
            })
            .collect();
        let undecided = self.undecided(fleet, held.as_deref()).await?;
        // The binding controller of another program follows the version that the binding names, and
        // nothing else.
        let changed = !fleet.settings.runs("binding");
        let write = Attached::new(&key, &template, &referrers).and_then(|attached| {
            if attached.left_out() > 0 {
                let note = format!(
                    "more than {MOST_REFERRERS} bindings refer to it: some are not named on its own binding, to keep that small; it \
                     goes wherever they are"
                );
                self.report(fleet, &key, &template, "ManyReferrers", note);
            }
            let write = attached.write(held.as_deref(), |key| undecided.contains(key), changed)?;
            let follows = held.as_deref().filter(|it| it.spec.placement.is_none());
            if let Some(held) = follows.filter(|_| undecided.is_empty()) {
                self.report_conflict(fleet, &key, held, attached.disagreement());
            }
            Ok(write)
        });
        // Not every decision about a referrer is seen here: it may go unseen, or turn out to
        // need nothing.
        let settled = if undecided.is_empty() {
            Next::Done
        } else {
            Next::After(LATER)
        };
        match write {
            Ok(None) => Ok(settled),
            Ok(Some(write)) => match send(fleet, &binding_key, write).await? {
                Next::Done => Ok(settled),
                next => Ok(next),
            },
            Err(error) => {
                self.report(fleet, &key, &template, "AttachFailed", error.to_string());
                let is_heard_of = matches!(error, build::Error::Name(_));
                Ok(if is_heard_of {
                    Next::Done
                } else {
                    Next::After(LATER)
                })
            }
        }
    }

    /// Returns the referrers whose snapshots on a binding stay as they are.
    async fn undecided(
        &self,
        fleet: &Fleet,
        held: Option<&AnyBinding>,
    ) -> Result<HashSet<BindingKey>, Error> {
        let mut undecided = HashSet::new();
        for snapshot in held.into_iter().flat_map(|held| &held.spec.required_by) {
            let referrer = BindingKey::of_snapshot(snapshot);
            if self.is_undecided(fleet, &referrer).await? {
                undecided.insert(referrer);
            }
        }
        Ok(undecided)
    }

    /// Returns whether the snapshot of a referrer stays as it is: it is not known yet what the
    /// referrer needs, or whether that stays with it, the referrer merely cannot be seen, or it is
    /// to be made again.
    async fn is_undecided(&self, fleet: &Fleet, referrer: &BindingKey) -> Result<bool, Error> {
        if self.leaving.lock().contains_key(referrer) {
            self.referrers.add(referrer.clone());
            return Ok(true);
        }
        match fleet.bindings.get(referrer) {
            Some(binding) => Ok(!self.index.lock().knows(referrer) && refers(&binding)),
            None => Ok(is_made_again(fleet, referrer) || referrer.exists(fleet).await?),
        }
    }
}

/// Returns whether the binding of a template names a referrer.
fn is_attached(fleet: &Fleet, template: &TemplateKey, referrer: &BindingKey) -> bool {
    let binding = fleet.bindings.get(&BindingKey::for_template(template));
    binding.is_some_and(|it| {
        let mut referrers = it.spec.required_by.iter();
        referrers.any(|it| BindingKey::of_snapshot(it) == *referrer)
    })
}

/// Returns whether a binding takes along what it refers to. A binding that is being deleted does
/// not any more. A binding that somebody made for an object of another namespace never does: it
/// would take along what its author may not read.
fn refers(binding: &AnyBinding) -> bool {
    binding.spec.propagate_deps
        && binding.metadata.deletion_timestamp.is_none()
        && binding.metadata.namespace.is_some()
        && binding.spec.resource.namespace == binding.metadata.namespace
}

#[cfg(test)]
mod tests;
