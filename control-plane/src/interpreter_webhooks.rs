//! Tells what is wrong with ResourceInterpreterWebhookConfigurations, by events on them.
//!
//! Admission refuses such objects; some were written before it was installed, or while it did not
//! answer. Failures of a webhook that is asked are told by
//! [`InterpreterWebhooks::tell_failures`](muster_interpreter::sources::InterpreterWebhooks::tell_failures).

use std::convert::Infallible;
use std::sync::Arc;

use muster_interpreter::webhook::{Hook, Hooks};
use muster_shared::events::EventType;
use muster_shared::k8s::ResourceExt as _;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use crate::fleet::Fleet;

/// Reason of the event about a webhook that cannot be asked, or an operation that is not known.
const INVALID: &str = "InvalidWebhook";

/// Starts telling.
pub(crate) fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let name = "configurations of interpreter webhooks";
    let queue = Queue::<String>::new(name);
    let to = queue.clone();
    let informer = fleet.interpreter_webhooks.informer();
    informer.on_change(move |change| {
        if let Change::Applied { old, new } = change
            && old
                .as_ref()
                .is_none_or(|old| old.metadata.generation != new.metadata.generation)
        {
            to.add(new.name_any());
        }
    });
    fleet.work(tasks, name, queue, 1, |fleet, key| async move {
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
