//! Status of policies: what each selects, what of that is placed, and why the rest is not.
//!
//! A change of a binding only marks its policy. Marked policies are counted anew after a pause, so
//! that a failover of ten thousand workloads costs a policy a few writes, and the last state is
//! always written.

mod decide;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::{Api, Patch};
use kube::core::Status;
use muster_shared::api::binding::{Binding, ClusterResourceBinding, ResourceBinding};
use muster_shared::api::policy::{ClusterPropagationPolicy, PropagationPolicy, PropagationStatus};
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use serde_json::json;

use self::decide::{Nothing, State, Tally};
use super::controller::Detector;
use super::error::Error;
use super::kinds::kinds_of;
use super::select::selects;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::{BindingKey, BindingKind, patch_params};
use crate::fleet::claim::Claim;
use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::selection::Subject;
use crate::fleet::template::{Template, TemplateKey};

/// Time in which changes of the resources of a policy are gathered into one write.
const BATCH: Duration = Duration::from_secs(2);
/// Time until a definition without the subresource is tried again: definitions may be upgraded
/// after this process.
const UNSERVED: Duration = Duration::from_mins(5);
/// Time until a policy that has no resource is looked at again.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// Policies whose status is written at a time.
const WORKERS: usize = 2;

/// Policies whose status may have changed.
pub(super) struct Reports {
    queue: Queue<PolicyKey>,
    /// Whether it was told that the definitions have no status.
    told: AtomicBool,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            queue: Queue::new("policy status"),
            told: AtomicBool::new(false),
        }
    }
}

impl Reports {
    /// Has the status of a policy written soon.
    pub(super) fn add(&self, policy: PolicyKey) {
        self.queue.add_after(policy, BATCH);
    }

    /// Marks the policies of a binding that changed so that their status shows it.
    pub(super) fn change<B: Binding>(&self, old: Option<&B>, new: Option<&B>) {
        let claim = |binding: Option<&B>| binding.and_then(|it| Claim::on(it.meta()));
        let (was, is) = (claim(old), claim(new));
        if was.is_some() && was == is && old.map(State::of) == new.map(State::of) {
            return;
        }
        if let Some(was) = was.filter(|was| Some(was) != is.as_ref()) {
            self.add(was.policy);
        }
        if let Some(is) = is {
            self.add(is.policy);
        }
    }
}

/// Starts writing the status of policies.
pub(super) fn start(detector: &Arc<Detector>, tasks: &mut Tasks) {
    let work = Arc::clone(detector);
    let queue = detector.reports.queue.clone();
    let fleet = &detector.fleet;
    fleet.work(tasks, "policy status", queue, WORKERS, move |_, key| {
        let detector = Arc::clone(&work);
        async move { detector.report_status(&key).await }
    });
}

impl Detector {
    async fn report_status(&self, key: &PolicyKey) -> Result<Next, Error> {
        let Some(policy) = self.policy(key).filter(|policy| !policy.is_deleting()) else {
            return Ok(Next::Done);
        };
        let tally = self.tally(key);
        let known = policy.status();
        let generation = policy.metadata().generation;
        let findings = self.audits.findings(key);
        let nothing = || self.nothing(&policy);
        let is_empty = tally.is_empty();
        let now = self.fleet.clock.now();
        let wanted = decide::status(known, generation, &tally, nothing, &findings, now);
        let next = if known == Some(&wanted) {
            Next::Done
        } else {
            self.write_status(&policy, &wanted).await?
        };
        // No event tells that another policy claims, or gives up, what this one selects.
        let looks_again = is_empty && next == Next::Done;
        Ok(if looks_again {
            Next::After(LOOK_AGAIN)
        } else {
            next
        })
    }

    /// Counts the resources of a policy.
    fn tally(&self, key: &PolicyKey) -> Tally {
        let (bound, refused) = {
            let memory = self.memory();
            (memory.bound.by_policy(key), memory.refused.of(key))
        };
        let mut tally = Tally::default();
        for binding in &bound {
            if binding.namespace.is_some() {
                self.count::<ResourceBinding>(&mut tally, binding);
            } else {
                self.count::<ClusterResourceBinding>(&mut tally, binding);
            }
        }
        for (template, note) in refused {
            let is_bound = bound.contains(&BindingKey::for_template(&template).into());
            if !is_bound {
                tally.refuse(&template, &note);
            }
        }
        tally
    }

    fn count<B: BindingKind>(&self, tally: &mut Tally, key: &BindingKey) {
        if let Some(binding) = B::cache(&self.fleet).get(key.namespace.as_deref(), &key.name) {
            tally.take(binding.as_ref());
        }
    }

    /// Finds out why a policy has no resource.
    fn nothing(&self, policy: &Policy) -> Nothing {
        let own = policy.key();
        let mut is_listed = true;
        for kind in kinds_of(policy.spec(), &self.scope) {
            let Some(templates) = self.fleet.templates.list(&kind, own.namespace()) else {
                is_listed = false;
                continue;
            };
            let mut selected = templates
                .into_iter()
                .filter(|(key, template)| selects(policy, Subject::of(key, template)));
            if let Some((key, template)) = selected.next() {
                return self.why_not(policy, &key, &template);
            }
        }
        if is_listed {
            Nothing::NotThere
        } else {
            Nothing::NotListed
        }
    }

    fn why_not(&self, policy: &Policy, key: &TemplateKey, template: &Template) -> Nothing {
        let claim = Claim::on(template.metadata()).or_else(|| self.claim_of_binding(key, template));
        match claim.filter(|claim| claim.policy != policy.key()) {
            Some(other) => Nothing::Claimed {
                template: key.to_string(),
                by: other.policy.to_string(),
            },
            None if policy.is_lazy() => Nothing::Lazy,
            // Its binding is being made.
            None => Nothing::NotListed,
        }
    }

    async fn write_status(
        &self,
        policy: &Policy,
        status: &PropagationStatus,
    ) -> Result<Next, Error> {
        let (client, key) = (self.fleet.client.clone(), policy.key());
        // Fields that are absent now are removed; lists are replaced whole.
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": policy.metadata().resource_version },
            "status": {
                "observedGeneration": status.observed_generation,
                "selected": status.selected,
                "placed": status.placed,
                "refused": status.refused,
                "waiting": status.waiting,
                "reasons": (!status.reasons.is_empty()).then_some(&status.reasons),
                "conditions": status.conditions,
            },
        }));
        let params = patch_params();
        let outcome = match policy {
            Policy::Namespaced(_) => {
                let api: Api<PropagationPolicy> =
                    Api::namespaced(client, key.namespace().unwrap_or_default());
                let answer = api.patch_status(key.name(), &params, &patch).await;
                answer.map(drop)
            }
            Policy::Cluster(_) => {
                let api: Api<ClusterPropagationPolicy> = Api::all(client);
                let answer = api.patch_status(key.name(), &params, &patch).await;
                answer.map(drop)
            }
        };
        match outcome {
            Ok(()) => Ok(Next::Done),
            Err(kube::Error::Api(answer)) if is_unserved(&answer, key.name()) => {
                if !self.reports.told.swap(true, Ordering::Relaxed) {
                    let kind = "the definitions of policies have no status: it is not written; events about the policies tell the same";
                    tracing::info!(policy = %key, "{kind}");
                }
                Ok(Next::After(UNSERVED))
            }
            Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(Next::Done),
            // The next version of the policy comes by itself, and may be on its way already.
            Err(kube::Error::Api(answer)) if answer.is_conflict() => Ok(Next::After(BATCH)),
            Err(error) => Err(ApiError::of("write the status of", &key)(error).into()),
        }
    }
}

/// Whether an answer says that the kind has no status, as of Karmada's definitions, rather than
/// that this object is not there: that one names the object.
fn is_unserved(answer: &Status, name: &str) -> bool {
    let names_it = answer
        .details
        .as_ref()
        .is_some_and(|details| details.name == name);
    answer.code == 405 || (answer.is_not_found() && !names_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_a_status_is_told_from_a_policy_that_is_gone() {
        let answer = |value| serde_json::from_value::<Status>(value).unwrap();
        for (given, expected) in [
            (
                json!({"code": 404, "reason": "NotFound", "details": {}}),
                true,
            ),
            (json!({"code": 404, "reason": "NotFound"}), true),
            (
                json!({"code": 404, "reason": "NotFound", "details": {"name": "p"}}),
                false,
            ),
            (json!({"code": 405, "reason": "MethodNotAllowed"}), true),
            (json!({"code": 409, "reason": "Conflict"}), false),
        ] {
            assert_eq!(
                is_unserved(&answer(given.clone()), "p"),
                expected,
                "{given}"
            );
        }
    }
}
