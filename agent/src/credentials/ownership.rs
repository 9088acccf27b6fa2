//! Ownership of the accounts, roles and Secrets in a member that have the names of credentials. Two
//! fleets may have the member, and both use the same names; Karmada's agent uses them as well.
//! Pure.

use muster_shared::fleet_id::FleetId;
use muster_shared::k8s::ObjectMeta;
use muster_shared::names::{annotation, label};
use serde_json::{Value, json};

use crate::fleet_id::{self, Foreign};
use crate::write::FIELD_MANAGER;

/// Returns whether an agent of Muster made an object, for whatever fleet: it has the label of the
/// system, and `muster-agent` among its field managers. Karmada's agent makes objects of the same
/// names.
pub fn is_an_agents(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.iter().flatten();
    let mut managers = metadata.managed_fields.iter().flatten();
    labels.into_iter().any(|(key, _)| key == label::SYSTEM)
        && managers.any(|it| it.manager.as_deref() == Some(FIELD_MANAGER))
}

/// Refuses an object that may not be used, or removed, for this fleet.
pub fn check(metadata: &ObjectMeta, fleet: &FleetId) -> Result<(), Foreign> {
    fleet_id::check(mark(metadata), fleet)
}

/// Returns the merge patch that marks an object as this fleet's, if an agent of Muster made it
/// before there were marks, or under a former id. Objects of Karmada's agent are not marked, and so
/// are never removed.
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
        let mark = Some(&marked);
        let ours = |of| metadata(true, FIELD_MANAGER, of);
        let karmadas = metadata(true, "karmada-agent", None);
        for (what, found, fleet, usable, patch) in [
            ("made before", ours(None), &known, true, mark),
            ("Karmada's", karmadas, &known, true, None),
            ("ours", ours(Some("a")), &known, true, None),
            ("of a former id", ours(Some("former")), &known, true, mark),
            ("another's", ours(Some("b")), &known, false, mark),
            ("made before, id unknown", ours(None), &unknown, true, None),
            ("marked, unknown", ours(Some("a")), &unknown, false, None),
        ] {
            assert_eq!(check(&found, fleet).is_ok(), usable, "{what}");
            if usable {
                assert_eq!(marking(&found, fleet).as_ref(), patch, "{what}");
            }
        }
    }
}
