//! What a change of a policy means for the templates it has, had, or could have.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, Patch};
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::api::policy::PreemptionBehavior;
use muster_shared::events::EventType;
use muster_shared::names::{finalizer, label};
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Followed, Informer};
use serde_json::{Value, json};

use super::claim::Claim;
use super::controller::{Detector, Error, SOON};
use super::policy::{Policy, PolicyKey};
use super::preempt::takes_over;
use super::select::{Strength, Subject, selects, strength};
use super::template::{Kind, Template, TemplateKey};
use super::templates::Lookup;
use crate::binding::kept::{Kept, patch_params};
use crate::settings::PROPAGATION_POLICY_PREEMPTION;

/// How many policies are worked on at a time: they are few, and each may touch many templates.
const WORKERS: usize = 4;

/// Starts following the policies.
pub(super) fn start(detector: &Arc<Detector>, tasks: &mut Tasks) {
    listen(detector, &detector.fleet.policies, Policy::Namespaced);
    listen(detector, &detector.fleet.cluster_policies, Policy::Cluster);
    let work = Arc::clone(detector);
    detector.fleet.work(
        tasks,
        "policies",
        detector.policies.clone(),
        WORKERS,
        move |_, key| {
            let detector = Arc::clone(&work);
            async move { detector.reconcile_policy(key).await }
        },
    );
}

fn listen<K: Followed>(
    detector: &Arc<Detector>,
    policies: &Informer<K>,
    policy: fn(Arc<K>) -> Policy,
) {
    let to = Arc::clone(detector);
    policies.on_change(move |change| match change {
        Change::Applied { old, new } => {
            let (old, new) = (old.clone().map(policy), policy(Arc::clone(new)));
            for selector in &new.spec().resource_selectors {
                to.fleet
                    .templates
                    .want(&Kind::new(&*selector.api_version, &*selector.kind));
            }
            if old.as_ref().is_none_or(|old| differ(old, &new)) {
                to.policies.add(new.key());
            }
            if let Some(old) = old.filter(|old| old.spec().priority() > new.spec().priority()) {
                to.offer_to_preemptors(&old, &new);
            }
        }
        // Normally the finalizer has seen to everything. This is for a policy that went without one.
        Change::Deleted { old } => to.policies.add(policy(Arc::clone(old)).key()),
    });
}

/// Whether a policy changed in what it says or in who it is.
fn differ(old: &Policy, new: &Policy) -> bool {
    let (was, is) = (old.metadata(), new.metadata());
    was.uid != is.uid
        || was.generation != is.generation
        || was.labels != is.labels
        || old.is_deleting() != new.is_deleting()
}

impl Detector {
    async fn reconcile_policy(&self, key: PolicyKey) -> Result<Next, Error> {
        let Some(policy) = self.policy(&key) else {
            self.revisit_claimed(&key);
            return Ok(Next::Done);
        };
        if policy.is_deleting() {
            return self.let_go(&policy).await;
        }
        let Some(claim) = Claim::by(&policy).filter(|_| has_finalizer(&policy)) else {
            return self.identify(&policy).await;
        };
        let mut pending = false;
        for template in self
            .bound::<ResourceBinding>(&claim)
            .into_iter()
            .chain(self.bound::<ClusterResourceBinding>(&claim))
        {
            match self.fleet.templates.get(&template) {
                Lookup::Found(found) if !selects(policy.spec(), Subject::of(&template, &found)) => {
                    pending |= self.release(&template, &claim).await? != Next::Done;
                }
                Lookup::Found(_) => self.revisit(template, policy.is_lazy()),
                Lookup::Absent => {}
                Lookup::Unknown => pending = true,
            }
        }
        pending |= !self.revisit_unclaimed(&policy);
        if self.fleet.settings.gate(&PROPAGATION_POLICY_PREEMPTION) {
            pending |= !self.preempt(&policy, &claim).await?;
        }
        Ok(if pending {
            Next::After(SOON)
        } else {
            Next::Done
        })
    }

    /// Gives a policy its permanent id (its uid, unless admission gave one) and the finalizer that lets us release its templates.
    async fn identify(&self, policy: &Policy) -> Result<Next, Error> {
        let metadata = policy.metadata();
        let mut patch = json!({ "resourceVersion": metadata.resource_version });
        if Claim::by(policy).is_none() {
            patch["labels"] = json!({ id_label(policy): metadata.uid });
        }
        if !has_finalizer(policy) {
            let all = metadata
                .finalizers
                .iter()
                .flatten()
                .map(String::as_str)
                .chain([finalizer_of(policy)]);
            patch["finalizers"] = all.collect();
        }
        self.patch_policy(policy, patch).await
    }

    /// Releases everything that a policy has, then the policy itself. Nothing is removed from any member.
    async fn let_go(&self, policy: &Policy) -> Result<Next, Error> {
        if !has_finalizer(policy) {
            return Ok(Next::Done);
        }
        if let Some(claim) = Claim::by(policy) {
            let mut claimed = self.bound::<ResourceBinding>(&claim);
            claimed.extend(self.bound::<ClusterResourceBinding>(&claim));
            for selector in &policy.spec().resource_selectors {
                let kind = Kind::new(&*selector.api_version, &*selector.kind);
                let Some(templates) = self.fleet.templates.list(&kind) else {
                    return Ok(Next::After(SOON));
                };
                let ours =
                    |template: &Template| template.label(id_label(policy)) == Some(&claim.id);
                claimed.extend(
                    templates
                        .into_iter()
                        .filter(|(_, template)| ours(template))
                        .map(|(key, _)| key),
                );
            }
            claimed.sort();
            claimed.dedup();
            for template in claimed {
                if self.release(&template, &claim).await? != Next::Done {
                    return Ok(Next::After(SOON));
                }
            }
        }
        let ours = finalizer_of(policy);
        let others: Vec<_> = policy
            .metadata()
            .finalizers
            .iter()
            .flatten()
            .filter(|finalizer| *finalizer != ours)
            .collect();
        self.patch_policy(
            policy,
            json!({ "finalizers": others, "resourceVersion": policy.metadata().resource_version }),
        )
        .await
    }

    async fn patch_policy(&self, policy: &Policy, metadata: Value) -> Result<Next, Error> {
        let (client, key) = (self.fleet.client.clone(), policy.key());
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let outcome = match policy {
            Policy::Namespaced(_) => {
                let api = Api::namespaced(client, key.namespace().unwrap_or_default());
                let answer: Result<muster_shared::api::policy::PropagationPolicy, _> =
                    api.patch(key.name(), &patch_params(), &patch).await;
                answer.map(drop)
            }
            Policy::Cluster(_) => {
                let api = Api::all(client);
                let answer: Result<muster_shared::api::policy::ClusterPropagationPolicy, _> =
                    api.patch(key.name(), &patch_params(), &patch).await;
                answer.map(drop)
            }
        };
        match outcome {
            // Its own event brings us back.
            Ok(()) => Ok(Next::Done),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Next::Done),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Next::After(SOON)),
            Err(error) => Err(Error::api("mark", &key)(error)),
        }
    }

    /// The templates of the bindings that carry a claim.
    fn bound<B: Kept>(&self, claim: &Claim) -> Vec<TemplateKey> {
        let label = if claim.policy.namespace().is_some() {
            label::PROPAGATION_POLICY_ID
        } else {
            label::CLUSTER_PROPAGATION_POLICY_ID
        };
        let carries = |binding: &B| {
            binding
                .meta()
                .labels
                .as_ref()
                .and_then(|labels| labels.get(label))
                == Some(&claim.id)
        };
        let bindings = B::cache(&self.fleet).list();
        bindings
            .iter()
            .filter(|binding| carries(binding))
            .map(|binding| TemplateKey::of(&binding.spec().resource))
            .collect()
    }

    /// Looks again at everything that names a policy which is gone.
    fn revisit_claimed(&self, policy: &PolicyKey) {
        fn revisit<B: Kept>(detector: &Detector, policy: &PolicyKey) {
            for binding in B::cache(&detector.fleet).list() {
                if Claim::on(binding.meta()).is_some_and(|claim| claim.policy == *policy) {
                    detector.revisit(TemplateKey::of(&binding.spec().resource), false);
                }
            }
        }
        revisit::<ResourceBinding>(self, policy);
        revisit::<ClusterResourceBinding>(self, policy);
    }

    /// Looks at the templates without a policy that this one selects; `false` when some kinds are not listed yet.
    fn revisit_unclaimed(&self, policy: &Policy) -> bool {
        let mut kinds: Vec<_> = policy
            .spec()
            .resource_selectors
            .iter()
            .map(|selector| Kind::new(&*selector.api_version, &*selector.kind))
            .collect();
        kinds.sort();
        kinds.dedup();
        let mut complete = true;
        for kind in kinds.iter().filter(|kind| self.scope().admits_kind(kind)) {
            let Some(templates) = self.fleet.templates.list(kind) else {
                complete = false;
                continue;
            };
            for (key, template) in templates {
                let near = policy
                    .key()
                    .namespace()
                    .is_none_or(|namespace| key.namespace.as_deref() == Some(namespace));
                let free = Claim::on(template.metadata()).is_none();
                if near && free && selects(policy.spec(), Subject::of(&key, &template)) {
                    // A template that came after its lazy policy is propagated at once.
                    let older = template.metadata().creation_timestamp
                        < policy.metadata().creation_timestamp;
                    self.revisit(key, policy.is_lazy() && older);
                }
            }
        }
        complete
    }

    /// Takes over the templates that this policy names and may have; `false` when some are not known yet.
    async fn preempt(&self, policy: &Policy, claim: &Claim) -> Result<bool, Error> {
        if policy.spec().preemption != Some(PreemptionBehavior::Always) {
            return Ok(true);
        }
        let mut complete = true;
        for selector in &policy.spec().resource_selectors {
            let Some(name) = selector.name.clone().filter(|name| !name.is_empty()) else {
                continue;
            };
            let key = TemplateKey {
                kind: Arc::new(Kind::new(&*selector.api_version, &*selector.kind)),
                namespace: policy
                    .key()
                    .namespace()
                    .map(str::to_owned)
                    .or_else(|| selector.namespace.clone()),
                name,
            };
            let template = match self.fleet.templates.get(&key) {
                Lookup::Found(template) => template,
                Lookup::Absent => continue,
                Lookup::Unknown => {
                    complete = false;
                    continue;
                }
            };
            let owner = Claim::on(template.metadata()).and_then(|claim| self.policy(&claim.policy));
            let Some(owner) = owner.filter(|owner| takes_over(policy, owner)) else {
                continue;
            };
            if template.is_deleting()
                || strength(selector, Subject::of(&key, &template)) == Strength::Mismatch
            {
                continue;
            }
            let Some(metadata) = claim.patch(template.metadata()) else {
                continue;
            };
            complete &= self
                .mark(&key, template.metadata(), metadata)
                .await?
                .is_some();
            let note = format!("{} takes {key} over from {}", policy.key(), owner.key());
            tracing::info!("{note}");
            match policy {
                Policy::Namespaced(policy) => {
                    self.fleet.events.publish(
                        policy.as_ref(),
                        EventType::Normal,
                        "PreemptPolicySucceed",
                        note,
                    );
                }
                Policy::Cluster(policy) => {
                    self.fleet.events.publish(
                        policy.as_ref(),
                        EventType::Normal,
                        "PreemptPolicySucceed",
                        note,
                    );
                }
            }
        }
        Ok(complete)
    }

    /// A policy whose priority fell may lose templates to those that it was above so far.
    fn offer_to_preemptors(&self, old: &Policy, new: &Policy) {
        if !self.fleet.settings.gate(&PROPAGATION_POLICY_PREEMPTION) {
            return;
        }
        let between = new.spec().priority() + 1..old.spec().priority();
        let all: Vec<Policy> = match new {
            Policy::Namespaced(_) => self
                .fleet
                .policies
                .list()
                .into_iter()
                .map(Policy::Namespaced)
                .collect(),
            Policy::Cluster(_) => self
                .fleet
                .cluster_policies
                .list()
                .into_iter()
                .map(Policy::Cluster)
                .collect(),
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

fn id_label(policy: &Policy) -> &'static str {
    match policy {
        Policy::Namespaced(_) => label::PROPAGATION_POLICY_ID,
        Policy::Cluster(_) => label::CLUSTER_PROPAGATION_POLICY_ID,
    }
}

fn finalizer_of(policy: &Policy) -> &'static str {
    match policy {
        Policy::Namespaced(_) => finalizer::PROPAGATION_POLICY,
        Policy::Cluster(_) => finalizer::CLUSTER_PROPAGATION_POLICY,
    }
}

fn has_finalizer(policy: &Policy) -> bool {
    policy
        .metadata()
        .finalizers
        .iter()
        .flatten()
        .any(|held| held == finalizer_of(policy))
}
