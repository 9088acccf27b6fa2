//! Applies override policies to the manifest for one cluster.

use std::collections::BTreeSet;

use muster_shared::api::cluster::Cluster;
use muster_shared::api::override_policy::Overriders;
use muster_shared::names::annotation;
use muster_shared::selectors::matches_affinity;
use serde::Serialize;
use serde_json::{Value, json};

use super::limits::{Bounded, Room};
use super::select::Selected;
use super::{containers, patch};

/// Reason why a resource cannot be changed for a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{policy} cannot be applied for cluster {cluster}: {reason}")]
pub struct Error {
    /// Kind and name of the policy.
    pub policy: String,
    /// Cluster that the resource is meant for.
    pub cluster: String,
    /// Part of the policy that fails, and why.
    pub reason: String,
}

/// Bytes of the longest annotations that tell what the policies changed. All annotations of an
/// object have 256 KiB, which others use, too.
const LONGEST_ANNOTATIONS: usize = 16 * 1024;

/// Policies that changed a manifest, for the annotations of its Work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied<'a> {
    cluster: Vec<(&'a str, &'a Overriders)>,
    namespaced: Vec<(&'a str, &'a Overriders)>,
}

impl Applied<'_> {
    /// Returns the annotations of the Work, as Karmada writes them: for each kind of policy that
    /// was applied, a JSON list of the names of the policies, in their order, with the changes.
    /// Where these are longer than 16 KiB, the names alone.
    pub fn annotations(&self) -> Vec<(String, String)> {
        let lists = [
            (annotation::APPLIED_CLUSTER_OVERRIDES, &self.cluster),
            (annotation::APPLIED_OVERRIDES, &self.namespaced),
        ];
        let mut left = LONGEST_ANNOTATIONS;
        let mut whole = Vec::new();
        for (_, list) in lists {
            let Some(text) = with_changes(list, left) else {
                let named = lists.map(|(key, list)| (key, names(list)));
                return present(named);
            };
            left -= text.len();
            whole.push(text);
        }
        present(lists.map(|(key, _)| key).into_iter().zip(whole))
    }
}

fn present<'a>(annotations: impl IntoIterator<Item = (&'a str, String)>) -> Vec<(String, String)> {
    let all = annotations.into_iter();
    all.filter(|(_, text)| text != "[]")
        .map(|(key, text)| (key.to_owned(), text))
        .collect()
}

/// Returns the names of the policies and their changes; `None` if they are longer than `limit`.
fn with_changes(list: &[(&str, &Overriders)], limit: usize) -> Option<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Item<'a> {
        overriders: &'a Overriders,
        policy_name: &'a str,
    }
    let mut sorted = list.to_vec();
    sorted.sort_by_key(|(name, _)| *name);
    let items: Vec<_> = sorted
        .iter()
        .map(|(policy_name, overriders)| Item {
            overriders,
            policy_name,
        })
        .collect();
    let mut text = Bounded::new(limit);
    serde_json::to_writer(&mut text, &items).ok()?;
    Some(text.into_text())
}

fn names(list: &[(&str, &Overriders)]) -> String {
    let names: BTreeSet<&str> = list.iter().map(|(name, _)| *name).collect();
    let items: Vec<_> = names
        .iter()
        .map(|name| json!({ "policyName": name }))
        .collect();
    Value::Array(items).to_string()
}

/// Changes the manifest for a cluster by the rules of the policies that apply to the cluster, in
/// the order of the policies and of their rules.
///
/// # Errors
/// The first change that cannot be made; the manifest is then half changed and must not be used.
pub fn apply<'a>(
    manifest: &mut Value,
    policies: &'a [Selected<'_>],
    cluster: &Cluster,
) -> Result<Applied<'a>, Error> {
    let mut applied = Applied::default();
    let mut measured = None;
    for policy in policies {
        for (target, overriders) in policy.spec.rules() {
            if target.is_some_and(|affinity| !matches_affinity(affinity, cluster))
                || overriders.is_empty()
            {
                continue;
            }
            let room = match measured.take() {
                Some(room) => Ok(room),
                None => {
                    Room::beside(manifest).map_err(|excess| format!("the resource is {excess}"))
                }
            };
            let changed = room.and_then(|room| by_rule(manifest, overriders, room));
            measured = Some(changed.map_err(|reason| Error {
                policy: policy.title(),
                cluster: cluster.metadata.name.clone().unwrap_or_default(),
                reason,
            })?);
            let list = match policy.namespace {
                Some(_) => &mut applied.namespaced,
                None => &mut applied.cluster,
            };
            list.push((&policy.name, overriders));
        }
    }
    Ok(applied)
}

/// Makes the changes of one rule; returns by how much the manifest may grow afterwards.
///
/// JSON pointers are as long as a manifest is deep at most, and so are the values in policies and
/// documents: a manifest over the limit is still shallow enough to be dropped.
fn by_rule(manifest: &mut Value, overriders: &Overriders, mut room: Room) -> Result<Room, String> {
    let before = identity(manifest);
    change(manifest, overriders, &mut room)?;
    let room =
        Room::beside(manifest).map_err(|excess| format!("the resource would become {excess}"))?;
    if identity(manifest) != before {
        return Err(
            "apiVersion, kind, namespace and name of a resource cannot be overridden".to_owned(),
        );
    }
    Ok(room)
}

impl Selected<'_> {
    /// Returns the kind and the name of the policy.
    pub fn title(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("OverridePolicy {namespace}/{}", self.name),
            None => format!("ClusterOverridePolicy {}", self.name),
        }
    }
}

fn identity(manifest: &Value) -> [Value; 4] {
    let metadata = &manifest["metadata"];
    [
        manifest["apiVersion"].clone(),
        manifest["kind"].clone(),
        metadata["namespace"].clone(),
        metadata["name"].clone(),
    ]
}

/// Makes the changes of one rule, by type.
fn change(manifest: &mut Value, overriders: &Overriders, room: &mut Room) -> Result<(), String> {
    let named = |field: &'static str| move |reason: String| format!("{field}: {reason}");
    for it in &overriders.image_overrider {
        containers::change_images(manifest, it, room).map_err(named("imageOverrider"))?;
    }
    for it in &overriders.command_overrider {
        containers::change_list(manifest, "command", it, room)
            .map_err(named("commandOverrider"))?;
    }
    for it in &overriders.args_overrider {
        containers::change_list(manifest, "args", it, room).map_err(named("argsOverrider"))?;
    }
    for it in &overriders.labels_overrider {
        patch::pairs(manifest, "labels", it).map_err(named("labelsOverrider"))?;
    }
    for it in &overriders.annotations_overrider {
        patch::pairs(manifest, "annotations", it).map_err(named("annotationsOverrider"))?;
    }
    for it in &overriders.field_overrider {
        patch::document(manifest, it, room).map_err(named("fieldOverrider"))?;
    }
    if overriders.plaintext.is_empty() {
        return Ok(());
    }
    patch::plaintext(manifest, &overriders.plaintext).map_err(named("plaintext"))
}

#[cfg(test)]
mod tests {
    use muster_shared::api::override_policy::OverrideSpec;

    use super::*;

    fn cluster(name: &str, region: &str) -> Cluster {
        let mut cluster = Cluster::new(
            name,
            serde_json::from_value(json!({ "region": region })).unwrap(),
        );
        cluster.metadata.name = Some(name.to_owned());
        cluster
    }

    fn web() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "replicas": 1, "template": { "spec": { "containers": [{ "name": "a", "image": "web:v1" }] } } },
        })
    }

    fn selected<'a>(name: &str, namespace: Option<&str>, spec: &'a OverrideSpec) -> Selected<'a> {
        Selected {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            spec,
        }
    }

    fn spec(text: Value) -> OverrideSpec {
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn each_cluster_gets_the_rules_that_name_it_and_the_last_policy_has_the_last_word() {
        let registry =
            |value: &str| json!({ "component": "Registry", "operator": "replace", "value": value });
        let regions = spec(json!({ "overrideRules": [
            {
                "targetCluster": { "fieldSelector": { "matchExpressions": [
                    { "key": "region", "operator": "In", "values": ["eu"] },
                ] } },
                "overriders": { "imageOverrider": [registry("eu.io")] },
            },
            { "overriders": { "labelsOverrider": [{ "operator": "add", "value": { "all": "yes" } }] } },
        ] }));
        // The deprecated pair of fields is one rule.
        let single = spec(json!({
            "targetCluster": { "clusterNames": ["m2"] },
            "overriders": {
                "plaintext": [{ "path": "/spec/replicas", "operator": "replace", "value": 3 }],
                "imageOverrider": [registry("near.io")],
            },
        }));
        let policies = [
            selected("regions", None, &regions),
            selected("single", Some("shop"), &single),
        ];
        for (name, region, image, replicas, keys) in [
            (
                "m1",
                "eu",
                "eu.io/web:v1",
                1,
                vec![annotation::APPLIED_CLUSTER_OVERRIDES],
            ),
            (
                "m2",
                "us",
                "near.io/web:v1",
                3,
                vec![
                    annotation::APPLIED_CLUSTER_OVERRIDES,
                    annotation::APPLIED_OVERRIDES,
                ],
            ),
        ] {
            let mut manifest = web();
            let applied = apply(&mut manifest, &policies, &cluster(name, region)).unwrap();
            let pod = &manifest["spec"]["template"]["spec"];
            assert_eq!(pod["containers"][0]["image"], image);
            assert_eq!(manifest["spec"]["replicas"], replicas);
            assert_eq!(manifest["metadata"]["labels"]["all"], "yes");
            let found: Vec<_> = applied
                .annotations()
                .into_iter()
                .map(|(key, _)| key)
                .collect();
            assert_eq!(found, keys);
        }
        let mut manifest = web();
        let applied = apply(&mut manifest, &policies, &cluster("m2", "us")).unwrap();
        let (_, text) = applied.annotations().remove(1);
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            read,
            json!([{ "policyName": "single", "overriders": {
                "plaintext": [{ "path": "/spec/replicas", "operator": "replace", "value": 3 }],
                "imageOverrider": [registry("near.io")],
            } }])
        );
    }

    #[test]
    fn what_cannot_be_changed_is_told_with_policy_cluster_and_field() {
        for (overriders, reason) in [
            (
                json!({ "plaintext": [{ "path": "/metadata/name", "operator": "replace", "value": "x" }] }),
                "cannot be overridden",
            ),
            (
                json!({ "plaintext": [{ "path": "/x/y", "operator": "remove" }] }),
                "plaintext: ",
            ),
            (
                json!({ "imageOverrider": [{ "component": "Tag", "operator": "move" }] }),
                "operator \"move\"",
            ),
            (
                json!({ "fieldOverrider": [{ "fieldPath": "/data/a" }] }),
                "fieldOverrider: ",
            ),
        ] {
            let spec = spec(json!({ "overrideRules": [{ "overriders": overriders }] }));
            let policy = selected("p", Some("shop"), &spec);
            let error = apply(&mut web(), &[policy], &cluster("m1", "eu")).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(reason), "{text}");
            assert!(
                text.starts_with("OverridePolicy shop/p cannot be applied for cluster m1: "),
                "{text}"
            );
        }
    }

    fn refused(rules: &Value) -> String {
        let spec = spec(json!({ "overrideRules": rules }));
        let policies = [selected("p", None, &spec)];
        let mut manifest = web();
        let error = apply(&mut manifest, &policies, &cluster("m1", "eu")).unwrap_err();
        let size = muster_shared::work_status::length(&manifest);
        assert!(size < 4_000_000, "{size} bytes");
        error.to_string()
    }

    #[test]
    fn no_rule_makes_a_manifest_too_deep_for_the_stack() {
        let below = |at: usize| "/a".repeat(at);
        let chain = move |steps: usize| -> Vec<Value> {
            (1..steps)
                .map(|at| json!({ "path": below(at), "operator": "add", "value": {} }))
                .collect()
        };
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "a": inner }));
        let add = move |at: usize, value: Value| json!({ "path": below(at), "operator": "add", "value": value });
        let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
        let attempts = thread.spawn(move || {
            let plaintext = |list: Vec<Value>| json!({ "overriders": { "plaintext": list } });
            let long = refused(&json!([plaintext(chain(5000))]));
            assert!(long.contains("levels that fit into a work"), "{long}");
            let mut steps = chain(100);
            steps.push(add(100, deep(110)));
            let levels = refused(&json!([plaintext(steps)]));
            assert!(levels.contains("levels deep"), "{levels}");
            let by_rules = chain(100).into_iter().chain([add(100, json!({}))]);
            let rules: Vec<_> = by_rules.map(|step| plaintext(vec![step])).collect();
            let levels = refused(&json!(rules));
            assert!(levels.contains("101 levels deep"), "{levels}");
        });
        attempts.unwrap().join().unwrap();
    }

    #[test]
    fn no_rule_makes_a_manifest_too_large() {
        let long = "x".repeat(800_000);
        let label = |key: &str| {
            json!({ "overriders": { "annotationsOverrider": [
            { "operator": "add", "value": { key: long } },
        ] } })
        };
        let error = refused(&json!([label("a"), label("b")]));
        assert!(error.contains("bytes large"), "{error}");
    }

    #[test]
    fn long_changes_are_not_told_in_the_annotations() {
        let long = |bytes: usize| {
            spec(json!({ "overrideRules": [
            { "overriders": { "annotationsOverrider": [{ "operator": "add", "value": { "a": "x".repeat(bytes) } }] } },
            { "overriders": { "labelsOverrider": [{ "operator": "add", "value": { "a": "b" } }] } },
        ] }))
        };
        for (bytes, is_told) in [(7_000, true), (9_000, false)] {
            let spec = long(bytes);
            let policies = [
                selected("wide", None, &spec),
                selected("near", Some("shop"), &spec),
            ];
            let mut manifest = web();
            let applied = apply(&mut manifest, &policies, &cluster("m1", "eu")).unwrap();
            let annotations = applied.annotations();
            assert_eq!(annotations.len(), 2);
            for ((_, text), name) in annotations.iter().zip(["wide", "near"]) {
                let read: Value = serde_json::from_str(text).unwrap();
                assert_eq!(read[0]["policyName"], name);
                assert_eq!(read[0].get("overriders").is_some(), is_told, "{bytes}");
                assert_eq!(read.as_array().unwrap().len(), if is_told { 2 } else { 1 });
            }
        }
    }

    #[test]
    fn no_error_tells_a_value_of_the_resource() {
        for overriders in [
            json!({ "imageOverrider": [{ "component": "Tag", "operator": "replace", "value": "v", "predicate": { "path": "/data/password" } }] }),
            json!({ "fieldOverrider": [{ "fieldPath": "/data/password", "json": [{ "subPath": "/a", "operator": "remove" }] }] }),
            json!({ "fieldOverrider": [{ "fieldPath": "/data/password", "yaml": [{ "subPath": "/a", "operator": "remove" }] }] }),
            json!({ "plaintext": [{ "path": "/data/password/a", "operator": "remove" }] }),
            json!({ "plaintext": [{ "path": "/data/password/a", "operator": "add", "value": "SECRET" }] }),
        ] {
            let spec = spec(json!({ "overrideRules": [{ "overriders": overriders }] }));
            for text in ["SECRET", "{SECRET", "a: [SECRET", "- SECRET: {", "\"SECRET"] {
                let mut secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" },
                    "data": { "password": text },
                });
                let policies = [selected("p", None, &spec)];
                let error = apply(&mut secret, &policies, &cluster("m1", "eu")).unwrap_err();
                assert!(!error.to_string().contains("SECRET"), "{error}");
            }
        }
    }
}
