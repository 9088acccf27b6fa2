//! Finds the policy that claims a template, from the template, its binding and the caches.

use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::names::label;
use muster_shared::queue::Next;

use super::controller::{Detector, LATER};
use super::error::Error;
use super::identity::{Owner, owner};
use super::kinds::kinds_of;
use super::select::{selects, winner};
use crate::fleet::binding::BindingKey;
use crate::fleet::claim::Claim;
use crate::fleet::labelled::Labelled as _;
use crate::fleet::policy::{Policy, PolicyKey};
use crate::fleet::selection::{Subject, given};
use crate::fleet::template::{Template, TemplateKey};
use crate::fleet::template_event::{KindState, Lookup};

/// Returns the controller that a template belongs to by its label. No policy propagates such a
/// template.
pub(super) fn claiming_controller(template: &Template) -> Option<&str> {
    given(template.label(label::CLAIMED_BY))
}

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

    /// Returns when to reconcile a template again whose binding was made of the same object in
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
        let templates = &self.fleet.templates;
        match templates.get(&bound) {
            // The API serves the bound version no more, so that this one carries the edits since.
            Lookup::Found(_) if templates.is_outdated(&bound.kind) => None,
            Lookup::Found(it) if selects(policy, Subject::of(&bound.kind, &it)) => Some(Next::Done),
            Lookup::Unknown
                if kinds_of(policy.spec(), &self.fleet.scope).contains(&*bound.kind) =>
            {
                let is_coming = templates.kind_state(&bound.kind) != KindState::Missing
                    && templates.trouble(&bound.kind).is_none();
                is_coming.then_some(Next::After(LATER))
            }
            Lookup::Found(_) | Lookup::Absent | Lookup::Unknown => None,
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
        let may_exist = key.presence(&self.fleet).may_exist();
        Ok(!may_exist && key.read(&self.fleet).await?.is_none())
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
    use http::Method;
    use serde_json::{Value, json};

    use crate::fleet::testing::{self, Bench, FakeApi, claimed, pass, refusal};

    const KIND: &str = "HorizontalPodAutoscaler";
    const PLURAL: &str = "horizontalpodautoscalers";
    const BINDING: &str = "web-horizontalpodautoscaler";

    /// Returns a policy for autoscalers of some versions.
    fn policy_for(versions: &[&str]) -> Value {
        let mut policy = testing::policy();
        policy["metadata"]["generation"] = json!(1);
        policy["metadata"]["finalizers"] = json!(["karmada.io/propagation-policy-controller"]);
        policy["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        let selectors = versions
            .iter()
            .map(|version| json!({"apiVersion": version, "kind": KIND}));
        policy["spec"]["resourceSelectors"] = selectors.collect();
        policy
    }

    fn scaler() -> Value {
        json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": "t", "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"maxReplicas": 3},
        })
    }

    /// Has the API refuse to list and watch the autoscalers of a version.
    fn refuse(api: &FakeApi, version: &str, code: u16) {
        let path = format!("/apis/{version}/{PLURAL}");
        api.answer(Method::GET, &path, code, refusal(code, "Refused", ""));
    }

    async fn detected(mut bench: Bench) -> Bench {
        for version in ["autoscaling/v1", "autoscaling/v2"] {
            let path = format!("/apis/{version}");
            bench.api.serve(&path, version, PLURAL, KIND);
        }
        bench.run(crate::propagation::detector::start, 30).await;
        bench
    }

    async fn edit(bench: &Bench, replicas: i64) {
        let mut edited = bench.api.object(PLURAL, "shop", "web").expect("it stays");
        edited["metadata"]["generation"] = json!(replicas);
        edited["spec"]["maxReplicas"] = json!(replicas);
        bench.api.put(PLURAL, edited);
        pass(30).await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_versions_of_a_kind_that_a_policy_names_one_is_carried_out() {
        let both = policy_for(&["autoscaling/v1", "autoscaling/v2"]);
        let bench = Bench::new([("propagationpolicies", both), (PLURAL, scaler())]);
        let bench = detected(bench).await;
        let version = || bench.api.binding(BINDING)["spec"]["resource"]["apiVersion"].clone();
        let first = version();
        bench.api.forget();
        edit(&bench, 5).await;
        let written = bench.api.writes().into_iter();
        let written: Vec<_> = written.filter(|it| it.1.ends_with(BINDING)).collect();
        assert_eq!(written.len(), 1, "{written:?}");
        assert_eq!(version(), first);
        refuse(&bench.api, first.as_str().expect("it has a version"), 404);
        // The first change ends the watch that is open.
        for replicas in [6, 7] {
            edit(&bench, replicas).await;
        }
        assert_ne!(version(), first, "it is served no more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_the_policy_does_not_name_or_that_cannot_be_listed_holds_up_no_other() {
        for versions in [
            &["autoscaling/v2"][..],
            &["autoscaling/v1", "autoscaling/v2"],
        ] {
            let mut held = claimed(testing::binding());
            held["metadata"]["name"] = json!(BINDING);
            held["spec"]["resource"] = json!({
                "apiVersion": "autoscaling/v1", "kind": KIND, "namespace": "shop", "name": "web",
                "uid": "t",
            });
            let bench = Bench::new([
                ("propagationpolicies", policy_for(versions)),
                ("resourcebindings", held),
                (PLURAL, claimed(scaler())),
            ]);
            refuse(&bench.api, "autoscaling/v1", 403);
            let bench = detected(bench).await;
            pass(120).await;
            let bound = bench.api.binding(BINDING)["spec"]["resource"].clone();
            assert_eq!(bound["apiVersion"], "autoscaling/v2", "{versions:?}");
        }
    }
}
