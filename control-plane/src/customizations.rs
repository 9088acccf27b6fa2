//! Tells what is wrong with the scripts of ResourceInterpreterCustomizations, by events on them.
//!
//! Admission refuses such objects; some were written before it was installed, or while it did not
//! answer. Failures of a script while it runs are told by
//! [`Customizations::tell_failures`](muster_interpreter::sources::Customizations::tell_failures).

use std::convert::Infallible;
use std::sync::Arc;

use muster_interpreter::lua::{Customization, Limits, check, conflict};
use muster_interpreter::sources::scripts;
use muster_interpreter::without_blocking_others;
use muster_shared::api::interpreter::ResourceInterpreterCustomization;
use muster_shared::events::EventType;
use muster_shared::k8s::ResourceExt as _;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;

use crate::fleet::Fleet;

/// Reason of the event about a script that cannot be run.
const INVALID: &str = "InvalidScript";
/// Reason of the event about an operation that another customization has a script for.
const CONFLICT: &str = "ConflictingScript";

/// Starts telling.
pub(crate) fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let name = "scripts of customizations";
    let queue = Queue::<String>::new(name);
    let to = queue.clone();
    fleet.customizations.informer().on_change(move |change| {
        if let Change::Applied { old, new } = change
            && old
                .as_ref()
                .is_none_or(|old| old.metadata.generation != new.metadata.generation)
        {
            to.add(new.name_any());
        }
    });
    fleet.work(tasks, name, queue, 1, |fleet, key| async move {
        let informer = fleet.customizations.informer();
        let Some(object) = informer.get(None, &key) else {
            return Ok::<_, Infallible>(Next::Done);
        };
        let all: Vec<Customization> = informer.list().iter().map(|it| scripts(it)).collect();
        for (reason, note) in without_blocking_others(|| faults(&object, &all)) {
            tracing::warn!(customization = key, reason, note, "a script does not count");
            fleet
                .events
                .publish(&*object, EventType::Warning, reason, note);
        }
        Ok(Next::Done)
    });
}

/// Faults of a customization among all that exist, each a reason and a note.
///
/// Each script is run, which may take as long as the limits allow.
fn faults(
    object: &ResourceInterpreterCustomization,
    all: &[Customization],
) -> Vec<(&'static str, String)> {
    let one = scripts(object);
    let invalid = check(&one, Limits::default()).err().unwrap_or_default();
    let invalid = invalid.iter().map(|error| (INVALID, error.to_string()));
    // Of several the first by name counts.
    let earlier = all.iter().filter(|other| other.name < one.name);
    let conflict = conflict(&one, earlier).err();
    let conflict = conflict.map(|conflict| {
        let note = format!("{conflict}, and that script counts");
        (CONFLICT, note)
    });
    invalid.chain(conflict).collect()
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
    fn a_script_that_does_not_count_is_told_with_its_reason() {
        let fine = "function InterpretHealth(o) return true end";
        let (a, b) = (customization("a", fine), customization("b", fine));
        let broken = customization("c", "function (");
        let all = [&a, &b].map(scripts).to_vec();
        assert_eq!(faults(&a, &all), []);
        let told = faults(&b, &all);
        let [(CONFLICT, note)] = &told[..] else {
            panic!("{told:?}");
        };
        assert!(
            note.contains("\"a\" already, and that script counts"),
            "{note}"
        );
        let told = faults(&broken, &[]);
        let [(INVALID, note)] = &told[..] else {
            panic!("{told:?}");
        };
        assert!(note.contains("line 1"), "{note}");
    }
}
