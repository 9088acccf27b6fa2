//! Events about a Work whose objects change their state.
//!
//! Karmada publishes two events on every change of every object. This agent publishes one for the
//! first status of an object and for each change of its health.

use std::collections::HashMap;

use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::work::{ManifestStatus, ResourceIdentifier};

use crate::work::drift::LEFT_TO;
use crate::work::manifests::key_of;
use crate::work::observed::Note;

/// Returns the events for the difference of two reports.
pub fn events(before: &[ManifestStatus], after: &[ManifestStatus]) -> Vec<Note> {
    let mut notes = Vec::new();
    let known: HashMap<_, &ManifestStatus> = before
        .iter()
        .rev()
        .map(|known| (key_of(&known.identifier).object(), known))
        .collect();
    for now in after {
        // An object stays the same when its manifest moves to another place.
        let known = known.get(&key_of(&now.identifier).object()).copied();
        let object = path(&now.identifier);
        if now.status.is_some() && known.is_none_or(|known| known.status.is_none()) {
            let text = format!("Reflect status for object({object}) succeed.");
            notes.push(("ReflectStatusSucceed", text));
        }
        let scaler = scaler(now);
        if let Some(manager) = scaler.filter(|_| known.and_then(self::scaler) != scaler) {
            let text = format!(
                "{manager:?} has scaled object({object}): the agent leaves the number to it, and applies that of the Work when it changes."
            );
            notes.push(("LeftToAutoscaler", text));
        }
        if now.health != known.and_then(|known| known.health.clone())
            && let Some(health) = judged(now.health.as_ref())
        {
            let text = format!("Interpret health of object({object}) as {health}.");
            notes.push(("InterpretHealthSucceed", text));
        }
    }
    notes
}

/// Returns the field manager to which the replicas of an object are left.
fn scaler(reported: &ManifestStatus) -> Option<&str> {
    reported.status.as_ref()?.0.get(LEFT_TO)?.as_str()
}

fn judged(health: Option<&ResourceHealth>) -> Option<&'static str> {
    match health? {
        ResourceHealth::Healthy => Some("healthy"),
        ResourceHealth::Unhealthy => Some("unhealthy"),
        _ => None,
    }
}

/// Returns the kind, namespace and name of an object, as Karmada's messages have them: an object
/// without a namespace has an empty one.
fn path(object: &ResourceIdentifier) -> String {
    let namespace = object.namespace.as_deref().unwrap_or_default();
    format!("{}/{namespace}/{}", object.kind, object.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reported(health: &str, status: bool) -> Vec<ManifestStatus> {
        let mut one = json!({"identifier": {"ordinal": 0, "version": "v1", "kind": "Deployment", "group": "apps",
            "namespace": "default", "name": "web", "resource": ""}, "health": health});
        if status {
            one["status"] = json!({"replicas": 1});
        }
        vec![serde_json::from_value(one).unwrap()]
    }

    #[test]
    fn only_what_is_new_is_said() {
        let reflected = "Reflect status for object(Deployment/default/web) succeed.";
        let sick = "Interpret health of object(Deployment/default/web) as unhealthy.";
        let well = "Interpret health of object(Deployment/default/web) as healthy.";
        let [fine, ill, unclear] =
            ["Healthy", "Unhealthy", "Unknown"].map(|health| reported(health, true));
        let (without_status, none) = (reported("Healthy", false), Vec::new());
        for (name, before, after, expected) in [
            ("the first report", &none, &ill, vec![reflected, sick]),
            ("another status", &fine, &fine, vec![]),
            ("a change of health", &ill, &fine, vec![well]),
            ("nobody knows its health", &fine, &unclear, vec![]),
            ("no status to reflect", &none, &without_status, vec![well]),
            ("it goes", &fine, &none, vec![]),
        ] {
            let notes: Vec<String> = events(before, after)
                .into_iter()
                .map(|(_, text)| text)
                .collect();
            assert_eq!(notes, expected, "{name}");
        }
    }
}
