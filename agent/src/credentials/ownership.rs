//! Whose the accounts, roles and Secrets in a member are that bear the names of credentials. Two
//! fleets may have the member, and both use the same names; Karmada's agent uses them as well.
//! Pure.

use muster_shared::fleet_id::{FleetId, Owner};
use muster_shared::k8s::ObjectMeta;
use muster_shared::names::{annotation, label};
use serde_json::{Value, json};

use crate::write::FIELD_MANAGER;

/// The object is not for us to use or to remove.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// An agent of another fleet made it.
    #[error(
        "it was made for another fleet (annotation {}: {theirs:?}, the id of this fleet {ours})",
        annotation::FLEET
    )]
    OtherFleet {
        /// The id that it bears.
        theirs: String,
        /// The id of this fleet, in words.
        ours: String,
    },
    /// It may be another fleet's.
    #[error("it bears the id of a fleet ({theirs:?}), and the id of this fleet is {ours}")]
    Unclear {
        /// The id that it bears.
        theirs: String,
        /// Why the id of this fleet is not known.
        ours: String,
    },
}

/// Whether an object was made by an agent of ours, for whatever fleet: it has the system's label,
/// and our name among those who wrote it. Karmada's agent makes objects of the same names.
pub fn is_an_agents(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.iter().flatten();
    let mut managers = metadata.managed_fields.iter().flatten();
    labels.into_iter().any(|(key, _)| key == label::SYSTEM)
        && managers.any(|it| it.manager.as_deref() == Some(FIELD_MANAGER))
}

/// Whether an object may be used, or removed, for this fleet.
pub fn check(metadata: &ObjectMeta, fleet: &FleetId) -> Result<(), Foreign> {
    let mark = mark(metadata);
    let (theirs, ours) = (mark.unwrap_or_default().to_owned(), fleet.to_string());
    match fleet.owner(mark) {
        Owner::Unmarked | Owner::Ours => Ok(()),
        Owner::Other => Err(Foreign::OtherFleet { theirs, ours }),
        Owner::Unclear => Err(Foreign::Unclear { theirs, ours }),
    }
}

/// The merge patch that marks an object as this fleet's, where an agent made it before there were
/// marks or under a former id. What Karmada's agent made is not marked: it is not ours to remove.
pub fn marking(metadata: &ObjectMeta, fleet: &FleetId) -> Option<Value> {
    let id = fleet.mark()?;
    if mark(metadata) == Some(id) || !is_an_agents(metadata) {
        return None;
    }
    Some(json!({ "metadata": {
        "resourceVersion": metadata.resource_version,
        "annotations": { annotation::FLEET: id },
    } }))
}

fn mark(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(annotation::FLEET).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(system: bool, manager: &str, mark: Option<&str>) -> ObjectMeta {
        let labels = if system {
            json!({ label::SYSTEM: "true" })
        } else {
            json!({})
        };
        let annotations = mark.map(|mark| json!({ annotation::FLEET: mark }));
        let metadata = json!({"resourceVersion": "7", "labels": labels, "annotations": annotations,
            "managedFields": [{"manager": manager}]});
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn only_what_our_agents_made_is_an_agents() {
        assert!(is_an_agents(&metadata(true, FIELD_MANAGER, None)));
        assert!(!is_an_agents(&metadata(true, "karmada-agent", None)));
        assert!(!is_an_agents(&metadata(false, FIELD_MANAGER, None)));
        assert!(!is_an_agents(&ObjectMeta::default()));
    }

    #[test]
    fn another_fleets_is_not_used_and_what_is_ours_is_marked() {
        let known = FleetId::Known {
            id: "a".into(),
            published: true,
            accepted: ["a".to_owned(), "former".to_owned()].into(),
        };
        let unknown = FleetId::Unknown("no right".into());
        let marked = json!({"metadata": {"resourceVersion": "7", "annotations": {"work.muster.io/fleet": "a"}}});
        for (what, found, fleet, usable, patch) in [
            (
                "made before",
                metadata(true, FIELD_MANAGER, None),
                &known,
                true,
                Some(&marked),
            ),
            (
                "Karmada's",
                metadata(true, "karmada-agent", None),
                &known,
                true,
                None,
            ),
            (
                "ours",
                metadata(true, FIELD_MANAGER, Some("a")),
                &known,
                true,
                None,
            ),
            (
                "of a former id",
                metadata(true, FIELD_MANAGER, Some("former")),
                &known,
                true,
                Some(&marked),
            ),
            (
                "another's",
                metadata(true, FIELD_MANAGER, Some("b")),
                &known,
                false,
                Some(&marked),
            ),
            (
                "made before, id unknown",
                metadata(true, FIELD_MANAGER, None),
                &unknown,
                true,
                None,
            ),
            (
                "marked, id unknown",
                metadata(true, FIELD_MANAGER, Some("a")),
                &unknown,
                false,
                None,
            ),
        ] {
            assert_eq!(check(&found, fleet).is_ok(), usable, "{what}");
            if usable {
                assert_eq!(marking(&found, fleet).as_ref(), patch, "{what}");
            }
        }
    }
}
