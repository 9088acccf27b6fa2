//! Events about a Work whose objects change their state.
//!
//! Karmada publishes two events on every change of every object. This agent publishes one for the
//! first status of an object and for each change of its health.

use std::collections::HashMap;

use muster_shared::api::binding::ResourceHealth;
use muster_shared::api::work::{ManifestStatus, ResourceIdentifier};

use crate::work::desired::ObjectKey;
use crate::work::drift::LEFT_TO;
use crate::work::manifests::key_of;

/// Reason and text of an event, in Karmada's words.
pub type Note = (&'static str, String);

/// What a person has to know of an object beside its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The agent has stopped the object.
    Stopped,
    /// The status cannot be reflected.
    Status(String),
    /// The health cannot be judged; it is reported as unknown.
    Health(String),
}

impl Trouble {
    /// Returns the warning event.
    pub fn note(&self, object: &ObjectKey) -> Note {
        let object = format!("{}/{}/{}", object.kind.kind, object.namespace, object.name);
        match self {
            Self::Status(error) => {
                let text = format!("Reflect status for object({object}) failed, err: {error}.");
                ("ReflectStatusFailed", text)
            }
            Self::Stopped => {
                let text = format!(
                    "The agent has stopped object({object}), because its cluster was cut off from the fleet. It is started again as soon as that is known to be over."
                );
                ("StoppedWhileCutOff", text)
            }
            Self::Health(error) => {
                let text = format!("Interpret health of object({object}) failed, err: {error}.");
                ("InterpretHealthFailed", text)
            }
        }
    }
}

/// Returns the events for the difference of two reports.
pub fn news(before: &[ManifestStatus], after: &[ManifestStatus]) -> Vec<Note> {
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
        for (name, before, after, expected) in [
            (
                "the first report",
                vec![],
                reported("Unhealthy", true),
                vec![reflected, sick],
            ),
            (
                "another status",
                reported("Healthy", true),
                reported("Healthy", true),
                vec![],
            ),
            (
                "a turn of health",
                reported("Unhealthy", true),
                reported("Healthy", true),
                vec![well],
            ),
            (
                "nobody knows its health",
                reported("Healthy", true),
                reported("Unknown", true),
                vec![],
            ),
            (
                "no status to reflect",
                vec![],
                reported("Healthy", false),
                vec![well],
            ),
            ("it goes", reported("Healthy", true), vec![], vec![]),
        ] {
            let notes: Vec<String> = news(&before, &after)
                .into_iter()
                .map(|(_, text)| text)
                .collect();
            assert_eq!(notes, expected, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_interpreted_is_said_in_karmadas_words() {
        let named = |kind: &str, namespace: &str| {
            let manifest = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "namespace": namespace}});
            ObjectKey::of(&manifest, 0).unwrap()
        };
        for (trouble, object, reason, text) in [
            (
                Trouble::Status("too odd".into()),
                named("Pod", "default"),
                "ReflectStatusFailed",
                "Reflect status for object(Pod/default/a) failed, err: too odd.",
            ),
            (
                Trouble::Health("too odd".into()),
                named("Node", ""),
                "InterpretHealthFailed",
                "Interpret health of object(Node//a) failed, err: too odd.",
            ),
        ] {
            assert_eq!(trouble.note(&object), (reason, text.to_owned()));
        }
    }
}
