//! Takes templates over from policies of lower priority.

use muster_shared::api::policy::PreemptionBehavior;
use muster_shared::api::scope::ResourceScope::{Cluster, Namespaced};
use muster_shared::events::EventType;
use muster_shared::queue::Next;

use super::controller::Detector;
use super::error::Error;
use super::select::selects;
use crate::fleet::claim::Claim;
use crate::fleet::policy::Policy;
use crate::fleet::selection::{Subject, given};
use crate::fleet::template::{Kind, Template, TemplateKey};
use crate::settings::PROPAGATION_POLICY_PREEMPTION;

/// Returns whether `candidate`, which selects the template by name and may preempt, takes it over
/// from `owner`.
///
/// A namespaced policy always beats a cluster-wide one, and never the other way round. Among equals
/// the explicit priority must be strictly greater (Karmada: `pkg/detector/preemption.go`).
pub fn takes_over(candidate: &Policy, owner: &Policy) -> bool {
    match (candidate.scope(), owner.scope()) {
        (Namespaced, Cluster) => true,
        (Cluster, Namespaced) => false,
        (Namespaced, Namespaced) | (Cluster, Cluster) => {
            candidate.key() != owner.key() && candidate.spec().priority() > owner.spec().priority()
        }
    }
}

/// Returns whether a policy may take a template over: it is allowed to preempt, and names the
/// template with its namespace.
pub fn may_preempt(policy: &Policy, subject: Subject<'_>) -> bool {
    let key = policy.key();
    policy.spec().preemption == Some(PreemptionBehavior::Always)
        && !policy.is_deleting()
        && selects(policy, subject)
        && policy.spec().resource_selectors.iter().any(|selector| {
            Kind::new(&*selector.api_version, &*selector.kind) == *subject.kind
                && given(selector.name.as_deref()) == Some(subject.name)
                && key.namespace_of(selector) == subject.namespace
        })
}

impl Detector {
    /// Returns the policy that takes a template over from its owner, with its claim. It follows
    /// from what there is, not from what happened: a policy may come, change, or lower its priority
    /// while a list leaves the template out.
    pub(super) fn preemptor(
        &self,
        subject: Subject<'_>,
        owner: &Policy,
    ) -> Option<(Policy, Claim)> {
        if !self.fleet.settings.gate(&PROPAGATION_POLICY_PREEMPTION) {
            return None;
        }
        let keys = self.memory().candidates.naming_anywhere(subject);
        let policies = keys.iter().filter_map(|key| self.policy(key));
        let mut best = None;
        for policy in policies.filter(|policy| may_preempt(policy, subject)) {
            let rival = best.as_ref().map_or(owner, |(policy, _)| policy);
            if takes_over(&policy, rival)
                && let Some(claim) = Claim::by(&policy)
            {
                best = Some((policy, claim));
            }
        }
        best
    }

    /// Takes a template over from a policy.
    pub(super) async fn take_over(
        &self,
        key: &TemplateKey,
        template: &Template,
        (policy, claim): (&Policy, &Claim),
        owner: &Policy,
    ) -> Result<Next, Error> {
        // A claim of the owner that is still to be written would undo it.
        self.memory().claims.remove(key);
        let Some(metadata) = claim.patch(template) else {
            return Ok(Next::Done);
        };
        let client = self.fleet.work_writer.when_idle().await;
        let known = template.metadata();
        if !self.mark(&client, key, known, metadata).await? {
            return Ok(Next::Again);
        }
        let note = format!("{} takes {key} over from {}", policy.key(), owner.key());
        tracing::info!("{note}");
        let events = &self.fleet.events;
        policy.report(events, EventType::Normal, "PreemptPolicySucceed", note);
        Ok(Next::Done)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::testing::{Bench, pass};
    use crate::propagation::detector::detect;
    use crate::settings::Settings;

    fn policy(namespace: Option<&str>, name: &str, priority: i32) -> Policy {
        let metadata = json!({"namespace": namespace, "name": name});
        let policy = json!({"metadata": metadata, "spec": {"priority": priority}});
        Policy(serde_json::from_value(policy).unwrap())
    }

    fn pp(name: &str, priority: i32) -> Policy {
        policy(Some("shop"), name, priority)
    }

    fn cpp(name: &str, priority: i32) -> Policy {
        policy(None, name, priority)
    }

    #[test]
    fn who_takes_over_from_whom() {
        for (candidate, owner, expected) in [
            (pp("a", 2), pp("b", 1), true),
            (pp("a", 1), pp("b", 1), false),
            (pp("a", 0), cpp("b", 9), true),
            (cpp("a", 2), cpp("b", 1), true),
            (cpp("a", 1), cpp("b", 2), false),
            (cpp("a", 9), pp("b", 0), false),
        ] {
            assert_eq!(
                takes_over(&candidate, &owner),
                expected,
                "{} over {}",
                candidate.key(),
                owner.key()
            );
        }
    }

    /// Returns settings under which policies may preempt.
    fn preempting() -> Settings {
        Settings {
            feature_gates: "PropagationPolicyPreemption=true".parse().unwrap(),
            ..Settings::default()
        }
    }

    /// Returns a policy for one Deployment, as it is once it has its id.
    fn stored(name: &str, generation: i64, priority: i32, preemption: &str) -> Value {
        json!({
            "metadata": {
                "namespace": "shop", "name": name, "uid": name, "generation": generation,
                "labels": {"propagationpolicy.karmada.io/permanent-id": name},
                "finalizers": ["karmada.io/propagation-policy-controller"],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {
                "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}],
                "priority": priority,
                "preemption": preemption,
            },
        })
    }

    fn claimed(version: &str, by: &str) -> Value {
        json!({
            "metadata": {
                "namespace": "shop", "name": "web", "uid": version,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"propagationpolicy.karmada.io/permanent-id": by},
                "annotations": {
                    "propagationpolicy.karmada.io/namespace": "shop",
                    "propagationpolicy.karmada.io/name": by,
                },
            },
            "spec": {"replicas": 2},
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_takes_over_whatever_comes_last() {
        let (owner, rival) = (
            stored("web", 1, 5, "Never"),
            stored("rival", 1, 7, "Always"),
        );
        let template = claimed("t", "web");
        let weak = stored("rival", 1, 3, "Always");
        let lowered = stored("web", 2, 1, "Never");
        let of = |object: &Value| {
            let kind = if object["spec"]["replicas"].is_null() {
                "propagationpolicies"
            } else {
                "deployments"
            };
            (kind, object.clone())
        };
        for (what, first, last, owned) in [
            ("the policy", vec![&owner, &template], &rival, "rival"),
            ("the template", vec![&owner, &rival], &template, "rival"),
            (
                "a lower priority",
                vec![&owner, &weak, &template],
                &lowered,
                "rival",
            ),
            ("too low a priority", vec![&owner, &template], &weak, "web"),
        ] {
            let mut bench = Bench::with(preempting(), first.into_iter().map(of));
            detect(&mut bench).await;
            pass(10).await;
            let (plural, object) = of(last);
            bench.api.put(plural, object);
            pass(10).await;
            let labels = bench.api.deployment()["metadata"]["labels"].take();
            let expected = json!({"propagationpolicy.karmada.io/permanent-id": owned});
            assert_eq!(labels, expected, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_had_no_id_when_the_process_began_takes_over_once_it_has_one() {
        // No process led while the policy was written, so that it has no id.
        let mut rival = stored("rival", 1, 7, "Always");
        rival["metadata"]["labels"] = json!(null);
        rival["metadata"]["finalizers"] = json!(null);
        let objects = [
            ("propagationpolicies", stored("web", 1, 5, "Never")),
            ("propagationpolicies", rival),
            ("deployments", claimed("t", "web")),
        ];
        let mut bench = Bench::with(preempting(), objects);
        detect(&mut bench).await;
        pass(60).await;
        let labels = bench.api.deployment()["metadata"]["labels"].take();
        let expected = json!({"propagationpolicy.karmada.io/permanent-id": "rival"});
        assert_eq!(labels, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_template_that_cannot_be_taken_over_follows_its_owner() {
        let mut template = claimed("t", "web");
        let objects = [
            ("propagationpolicies", stored("web", 1, 5, "Never")),
            ("propagationpolicies", stored("rival", 1, 7, "Always")),
            ("deployments", template.clone()),
        ];
        let mut bench = Bench::with(preempting(), objects);
        let path = "/apis/apps/v1/namespaces/shop/deployments/web";
        bench.api.refuse(Method::PATCH, path, 403, "web");
        detect(&mut bench).await;
        pass(10).await;
        let replicas = |bench: &Bench| bench.binding("web-deployment").map(|it| it.spec.replicas);
        assert_eq!(replicas(&bench), Some(2), "the owner has it");
        template["spec"]["replicas"] = json!(5);
        template["metadata"]["generation"] = json!(2);
        bench.api.put("deployments", template);
        pass(10).await;
        assert_eq!(replicas(&bench), Some(5), "an edit is carried out");
    }
}
