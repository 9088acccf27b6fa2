//! Serves what CRDs define, says so in their conditions, and clears their objects away before they
//! go.

use std::collections::HashSet;

use serde_json::Value;

use super::Inside;
use crate::context::Notice;
use crate::kinds::definitions::FINALIZER;
use crate::registry::definition;
use crate::registry::{Served, collection_name};
use crate::verbs::DeleteOptions;
use crate::wire::conditions;
use crate::wire::metadata;

/// The controller of CRDs.
pub struct Definitions {
    inside: Inside,
    crds: Served,
    /// CRDs that wait for their objects to go.
    going: HashSet<String>,
}

impl Definitions {
    /// Returns a controller that has seen nothing yet.
    pub fn new(inside: Inside) -> Self {
        let crds = inside.builtin("apiextensions.k8s.io", "customresourcedefinitions");
        Self {
            inside,
            crds,
            going: HashSet::new(),
        }
    }

    /// Takes note of a change.
    pub async fn observe(&mut self, notice: &Notice) {
        if notice.plural == "customresourcedefinitions" {
            let name = notice.object.head.name().to_owned();
            if notice.gone {
                self.remove(&notice.object.value());
            } else {
                self.settle(&name).await;
            }
        }
    }

    /// Goes on with what waits.
    pub async fn again(&mut self) {
        for name in self.going.clone() {
            self.settle(&name).await;
        }
    }

    async fn settle(&mut self, name: &str) {
        let Some(stored) = self.crds.resource.collection.get(name) else {
            return;
        };
        let crd = stored.value();
        if stored.head.deleting {
            self.clear(name, &crd).await;
            return;
        }
        let server = &self.inside.server;
        match definition::resource(&server.store, &crd) {
            Ok(resource) => server.registry.put(resource),
            Err(error) => tracing::warn!(crd = name, %error, "serving a custom resource"),
        }
        if crd["status"] != definition::status(server.clock.now(), &crd) {
            let status = |crd: &Value| definition::status(server.clock.now(), crd);
            self.write_status(name, status).await;
        }
    }

    async fn write_status(&self, name: &str, status: impl Fn(&Value) -> Value) {
        let written = self.inside.change(&self.crds, ("", name, "status"), |crd| {
            let mut new = crd.clone();
            new["status"] = status(crd);
            Some(new)
        });
        if let Err(refusal) = written.await {
            tracing::debug!(crd = name, %refusal, "writing the status of a crd");
        }
    }

    /// Deletes the objects of a CRD; when none is left, lets the CRD go.
    async fn clear(&mut self, name: &str, crd: &Value) {
        let finalizers = metadata::finalizers(crd);
        if !finalizers.contains(&FINALIZER) {
            return;
        }
        self.going.insert(name.to_owned());
        let reason = "InstanceDeletionInProgress";
        let conditions = crd["status"]["conditions"].as_array();
        if !conditions.is_some_and(|list| list.iter().any(|c| c["reason"] == reason)) {
            let now = metadata::time(self.inside.server.clock.now());
            let message = "CustomResource deletion is in progress";
            self.write_status(name, |crd| {
                let mut status = crd["status"].clone();
                conditions::set(&mut status, "Terminating", ("True", reason, message), &now);
                status
            })
            .await;
        }
        if self.delete_objects(crd).await > 0 {
            return;
        }
        let released = self.inside.change(&self.crds, ("", name, ""), |crd| {
            let mut new = crd.clone();
            new["metadata"]["finalizers"]
                .as_array_mut()?
                .retain(|f| f != FINALIZER);
            Some(new)
        });
        if released.await.is_ok() {
            self.going.remove(name);
        }
    }

    /// Deletes all objects of a definition, and returns how many are left.
    async fn delete_objects(&self, crd: &Value) -> usize {
        let registry = &self.inside.server.registry;
        let all = registry.all();
        let own = metadata::text(crd, "name");
        let Some(resource) = all
            .iter()
            .find(|r| r.custom.as_ref().is_some_and(|c| c.crd == own))
        else {
            return 0;
        };
        let version = &resource.version.name;
        let Some(served) = registry.find(&resource.group, version, &resource.plural) else {
            return 0;
        };
        let present = resource.collection.present("");
        for object in present.iter().filter(|o| !o.head.deleting) {
            let head = &object.head;
            let options = DeleteOptions::default();
            let deleted = self
                .inside
                .delete(&served, head.namespace(), head.name(), &options);
            if let Err(refusal) = deleted.await {
                tracing::debug!(object = &*head.key, %refusal, "deleting an object of a crd");
            }
        }
        resource.collection.len()
    }

    fn remove(&mut self, crd: &Value) {
        let name = metadata::text(crd, "name");
        self.going.remove(name);
        self.inside.server.registry.remove(name);
        let group = crd["spec"]["group"].as_str().unwrap_or_default();
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap_or_default();
        self.inside
            .server
            .store
            .forget(&collection_name(group, plural));
    }
}
