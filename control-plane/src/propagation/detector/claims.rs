//! Writes the claim of a policy on templates, and removes it.
//!
//! The binding has the same claim and is written first, so that placement does not wait for it. A
//! crash between the two writes loses nothing: the claim is read from the binding until the
//! template has it.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::core::ObjectMeta;
use muster_shared::controller::Controller;
use muster_shared::merge;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use serde_json::{Value, json};

use super::controller::Detector;
use super::error::Error;
use super::identity::{Owner, owner};
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::protection::protected;
use crate::fleet::template::TemplateKey;
use crate::fleet::template_event::Lookup;
use crate::fleet::write::{Written, merge};

/// How long to wait for a kind whose templates are not known for the moment.
const UNKNOWN: Duration = Duration::from_secs(10);

/// Starts the workers.
pub fn start(detector: &Arc<Detector>, tasks: &mut Tasks) {
    let workers = detector.fleet.settings.concurrent_resource_template_syncs;
    let fleet = &detector.fleet;
    Controller::with(fleet, "claims", &detector.claims).run(
        tasks,
        workers,
        Arc::clone(detector),
        |_, detector, key| async move { detector.settle(key).await },
    );
}

impl Detector {
    /// Has a claim written on a template. Of several claims on the same template the last one
    /// counts.
    pub(super) fn claim_later(&self, key: &TemplateKey, claim: Claim) {
        self.memory().claims.insert(key.clone(), claim);
        self.claims.add(key.clone());
    }

    async fn settle(&self, key: TemplateKey) -> Result<Next, Error> {
        let client = self.fleet.work_writer.when_idle().await;
        let Some(claim) = self.memory().claims.get(&key).cloned() else {
            return Ok(Next::Done);
        };
        let next = match self.claim(&client, &key, &claim).await {
            Ok(next) => next,
            Err(error) => {
                self.report_refused(&key, &error);
                return Err(error);
            }
        };
        let mut memory = self.memory();
        if next == Next::Done && memory.claims.get(&key) == Some(&claim) {
            memory.claims.remove(&key);
        }
        Ok(next)
    }

    /// Reports that a template cannot be marked: once, until it is another reason.
    fn report_refused(&self, key: &TemplateKey, error: &Error) {
        let note = format!(
            "cannot be marked with its policy, and before that no Work is made of it: {error}"
        );
        let Lookup::Found(template) = self.fleet.templates.get(key) else {
            return;
        };
        self.warn_once(key, &template, &note);
    }

    async fn claim(
        &self,
        client: &Client,
        key: &TemplateKey,
        claim: &Claim,
    ) -> Result<Next, Error> {
        let template = match self.fleet.templates.get(key) {
            Lookup::Found(template) => template,
            Lookup::Absent => return Ok(Next::Done),
            Lookup::Unknown => return Ok(Next::After(UNKNOWN)),
        };
        // A policy that went meanwhile has released what it had.
        let stands = self
            .policy(&claim.policy)
            .is_some_and(|policy| !policy.is_deleting());
        if !stands || template.is_deleting() {
            return Ok(Next::Done);
        }
        let Some(metadata) = claim.patch(&*template) else {
            return Ok(Next::Done);
        };
        let marked = self
            .mark(client, key, template.metadata(), metadata)
            .await?;
        // A template that is not as it was known needs another decision.
        Ok(if marked { Next::Done } else { Next::Again })
    }

    /// Patches the metadata of a template; `false` when it is not as it was known, so that the
    /// decision has to be made again.
    pub(super) async fn mark(
        &self,
        client: &Client,
        key: &TemplateKey,
        known: &ObjectMeta,
        mut metadata: Value,
    ) -> Result<bool, Error> {
        let Some(api) = self.fleet.templates.api(key, client) else {
            return Ok(false);
        };
        metadata["resourceVersion"] = json!(known.resource_version);
        let answer = merge(&api, &key.name, &json!({ "metadata": metadata })).await;
        let written = Written::of(answer).map_err(ApiError::of("mark", key))?;
        Ok(matches!(written, Written::Done(_)))
    }

    /// Ends a claim: on the binding first, so that a crash between the two leaves a template that
    /// still names its policy.
    pub(super) async fn release(
        &self,
        client: &Client,
        key: &TemplateKey,
        claim: &Claim,
    ) -> Result<Next, Error> {
        {
            let mut memory = self.memory();
            if memory.claims.get(key) == Some(claim) {
                memory.claims.remove(key);
            }
        }
        let template = self.fleet.templates.get(key);
        let uid = match &template {
            Lookup::Found(template) => template.metadata().uid.as_deref(),
            Lookup::Absent | Lookup::Unknown => None,
        };
        let released = self.release_binding(key, uid, claim).await?;
        if !released {
            return Ok(Next::Again);
        }
        // One whose kind is not listed is released when it is: its policy has gone then.
        let Lookup::Found(template) = &template else {
            return Ok(Next::Done);
        };
        if let Some(metadata) = claim.release(&**template) {
            if !self
                .mark(client, key, template.metadata(), metadata)
                .await?
            {
                return Ok(Next::Again);
            }
            tracing::info!(template = %key, policy = %claim.policy, "released from its policy");
        }
        Ok(Next::Done)
    }

    /// Ends a claim on a template's binding. Its Works stay: a deleted policy freezes what it
    /// placed, it does not remove it. What the policy said last of the copies in members is written
    /// with it: an edit may have come just before the deletion. A binding of the name that is
    /// another object's is left alone.
    async fn release_binding(
        &self,
        template: &TemplateKey,
        uid: Option<&str>,
        claim: &Claim,
    ) -> Result<bool, Error> {
        let key = BindingKey::for_template(template);
        let Some(held) = self
            .fleet
            .bindings
            .get(&key)
            .filter(|held| !matches!(owner(held.as_ref(), template, uid), Owner::Other(_)))
        else {
            return Ok(true);
        };
        let Some(mut metadata) = claim.release(&held.metadata) else {
            return Ok(true);
        };
        metadata["resourceVersion"] = json!(held.metadata.resource_version);
        let mut patch = json!({ "metadata": metadata });
        let policy = self.policy(&claim.policy);
        if policy.is_some_and(|policy| policy.is_deleting()) {
            let last = protected(&self.fleet, held.as_ref());
            if let Some(spec) = merge::difference(&json!(held.spec), &json!(last)) {
                patch["spec"] = spec;
            }
        }
        let written = key.merge(&self.fleet.client, "release", &patch).await?;
        Ok(!written.is_overtaken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing::{Bench, binding, claimed, pass, policy};
    use crate::propagation::detector::detect;

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_is_edited_and_deleted_at_once_leaves_its_last_word_on_its_bindings() {
        let mut policy = policy();
        policy["metadata"]["finalizers"] = json!(["karmada.io/propagation-policy-controller"]);
        policy["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let says = json!({
            "placement": {"clusterAffinity": {"clusterNames": ["m9"]}},
            "preserveResourcesOnDeletion": true,
            "suspension": {"dispatching": true},
            "failover": {"cluster": {"purgeMode": "Never"}},
        });
        merge::apply(&mut policy["spec"], &says);
        let held = claimed(binding());
        let placement = held["spec"]["placement"].clone();
        let template = claimed(json!({"metadata": {"namespace": "shop", "name": "web"}}));
        let mut bench = Bench::new([
            ("propagationpolicies", policy),
            ("resourcebindings", held),
            ("deployments", template),
        ]);
        detect(&mut bench).await;
        pass(10).await;
        let policies: Vec<_> = bench.fleet.policies.iter().collect();
        assert!(policies.is_empty(), "the policy is gone: {policies:?}");
        let held = bench.binding("web-deployment");
        let held = json!(*held.unwrap());
        assert_eq!(held["spec"]["preserveResourcesOnDeletion"], json!(true));
        assert_eq!(held["spec"]["suspension"], json!({"dispatching": true}));
        assert_eq!(held["spec"]["failover"]["cluster"]["purgeMode"], "Never");
        assert_eq!(held["spec"]["placement"], placement, "it stays where it is");
    }
}
