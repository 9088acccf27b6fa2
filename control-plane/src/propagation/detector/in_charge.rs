//! Finds the policy that claims a template, from the template, its binding and the caches.

use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::queue::Next;
use muster_shared::watch::{Doubt, Presence};

use super::controller::{Detector, LATER};
use super::error::Error;
use super::identity::{Owner, owner};
use super::select::{selects, winner};
use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::selection::Subject;
use crate::fleet::template::{Template, TemplateKey};
use crate::fleet::template_event::{KindState, Lookup};

impl Detector {
    /// Returns the claim on a template that is written on its binding, and may not have been
    /// written on the template yet.
    pub(super) fn claim_of_binding(&self, key: &TemplateKey, template: &Template) -> Option<Claim> {
        let held = self.binding_of(key, template)?;
        Claim::on(&held.metadata)
    }

    /// Returns the binding of a template. A binding of its name that belongs to another object is
    /// not returned.
    pub(super) fn binding_of(
        &self,
        key: &TemplateKey,
        template: &Template,
    ) -> Option<Arc<AnyBinding>> {
        let held = self.fleet.bindings.get(&BindingKey::for_template(key))?;
        let uid = template.metadata().uid.as_deref();
        (owner(held.as_ref(), key, uid) == Owner::Template).then_some(held)
    }

    /// Returns when to look again at a template whose binding was made of the same object in
    /// another version of its kind, which its policy selects, too; `None` for others. The first
    /// version counts: each would write the binding, and with it the members, for itself.
    pub(super) fn bound_by_another_version(
        &self,
        key: &TemplateKey,
        template: &Template,
        policy: &Policy,
    ) -> Option<Next> {
        let held = self.binding_of(key, template)?;
        let bound = TemplateKey::of(&held.spec.resource);
        if bound == *key {
            return None;
        }
        match self.fleet.templates.get(&bound) {
            Lookup::Found(it) if selects(policy, Subject::of(&bound.kind, &it)) => Some(Next::Done),
            Lookup::Unknown => {
                let state = self.fleet.templates.kind_state(&bound.kind);
                (state != KindState::Missing).then_some(Next::After(LATER))
            }
            Lookup::Found(_) | Lookup::Absent => None,
        }
    }

    /// Returns the policy of a key, if it is in the cache.
    pub(super) fn policy(&self, key: &PolicyKey) -> Option<Policy> {
        key.presence(&self.fleet).there()
    }

    /// Returns whether a policy does not exist any more. The API is asked for a policy that is not
    /// in the cache, because one that was seen being deleted may have been made again, and a policy
    /// that cannot be read keeps what it has.
    pub(super) async fn is_gone(&self, key: &PolicyKey) -> Result<bool, Error> {
        Ok(match key.presence(&self.fleet) {
            Presence::There(_) | Presence::Unknown(Doubt::Unlisted | Doubt::Unreadable { .. }) => {
                false
            }
            Presence::Gone | Presence::Unknown(Doubt::Unseen | Doubt::Vanished) => {
                key.read(&self.fleet).await?.is_none()
            }
        })
    }

    /// Returns the policy for a template that has none: one of its namespace goes before any
    /// cluster-wide one.
    pub(super) fn match_policy(&self, subject: Subject<'_>) -> Option<Policy> {
        let best = |namespace: Option<&str>| {
            let candidates = self.memory().candidates.of(namespace, subject);
            let policies: Vec<_> = candidates
                .iter()
                .filter_map(|key| self.policy(key))
                .collect();
            winner(&policies, subject).cloned()
        };
        let near = subject
            .namespace
            .and_then(|namespace| best(Some(namespace)));
        near.or_else(|| best(None))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::fleet::testing::{self, Stand, pass};

    #[tokio::test(start_paused = true)]
    async fn of_two_versions_of_a_kind_that_a_policy_names_one_is_carried_out() {
        let (kind, plural) = ("HorizontalPodAutoscaler", "horizontalpodautoscalers");
        let mut both = testing::policy();
        both["metadata"]["generation"] = json!(1);
        both["metadata"]["finalizers"] = json!(["karmada.io/propagation-policy-controller"]);
        both["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        both["spec"]["resourceSelectors"] = json!([
            {"apiVersion": "autoscaling/v1", "kind": kind},
            {"apiVersion": "autoscaling/v2", "kind": kind},
        ]);
        let scaler = json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "t", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"maxReplicas": 3},
        });
        let mut stand = Stand::new([("propagationpolicies", both), (plural, scaler)]);
        for version in ["autoscaling/v1", "autoscaling/v2"] {
            stand
                .api
                .serve(&format!("/apis/{version}"), version, plural, kind);
        }
        crate::propagation::detector::start(&stand.fleet, &mut stand.tasks);
        stand.follow().await;
        pass(30).await;
        let name = "web-horizontalpodautoscaler";
        let bound = || stand.api.binding(name)["spec"]["resource"].clone();
        let first = bound()["apiVersion"].clone();
        stand.api.forget();
        let mut edited = stand.api.object(plural, "shop", "web").expect("it stays");
        edited["metadata"]["generation"] = json!(2);
        edited["spec"]["maxReplicas"] = json!(5);
        stand.api.put(plural, edited);
        pass(30).await;
        let written = stand.api.writes().into_iter();
        let written: Vec<_> = written.filter(|it| it.1.ends_with(name)).collect();
        assert_eq!(written.len(), 1, "{written:?}");
        assert_eq!(bound()["apiVersion"], first);
    }
}
