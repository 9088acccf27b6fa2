//! Says what is wrong with the objects that hold interpreters of the users, by events on them.
//!
//! Admission refuses such objects; some were written before it was installed, or while it did not
//! answer. Failures of an interpreter that is asked are reported by
//! [`Follower::report_failures`](muster_interpreter::sources::Follower::report_failures).

use std::convert::Infallible;
use std::sync::Arc;

use muster_interpreter::lua::{Customization, Limits, check, conflict};
use muster_interpreter::sources::{Follower, Holder};
use muster_interpreter::webhook::{Hook, Hooks};
use muster_interpreter::without_blocking_others;
use muster_shared::api::interpreter::ResourceInterpreterCustomization;
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;
use muster_shared::controller::Controller;
use muster_shared::k8s::ResourceExt as _;
use muster_shared::queue::Next;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use crate::fleet::Fleet;

/// Reason of the event about a script that cannot be run.
const INVALID_SCRIPT: &str = "InvalidScript";
/// Reason of the event about an operation that another customization has a script for.
const CONFLICT: &str = "ConflictingScript";
/// Reason of the event about a webhook that cannot be asked, or an operation that is not known.
const INVALID_WEBHOOK: &str = "InvalidWebhook";

/// A fault: reason of the event, and note.
type Fault = (&'static str, String);

/// Starts reporting.
pub(crate) fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    start_for(fleet, tasks, |fleet| &fleet.customizations, script_faults);
    start_for(
        fleet,
        tasks,
        |fleet| &fleet.interpreter_webhooks,
        |object, _| webhook_faults(object),
    );
}

/// Starts reporting the faults of the objects of one kind, each among all that exist.
fn start_for<K: Holder>(
    fleet: &Arc<Fleet>,
    tasks: &mut Tasks,
    follower: fn(&Fleet) -> &Follower<K>,
    faults: fn(&K, &[Arc<K>]) -> Vec<Fault>,
) {
    let informer = follower(fleet).informer();
    let following = Controller::new(fleet, K::OBJECTS).watches(informer, |_, change| {
        let Change::Applied { old, new } = change else {
            return None;
        };
        let is_edited = old
            .as_ref()
            .is_none_or(|old| old.meta().generation != new.meta().generation);
        is_edited.then(|| new.name_any())
    });
    following.run(tasks, 1, (), move |fleet, (), key: String| async move {
        let informer = follower(&fleet).informer();
        let Some(object) = informer.get(None, &key) else {
            return Ok::<_, Infallible>(Next::Done);
        };
        let all = informer.list();
        for (reason, note) in without_blocking_others(|| faults(&object, &all)) {
            let kind = K::kind(&());
            tracing::warn!(%kind, name = key, reason, note, "an interpreter does not count");
            fleet.events.warn(&*object, reason, note);
        }
        Ok(Next::Done)
    });
}

/// Returns the faults of a customization among all that exist.
///
/// Each script is run, which may take as long as the limits allow.
fn script_faults(
    object: &ResourceInterpreterCustomization,
    all: &[Arc<ResourceInterpreterCustomization>],
) -> Vec<Fault> {
    let one = Customization::of(object);
    let invalid = check(&one, Limits::default()).err().unwrap_or_default();
    let invalid = invalid
        .iter()
        .map(|error| (INVALID_SCRIPT, error.to_string()));
    // Of several the first by name counts.
    let all: Vec<Customization> = all.iter().map(|it| Customization::of(it)).collect();
    let earlier = all.iter().filter(|other| other.name < one.name);
    let conflict = conflict(&one, earlier).err();
    let conflict = conflict.map(|conflict| {
        let note = format!("{conflict}, and that script counts");
        (CONFLICT, note)
    });
    invalid.chain(conflict).collect()
}

/// Returns the faults of a configuration of webhooks.
fn webhook_faults(object: &ResourceInterpreterWebhookConfiguration) -> Vec<Fault> {
    let hooks = Hooks::new([object]);
    let problems = hooks.iter().flat_map(Hook::problems);
    problems.map(|note| (INVALID_WEBHOOK, note)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn customization(name: &str, script: &str) -> ResourceInterpreterCustomization {
        let object: Value = json!({
            "metadata": { "name": name },
            "spec": {
                "target": { "apiVersion": "example.com/v1", "kind": "Widget" },
                "customizations": { "healthInterpretation": { "luaScript": script } },
            },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_script_that_does_not_count_is_reported_with_its_reason() {
        let fine = "function InterpretHealth(o) return true end";
        let (a, b) = (customization("a", fine), customization("b", fine));
        let broken = customization("c", "function (");
        let all = [&a, &b].map(|one| Arc::new(one.clone()));
        assert_eq!(script_faults(&a, &all), []);
        let reported = script_faults(&b, &all);
        let [(CONFLICT, note)] = &reported[..] else {
            panic!("{reported:?}");
        };
        assert!(
            note.contains("\"a\" already, and that script counts"),
            "{note}"
        );
        let reported = script_faults(&broken, &[]);
        let [(INVALID_SCRIPT, note)] = &reported[..] else {
            panic!("{reported:?}");
        };
        assert!(note.contains("line 1"), "{note}");
    }
}
