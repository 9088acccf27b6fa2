//! Applies override policies to the manifest for one cluster.

use muster_shared::api::cluster::Cluster;
use muster_shared::api::override_policy::Overriders;
use muster_shared::names::annotation;
use muster_shared::selectors::matches_affinity;
use serde_json::{Value, json};

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

/// Policies that changed a manifest, for the annotations of its Work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    cluster: Vec<(String, Overriders)>,
    namespaced: Vec<(String, Overriders)>,
}

impl Applied {
    /// Returns the annotations of the Work, as Karmada writes them: for each kind of policy that
    /// was applied, a JSON list of the names of the policies, in their order, with the changes.
    pub fn annotations(&self) -> impl Iterator<Item = (String, String)> {
        let text = |list: &[(String, Overriders)]| {
            let mut sorted: Vec<_> = list.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            let items: Vec<Value> = sorted
                .iter()
                .map(|(name, overriders)| json!({ "policyName": name, "overriders": overriders }))
                .collect();
            Value::Array(items).to_string()
        };
        [
            (annotation::APPLIED_CLUSTER_OVERRIDES, &self.cluster),
            (annotation::APPLIED_OVERRIDES, &self.namespaced),
        ]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(move |(key, list)| (key.to_owned(), text(list)))
        .collect::<Vec<_>>()
        .into_iter()
    }
}

/// Changes the manifest for a cluster by the rules of the policies that apply to the cluster, in
/// the order of the policies and of their rules.
///
/// # Errors
/// The first change that cannot be made; the manifest is then half changed and must not be used.
pub fn apply(
    manifest: &mut Value,
    policies: &[Selected<'_>],
    cluster: &Cluster,
) -> Result<Applied, Error> {
    let identity = identity(manifest);
    let mut applied = Applied::default();
    for policy in policies {
        for rule in policy.spec.rules() {
            let target = rule.target_cluster.as_ref();
            if target.is_some_and(|affinity| !matches_affinity(affinity, cluster))
                || rule.overriders.is_empty()
            {
                continue;
            }
            let changed = change(manifest, &rule.overriders).and_then(|()| {
                if self::identity(manifest) == identity {
                    Ok(())
                } else {
                    Err(
                        "apiVersion, kind, namespace and name of a resource cannot be overridden"
                            .to_owned(),
                    )
                }
            });
            changed.map_err(|reason| Error {
                policy: policy.title(),
                cluster: cluster.metadata.name.clone().unwrap_or_default(),
                reason,
            })?;
            let list = match policy.namespace {
                Some(_) => &mut applied.namespaced,
                None => &mut applied.cluster,
            };
            list.push((policy.name.clone(), rule.overriders));
        }
    }
    Ok(applied)
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
fn change(manifest: &mut Value, overriders: &Overriders) -> Result<(), String> {
    let named = |field: &'static str| move |reason: String| format!("{field}: {reason}");
    for it in &overriders.image_overrider {
        containers::change_images(manifest, it).map_err(named("imageOverrider"))?;
    }
    for it in &overriders.command_overrider {
        containers::change_list(manifest, "command", it).map_err(named("commandOverrider"))?;
    }
    for it in &overriders.args_overrider {
        containers::change_list(manifest, "args", it).map_err(named("argsOverrider"))?;
    }
    for it in &overriders.labels_overrider {
        patch::pairs(manifest, "labels", it).map_err(named("labelsOverrider"))?;
    }
    for it in &overriders.annotations_overrider {
        patch::pairs(manifest, "annotations", it).map_err(named("annotationsOverrider"))?;
    }
    for it in &overriders.field_overrider {
        patch::document(manifest, it).map_err(named("fieldOverrider"))?;
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
            let found: Vec<_> = applied.annotations().map(|(key, _)| key).collect();
            assert_eq!(found, keys);
        }
        let mut manifest = web();
        let applied = apply(&mut manifest, &policies, &cluster("m2", "us")).unwrap();
        let (_, text) = applied.annotations().nth(1).unwrap();
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
                "imageOverrider: operator \"move\"",
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
}
