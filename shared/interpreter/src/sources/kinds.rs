//! The kinds of objects that hold interpreters of the users.

use std::fmt::Debug;

use muster_shared::api::interpreter::ResourceInterpreterCustomization;
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;
use serde::de::DeserializeOwned;

use crate::lua::Customization;
use crate::webhook::Hooks;
use crate::{Interpreters, Source};

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
    fn update<'a>(interpreters: &Interpreters, objects: impl Iterator<Item = &'a Self>);
}

impl Holder for ResourceInterpreterCustomization {
    const OBJECTS: &'static str = "customizations of interpreters";

    fn name_in(source: &Source) -> Option<&str> {
        match source {
            Source::Customization(name) => Some(name),
            Source::Webhook(_) => None,
        }
    }

    fn update<'a>(interpreters: &Interpreters, objects: impl Iterator<Item = &'a Self>) {
        let customizations: Vec<Customization> = objects.map(Customization::of).collect();
        let rules = interpreters.customized().renewed(&customizations);
        interpreters.set(rules);
    }
}

impl Holder for ResourceInterpreterWebhookConfiguration {
    const OBJECTS: &'static str = "configurations of interpreter webhooks";

    fn name_in(source: &Source) -> Option<&str> {
        match source {
            Source::Webhook(name) => Some(name),
            Source::Customization(_) => None,
        }
    }

    fn update<'a>(interpreters: &Interpreters, objects: impl Iterator<Item = &'a Self>) {
        let hooks: Hooks = interpreters.hooks().renewed(objects);
        interpreters.set_hooks(hooks);
    }
}
