//! Maintains the index of dependencies, and the bindings of templates on which others depend.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use muster_interpreter::{Dependency, Operation};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::outline::Outline;
use muster_shared::watch::{Change, Doubt, Presence};
use parking_lot::Mutex;

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
use crate::fleet::template::{Kind, Template, TemplateKey};
use crate::fleet::template_event::{KindState, Lookup, TemplateEvent};
use crate::fleet::works::{CachedWork, binding_of};
use crate::propagation::binding::absence::is_made_again;
use crate::propagation::binding::namespaces::is_everywhere;
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

/// Time after which a policy that is applied together with a workload counts as missing.
const GRACE: Duration = Duration::from_secs(30);
/// Reason of the event about something that goes nowhere with the workload that refers to it.
const STAY_BEHIND: &str = "DependenciesStayBehind";
/// End of the subjects of what is reported of something that is named without its namespace.
const PLACELESS: &str = " of no namespace";

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
            Ok((write, attached.disagreement()))
        });
        // Not every decision about a referrer is seen here: it may go unseen, or turn out to
        // need nothing.
        let settled = if undecided.is_empty() {
            Next::Done
        } else {
            Next::After(LATER)
        };
        match write {
            Ok((write, conflict)) => {
                let follows = held.filter(|it| it.spec.placement.is_none());
                if let Some(held) = follows.filter(|_| undecided.is_empty()) {
                    self.report_conflict(fleet, &key, &held, conflict);
                }
                let Some(write) = write else {
                    return Ok(settled);
                };
                match send(fleet, &binding_key, write).await? {
                    Next::Done => Ok(settled),
                    next => Ok(next),
                }
            }
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

    /// Tells the owner of a resource without a namespace, once as long as it is so, that what it
    /// refers to does not go along with it, although its policy asks for that and its kind has a
    /// rule for what that is.
    fn report_cluster_wide(&self, fleet: &Fleet, binding: &AnyBinding) {
        let resource = &binding.spec.resource;
        let (version, kind) = (&resource.api_version, &resource.kind);
        let is_asked = binding.spec.propagate_deps
            && binding.metadata.namespace.is_none()
            && binding.metadata.deletion_timestamp.is_none();
        let has_rule = |operation| fleet.interpreters.has(version, kind, operation);
        let key = TemplateKey::of(resource);
        if !is_asked || !has_rule(Operation::InterpretDependency) {
            self.reported.settle(&key, STAY_BEHIND);
            return;
        }
        let note = "lies in no namespace, so that what it refers to does not go along with it (propagateDeps): place that by a policy of its own";
        if self.reported.is_update(&key, STAY_BEHIND, note) {
            fleet.publish(binding, EventType::Warning, STAY_BEHIND, note.to_owned());
        }
    }

    /// Tells the owner of a workload, once each until the rule of its kind does so no more, of what
    /// that rule names without the namespace in which it lies: there is no such object to take
    /// along. Of a kind that is not listed yet that is found out later.
    fn report_placeless(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
        binding: &AnyBinding,
        needs: &[Dependency],
    ) {
        let about = TemplateKey::of(&binding.spec.resource);
        let name = |need: &Dependency| need.name.clone().unwrap_or_else(|| "by label".to_owned());
        let subject = |need: &Dependency| format!("{} {}{PLACELESS}", need.kind, name(need));
        let placeless = || needs.iter().filter(|it| it.namespace.is_none());
        let subjects: HashSet<String> = placeless().map(subject).collect();
        self.reported.settle_each(&about, |it| {
            it.ends_with(PLACELESS) && !subjects.contains(it)
        });
        for need in placeless() {
            let kind = Kind::new(&*need.api_version, &*need.kind);
            let is_placeless = match fleet.templates.kind_state(&kind) {
                KindState::Listed => fleet.templates.is_namespaced(&kind),
                KindState::Sought | KindState::Unlisted => {
                    _ = self.parked.wait(&kind, key.clone());
                    false
                }
                KindState::Reserved | KindState::Missing | KindState::Unfit => false,
            };
            if !is_placeless {
                continue;
            }
            let note = format!(
                "refers to {} {} without a namespace, so that it does not go along (propagateDeps): the rule of the kind has to name the namespace",
                need.kind,
                name(need)
            );
            if self.reported.is_update(&about, &subject(need), &note) {
                fleet.publish(binding, EventType::Warning, STAY_BEHIND, note);
            }
        }
    }

    /// Tells the owners of workloads, once each, that something that these refer to by the rule of
    /// their kind lies in no namespace: it does not go along with them. Its own policy may come a
    /// moment after it.
    fn report_left_behind(&self, fleet: &Fleet, key: &TemplateKey, template: &Template) -> Next {
        let own = fleet.bindings.presence(&BindingKey::for_template(key));
        if own.may_exist() || is_everywhere(fleet, key) {
            self.reported.arrived(key);
            return Next::Done;
        }
        let left = self.reported.waits(key, GRACE);
        if !left.is_zero() {
            return Next::After(left);
        }
        let referrers = self.index.lock().referrers(key, template);
        for binding in referrers.iter().filter_map(|it| fleet.bindings.get(it)) {
            let about = TemplateKey::of(&binding.spec.resource);
            let note = format!(
                "refers to {key}, which lies in no namespace, so that it does not go along (propagateDeps): place it by a policy of its own"
            );
            if self.reported.is_update(&about, &key.to_string(), &note) {
                fleet.publish(&binding, EventType::Warning, STAY_BEHIND, note);
            }
        }
        Next::Done
    }

    /// Tells the owner of a template without a policy that the policies of those that refer to it
    /// disagree (`conflict`): once, until they agree, or disagree about something else.
    fn report_conflict(
        &self,
        fleet: &Fleet,
        key: &TemplateKey,
        binding: &AnyBinding,
        conflict: Option<String>,
    ) {
        let reason = "DependencyPolicyConflict";
        match conflict {
            None => self.reported.settle(key, reason),
            Some(note) if self.reported.is_update(key, reason, &note) => {
                fleet.publish(binding, EventType::Warning, reason, note);
            }
            Some(_) => {}
        }
    }

    /// Tells the owner of a template: once, until there is something else to tell.
    fn report(
        &self,
        fleet: &Fleet,
        key: &TemplateKey,
        template: &Template,
        reason: &str,
        note: String,
    ) {
        if !self.reported.is_update(key, reason, &note) {
            return;
        }
        tracing::warn!(template = %key, reason, note, "a template that others refer to");
        fleet.warn_of_template(key, template, reason, note);
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

/// Reports that nobody finds out what a binding refers to, whose template is not there: what lost
/// bindings of its namespace placed stays until somebody knows.
fn report_unknown_needs(fleet: &Fleet, binding: &AnyBinding, template: &TemplateKey) {
    let note = format!(
        "{template} does not exist, so that it is not known what it refers to: the works of bindings in its namespace that were lost stay \
         meanwhile. Delete this binding if its template is gone for good"
    );
    fleet.warn(binding, "GetDependenciesFailed", note);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::{self, Bench, binding, claimed, cluster, deleting, pass};

    /// Returns a fleet with these objects and the Deployment `shop/web` that needs the ConfigMap
    /// `shop/conf`, whose dependencies have been distributed.
    async fn bench<const N: usize>(objects: [(&str, Value); N]) -> Bench {
        let template = ("deployments", deployment());
        bench_with(objects.into_iter().chain([template])).await
    }

    /// Returns the Deployment that needs the ConfigMap.
    fn deployment() -> Value {
        let volume = json!({"name": "c", "configMap": {"name": "conf"}});
        json!({
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"template": {"spec": {"volumes": [volume]}}},
        })
    }

    /// Returns the binding of the Deployment, which takes along what that needs.
    fn referrer() -> Value {
        let mut referrer = binding();
        referrer["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "b"});
        referrer["spec"]["propagateDeps"] = json!(true);
        referrer
    }

    /// Returns a fleet with these objects and the ConfigMap, whose dependencies are distributed
    /// once it is followed.
    fn started<'a>(objects: impl Iterator<Item = (&'a str, Value)>) -> Bench {
        let conf = json!({"metadata": {"namespace": "shop", "name": "conf", "uid": "c"}});
        let mut bench = Bench::new(objects.chain([("configmaps", conf)]));
        bench.api.serve_deployments();
        bench.api.serve("/api/v1", "v1", "configmaps", "ConfigMap");
        start(&bench.fleet, &mut bench.tasks);
        bench.fleet.follow_templates();
        bench
    }

    /// Returns a fleet with these objects and the ConfigMap, whose dependencies have been
    /// distributed.
    async fn bench_with(objects: impl Iterator<Item = (&str, Value)>) -> Bench {
        let mut bench = started(objects);
        bench.follow().await;
        pass(10).await;
        bench
    }

    #[tokio::test(start_paused = true)]
    async fn a_binding_without_a_namespace_takes_nothing_along_and_says_so_once() {
        let script = "function GetDependencies(object) return {} end";
        let rule = json!({
            "metadata": {"name": "issuers"},
            "spec": {
                "target": {"apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer"},
                "customizations": {"dependencyInterpretation": {"luaScript": script}},
            },
        });
        let rule = ("resourceinterpretercustomizations", rule);
        for (takes_along, rule, expected) in [
            (true, Some(rule.clone()), 1),
            (false, Some(rule), 0),
            (true, None, 0),
        ] {
            let mut bound = json!({
                "metadata": {"name": "ca-clusterissuer"},
                "spec": {
                    "resource": {"apiVersion": "cert-manager.io/v1", "kind": "ClusterIssuer", "name": "ca"},
                    "propagateDeps": takes_along,
                },
            });
            assert!(!refers(&serde_json::from_value(bound.clone()).unwrap()));
            let binding = ("clusterresourcebindings", bound.clone());
            let bench = bench_with(rule.into_iter().chain([binding])).await;
            bound["metadata"]["generation"] = json!(2);
            bench.api.put("clusterresourcebindings", bound);
            pass(10).await;
            let reported = bench.api.reported().await.into_iter();
            let reported = reported
                .filter(|it| it.1 == "DependenciesStayBehind" && it.0 == "ca-clusterissuer");
            assert_eq!(reported.count(), expected, "{takes_along}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_is_told_once_that_what_it_needs_lies_in_no_namespace_and_stays_behind() {
        let script = "function GetDependencies(object) \
                      return {{apiVersion = 'v1', kind = 'Namespace', name = 'keys'}} end";
        let rule = json!({
            "metadata": {"name": "deployments"},
            "spec": {
                "target": {"apiVersion": "apps/v1", "kind": "Deployment"},
                "customizations": {"dependencyInterpretation": {"luaScript": script}},
            },
        });
        let bound = json!({
            "metadata": {"name": "keys-namespace"},
            "spec": {"resource": {"apiVersion": "v1", "kind": "Namespace", "name": "keys"}},
        });
        // Whether it is kept from going to all clusters by itself.
        for (skips, bound, expected) in [("true", None, 1), ("true", Some(bound), 0), ("", None, 0)]
        {
            let labels = json!({"namespace.karmada.io/skip-auto-propagation": skips});
            let mut keys = json!({"metadata": {"name": "keys", "uid": "k", "labels": labels}});
            let objects = [
                ("resourceinterpretercustomizations", rule.clone()),
                ("deployments", deployment()),
                ("resourcebindings", referrer()),
                ("namespaces", keys.clone()),
            ];
            let bound = bound.map(|it| ("clusterresourcebindings", it));
            let mut bench = Bench::new(objects.into_iter().chain(bound));
            bench.api.serve_deployments();
            bench.api.serve("/api/v1", "v1", "namespaces", "Namespace");
            start(&bench.fleet, &mut bench.tasks);
            bench.fleet.follow_templates();
            bench.follow().await;
            // Its policy may come within half a minute, whatever changes meanwhile.
            for (seconds, expected) in [(10, 0), (10, 0), (60, expected), (60, expected)] {
                pass(seconds).await;
                let reported = bench.api.reported().await.into_iter();
                let reported =
                    reported.filter(|it| it.1 == STAY_BEHIND && it.0 == "web-deployment");
                assert_eq!(reported.count(), expected, "{skips:?}");
                keys["metadata"]["labels"]["edited"] = json!(seconds.to_string());
                bench.api.put("namespaces", keys.clone());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_is_told_once_of_what_its_rule_names_without_the_namespace_that_it_lies_in()
    {
        let rule = |namespace: &str| {
            let script = format!(
                "function GetDependencies(object) \
                 return {{{{apiVersion = 'v1', kind = 'ConfigMap', name = 'conf'{namespace}}}}} end"
            );
            json!({
                "metadata": {"name": "deployments"},
                "spec": {
                    "target": {"apiVersion": "apps/v1", "kind": "Deployment"},
                    "customizations": {"dependencyInterpretation": {"luaScript": script}},
                },
            })
        };
        let sound = ", namespace = 'shop'";
        for (namespace, expected) in [("", 1), (sound, 0)] {
            let objects = [
                ("resourceinterpretercustomizations", rule(namespace)),
                ("resourcebindings", referrer()),
            ];
            let bench = bench(objects).await;
            let told = async || {
                let reported = bench.api.reported().await.into_iter();
                let reported =
                    reported.filter(|it| it.1 == STAY_BEHIND && it.0 == "web-deployment");
                reported.count()
            };
            let mut edited = referrer();
            edited["metadata"]["generation"] = json!(2);
            bench.api.put("resourcebindings", edited);
            pass(10).await;
            assert_eq!(told().await, expected, "{namespace}");
            // Once more after it was mended; an event is a new one after ten minutes.
            for namespace in [sound, namespace] {
                let rule = rule(namespace);
                bench.api.put("resourceinterpretercustomizations", rule);
                pass(15 * 60).await;
            }
            assert_eq!(told().await, 2 * expected, "{namespace}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn policies_that_disagree_about_what_two_workloads_need_are_reported_once() {
        for (preserves, expected) in [(true, 1), (false, 0)] {
            let bench = shared(preserves, "m2").await;
            let mut conf = bench.api.object("configmaps", "shop", "conf").unwrap();
            conf["metadata"]["labels"] = json!({"edited": "yes"});
            bench.api.put("configmaps", conf);
            pass(10).await;
            let reported = bench.api.reported().await.into_iter();
            let reported = reported
                .filter(|it| it.1 == "DependencyPolicyConflict" && it.0 == "conf-configmap");
            assert_eq!(reported.count(), expected, "{preserves}");
        }
    }

    #[test]
    fn a_binding_for_an_object_of_another_namespace_takes_nothing_along() {
        for (what, namespace, takes_along, leaves, expected) in [
            ("its own namespace's", "shop", true, false, true),
            ("another namespace's", "bank", true, false, false),
            ("not asked to", "shop", false, false, false),
            ("going away", "shop", true, true, false),
        ] {
            let mut binding = json!({
                "metadata": { "name": "web-deployment", "namespace": "shop" },
                "spec": {
                    "resource": { "apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": "web" },
                    "propagateDeps": takes_along,
                },
            });
            if leaves {
                binding["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let binding = serde_json::from_value(binding).unwrap();
            assert_eq!(refers(&binding), expected, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_workload_needs_goes_along_although_its_binding_has_no_permanent_id_yet() {
        let mut referrer = referrer();
        referrer["metadata"]["uid"] = json!("made-by-somebody");
        let labels = referrer["metadata"]["labels"].take();
        let bench = bench([("resourcebindings", referrer.clone())]).await;
        let conf = || bench.binding("conf-configmap").unwrap();
        assert_eq!(conf().spec.required_by.len(), 1);
        let marks = conf().metadata.labels.clone().unwrap_or_default();
        assert!(
            marks.values().any(|it| it == "made-by-somebody"),
            "{marks:?}"
        );
        referrer["metadata"]["labels"] = labels;
        bench.api.put("resourcebindings", referrer);
        pass(60).await;
        assert_eq!(conf().spec.required_by.len(), 1, "it has its id");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_workload_needs_stays_as_the_policy_said_last_when_the_workload_is_deleted() {
        let policy = |preserves: bool| {
            let mut policy = testing::policy();
            policy["spec"]["propagateDeps"] = json!(true);
            policy["spec"]["preserveResourcesOnDeletion"] = json!(preserves);
            policy
        };
        let referrer = claimed(referrer());
        let bench = bench([
            ("propagationpolicies", policy(false)),
            ("resourcebindings", referrer.clone()),
        ])
        .await;
        let conf = || bench.binding("conf-configmap");
        let named = |it: Arc<AnyBinding>| it.spec.required_by.len();
        assert_eq!(conf().map(named), Some(1));
        assert_eq!(conf().unwrap().spec.preserve_resources_on_deletion, None);
        bench.api.put("propagationpolicies", policy(true));
        bench.api.put("resourcebindings", deleting(referrer));
        pass(10).await;
        assert_eq!(conf().map(named), Some(0));
        let preserves = conf().unwrap().spec.preserve_resources_on_deletion;
        assert_eq!(preserves, Some(true));
    }

    /// Returns a fleet with the Deployment in m1, which may be preserved, and another one that
    /// needs the ConfigMap as well and may go anywhere. The agents have applied what they
    /// were sent.
    async fn shared(preserves: bool, other_in: &str) -> Bench {
        let mut web = referrer();
        web["metadata"]["finalizers"] = json!(["karmada.io/binding-controller"]);
        web["spec"]["preserveResourcesOnDeletion"] = json!(preserves);
        let mut other = referrer();
        other["metadata"]["name"] = json!("other-deployment");
        other["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "o"});
        other["spec"]["resource"]["name"] = json!("other");
        other["spec"]["clusters"] = json!([{"name": other_in, "replicas": 2}]);
        other["spec"]["placement"] = json!({});
        let mut second = deployment();
        second["metadata"]["name"] = json!("other");
        let objects = [
            ("clusters", cluster("m1")),
            ("clusters", cluster("m2")),
            ("deployments", deployment()),
            ("deployments", second),
            ("resourcebindings", web),
            ("resourcebindings", other),
        ];
        let mut bench = started(objects.into_iter());
        crate::propagation::binding::start(&bench.fleet, &mut bench.tasks);
        bench.follow().await;
        pass(60).await;
        for mut work in bench.api.all("works") {
            work["status"] = json!({"conditions": testing::only_condition("Applied", "True")});
            bench.api.put("works", work);
        }
        bench
    }

    /// Returns the binding of the Deployment as somebody deletes it.
    fn deleted(bench: &Bench) -> Value {
        deleting(bench.api.binding("web-deployment"))
    }

    /// Returns whether the ConfigMap stays in m1, where its Work is going.
    fn stays_in_m1(bench: &Bench) -> Value {
        let name = muster_shared::names::work("ConfigMap", "conf", "shop");
        let work = bench.api.object("works", "karmada-es-m1", &name).unwrap();
        let is_leaving = !work["metadata"]["deletionTimestamp"].is_null();
        assert!(is_leaving, "nothing of the fleet needs it there any more");
        work["spec"]["preserveResourcesOnDeletion"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_preserved_workload_needs_stays_with_it_although_another_needs_it_as_well() {
        for (preserves, other_in) in [(false, "m2"), (true, "m2"), (false, "m1"), (true, "m1")] {
            let bench = shared(preserves, other_in).await;
            bench.api.put("resourcebindings", deleted(&bench));
            pass(60).await;
            if other_in == "m1" {
                // The ConfigMap stays for the other workload until a person deletes it.
                let name = "conf-configmap";
                let conf = deleting(bench.api.object("resourcebindings", "shop", name).unwrap());
                bench.api.delete("configmaps", "shop", "conf");
                bench.api.put("resourcebindings", conf);
                pass(60).await;
            }
            let context = format!("other in {other_in}: the pods of web go on in m1");
            assert_eq!(stays_in_m1(&bench), json!(preserves), "{context}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_preserved_workload_needs_stays_with_it_although_a_process_starts_meanwhile() {
        for preserves in [false, true] {
            let before = shared(preserves, "m2").await;
            let left = ["clusters", "deployments", "resourcebindings", "works"];
            let left = left.into_iter().flat_map(|plural| {
                let objects = before.api.all(plural).into_iter();
                objects.map(move |it| (plural, it))
            });
            let mut bench = started(left.chain([("resourcebindings", deleted(&before))]));
            crate::propagation::binding::start(&bench.fleet, &mut bench.tasks);
            bench.follow().await;
            pass(60).await;
            assert_eq!(stays_in_m1(&bench), json!(preserves));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_workload_chose_by_label_is_given_up_and_stays_in_the_members_only_beside_it() {
        let goes = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (what, metadata, spec, preserves) in [
            ("alone", json!({}), json!({"propagateDeps": false}), None),
            ("goes", goes.clone(), json!({}), None),
            (
                "goes and stays in the members",
                goes,
                json!({"preserveResourcesOnDeletion": true}),
                Some(true),
            ),
        ] {
            let (api_version, kind) = ("multicluster.x-k8s.io/v1alpha1", "ServiceImport");
            let import = json!({"metadata": {"namespace": "shop", "name": "web"}});
            let slice = |name: &str, service: &str| {
                let labels = json!({"kubernetes.io/service-name": service});
                json!({"metadata": {
                    "namespace": "shop", "name": name, "uid": name, "labels": labels,
                }})
            };
            let mut referrer = referrer();
            referrer["metadata"]["name"] = json!("web-serviceimport");
            referrer["spec"]["resource"]["apiVersion"] = json!(api_version);
            referrer["spec"]["resource"]["kind"] = json!(kind);
            let objects = [
                ("serviceimports", import),
                ("endpointslices", slice("chosen", "derived-web")),
                ("endpointslices", slice("other", "derived-other")),
                ("resourcebindings", referrer.clone()),
            ];
            let mut bench = started(objects.into_iter());
            let path = "/apis/multicluster.x-k8s.io/v1alpha1";
            bench.api.serve(path, api_version, "serviceimports", kind);
            let (path, group_version) = ("/apis/discovery.k8s.io/v1", "discovery.k8s.io/v1");
            bench
                .api
                .serve(path, group_version, "endpointslices", "EndpointSlice");
            bench.follow().await;
            pass(60).await;
            let chosen = || bench.binding("chosen-endpointslice").unwrap();
            assert_eq!(chosen().spec.required_by.len(), 1, "{what}");
            referrer["metadata"]["generation"] = json!(2);
            muster_shared::merge::apply(&mut referrer["metadata"], &metadata);
            muster_shared::merge::apply(&mut referrer["spec"], &spec);
            bench.api.put("resourcebindings", referrer);
            pass(60).await;
            let given_up = chosen();
            let stays = given_up.spec.preserve_resources_on_deletion;
            assert_eq!(given_up.spec.required_by.len(), 0, "{what}");
            assert_eq!(stays, preserves, "{what}");
            let other = bench.binding("other-endpointslice");
            assert!(other.is_none(), "{what}");
        }
    }

    /// Returns the Work of a Deployment by the report of its copy.
    fn reported(generation: u32, updated: u32) -> Value {
        let mut work = testing::work("m1", "Healthy");
        work["metadata"]["finalizers"] = json!(["karmada.io/execution-controller"]);
        work["status"]["manifestStatuses"][0]["status"] = json!({
            "replicas": 2, "updatedReplicas": updated, "generation": generation,
            "observedGeneration": generation, "resourceTemplateGeneration": generation,
        });
        work
    }

    /// Returns how many workloads need the `ConfigMap`.
    fn needed_by(bench: &Bench) -> usize {
        let conf = bench.binding("conf-configmap").unwrap();
        conf.spec.required_by.len()
    }

    /// Returns a fleet in which a Deployment needs another `ConfigMap` than before, and its copy is
    /// not updated yet.
    async fn edited() -> Bench {
        let mut referrer = referrer();
        let objects = [
            ("resourcebindings", referrer.clone()),
            ("works", reported(1, 2)),
        ];
        let process = bench(objects).await;
        assert_eq!(needed_by(&process), 1);
        let mut edited = deployment();
        edited["metadata"]["generation"] = json!(2);
        edited["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = json!("new");
        process.api.put("deployments", edited);
        pass(5).await;
        referrer["metadata"]["generation"] = json!(2);
        process.api.put("resourcebindings", referrer);
        pass(120).await;
        assert_eq!(needed_by(&process), 1, "the copy is as it was");
        process
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_copy_needed_that_goes_while_it_is_not_seen_is_given_up() {
        let process = edited().await;
        process.api.hide("works", "karmada-es-m1", "web");
        pass(120).await;
        assert_eq!(needed_by(&process), 1, "a list lacks the copy");
        process.api.lose("works", "karmada-es-m1", "web");
        pass(180).await;
        assert_eq!(needed_by(&process), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_workload_needed_stays_until_no_pod_of_its_former_template_is_left() {
        for restarts in [false, true] {
            let mut process = edited().await;
            process.api.hide("works", "karmada-es-m1", "web");
            pass(120).await;
            assert_eq!(needed_by(&process), 1, "a list lacks the copy");
            process.api.reveal("works", "karmada-es-m1", "web");
            pass(120).await;
            if restarts {
                let left = ["deployments", "resourcebindings", "works"];
                let left = left.into_iter().flat_map(|plural| {
                    let objects = process.api.all(plural).into_iter();
                    objects.map(move |it| (plural, it))
                });
                let left: Vec<_> = left.collect();
                process = bench_with(left.into_iter()).await;
                assert_eq!(needed_by(&process), 1, "another process leads");
            }
            for (updated, expected) in [(1, 1), (2, 0)] {
                process.api.put("works", reported(2, updated));
                pass(10).await;
                assert_eq!(needed_by(&process), expected, "{updated} of 2 are new");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_workload_needs_goes_along_again_when_it_was_deleted_and_made_again() {
        let bench = bench([("resourcebindings", referrer())]).await;
        let conf = || bench.binding("conf-configmap");
        assert!(conf().is_some());
        bench.api.delete("configmaps", "shop", "conf");
        bench
            .api
            .delete("resourcebindings", "shop", "conf-configmap");
        pass(60).await;
        assert!(conf().is_none(), "there is nothing to bind");
        let again = json!({"metadata": {"namespace": "shop", "name": "conf", "uid": "again"}});
        bench.api.put("configmaps", again);
        pass(60).await;
        let bound = conf().expect("it is bound again");
        assert_eq!(bound.spec.resource.uid.as_deref(), Some("again"));
        assert_eq!(bound.spec.required_by.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_workload_needed_is_given_up_although_it_was_never_known_what_it_needs() {
        let mut referrer = referrer();
        let before = bench([("resourcebindings", referrer.clone())]).await;
        let attached = before.binding("conf-configmap").unwrap();
        let attached = serde_json::to_value(attached.as_ref()).unwrap();
        let held = [referrer.clone(), attached].map(|it| ("resourcebindings", it));
        let bench = bench_with(held.into_iter()).await;
        let needed_by = || {
            bench
                .binding("conf-configmap")
                .unwrap()
                .spec
                .required_by
                .len()
        };
        assert_eq!(needed_by(), 1, "its template is missing");
        referrer["spec"]["propagateDeps"] = json!(false);
        referrer["metadata"]["generation"] = json!(2);
        bench.api.put("resourcebindings", referrer);
        pass(60).await;
        assert_eq!(needed_by(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_workload_needed_is_given_up_although_the_cache_lacked_the_workload_meanwhile() {
        let mut referrer = referrer();
        let bench = bench([("resourcebindings", referrer.clone())]).await;
        let needed_by = || {
            bench
                .binding("conf-configmap")
                .unwrap()
                .spec
                .required_by
                .len()
        };
        assert_eq!(needed_by(), 1);
        for lacks_template in [false, true] {
            referrer["spec"]["propagateDeps"] = json!(true);
            referrer["metadata"]["generation"] = json!(1 + 2 * u32::from(lacks_template));
            bench.api.put("resourcebindings", referrer.clone());
            pass(60).await;
            assert_eq!(needed_by(), 1);
            let (plural, name) = if lacks_template {
                ("configmaps", "conf")
            } else {
                ("resourcebindings", "web-deployment")
            };
            bench.api.hide(plural, "shop", name);
            pass(60).await;
            assert_eq!(needed_by(), 1, "the list is short");
            referrer["spec"]["propagateDeps"] = json!(false);
            referrer["metadata"]["generation"] = json!(2 + 2 * u32::from(lacks_template));
            bench.api.put("resourcebindings", referrer.clone());
            pass(60).await;
            assert_eq!(needed_by(), 1);
            bench.api.reveal(plural, "shop", name);
            pass(60).await;
            assert_eq!(needed_by(), 0, "{plural}");
        }
    }
}
