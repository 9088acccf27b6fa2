//! Reconciles a template: finds its policy and writes its binding.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::controller::{Controller, Watched as _};
use muster_shared::events::EventType;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Presence;
use muster_shared::watch::outline::Labels;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::arrivals::Arrivals;
use super::audits::Audits;
use super::bound::Bound;
use super::build::{self, Wanted};
use super::candidates::Candidates;
use super::error::Error;
use super::in_charge::claiming_controller;
use super::lazy::activates;
use super::priority::{Classes, Priority};
use super::refused::Refused;
use super::report::Reports;
use super::reported::Reported;
use super::select::{reaches, selects};
use super::{claims, dependencies, policies};
use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, Bindings};
use crate::fleet::claim::Claim;
use crate::fleet::parked::Parked;
use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::remade::Remade;
use crate::fleet::selection::Subject;
use crate::fleet::template::{Template, TemplateKey};
use crate::fleet::template_event::{Lookup, TemplateEvent};
use crate::scheduler::controller::InitialPlacement;
use crate::settings::{MULTIPLE_POD_TEMPLATES_SCHEDULING, PROPAGATE_DEPS};

/// Pause where a watch shows the change that ends the wait.
pub(super) const LATER: Duration = Duration::from_mins(1);
/// How long before this process began to act a change may have been seen that nobody has answered
/// yet. What came earlier the process that acted then has seen to: longer than it takes to notice
/// that it is gone.
const TAKEOVER: Duration = Duration::from_mins(1);

/// Reason of the event about a template of which nothing new is made.
const UNAPPLIED: &str = "ApplyPolicyFailed";

/// The controller's state: queues, and what it remembers to save writes. Everything in it may be
/// lost.
pub(super) struct Detector {
    pub(super) fleet: Arc<Fleet>,
    pub(super) templates: Queue<TemplateKey>,
    pub(super) policies: Queue<PolicyKey>,
    /// Policies that wait for a kind to be listed.
    pub(super) parked: Parked<PolicyKey>,
    /// Templates whose policy is still to be written on them.
    pub(super) claims: Queue<TemplateKey>,
    pub(super) audits: Audits,
    pub(super) reports: Reports,
    pub(super) classes: Option<Classes>,
    /// Places new bindings, where this process is the scheduler, too.
    pub(super) first: Option<InitialPlacement>,
    memory: Mutex<Memory>,
    /// What was published about templates, so that it is published once.
    reported: Reported,
    /// Templates whose bindings went.
    remade: Remade<TemplateKey>,
    /// Time of the first reconciliation of a template.
    began: OnceLock<Instant>,
}

#[derive(Default)]
pub(super) struct Memory {
    /// Templates whose binding was created and is not in the cache yet.
    pub(super) arriving: Arrivals,
    /// Templates that somebody changed, or whose binding went, since they were last reconciled: a
    /// lazy policy takes effect on them. With the time at which that was seen.
    changed: HashMap<TemplateKey, Instant>,
    /// Claims to be written on the templates of the queue of claims.
    pub(super) claims: HashMap<TemplateKey, Claim>,
    /// Templates of which no binding could be made.
    pub(super) refused: Refused,
    /// Which bindings each policy has.
    pub(super) bound: Bound,
    /// Which policies could select which templates.
    pub(super) candidates: Candidates,
    /// Policies that were there when this process began, until they were reconciled once.
    pub(super) first: HashSet<PolicyKey>,
}

impl Memory {
    fn forget(&mut self, key: &TemplateKey) -> Option<PolicyKey> {
        self.arriving.end(key);
        self.changed.remove(key);
        self.claims.remove(key);
        self.refused.clear(key)
    }
}

/// Starts the controller.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let settings = &fleet.settings;
    fleet.follow_templates();
    let policies = Queue::new("policies");
    let detector = Arc::new(Detector {
        fleet: Arc::clone(fleet),
        templates: Queue::new("detector"),
        parked: Parked::new(&fleet.templates, &policies),
        policies,
        claims: Queue::new("claims"),
        audits: Audits::default(),
        reports: Reports::default(),
        classes: Classes::of(fleet),
        first: InitialPlacement::follow(fleet),
        memory: Mutex::default(),
        reported: Reported::default(),
        remade: Remade::default(),
        began: OnceLock::new(),
    });
    listen(&detector);
    let workers = settings.concurrent_resource_template_syncs;
    Controller::with(fleet, "detector", &detector.templates).run(
        tasks,
        workers,
        Arc::clone(&detector),
        |_, detector, key| async move { detector.reconcile(key).await },
    );
    policies::start(&detector, tasks);
    claims::start(&detector, tasks);
    super::audits::start(&detector, tasks);
    super::report::start(&detector, tasks);
    super::priority::start(&detector, tasks);
    dependencies::missing::start(fleet, tasks);
    if settings.gate(&PROPAGATE_DEPS) {
        dependencies::start(fleet, tasks);
    }
}

fn listen(detector: &Arc<Detector>) {
    let fleet = &detector.fleet;
    let to = Arc::clone(detector);
    fleet.templates.on_change(move |change| {
        if change.event == TemplateEvent::Gone {
            to.reported.forget(&change.key);
            let refused = to.memory().forget(&change.key);
            if let Some(policy) = refused {
                to.reports.add(policy);
            }
            return;
        }
        if to.fleet.scope.admits(&change.key) {
            if change.event == TemplateEvent::Changed {
                let seen = Instant::now();
                to.memory().changed.insert(change.key.clone(), seen);
            }
            if change.event == TemplateEvent::Marked
                && let Lookup::Found(template) = to.fleet.templates.get(&change.key)
                && let Some(claim) = Claim::on(&*template)
            {
                to.audit_others(&change.key, &claim);
            }
            // By its labels a Namespace goes to all clusters, whatever its policy says of it.
            if change.event == TemplateEvent::Changed
                && change.key.kind.is_namespace()
                && let Lookup::Found(template) = to.fleet.templates.get(&change.key)
                && let Some(claim) =
                    Claim::on(&*template).or_else(|| to.claim_of_binding(&change.key, &template))
            {
                to.audits.again(claim.policy);
            }
            to.templates.add(change.key.clone());
        }
    });
    listen_to_bindings(detector, &fleet.bindings);
    let (to, templates) = (detector.templates.clone(), fleet.templates.clone());
    fleet.interpreters.on_change(move |changed| {
        for kind in templates.kinds() {
            if !changed.has(&kind.api_version, &kind.kind) {
                continue;
            }
            // Templates of a kind that is not listed yet are seen when it is.
            let all = templates.list(&kind, None);
            for template in all.into_iter().flatten() {
                to.add(TemplateKey::of_template(&kind, &template));
            }
        }
    });
}

/// Follows the bindings: one that somebody deleted is made again, and the template of one in which
/// something changed that the detector writes is reconciled. The change may be another client's, or
/// come late: a cache that went back to an older state may have shown just what was wanted.
fn listen_to_bindings(detector: &Arc<Detector>, bindings: &Bindings) {
    let to = Arc::clone(detector);
    bindings.on_change(move |change| {
        let (old, new) = change.sides();
        to.memory().bound.change(old, new);
        to.reports.change(old, new);
        // A claim that has been given up may have been the last one of its policy.
        let claim = |binding: Option<&AnyBinding>| binding.and_then(|it| Claim::on(&it.metadata));
        let (was, is) = (claim(old), claim(new));
        if was != is {
            if let Some(is) = &is {
                let template = TemplateKey::of(&change.object().spec.resource);
                to.audit_others(&template, is);
            }
            if let Some(was) = was {
                to.audits.again(was.policy);
            }
        }
        let key = || TemplateKey::of(&change.object().spec.resource);
        match (old, new) {
            (Some(_), None) => {
                let key = key();
                let mut memory = to.memory();
                memory.arriving.end(&key);
                memory.changed.insert(key.clone(), Instant::now());
                drop(memory);
                let pause = to.remade.pause(key.clone());
                to.templates.add_after(key, pause);
            }
            (None, Some(_)) => {
                let key = key();
                // A Namespace may go to all clusters, whatever its policy says of it.
                if let Some(is) = is.filter(|_| key.kind.is_namespace()) {
                    to.audits.again(is.policy);
                }
                let again = to.memory().arriving.end(&key);
                if again {
                    to.templates.add(key);
                }
            }
            (Some(old), Some(new)) => {
                if build::is_written_anew(old, new) {
                    to.templates.add(key());
                }
            }
            (None, None) => {}
        }
    });
}

impl Detector {
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// Has the policies audited once more that name a template which another policy has now.
    fn audit_others(&self, template: &TemplateKey, claim: &Claim) {
        let subject = Subject {
            kind: &template.kind,
            namespace: template.namespace.as_deref(),
            name: &template.name,
            labels: Labels::Map(None),
        };
        let naming = self.memory().candidates.naming_anywhere(subject);
        for policy in naming.into_iter().filter(|it| *it != claim.policy) {
            self.audits.again(policy);
        }
    }

    async fn reconcile(&self, key: TemplateKey) -> Result<Next, Error> {
        let began = *self.began.get_or_init(Instant::now);
        let changed = self.memory().changed.remove(&key);
        let changed = changed.filter(|seen| is_unanswered(*seen, began));
        let outcome = self.decide(&key, changed.is_some()).await;
        if let Some(seen) = changed
            && !matches!(outcome, Ok(Next::Done))
        {
            self.memory().changed.entry(key).or_insert(seen);
        }
        outcome
    }

    async fn decide(&self, key: &TemplateKey, changed: bool) -> Result<Next, Error> {
        let template = match self.fleet.templates.get(key) {
            Lookup::Found(template) => template,
            // When its kind is listed, it is seen.
            Lookup::Absent | Lookup::Unknown => return Ok(Next::Done),
        };
        let claimed_elsewhere = claiming_controller(&template).is_some();
        if template.is_deleting() || claimed_elsewhere || !self.fleet.scope.admits(key) {
            return Ok(Next::Done);
        }
        let subject = Subject::of(&key.kind, &template);
        let claim = Claim::on(&*template).or_else(|| self.claim_of_binding(key, &template));
        let Some(claim) = claim else {
            // A template without a policy waits; the policy that comes finds it.
            let Some(policy) = self.match_policy(subject) else {
                if !self.report_undivided(key, &template) {
                    self.accept(key);
                }
                return Ok(Next::Done);
            };
            return self.apply(key, &template, &policy, changed).await;
        };
        let Presence::There(policy) = claim.policy.presence(&self.fleet) else {
            return if self.is_gone(&claim.policy).await? {
                self.release(&self.fleet.work_writer.when_idle().await, key, &claim)
                    .await
            } else {
                // The template is reconciled again when its policy is.
                Ok(Next::Done)
            };
        };
        if policy.is_deleting() {
            return self
                .release(&self.fleet.work_writer.when_idle().await, key, &claim)
                .await;
        }
        if let Some(next) = self.bound_by_another_version(key, &template, &policy) {
            return Ok(next);
        }
        if let Some(preemptor) = self.preemptor(subject, &policy) {
            let (by, claim) = &preemptor;
            let taken = self.take_over(key, &template, (by, claim), &policy).await;
            if matches!(taken, Ok(Next::Done)) {
                // Our own write of the claim is no change of the template, and the next pass
                // answers the change that brought us here.
                if changed {
                    self.memory().changed.insert(key.clone(), Instant::now());
                }
                return taken;
            }
            // Until it is taken over, the template follows its owner as before.
            if selects(&policy, subject) {
                self.apply(key, &template, &policy, changed).await?;
            }
            if let Err(error) = &taken {
                self.refuse(key, by, format!("cannot be taken over: {error}"));
            }
            return taken;
        }
        if selects(&policy, subject) {
            return self.apply(key, &template, &policy, changed).await;
        }
        // A policy that does not select a template is not in charge: the claim was copied with a
        // manifest, or written by somebody who wanted that policy, or somebody edited the labels by
        // which it was selected. The same object may be served by two API groups of which the
        // policy names one: then its binding is of that one.
        let binding = self.binding_of(key, &template);
        let is_of_another_group =
            |binding: &Arc<AnyBinding>| TemplateKey::of(&binding.spec.resource) != *key;
        if reaches(&policy, subject) && binding.as_ref().is_some_and(is_of_another_group) {
            return Ok(Next::Done);
        }
        // The cache of policies may be behind that of templates, and what is released may go to
        // another policy at once, and with it to other clusters.
        if binding.is_some()
            && let Some(policy) = claim.policy.read(&self.fleet).await?
            && !policy.is_deleting()
            && selects(&policy, subject)
        {
            return self.apply(key, &template, &policy, changed).await;
        }
        self.release(&self.fleet.work_writer.when_idle().await, key, &claim)
            .await
    }

    async fn apply(
        &self,
        key: &TemplateKey,
        template: &Template,
        policy: &Policy,
        changed: bool,
    ) -> Result<Next, Error> {
        let outcome = self.bind(key, template, policy, changed).await;
        let error = match outcome {
            Ok(next) => {
                if next == Next::Done {
                    self.accept(key);
                }
                return Ok(next);
            }
            Err(error @ Error::Api(_)) => {
                self.refuse(key, policy, error.to_string());
                return Err(error);
            }
            // It is reconciled as soon as the webhook has answered; the binding stays as it is.
            Err(Error::Build(build::Error::Interpret(error)))
                if error.waits(&self.templates, || key.clone()) =>
            {
                return Ok(Next::After(LATER));
            }
            Err(error) => error,
        };
        // Trying again mends none of these: the template, its policy or what is in its way has
        // to change.
        self.report(key, template, policy, &error);
        let is_followed = !matches!(
            error,
            Error::Build(build::Error::Held(_)) | Error::Unreadable { .. }
        );
        let retry_after = match &error {
            Error::Build(build::Error::Interpret(error)) => error.retry_after(),
            _ => None,
        };
        Ok(match retry_after {
            Some(pause) => Next::After(pause),
            None if is_followed => Next::Done,
            None => Next::After(LATER),
        })
    }

    async fn bind(
        &self,
        key: &TemplateKey,
        template: &Template,
        policy: &Policy,
        changed: bool,
    ) -> Result<Next, Error> {
        let spec = policy.spec();
        if let Some(awaited) = policy.awaited_overrides(&self.fleet) {
            return Err(Error::Awaited(awaited));
        }
        let Some(claim) = Claim::by(policy) else {
            // The policy's own reconciliation gives it an id.
            return Ok(Next::Again);
        };
        let is_marked = claim.patch(template).is_none();
        if policy.is_lazy() {
            let held = self.binding_of(key, template);
            let made = held
                .as_ref()
                .map(|held| (&held.metadata, held.spec.placement.is_some()));
            // The policy took effect before on a template that has copies.
            let binding = BindingKey::for_template(key);
            let is_gone = self.fleet.bindings.get(&binding).is_none();
            let is_lost = is_gone && self.has_copies(&binding);
            let changed = changed || is_lost;
            if !activates(policy, template, made, changed) {
                if !is_marked {
                    self.claim_later(key, claim);
                }
                return Ok(Next::Done);
            }
        }
        let classes = self.classes.as_ref();
        let priority = match classes.map_or(Priority::Known(None), |it| it.priority(spec)) {
            Priority::Known(priority) => priority,
            Priority::Unlisted => return Ok(Next::Again),
            Priority::Missing(class) => {
                let policy = policy.key();
                return Err(Error::Awaited(format!(
                    "{policy} takes its schedule priority from {class:?}, which is no PriorityClass: make it, or name another"
                )));
            }
        };
        let by_components = self.fleet.settings.gate(&MULTIPLE_POD_TEMPLATES_SCHEDULING);
        let interpreters = self.fleet.interpreters.accepting_late();
        let asking = (&interpreters, by_components);
        let wanted = Wanted::new(key, template, &claim, spec, priority, asking)?;
        if let Some(pending) = interpreters.late() {
            pending.wakes(&self.templates, key.clone());
        }
        // The binding controller of another program follows the version that the binding names, and
        // nothing else.
        let changed = changed || !self.fleet.settings.runs("binding");
        let next = self.write(key, &wanted, changed).await?;
        if next == Next::Done && !is_marked {
            self.claim_later(key, claim);
        }
        Ok(next)
    }

    /// Forgets why no binding could be made of a template.
    fn accept(&self, key: &TemplateKey) {
        self.reported.settle(key, UNAPPLIED);
        self.forget_refusal(key);
    }

    /// Forgets for the status of a policy why no binding could be made of a template.
    fn forget_refusal(&self, key: &TemplateKey) {
        let refused = self.memory().refused.clear(key);
        if let Some(policy) = refused {
            self.reports.add(policy);
        }
    }

    /// Tells the owner of a template without a policy that nobody divides its replicas, which
    /// somebody has changed since its policy went: once for each number. Returns whether it is so.
    fn report_undivided(&self, key: &TemplateKey, template: &Template) -> bool {
        let Some(note) = self.undivided(key, template) else {
            return false;
        };
        self.forget_refusal(key);
        self.warn_once(key, template, &note);
        true
    }

    /// Tells the owner of a template why nothing new is made of it: once, until it is another
    /// reason. Returns whether it is one.
    pub(super) fn warn_once(&self, key: &TemplateKey, template: &Template, note: &str) -> bool {
        let is_update = self.reported.is_update(key, UNAPPLIED, note);
        if is_update {
            self.fleet.warn_of_template(key, template, UNAPPLIED, note);
        }
        is_update
    }

    /// Returns what is told of a template without a policy that asks for other replicas than were
    /// divided when it had one.
    fn undivided(&self, key: &TemplateKey, template: &Template) -> Option<String> {
        let held = self.binding_of(key, template)?;
        let spec = &held.spec;
        let is_placed = spec.placement.is_some() && spec.components.is_empty();
        if !is_placed || !template.is_ahead_of(&held.metadata) {
            return None;
        }
        let object = template.object(&key.kind);
        let wanted = self.fleet.interpreters.replicas(&object).ok()??.replicas;
        let divided = spec.replicas;
        (wanted != divided).then(|| {
            format!(
                "asks for {wanted} replicas, and no policy selects it any more: its clusters keep the {divided} that were divided last"
            )
        })
    }

    /// Notes for the status of a policy why no binding could be made of a template.
    fn refuse(&self, key: &TemplateKey, policy: &Policy, note: String) {
        let policy = policy.key();
        self.memory().refused.set(key, policy.clone(), note);
        self.reports.add(policy);
    }

    /// Reports about a template and its policy that nothing can be made of it: once, until
    /// it is another reason.
    fn report(&self, key: &TemplateKey, template: &Template, policy: &Policy, error: &Error) {
        let note = error.to_string();
        self.refuse(key, policy, note.clone());
        if !self.warn_once(key, template, &note) {
            return;
        }
        tracing::warn!(template = %key, policy = %policy.key(), error = note, "cannot propagate");
        // What is wrong with the policy itself is reported by its audit; this is about one of its
        // templates.
        if matches!(error, Error::Build(_) | Error::Unreadable { .. }) {
            let note = format!("{key}: {note}");
            policy.report(&self.fleet.events, EventType::Warning, UNAPPLIED, note);
        }
    }
}

/// Returns whether a change that was seen at this time has still to be answered by a process that
/// began to act then.
fn is_unanswered(seen: Instant, began: Instant) -> bool {
    began.saturating_duration_since(seen) <= TAKEOVER
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::template::TEMPLATE_FINGERPRINT;
    use crate::fleet::testing::{Bench, binding, deployment, pass};

    #[tokio::test(start_paused = true)]
    async fn replicas_that_are_changed_after_the_policy_went_are_reported_to_be_divided_by_nobody()
    {
        for (what, replicas, is_made_here, expected) in [
            ("scaled", 4, true, 1),
            ("edited otherwise", 2, true, 0),
            ("of a binding that somebody made", 4, false, 0),
        ] {
            let mut bound = binding();
            if is_made_here {
                bound["metadata"]["annotations"] = json!({ TEMPLATE_FINGERPRINT: "former" });
            }
            let objects = [
                ("deployments", deployment(replicas)),
                ("resourcebindings", bound),
            ];
            let mut bench = Bench::new(objects);
            bench.api.serve_deployments();
            bench.run(start, 30).await;
            let mut edited = deployment(replicas);
            edited["metadata"]["labels"] = json!({"team": "a"});
            bench.api.put("deployments", edited);
            pass(30).await;
            let reported = bench.api.reported().await.into_iter();
            let reported = reported.filter(|(_, reason)| reason == "ApplyPolicyFailed");
            assert_eq!(reported.count(), expected, "{what}");
        }
    }

    #[test]
    fn changes_from_long_before_a_takeover_have_been_answered() {
        let began = Instant::now() + Duration::from_hours(1);
        for (seen, expected) in [
            (began + Duration::from_secs(1), true),
            (began, true),
            (began - TAKEOVER, true),
            (began - TAKEOVER - Duration::from_secs(1), false),
        ] {
            assert_eq!(is_unanswered(seen, began), expected);
        }
    }
}
