//! Status of policies: what each selects, what of that is placed, and why the rest is not.
//!
//! A change of a binding only marks its policy. Marked policies are counted anew after a pause, so
//! that a failover of ten thousand workloads costs a policy a few writes, and the last state is
//! always written.

mod decide;

use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::policy::PropagationStatus;
use muster_shared::api::scope::ResourceScope;
use muster_shared::conditions;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::SUSPENDED;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::outline::Outline;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::decide::{Nothing, Tally};
use super::audits::{BEHIND, pause_after};
use super::controller::Detector;
use super::error::Error;
use super::in_charge::claiming_controller;
use super::kinds::kinds_of;
use super::select::selects;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::selection::Subject;
use crate::fleet::served::Served;
use crate::fleet::template::{Kind, Template, TemplateKey};
use crate::fleet::template_event::KindState;

/// Time in which changes of the resources of a policy are gathered into one write.
const BATCH: Duration = Duration::from_secs(2);
/// Longest time after a start in which a status that says something is left alone: some templates
/// are tried again and again, and some kinds are never listed.
const LONGEST_START: Duration = Duration::from_mins(1);
/// Policies whose status is written at a time.
const WORKERS: usize = 2;

/// Policies whose status may have changed.
pub(super) struct Reports {
    queue: Queue<PolicyKey>,
    /// Whether the API takes a status of PropagationPolicies.
    namespaced: Served,
    /// Whether the API takes a status of ClusterPropagationPolicies.
    cluster: Served,
    start: Mutex<Start>,
}

/// The time in which a process that has just begun to act reconciles all templates.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    began: Option<Instant>,
    quiet_since: Option<Instant>,
    is_over: bool,
}

impl Start {
    /// Takes in whether nothing waits to be reconciled, and returns whether the start is over: when
    /// nothing has waited for a while, or after [`LONGEST_START`].
    fn see(&mut self, is_quiet: bool, now: Instant) -> bool {
        let began = *self.began.get_or_insert(now);
        if is_quiet {
            self.quiet_since.get_or_insert(now);
        } else {
            self.quiet_since = None;
        }
        let is_quiet = self.quiet_since.is_some_and(|since| now - since >= BATCH);
        self.is_over |= is_quiet || now - began >= LONGEST_START;
        self.is_over
    }
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            queue: Queue::new("policy status"),
            namespaced: Served::default(),
            cluster: Served::default(),
            start: Mutex::default(),
        }
    }
}

impl Reports {
    /// Has the status of a policy written soon.
    pub(super) fn add(&self, policy: PolicyKey) {
        self.queue.add_after(policy, BATCH);
    }

    /// Marks the policies of a binding that changed so that their status shows it.
    pub(super) fn change(&self, old: Option<&AnyBinding>, new: Option<&AnyBinding>) {
        let claim = |binding: Option<&AnyBinding>| binding.and_then(|it| Claim::on(&it.metadata));
        let (was, is) = (claim(old), claim(new));
        if was.is_some() && was == is && old.map(decide::shown) == new.map(decide::shown) {
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
    let fleet = &detector.fleet;
    Controller::with(fleet, "policy status", &detector.reports.queue).run(
        tasks,
        WORKERS,
        Arc::clone(detector),
        |_, detector, key| async move { detector.report_status(&key).await },
    );
}

impl Detector {
    async fn report_status(&self, key: &PolicyKey) -> Result<Next, Error> {
        let Some(policy) = self.policy(key).filter(|policy| !policy.is_deleting()) else {
            return Ok(Next::Done);
        };
        let known = policy.status();
        let generation = policy.metadata().generation;
        // A process that has just started has not seen which templates are refused. The status that
        // the process before it wrote stays until it has.
        let is_reported = known.is_some_and(|it| it.observed_generation == generation);
        if is_reported && !self.has_reconciled_all() {
            return Ok(Next::After(BATCH));
        }
        let tally = self.tally(key);
        let is_empty = tally.is_empty();
        // To find out why a policy has no resources takes longer than to bind what it selects.
        if is_empty && self.audits.wait_for(&self.templates) {
            return Ok(Next::After(BEHIND));
        }
        let (findings, is_complete) = self.audits.findings(key);
        let nothing = || self.nothing(&policy);
        let now = self.fleet.clock.now();
        let reported = known.map(|it| it.conditions.as_slice()).unwrap_or_default();
        let suspended = decide::suspended(reported, policy.metadata(), policy.spec(), now);
        let ordered = suspended.clone().filter(|it| {
            let reported = conditions::get(reported, SUSPENDED);
            conditions::is_update(reported, it)
        });
        let began = Instant::now();
        let mut wanted = decide::status(
            known,
            generation,
            &tally,
            nothing,
            (&findings, is_complete),
            now,
        );
        if let Some(suspended) = suspended {
            let observed_generation = generation;
            conditions::set(
                &mut wanted.conditions,
                Condition {
                    observed_generation,
                    ..suspended
                },
            );
        }
        let took = began.elapsed();
        let next = if known == Some(&wanted) {
            Next::Done
        } else {
            let next = self.write_status(&policy, &wanted).await?;
            // Otherwise it is written, and reported, later.
            if let Some(ordered) = ordered.filter(|_| next == Next::Done) {
                let (events, kind) = (&self.fleet.events, EventType::Normal);
                policy.report(events, kind, "Ordered", ordered.message);
            }
            next
        };
        // No event shows that another policy claims, or gives up, what this one selects.
        let looks_again = is_empty && next == Next::Done;
        Ok(if looks_again {
            Next::After(pause_after(took))
        } else {
            next
        })
    }

    /// Returns whether each template was reconciled since this process began to act, as far as is
    /// known. Before that, it is not known for which templates no binding can be made.
    fn has_reconciled_all(&self) -> bool {
        let mut start = self.reports.start.lock();
        if start.is_over {
            return true;
        }
        let pending = |kind: &Arc<Kind>| {
            matches!(
                self.fleet.templates.kind_state(kind),
                KindState::Sought | KindState::Unlisted
            )
        };
        let is_quiet =
            self.templates.is_empty() && !self.fleet.templates.kinds().iter().any(pending);
        start.see(is_quiet, Instant::now())
    }

    /// Counts the resources of a policy.
    fn tally(&self, key: &PolicyKey) -> Tally {
        let (bound, refused) = {
            let memory = self.memory();
            (memory.bound.by_policy(key), memory.refused.of(key))
        };
        let mut tally = Tally::default();
        for binding in &bound {
            self.count(&mut tally, binding);
        }
        for (template, note) in refused {
            let is_bound = bound.contains(&BindingKey::for_template(&template).into());
            if !is_bound {
                tally.refuse(&template, &note);
            }
        }
        tally
    }

    fn count(&self, tally: &mut Tally, key: &BindingKey) {
        if let Some(binding) = self.fleet.bindings.get(key) {
            tally.take(binding.as_ref());
        }
    }

    /// Finds out why a policy has no resource.
    fn nothing(&self, policy: &Policy) -> Nothing {
        let own = policy.key();
        let mut is_listed = true;
        for kind in kinds_of(policy.spec(), &self.fleet.scope) {
            let is_selected = |it: Outline<'_>| selects(policy, Subject::at(&kind, it));
            let templates = &self.fleet.templates;
            let Some(selected) = templates.select(&kind, own.namespace(), is_selected) else {
                is_listed = false;
                continue;
            };
            let shared = Arc::new(kind.clone());
            let keyed = selected.map(|it| (TemplateKey::of_template(&shared, &it), it));
            // The first by name, so that each process reports the same one.
            let mut admitted = keyed.filter(|(key, _)| self.fleet.scope.admits(key));
            if let Some((key, template)) = admitted.next() {
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
        if let Some(owner) = claiming_controller(template) {
            return Nothing::ClaimedByController {
                template: key.to_string(),
                by: owner.to_owned(),
            };
        }
        let claim = Claim::on(template).or_else(|| self.claim_of_binding(key, template));
        match claim.filter(|claim| claim.policy != policy.key()) {
            Some(other) => Nothing::Claimed {
                template: key.to_string(),
                by: other.policy.to_string(),
            },
            None if policy.is_lazy() => Nothing::Lazy,
            // The binding of the template is being made.
            None => Nothing::NotListed,
        }
    }

    async fn write_status(
        &self,
        policy: &Policy,
        status: &PropagationStatus,
    ) -> Result<Next, Error> {
        let served = match policy.scope() {
            ResourceScope::Namespaced => &self.reports.namespaced,
            ResourceScope::Cluster => &self.reports.cluster,
        };
        let (key, held) = (policy.key(), policy.0.as_ref());
        let api = key.api(&self.fleet.client);
        let written = served.write(&api, held, status, |it| it.status.as_ref(), |_| true);
        let failed = ApiError::of("write the status of", &key);
        written.await.map_err(|error| failed(error).into())
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation::ORDERED_BY;
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::{Bench, deployment, pass, policy};
    use crate::propagation::detector::detect;

    /// Returns the Deployment `shop/web` with a uid.
    fn template() -> serde_json::Value {
        let mut template = deployment(2);
        template["metadata"]["uid"] = json!("t");
        template["metadata"]["generation"] = json!(1);
        template
    }

    #[test]
    fn a_start_is_over_when_nothing_has_waited_for_a_while_or_at_the_latest_after_a_minute() {
        let began = Instant::now();
        let seconds = |it| began + Duration::from_secs(it);
        for (what, seen, expected) in [
            ("at once", &[(true, 0)][..], false),
            ("quiet for long enough", &[(true, 0), (true, 2)], true),
            ("something came", &[(true, 0), (false, 1), (true, 2)], false),
            ("over before", &[(true, 0), (true, 2), (false, 3)], true),
            ("never quiet", &[(false, 0), (false, 59)], false),
            ("never, for a minute", &[(false, 0), (false, 60)], true),
        ] {
            let mut start = Start::default();
            let found = seen
                .iter()
                .map(|(quiet, at)| start.see(*quiet, seconds(*at)));
            assert_eq!(found.last(), Some(expected), "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_suspended_what_a_policy_propagates_is_reported_once() {
        let mut policy = policy();
        policy["spec"]["suspension"] = json!({"dispatching": true});
        let orders = json!([{"order": "suspend", "by": "alice", "reason": "an audit"}]);
        policy["metadata"]["annotations"] = json!({ORDERED_BY: orders.to_string()});
        let objects = [("propagationpolicies", policy), ("deployments", template())];
        let mut bench = Bench::new(objects);
        detect(&mut bench).await;
        pass(120).await;
        let said = bench.api.condition("propagationpolicies", "web", SUSPENDED);
        let expected = "its copies are neither created nor changed in any cluster: suspended by alice: an audit";
        assert_eq!(said["message"], expected, "{said}");
        let reported = bench.api.reported().await;
        let ordered = reported.iter().filter(|it| it.1 == "Ordered").count();
        assert_eq!(ordered, 1, "{reported:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_for_what_another_controller_claims_says_so() {
        let mut template = template();
        template["metadata"]["labels"] =
            json!({"resourcetemplate.karmada.io/claimed-by": "MultiClusterService"});
        let objects = [("propagationpolicies", policy()), ("deployments", template)];
        let mut bench = Bench::new(objects);
        detect(&mut bench).await;
        pass(120).await;
        let ready = bench.api.condition("propagationpolicies", "web", "Ready");
        assert_eq!(ready["reason"], "ClaimedByAnotherController", "{ready}");
        let message = ready["message"].as_str().unwrap();
        assert!(message.contains("MultiClusterService"), "{message}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_binding_can_be_made_of_counts_as_refused_until_one_is_made() {
        let mut policy = policy();
        policy["spec"]["dependentOverrides"] = json!(["registry"]);
        let objects = [("propagationpolicies", policy), ("deployments", template())];
        let mut bench = Bench::new(objects);
        detect(&mut bench).await;
        let status = || {
            let policy = bench.api.object("propagationpolicies", "shop", "web");
            policy.expect("it stays")["status"].clone()
        };
        pass(120).await;
        let reported = status();
        let reason = &reported["reasons"][0];
        assert_eq!(reported["refused"], 1, "{reported}");
        assert_eq!(reason["reason"], "NotPropagated", "{reported}");
        let message = reason["message"].as_str().unwrap();
        assert!(message.contains("registry"), "{message}");
        assert!(bench.binding("web-deployment").is_none());
        let registry = json!({"metadata": {"namespace": "shop", "name": "registry"}, "spec": {}});
        bench.api.put("overridepolicies", registry);
        pass(120).await;
        let reported = status();
        assert!(bench.binding("web-deployment").is_some(), "{reported}");
        // No scheduler runs in this test.
        assert_eq!(
            reported["reasons"][0]["reason"], "NotScheduledYet",
            "{reported}"
        );
    }
}
