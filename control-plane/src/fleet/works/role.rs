//! Role of an object in a member: what other objects lose when it is deleted there.

use muster_shared::api::binding::ObjectReference;
use muster_shared::names::api_group;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Role of an object in a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A Namespace or a CustomResourceDefinition: its deletion deletes everything in it or of it,
    /// that of people and of other policies included.
    Container,
    /// A PersistentVolumeClaim or a PersistentVolume: its deletion deletes data.
    Storage,
    /// Any other object: its deletion deletes what belongs to it alone.
    #[default]
    Plain,
}

impl Role {
    /// Returns the role of the resource of a binding.
    pub fn of(resource: &ObjectReference) -> Self {
        Self::of_kind(&resource.api_version, &resource.kind)
    }

    /// Returns the role of a manifest.
    pub fn of_manifest(manifest: &Value) -> Self {
        let text = |key: &str| manifest[key].as_str().unwrap_or_default();
        Self::of_kind(text("apiVersion"), text("kind"))
    }

    fn of_kind(api_version: &str, kind: &str) -> Self {
        match (api_group(api_version), kind) {
            ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                Self::Container
            }
            ("", "PersistentVolumeClaim" | "PersistentVolume") => Self::Storage,
            _ => Self::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_and_storage_are_told_from_other_objects_by_group_and_kind() {
        for (api_version, kind, expected) in [
            ("v1", "Namespace", Role::Container),
            ("example.com/v1", "Namespace", Role::Plain),
            (
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                Role::Container,
            ),
            ("v1", "PersistentVolumeClaim", Role::Storage),
            ("v1", "PersistentVolume", Role::Storage),
            ("v1", "ConfigMap", Role::Plain),
            ("apps/v1", "Deployment", Role::Plain),
        ] {
            let manifest = json!({"apiVersion": api_version, "kind": kind});
            assert_eq!(Role::of_manifest(&manifest), expected, "{manifest}");
            let resource: ObjectReference = serde_json::from_value(manifest).unwrap();
            assert_eq!(Role::of(&resource), expected, "{resource:?}");
        }
        assert_eq!(Role::of_manifest(&Value::Null), Role::Plain);
    }
}
