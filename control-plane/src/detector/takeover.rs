//! Takes templates over from policies of lower priority.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use muster_shared::api::policy::PreemptionBehavior;
use muster_shared::events::EventType;
use muster_shared::queue::Next;

use super::controller::Detector;
use super::error::Error;
use super::policies::Rest;
use super::preempt::takes_over;
use super::select::selects;
use crate::fleet::claim::Claim;
use crate::fleet::policy::Policy;
use crate::fleet::selection::{Subject, given};
use crate::fleet::template::{Kind, Template, TemplateKey};
use crate::fleet::template_event::Lookup;
use crate::settings::PROPAGATION_POLICY_PREEMPTION;

impl Detector {
    /// Takes over the templates that this policy names and may have.
    pub(super) async fn preempt(
        &self,
        client: &Client,
        policy: &Policy,
        claim: &Claim,
        rest: &mut Rest,
    ) {
        if policy.spec().preemption != Some(PreemptionBehavior::Always) {
            return;
        }
        for selector in &policy.spec().resource_selectors {
            let Some(name) = given(selector.name.as_ref()) else {
                continue;
            };
            let own = policy.key();
            let key = TemplateKey {
                kind: Arc::new(Kind::new(&*selector.api_version, &*selector.kind)),
                namespace: own
                    .namespace()
                    .or_else(|| given(selector.namespace.as_ref()))
                    .map(str::to_owned),
                name: name.to_owned(),
            };
            let template = match self.fleet.templates.get(&key) {
                Lookup::Found(template) => template,
                Lookup::Absent => continue,
                Lookup::Unknown => {
                    rest.unlisted(&key.kind);
                    continue;
                }
            };
            rest.take(self.take_over(client, policy, claim, &key, &template).await);
        }
    }

    async fn take_over(
        &self,
        client: &Client,
        policy: &Policy,
        claim: &Claim,
        key: &TemplateKey,
        template: &Template,
    ) -> Result<Next, Error> {
        let owner = Claim::on(template.metadata()).and_then(|claim| self.policy(&claim.policy));
        let Some(owner) = owner.filter(|owner| takes_over(policy, owner)) else {
            return Ok(Next::Done);
        };
        if template.is_deleting()
            || !self.scope.admits(key)
            || !selects(policy, Subject::of(key, template))
        {
            return Ok(Next::Done);
        }
        let Some(metadata) = claim.patch(template.metadata()) else {
            return Ok(Next::Done);
        };
        if !self
            .mark(client, key, template.metadata(), metadata)
            .await?
        {
            return Ok(Next::Again);
        }
        let note = format!("{} takes {key} over from {}", policy.key(), owner.key());
        tracing::info!("{note}");
        let events = &self.fleet.events;
        policy.tell(events, EventType::Normal, "PreemptPolicySucceed", note);
        Ok(Next::Done)
    }

    /// Offers templates to other policies when the priority of a policy falls: it may lose
    /// templates to those that it was above so far.
    pub(super) fn offer_to_preemptors(&self, old: &Policy, new: &Policy) {
        if !self.fleet.settings.gate(&PROPAGATION_POLICY_PREEMPTION) {
            return;
        }
        let between = new.spec().priority() + 1..old.spec().priority();
        let all: Vec<Policy> = match new {
            Policy::Namespaced(policy) => {
                let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
                let near = self.fleet.policies.list_in(namespace).into_iter();
                near.map(Policy::Namespaced).collect()
            }
            Policy::Cluster(_) => {
                let wide = self.fleet.cluster_policies.list().into_iter();
                wide.map(Policy::Cluster).collect()
            }
        };
        for policy in all {
            let may = policy.spec().preemption == Some(PreemptionBehavior::Always);
            if may && between.contains(&policy.spec().priority()) {
                self.policies
                    .add_after(policy.key(), Duration::from_millis(1));
            }
        }
    }
}
