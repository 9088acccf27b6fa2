//! Checks whether the `failover.application` of a policy can be followed.

use muster_interpreter::{Interpreters, Operation};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::policy::ApplicationFailoverBehavior;

use super::explain::Unfollowed;

/// Action about an application, by its policy.
#[derive(Debug, PartialEq)]
pub enum Action<'a> {
    /// Follow its policy.
    Follow(&'a ApplicationFailoverBehavior),
    /// Nothing now; its recorded state is kept.
    Wait,
    /// Its policy requests no failover, or one that cannot be given: its recorded state is removed.
    Forget(Option<Unfollowed>),
}

/// Returns what the policy says, where it can be followed: the health of the kind is known, and
/// what the application needs goes with it (the rules of Karmada; it does not ask the latter of
/// resources without a namespace, K55, nor for the gate). `propagates_deps` says whether the gate
/// `PropagateDeps` is on.
pub fn action<'a>(
    binding: &'a AnyBinding,
    interpreters: &Interpreters,
    propagates_deps: bool,
) -> Action<'a> {
    let spec = &binding.spec;
    if binding.metadata.deletion_timestamp.is_some() {
        return Action::Wait;
    }
    let Some(behavior) = spec.application_failover() else {
        return Action::Forget(None);
    };
    if !spec.propagate_deps {
        return Action::Forget(Some(Unfollowed::Dependencies));
    }
    if !propagates_deps {
        return Action::Forget(Some(Unfollowed::DependenciesOff));
    }
    let resource = &spec.resource;
    let hook = Operation::InterpretHealth;
    if !interpreters.has(&resource.api_version, &resource.kind, hook) {
        return Action::Forget(Some(Unfollowed::Health));
    }
    // A workload without clusters, as one that is scaled to zero, is unhealthy nowhere.
    if binding.status().aggregated_status.is_empty() && !spec.clusters.is_empty() {
        return Action::Wait;
    }
    Action::Follow(behavior)
}

#[cfg(test)]
mod tests {
    use muster_interpreter::lua::Customization;
    use serde_json::{Value, json};

    use super::*;

    fn binding(edit: impl Fn(&mut Value)) -> AnyBinding {
        let mut binding = json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "propagateDeps": true,
                "clusters": [{"name": "m1"}],
                "failover": {"application": {"decisionConditions": {"tolerationSeconds": 0}}},
            },
            "status": {"aggregatedStatus": [{"clusterName": "m1"}]},
        });
        edit(&mut binding);
        serde_json::from_value(binding).unwrap()
    }

    /// Returns the action in one word.
    fn of(edit: impl Fn(&mut Value), propagates_deps: bool) -> &'static str {
        let customization = Customization {
            name: "jobs".to_owned(),
            api_version: "example.com/v1".to_owned(),
            kind: "Training".to_owned(),
            scripts: vec![(Operation::InterpretHealth, "x".to_owned())],
        };
        let interpreters = Interpreters::of(&[customization]);
        match action(&binding(edit), &interpreters, propagates_deps) {
            Action::Follow(_) => "follow",
            Action::Wait => "wait",
            Action::Forget(None) => "forget",
            Action::Forget(Some(Unfollowed::Dependencies)) => "dependencies",
            Action::Forget(Some(Unfollowed::DependenciesOff)) => "gate",
            Action::Forget(Some(Unfollowed::Health)) => "health",
        }
    }

    #[test]
    fn a_policy_is_followed_or_it_is_said_why_not() {
        let cases: [(&str, Value, &str); 8] = [
            ("/spec/propagateDeps", json!(true), "follow"),
            ("/spec/propagateDeps", json!(false), "dependencies"),
            ("/spec/resource/kind", json!("Training"), "health"),
            (
                "/spec/resource",
                json!({"apiVersion": "example.com/v1", "kind": "Training", "name": "t"}),
                "follow",
            ),
            (
                "/spec/resource",
                json!({"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "name": "f"}),
                "follow",
            ),
            ("/spec/failover", json!(null), "forget"),
            // An agent that says nothing for a while ends no clock.
            ("/status/aggregatedStatus", json!([]), "wait"),
            (
                "/metadata/deletionTimestamp",
                json!("2026-01-01T00:00:00Z"),
                "wait",
            ),
        ];
        for (path, value, expected) in cases {
            let edit = |binding: &mut Value| {
                let (parent, field) = path.rsplit_once('/').unwrap();
                binding.pointer_mut(parent).unwrap()[field] = value.clone();
            };
            assert_eq!(of(edit, true), expected, "{path}");
        }
        let is_nowhere = |binding: &mut Value| {
            binding["spec"]["clusters"] = json!([]);
            binding["status"]["aggregatedStatus"] = json!([]);
        };
        assert_eq!(of(is_nowhere, true), "follow", "its condition ends");
    }

    #[test]
    fn without_the_gate_for_dependencies_no_application_is_moved() {
        let cases = [
            ("propagateDeps", json!(true), "gate"),
            ("propagateDeps", json!(false), "dependencies"),
            ("failover", json!(null), "forget"),
        ];
        for (field, value, expected) in cases {
            let edit = |binding: &mut Value| binding["spec"][field] = value.clone();
            assert_eq!(of(edit, false), expected, "{field}");
        }
    }
}
