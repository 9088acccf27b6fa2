//! Admission of ResourceBinding and ClusterResourceBinding from writers other than the control
//! plane: defaults and validation. Karmada does not validate eviction tasks (K51).

use muster_shared::api::binding::{GracefulEvictionTask, ResourceBindingSpec};
use muster_shared::api::policy::PurgeMode;
use muster_shared::names::annotation;
use serde_json::{Value, json};

use super::Object;
use super::placement;
use super::problem::Findings;

/// A binding of either kind.
pub type Binding = Object<ResourceBindingSpec>;

/// Returns everything that is wrong with a binding.
pub fn check(binding: &Binding) -> Findings {
    let mut found = Findings::default();
    let annotations = binding.metadata.annotations.as_ref();
    if let Some(text) = annotations.and_then(|it| it.get(annotation::DEPENDENCIES))
        && serde_json::from_str::<Vec<serde_json::Map<String, Value>>>(text).is_err()
    {
        found.invalid(
            format!("metadata.annotations[{}]", annotation::DEPENDENCIES),
            text,
            "must be a JSON list of references to objects",
        );
    }
    if let Some(stated) = &binding.spec.placement {
        placement::check(stated, "spec.placement", &mut found);
    }
    let tasks = &binding.spec.graceful_eviction_tasks;
    for (index, task) in tasks.iter().enumerate() {
        let at = format!("spec.gracefulEvictionTasks[{index}]");
        eviction(task, &at, &mut found);
        if tasks[..index]
            .iter()
            .any(|it| it.from_cluster == task.from_cluster)
        {
            found.duplicate(format!("{at}.fromCluster"), &task.from_cluster);
        }
    }
    found
}

fn eviction(task: &GracefulEvictionTask, at: &str, found: &mut Findings) {
    let graceful = PurgeMode::is_graceful(task.purge_mode.as_ref());
    if task.from_cluster.is_empty() {
        found.required(format!("{at}.fromCluster"), "the cluster that is left");
    }
    if let Some(seconds) = task.grace_period_seconds {
        let at = format!("{at}.gracePeriodSeconds");
        if seconds <= 0 {
            found.invalid(at.as_str(), &seconds, "must be greater than 0");
        }
        if !graceful {
            found.warn(&at, "only takes effect when purgeMode is Gracefully");
        }
        if task.suppress_deletion.is_some() {
            found.forbidden(
                at,
                "gracePeriodSeconds and suppressDeletion cannot co-exist",
            );
        }
    }
}

/// Gives a new binding its identity, unless it has one.
pub fn default(binding: &mut Value, id_label: &str, new_id: &str) {
    let given = &binding["metadata"]["labels"][id_label];
    if given.as_str().unwrap_or_default().is_empty() {
        binding["metadata"]["labels"][id_label] = json!(new_id);
    }
}

#[cfg(test)]
mod tests {
    use muster_shared::merge;
    use muster_shared::names::label::RESOURCE_BINDING_ID;
    use serde::Deserialize as _;

    use super::*;

    #[test]
    fn eviction_tasks_make_sense() {
        let task = |with: &Value| {
            let mut task = json!({ "fromCluster": "m1", "producer": "me", "reason": "Because" });
            merge::apply(&mut task, with);
            task
        };
        let both = json!({ "gracePeriodSeconds": 5, "suppressDeletion": false });
        let thrice = [json!({}), json!({ "fromCluster": "m2" }), json!({})];
        for (edits, expected) in [
            (&[json!({ "gracePeriodSeconds": 5 })][..], ""),
            (&[json!({ "suppressDeletion": true })], ""),
            (
                &[json!({ "gracePeriodSeconds": 0 })],
                "[0].gracePeriodSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                &[both],
                "[0].gracePeriodSeconds: Forbidden: gracePeriodSeconds and suppressDeletion cannot co-exist",
            ),
            (&thrice, r#"[2].fromCluster: Duplicate value: "m1""#),
        ] {
            let tasks: Vec<Value> = edits.iter().map(task).collect();
            let object = json!({ "spec": { "gracefulEvictionTasks": tasks } });
            let binding = Binding::deserialize(&object).unwrap();
            let expected = match expected {
                "" => None,
                fault => Some(format!("spec.gracefulEvictionTasks{fault}")),
            };
            assert_eq!(check(&binding).refusal(), expected, "{edits:?}");
        }
    }

    #[test]
    fn dependencies_are_a_list_of_references() {
        for (text, sound) in [
            (r#"[{"kind": "Secret"}]"#, true),
            ("[]", true),
            ("{}", false),
            ("[1]", false),
            ("?", false),
        ] {
            let object =
                json!({ "metadata": { "annotations": { annotation::DEPENDENCIES: text } } });
            let binding = Binding::deserialize(&object).unwrap();
            assert_eq!(check(&binding).refusal().is_none(), sound, "{text}");
        }
    }

    #[test]
    fn a_new_binding_gets_an_identity_and_keeps_one_that_it_has() {
        for (labels, id) in [
            (Value::Null, "new"),
            (json!({ RESOURCE_BINDING_ID: "" }), "new"),
            (json!({ RESOURCE_BINDING_ID: "own" }), "own"),
        ] {
            let mut binding = json!({ "metadata": { "labels": labels } });
            default(&mut binding, RESOURCE_BINDING_ID, "new");
            assert_eq!(binding["metadata"]["labels"][RESOURCE_BINDING_ID], id);
        }
    }
}
