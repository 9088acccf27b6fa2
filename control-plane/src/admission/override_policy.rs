//! Admission of OverridePolicy and ClusterOverridePolicy: defaults and validation.
//!
//! The rules are those of Karmada's webhooks, and what can never be applied is rejected as well.

use muster_shared::api::override_policy::{
    FieldOperation, ImageOverrider, LabelAnnotationOverrider, OverrideSpec, OverriderOperator,
    Overriders,
};
use muster_shared::selectors::{is_label_key, is_label_value};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Object;
use super::placement;
use super::problem::Findings;
use crate::propagation::overrides::pointer_fault;

/// Fields that identify a resource.
const IDENTITY: [&str; 6] = [
    "",
    "/apiVersion",
    "/kind",
    "/metadata",
    "/metadata/name",
    "/metadata/namespace",
];

/// A policy of either kind; an OverridePolicy has a namespace.
pub type Policy = Object<OverrideSpec>;

/// Returns everything that is wrong with a policy by itself.
pub fn check(policy: &Policy) -> Findings {
    let mut found = Findings::default();
    let spec = &policy.spec;
    let elsewhere = |namespace: &String| {
        let own = policy.metadata.namespace.as_ref();
        !namespace.is_empty() && own.is_some_and(|own| own != namespace)
    };
    let changes_containers = spec.rules().any(|(_, overriders)| {
        let mut images = overriders.image_overrider.iter();
        images.any(|it| it.predicate.is_none())
            || !overriders.command_overrider.is_empty()
            || !overriders.args_overrider.is_empty()
    });
    for (index, selector) in spec.resource_selectors.iter().enumerate() {
        if selector.namespace.as_ref().is_some_and(&elsewhere) {
            found.warn(
                format!("spec.resourceSelectors[{index}].namespace"),
                "is not the policy's own: nothing is selected there",
            );
        }
        if changes_containers && selector.kind == "CronJob" {
            found.warn(
                format!("spec.resourceSelectors[{index}].kind"),
                "image, command and args overriders change no containers of a CronJob: name the field of each image in a predicate, or use plaintext",
            );
        }
    }
    let pair = spec.target_cluster.is_some() || !spec.overriders.is_empty();
    if pair && !spec.override_rules.is_empty() {
        found.forbidden(
            "spec.overrideRules",
            "overrideRules and the deprecated targetCluster and overriders exclude each other",
        );
    }
    if let Some(target) = &spec.target_cluster {
        placement::affinity(target, "spec.targetCluster", &mut found);
    }
    overriders(&spec.overriders, "spec.overriders", &mut found);
    for (index, rule) in spec.override_rules.iter().enumerate() {
        let at = format!("spec.overrideRules[{index}]");
        if let Some(target) = &rule.target_cluster {
            placement::affinity(target, &format!("{at}.targetCluster"), &mut found);
        }
        overriders(&rule.overriders, &format!("{at}.overriders"), &mut found);
    }
    found
}

fn overriders(all: &Overriders, at: &str, found: &mut Findings) {
    for (index, it) in all.plaintext.iter().enumerate() {
        let at = format!("{at}.plaintext[{index}]");
        pointer(&it.path, &format!("{at}.path"), found);
        if IDENTITY.contains(&it.path.as_str()) {
            found.invalid(
                format!("{at}.path"),
                &it.path,
                "apiVersion, kind, namespace and name of a resource cannot be overridden",
            );
        }
        value(&it.operator, it.value.as_ref(), &at, found);
    }
    for (index, it) in all.image_overrider.iter().enumerate() {
        image(it, &format!("{at}.imageOverrider[{index}]"), found);
    }
    for (field, list) in [
        ("labelsOverrider", &all.labels_overrider),
        ("annotationsOverrider", &all.annotations_overrider),
    ] {
        for (index, it) in list.iter().enumerate() {
            let values = field == "labelsOverrider";
            pairs(it, values, &format!("{at}.{field}[{index}].value"), found);
        }
    }
    for (index, it) in all.field_overrider.iter().enumerate() {
        let at = format!("{at}.fieldOverrider[{index}]");
        pointer(&it.field_path, &format!("{at}.fieldPath"), found);
        if it.json.is_empty() == it.yaml.is_empty() {
            found.invalid(
                at.as_str(),
                &it.field_path,
                "has either json or yaml, and not both",
            );
        }
        operations(&it.json, &format!("{at}.json"), found);
        operations(&it.yaml, &format!("{at}.yaml"), found);
    }
}

fn operations(list: &[FieldOperation], at: &str, found: &mut Findings) {
    for (index, it) in list.iter().enumerate() {
        let at = format!("{at}[{index}]");
        pointer(&it.sub_path, &format!("{at}.subPath"), found);
        value(&it.operator, it.value.as_ref(), &at, found);
    }
}

fn pointer(path: &str, at: &str, found: &mut Findings) {
    if let Some(fault) = pointer_fault(path) {
        found.invalid(at, &path, &fault);
    }
}

/// Checks that an operation has a value if, and only if, it needs one.
fn value(operator: &OverriderOperator, value: Option<&Value>, at: &str, found: &mut Findings) {
    let at = format!("{at}.value");
    match (operator, value) {
        (OverriderOperator::Remove, Some(value)) => {
            found.invalid(at, value, "must be absent when operator is remove");
        }
        (OverriderOperator::Add | OverriderOperator::Replace, None) => {
            found.required(at, "add and replace need one; null is a value, too");
        }
        _ => {}
    }
}

fn image(it: &ImageOverrider, at: &str, found: &mut Findings) {
    if let Some(predicate) = &it.predicate {
        pointer(&predicate.path, &format!("{at}.predicate.path"), found);
    }
    if it.operator != OverriderOperator::Remove && it.value.is_empty() {
        found.required(format!("{at}.value"), "add and replace need a text");
    }
}

/// Checks keys, and values if they are those of labels.
fn pairs(it: &LabelAnnotationOverrider, values: bool, at: &str, found: &mut Findings) {
    for (key, value) in &it.value {
        if !is_label_key(key) {
            found.invalid(
                at,
                key,
                "a key is a name of at most 63 characters, with an optional DNS prefix",
            );
        }
        if values && it.operator != OverriderOperator::Remove && !is_label_value(value) {
            found.invalid(
                format!("{at}[{key}]"),
                value,
                "a label value has at most 63 letters, digits, and - _ . between them",
            );
        }
    }
}

/// Writes the namespace of an OverridePolicy into its selectors, as Karmada does.
pub fn default(policy: &mut Value) {
    let Ok(read) = Policy::deserialize(&*policy) else {
        return;
    };
    let Some(namespace) = &read.metadata.namespace else {
        return;
    };
    for (index, selector) in read.spec.resource_selectors.iter().enumerate() {
        if selector.namespace.as_deref().unwrap_or_default().is_empty() {
            policy["spec"]["resourceSelectors"][index]["namespace"] = json!(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(spec: &Value) -> String {
        let policy = json!({ "metadata": { "namespace": "shop" }, "spec": spec });
        let policy: Policy = serde_json::from_value(policy).unwrap();
        check(&policy).refusal().unwrap_or_default()
    }

    fn rule(overriders: &Value) -> Value {
        json!({ "overrideRules": [{ "overriders": overriders }] })
    }

    #[test]
    fn a_sound_policy_is_taken() {
        let all = json!({
            "plaintext": [
                { "path": "/spec/replicas", "operator": "replace", "value": null },
                { "path": "/spec/x", "operator": "remove" },
            ],
            "imageOverrider": [
                { "component": "Registry", "operator": "replace", "value": "eu.io" },
                { "component": "Tag", "operator": "remove", "predicate": { "path": "/spec/image" } },
            ],
            "argsOverrider": [{ "containerName": "a", "operator": "add", "value": ["--x"] }],
            "labelsOverrider": [{ "operator": "add", "value": { "example.com/a": "b" } }],
            "annotationsOverrider": [{ "operator": "add", "value": { "a": "any text" } }],
            "fieldOverrider": [{
                "fieldPath": "/data/a~1b",
                "yaml": [{ "subPath": "/x", "operator": "add", "value": 1 }],
            }],
        });
        assert_eq!(refusal(&rule(&all)), "");
        assert_eq!(refusal(&json!({ "overriders": all })), "");
    }

    #[test]
    fn each_fault_is_refused_with_its_field() {
        let refuse = |spec: &Value, at: &str, reason: &str| {
            let text = refusal(spec);
            let is_reported = text.contains(at) && text.contains(reason);
            assert!(is_reported, "{at} {reason}: {text}");
        };
        for (path, operator, has_value, at, reason) in [
            ("spec", "remove", false, "path", "no JSON pointer"),
            ("/metadata/name", "replace", true, "path", "overridden"),
            ("/spec/a", "add", false, "value", "Required"),
            ("/spec/a", "remove", true, "value", "must be absent"),
        ] {
            let mut it = json!({ "path": path, "operator": operator });
            if has_value {
                it["value"] = json!("x");
            }
            let spec = rule(&json!({ "plaintext": [it] }));
            refuse(&spec, &format!("plaintext[0].{at}"), reason);
        }
        let image = rule(&json!({ "imageOverrider": [{ "component": "Tag", "operator": "add" }] }));
        refuse(&image, "imageOverrider[0].value", "Required");
        for (value, at, reason) in [
            (json!({ "a b": "c" }), "value", "a key is"),
            (json!({ "a": "not one" }), "value[a]", "label value"),
        ] {
            let labels = json!({ "labelsOverrider": [{ "operator": "add", "value": value }] });
            refuse(&rule(&labels), &format!("labelsOverrider[0].{at}"), reason);
        }
        let field = |it: Value| rule(&json!({ "fieldOverrider": [it] }));
        let neither = field(json!({ "fieldPath": "/data/a" }));
        refuse(&neither, "fieldOverrider[0]", "either json or yaml");
        let removed = |path: &str| json!([{ "subPath": path, "operator": "remove" }]);
        let odd = field(json!({ "fieldPath": "/data/a", "json": removed("x") }));
        refuse(&odd, "fieldOverrider[0].json[0].subPath", "no JSON pointer");
        let mut both = field(json!({ "fieldPath": "/a", "json": removed("/x") }));
        both["overriders"] = both["overrideRules"][0]["overriders"].clone();
        refuse(&both, "spec.overrideRules: ", "exclude each other");
        let planet = json!({ "key": "planet", "operator": "In", "values": ["x"] });
        let target = json!({ "fieldSelector": { "matchExpressions": [planet] } });
        let target = json!({ "overrideRules": [{ "targetCluster": target, "overriders": {} }] });
        refuse(&target, "spec.overrideRules[0].targetCluster", "planet");
    }

    #[test]
    fn a_warning_reports_containers_that_no_overrider_finds() {
        let tag = json!({ "component": "Tag", "operator": "remove" });
        let mut named = tag.clone();
        named["predicate"] =
            json!({ "path": "/spec/jobTemplate/spec/template/spec/containers/0/image" });
        let args = json!({ "containerName": "a", "operator": "add", "value": ["--x"] });
        for (kind, overriders, is_reported) in [
            ("CronJob", json!({ "imageOverrider": [tag] }), true),
            ("CronJob", json!({ "imageOverrider": [named, tag] }), true),
            ("CronJob", json!({ "imageOverrider": [named] }), false),
            ("CronJob", json!({ "argsOverrider": [args] }), true),
            ("CronJob", json!({ "commandOverrider": [args] }), true),
            ("CronJob", json!({}), false),
            ("Job", json!({ "imageOverrider": [tag] }), false),
        ] {
            let mut spec = rule(&overriders);
            spec["resourceSelectors"] = json!([{ "apiVersion": "batch/v1", "kind": kind }]);
            let policy = json!({ "metadata": { "namespace": "shop" }, "spec": spec });
            let policy: Policy = serde_json::from_value(policy).unwrap();
            let warnings = check(&policy).warnings;
            let reported = warnings
                .iter()
                .any(|it| it.starts_with("spec.resourceSelectors[0].kind: "));
            assert_eq!(reported, is_reported, "{kind} {overriders}");
        }
    }

    #[test]
    fn selectors_of_an_override_policy_get_its_namespace() {
        let policy = |namespace: Value| {
            let mut policy = json!({
                "metadata": { "namespace": namespace },
                "spec": { "resourceSelectors": [{ "apiVersion": "v1", "kind": "Secret" }] },
            });
            default(&mut policy);
            policy["spec"]["resourceSelectors"][0]["namespace"].clone()
        };
        assert_eq!(policy(json!("shop")), "shop");
        assert_eq!(policy(Value::Null), Value::Null);
    }
}
