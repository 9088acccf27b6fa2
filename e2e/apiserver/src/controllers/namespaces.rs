//! Namespaces: a service account and the root certificate for new ones, an orderly end for those
//! that go.

use std::collections::HashSet;

use serde_json::json;

use super::Inside;
use crate::context::Notice;
use crate::registry::Served;
use crate::verbs::DeleteOptions;
use crate::wire::metadata;

/// The controller of namespaces.
pub struct Namespaces {
    inside: Inside,
    served: Served,
    /// Namespaces that wait for their contents to go.
    going: HashSet<String>,
}

impl Namespaces {
    /// Returns a controller that has seen nothing yet.
    pub fn new(inside: Inside) -> Self {
        let namespaces = inside.builtin("", "namespaces");
        Self {
            inside,
            served: namespaces,
            going: HashSet::new(),
        }
    }

    /// Takes note of a change.
    pub async fn observe(&mut self, notice: &Notice) {
        if notice.plural == "namespaces" && notice.group.is_empty() {
            let name = notice.object.head.name().to_owned();
            if notice.gone {
                self.going.remove(&name);
            } else if notice.object.head.deleting {
                self.clear(&name).await;
            } else {
                self.furnish(&name).await;
            }
        } else if notice.gone {
            let namespace = notice.object.head.namespace().to_owned();
            if self.going.contains(&namespace) {
                self.clear(&namespace).await;
            } else if matches!(notice.plural.as_str(), "serviceaccounts" | "configmaps")
                && self
                    .served
                    .resource
                    .collection
                    .get(&namespace)
                    .is_some_and(|n| !n.head.deleting)
            {
                self.furnish(&namespace).await;
            }
        }
    }

    /// Goes on with what waits.
    pub async fn again(&mut self) {
        for name in self.going.clone() {
            self.clear(&name).await;
        }
    }

    async fn furnish(&self, namespace: &str) {
        let root = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "kube-root-ca.crt",
                "annotations": { "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters." },
            },
            "data": { "ca.crt": self.inside.server.authority.root() },
        });
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
        for (plural, object) in [("configmaps", root), ("serviceaccounts", account)] {
            let served = self.inside.builtin("", plural);
            let key = format!("{namespace}/{}", metadata::text(&object, "name"));
            if served.resource.collection.get(&key).is_none()
                && let Err(refusal) = self.inside.create(&served, namespace, &object).await
            {
                tracing::debug!(namespace, %refusal, "furnishing a namespace");
            }
        }
    }

    /// Deletes what is in a namespace; when nothing is left, lets the namespace go.
    async fn clear(&mut self, name: &str) {
        let Some(namespace) = self
            .served
            .resource
            .collection
            .get(name)
            .filter(|n| n.head.deleting)
        else {
            self.going.remove(name);
            return;
        };
        self.going.insert(name.to_owned());
        if !self.delete_contents(name).await {
            return;
        }
        let held = namespace.value();
        if held["spec"]["finalizers"]
            .as_array()
            .is_some_and(|f| f.iter().any(|f| f == "kubernetes"))
        {
            let let_go = self
                .inside
                .change(&self.served, ("", name, "finalize"), |namespace| {
                    let mut new = namespace.clone();
                    let finalizers = new["spec"]["finalizers"].as_array_mut()?;
                    finalizers.retain(|f| f != "kubernetes");
                    if finalizers.is_empty() {
                        new["spec"].as_object_mut()?.remove("finalizers");
                    }
                    Some(new)
                });
            if let Err(refusal) = let_go.await {
                tracing::debug!(namespace = name, %refusal, "letting a namespace go");
            }
        }
    }

    /// Deletes the objects in a namespace, and returns whether none is left.
    async fn delete_contents(&self, namespace: &str) -> bool {
        let registry = &self.inside.server.registry;
        let prefix = format!("{namespace}/");
        let mut is_empty = true;
        for resource in registry.all().iter() {
            let version = &resource.version;
            if !resource.namespaced || !version.verbs.iter().any(|v| v == "delete") {
                continue;
            }
            let Some(served) = registry.find(&resource.group, &version.name, &resource.plural)
            else {
                continue;
            };
            let all = || resource.collection.present(&prefix);
            for object in all().iter().filter(|o| !o.head.deleting) {
                let options = DeleteOptions {
                    propagation: Some("Background".to_owned()),
                    ..DeleteOptions::default()
                };
                let deleted = self
                    .inside
                    .delete(&served, namespace, object.head.name(), &options);
                if let Err(refusal) = deleted.await {
                    tracing::debug!(object = &*object.head.key, %refusal, "emptying a namespace");
                }
            }
            is_empty &= all().is_empty();
        }
        is_empty
    }
}
