//! The kinds of objects that hold interpreters of the users.

use std::fmt::Debug;

use kube::ResourceExt;
use muster_shared::api::interpreter::{LuaScript, ResourceInterpreterCustomization};
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::lua::Customization;
use crate::webhook::Hooks;
use crate::{Interpreters, Operation, Source};

/// Kind of objects that hold interpreters.
pub trait Holder:
    kube::Resource<DynamicType = ()>
    + Default
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
    /// The objects, as messages call them.
    const OBJECTS: &'static str;

    /// Returns the name of the object that an interpreter is in, if it is of this kind.
    fn name_in(source: &Source) -> Option<&str>;

    /// Has the interpreters in these objects count from now on.
    fn feed<'a>(interpreters: &Interpreters, objects: impl Iterator<Item = &'a Self>);

    /// Does what interpreters of this kind need, until shutdown.
    fn serve(
        interpreters: &Interpreters,
        shutdown: CancellationToken,
    ) -> impl Future<Output = ()> + Send;
}

impl Holder for ResourceInterpreterCustomization {
    const OBJECTS: &'static str = "customizations of interpreters";

    fn name_in(source: &Source) -> Option<&str> {
        match source {
            Source::Customization(name) => Some(name),
            Source::Webhook(_) => None,
        }
    }

    fn feed<'a>(interpreters: &Interpreters, objects: impl Iterator<Item = &'a Self>) {
        let customizations: Vec<Customization> = objects.map(scripts).collect();
        let rules = interpreters.customized().renewed(&customizations);
        interpreters.set(rules);
    }

    async fn serve(_: &Interpreters, _: CancellationToken) {}
}

impl Holder for ResourceInterpreterWebhookConfiguration {
    const OBJECTS: &'static str = "configurations of interpreter webhooks";

    fn name_in(source: &Source) -> Option<&str> {
        match source {
            Source::Webhook(name) => Some(name),
            Source::Customization(_) => None,
        }
    }

    fn feed<'a>(interpreters: &Interpreters, objects: impl Iterator<Item = &'a Self>) {
        let hooks: Hooks = interpreters.hooks().renewed(objects);
        interpreters.set_hooks(hooks);
    }

    /// Sends the questions to the webhooks.
    async fn serve(interpreters: &Interpreters, shutdown: CancellationToken) {
        interpreters.run(shutdown).await;
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
