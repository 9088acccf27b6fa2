//! Kinds that a test defines.

use std::sync::LazyLock;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use muster_e2e::harness::objects::create;
use muster_e2e::harness::test_bed::until;
use muster_shared::k8s::{Api, CustomResourceDefinition};
use serde_json::{Value, json};

use crate::propagation::bench::Bench;

/// A schema that lets everything in.
static ANYTHING: LazyLock<Value> = LazyLock::new(
    || json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } }),
);

impl Bench {
    /// Makes a kind `example.com/v1` of this name, in namespaces.
    pub async fn define(&self, kind: &str, plural: &str) {
        self.define_in(("example.com", "v1"), (kind, plural), &json!({}))
            .await;
    }

    /// Makes a kind of this group and version, in namespaces, with these subresources.
    pub async fn define_in(
        &self,
        (group, version): (&str, &str),
        (kind, plural): (&str, &str),
        subresources: &Value,
    ) {
        let name = format!("{plural}.{group}");
        let definition = json!({
            "metadata": { "name": name },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
                "versions": [{
                    "name": version, "served": true, "storage": true, "schema": *ANYTHING,
                    "subresources": subresources,
                }],
            },
        });
        create::<CustomResourceDefinition>(&self.all(), definition).await;
        until::<CustomResourceDefinition>(&self.all(), &name, "it is served", |it| {
            let conditions = it
                .status
                .iter()
                .flat_map(|it| it.conditions.iter().flatten());
            conditions
                .into_iter()
                .any(|it| it.type_ == "Established" && it.status == "True")
        })
        .await;
    }

    /// Lets the kind of a definition be anything, as an aggregated API does that stores what it is
    /// given.
    pub async fn relax(&self, definition: &str) {
        let definitions: Api<CustomResourceDefinition> = self.all();
        let mut held = definitions.get(definition).await.unwrap();
        held.spec.versions[0].schema = serde_json::from_value(ANYTHING.clone()).unwrap();
        held.metadata.managed_fields = None;
        definitions
            .replace(definition, &PostParams::default(), &held)
            .await
            .unwrap();
    }

    /// Objects of a kind that a test has defined.
    pub fn defined(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", kind));
        Api::namespaced_with(self.client.clone(), "default", &resource)
    }
}
