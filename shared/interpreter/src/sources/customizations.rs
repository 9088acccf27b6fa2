//! Follows the ResourceInterpreterCustomizations of the fleet API and feeds [`Interpreters`].
//!
//! Answers of the interpreters count only once it is known which customizations there are: from
//! the first complete list on, or since [`readable`](super::readable) says that there are none.
//! While the process may not read them, it is not known, and what was known before counts.

use std::sync::Arc;

use crate::Operation;
use crate::lua::{Customization, Rules};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Api;
use kube::{Client, Resource, ResourceExt};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::confirmed::Confirmed;
use super::readable::until_readable;
use crate::{Interpreters, Source};
use muster_shared::api::interpreter::{LuaScript, ResourceInterpreterCustomization};
use muster_shared::events::{EventType, Events};
use muster_shared::watch::{Informer, Selection};

/// Reason of the event on a customization whose script gives no answer.
pub const FAILED: &str = "InterpretFailed";

/// The customizations of the fleet API. Cheap to clone.
#[derive(Clone)]
pub struct Customizations {
    informer: Informer<ResourceInterpreterCustomization>,
    interpreters: Arc<Interpreters>,
}

impl Customizations {
    /// Prepares to follow them; nothing is sent before [`run`](Self::run).
    pub fn new(client: Client, interpreters: Arc<Interpreters>) -> Self {
        Self {
            informer: Informer::new(Api::all(client), Selection::everything()),
            interpreters,
        }
    }

    /// Returns the cache of the objects.
    pub fn informer(&self) -> &Informer<ResourceInterpreterCustomization> {
        &self.informer
    }

    /// Has failures of scripts told by an event on their customization.
    pub fn tell_failures(&self, events: &Events) {
        let (informer, events) = (self.informer.clone(), events.clone());
        self.interpreters.on_failure(move |failed| {
            let Source::Customization(name) = &failed.by else {
                return;
            };
            let about = match informer.get(None, name) {
                Some(customization) => customization.object_ref(&()),
                None => reference(name),
            };
            let note = &failed.note;
            tracing::warn!(customization = name, note, "a script gives no answer");
            events.publish_about(about, EventType::Warning, FAILED, note.clone());
        });
    }

    /// Feeds the interpreters until shutdown. `refused` is told once why customizations cannot be
    /// read, if they cannot.
    pub async fn run(self, refused: impl Fn(&str) + Send, shutdown: CancellationToken) {
        let refused = |reason: &str| {
            self.informer.hindered(reason);
            refused(reason);
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = until_readable(
                self.informer.api(),
                "customizations of interpreters",
                refused,
                || self.interpreters.set(Rules::default()),
            ) => {}
        }
        let changed = Arc::new(Notify::new());
        let to = Arc::clone(&changed);
        self.informer.on_change(move |_| to.notify_one());
        let feed = async {
            self.informer.synced().await;
            let mut confirmed = Confirmed::default();
            loop {
                let again = confirmed
                    .update(self.informer.api(), self.informer.list())
                    .await;
                self.feed(&confirmed);
                tokio::select! {
                    () = changed.notified() => {}
                    () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => {}
                }
            }
        };
        tokio::select! {
            () = self.informer.clone().run(shutdown) => {}
            () = feed => {}
        }
    }

    fn feed(&self, objects: &Confirmed<ResourceInterpreterCustomization>) {
        let customizations: Vec<Customization> = objects.objects().map(scripts).collect();
        let rules = self.interpreters.customized().renewed(&customizations);
        self.interpreters.set(rules);
    }
}

/// Returns the scripts of a customization.
pub fn scripts(object: &ResourceInterpreterCustomization) -> Customization {
    let all = &object.spec.customizations;
    let of = |operation| -> &Option<LuaScript> {
        match operation {
            Operation::InterpretReplica => &all.replica_resource,
            Operation::InterpretComponent => &all.component_resource,
            Operation::ReviseReplica => &all.replica_revision,
            Operation::Retain => &all.retention,
            Operation::AggregateStatus => &all.status_aggregation,
            Operation::InterpretDependency => &all.dependency_interpretation,
            Operation::InterpretStatus => &all.status_reflection,
            Operation::InterpretHealth => &all.health_interpretation,
        }
    };
    let script = |operation| Some((operation, of(operation).as_ref()?.lua_script.clone()));
    Customization {
        name: object.name_any(),
        api_version: object.spec.target.api_version.clone(),
        kind: object.spec.target.kind.clone(),
        scripts: Operation::ALL.into_iter().filter_map(script).collect(),
    }
}

fn reference(name: &str) -> ObjectReference {
    ObjectReference {
        name: Some(name.to_owned()),
        ..ResourceInterpreterCustomization::default().object_ref(&())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_script_of_a_customization_is_read() {
        let field = |operation: Operation| {
            let script = json!({ "luaScript": operation.to_string() });
            (operation.field().to_owned(), script)
        };
        let all: serde_json::Map<_, _> = Operation::ALL.into_iter().map(field).collect();
        let object = json!({ "metadata": { "name": "w" }, "spec": {
            "target": { "apiVersion": "example.com/v1", "kind": "Widget" }, "customizations": all } });
        let typed = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(Ok(scripts(&typed)), Customization::from_object(&object));
        assert_eq!(scripts(&typed).scripts.len(), Operation::ALL.len());
    }
}
