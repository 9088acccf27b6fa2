//! Tells what is wrong with ResourceInterpreterWebhookConfigurations, by events on them.
//!
//! Admission refuses such objects; some were written before it was installed, or while it did not
//! answer. Failures of a webhook that is asked are told by
//! [`InterpreterWebhooks::tell_failures`](muster_shared::interpreter_webhooks::InterpreterWebhooks::tell_failures).

use std::convert::Infallible;
use std::sync::Arc;

use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::interpreter::webhook::{Hook, Hooks};
use muster_shared::k8s::ResourceExt as _;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use crate::fleet::Fleet;

/// Reason of the event about a webhook that cannot be asked, or an operation that is not known.
const INVALID: &str = "InvalidWebhook";

/// Starts telling.
pub(crate) fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let informer = fleet.interpreter_webhooks.informer();
    let following = Controller::new(fleet, "configurations of interpreter webhooks").watches(
        informer,
        |_, change| {
            let Change::Applied { old, new } = change else {
                return None;
            };
            let is_edited = old
                .as_ref()
                .is_none_or(|old| old.metadata.generation != new.metadata.generation);
            is_edited.then(|| new.name_any())
        },
    );
    following.run(tasks, 1, (), |fleet, (), key: String| async move {
        let informer = fleet.interpreter_webhooks.informer();
        let Some(object) = informer.get(None, &key) else {
            return Ok::<_, Infallible>(Next::Done);
        };
        let hooks = Hooks::new([object.as_ref()]);
        for note in hooks.iter().flat_map(Hook::problems) {
            tracing::warn!(configuration = key, note, "a webhook cannot be used");
            fleet
                .events
                .publish(&*object, EventType::Warning, INVALID, note);
        }
        Ok(Next::Done)
    });
}
