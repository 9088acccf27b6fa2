//! Tells the owners of workloads and templates what does not go along, and what policies disagree
//! about.

use std::collections::HashSet;
use std::time::Duration;

use muster_interpreter::{Dependency, Operation};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::events::EventType;
use muster_shared::queue::Next;

use super::Distributor;
use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::template::{Kind, Template, TemplateKey};
use crate::fleet::template_event::KindState;
use crate::propagation::binding::namespaces::is_everywhere;

/// Time after which a policy that is applied together with a workload counts as missing.
const GRACE: Duration = Duration::from_secs(30);
/// Reason of the event about something that goes nowhere with the workload that refers to it.
pub(super) const STAY_BEHIND: &str = "DependenciesStayBehind";
/// End of the subjects of what is reported of something that is named without its namespace.
const PLACELESS: &str = " of no namespace";

impl Distributor {
    /// Tells the owner of a resource without a namespace, once as long as it is so, that what it
    /// refers to does not go along with it, although its policy asks for that and its kind has a
    /// rule for what that is.
    pub(super) fn report_cluster_wide(&self, fleet: &Fleet, binding: &AnyBinding) {
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
    pub(super) fn report_placeless(
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
    pub(super) fn report_left_behind(
        &self,
        fleet: &Fleet,
        key: &TemplateKey,
        template: &Template,
    ) -> Next {
        let own = fleet.bindings.presence(&BindingKey::for_template(key));
        if own.may_exist() || is_everywhere(fleet, key) {
            self.reported.arrived(key);
            return Next::Done;
        }
        if let Some(left) = self.reported.waits(key, GRACE) {
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
    pub(super) fn report_conflict(
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
    pub(super) fn report(
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

/// Reports that nobody finds out what a binding refers to, whose template is not there: what lost
/// bindings of its namespace placed stays until somebody knows.
pub(super) fn report_unknown_needs(fleet: &Fleet, binding: &AnyBinding, template: &TemplateKey) {
    let note = format!(
        "{template} does not exist, so that it is not known what it refers to: the works of bindings in its namespace that were lost stay \
         meanwhile. Delete this binding if its template is gone for good"
    );
    fleet.warn(binding, "GetDependenciesFailed", note);
}
