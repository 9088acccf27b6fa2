//! What a pod refers to in its namespace.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Dependency;
use crate::read::{Read, field, list, text};

/// Secrets that a volume refers to: the source, then the path to the name inside it.
const VOLUME_SECRETS: &[(&str, &[&str])] = &[
    ("secret", &["secretName"]),
    ("azureFile", &["secretName"]),
    ("cephfs", &["secretRef", "name"]),
    ("cinder", &["secretRef", "name"]),
    ("flexVolume", &["secretRef", "name"]),
    ("rbd", &["secretRef", "name"]),
    ("scaleIO", &["secretRef", "name"]),
    ("iscsi", &["secretRef", "name"]),
    ("storageos", &["secretRef", "name"]),
    ("csi", &["nodePublishSecretRef", "name"]),
];

/// Names of what a pod needs in its namespace, each list sorted and without duplicates.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    /// ConfigMaps.
    pub config_maps: BTreeSet<String>,
    /// Secrets.
    pub secrets: BTreeSet<String>,
    /// Service accounts, but for the one that every namespace has.
    pub service_accounts: BTreeSet<String>,
    /// Persistent volume claims.
    pub claims: BTreeSet<String>,
}

impl References {
    /// Returns them as dependencies: ConfigMaps, Secrets, service accounts, volume claims, each
    /// sorted by name.
    pub(crate) fn dependencies(self, namespace: Option<&str>) -> Vec<Dependency> {
        let groups = [
            ("ConfigMap", self.config_maps),
            ("Secret", self.secrets),
            ("ServiceAccount", self.service_accounts),
            ("PersistentVolumeClaim", self.claims),
        ];
        let named = |kind: &str, name: String| Dependency {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: Some(name),
            label_selector: None,
        };
        groups
            .into_iter()
            .flat_map(|(kind, names)| names.into_iter().map(move |name| named(kind, name)))
            .collect()
    }
}

/// Returns everything in the namespace that a pod with this spec cannot start without.
///
/// # Errors
/// A field of another type than a pod has there.
pub(crate) fn references(pod: &Value) -> Read<References> {
    let mut found = References::default();
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(pod, &[containers])? {
            for source in list(container, &["envFrom"])? {
                note(&mut found.config_maps, source, &["configMapRef", "name"])?;
                note(&mut found.secrets, source, &["secretRef", "name"])?;
            }
            for variable in list(container, &["env"])? {
                let config_map = ["valueFrom", "configMapKeyRef", "name"];
                note(&mut found.config_maps, variable, &config_map)?;
                let secret = ["valueFrom", "secretKeyRef", "name"];
                note(&mut found.secrets, variable, &secret)?;
            }
        }
    }
    for secret in list(pod, &["imagePullSecrets"])? {
        note(&mut found.secrets, secret, &["name"])?;
    }
    for volume in list(pod, &["volumes"])? {
        note(&mut found.config_maps, volume, &["configMap", "name"])?;
        let claim = ["persistentVolumeClaim", "claimName"];
        note(&mut found.claims, volume, &claim)?;
        for (source, path) in VOLUME_SECRETS {
            if let Some(source) = field(volume, &[source]) {
                note(&mut found.secrets, source, path)?;
            }
        }
        for source in list(volume, &["projected", "sources"])? {
            note(&mut found.config_maps, source, &["configMap", "name"])?;
            note(&mut found.secrets, source, &["secret", "name"])?;
        }
    }
    note(&mut found.service_accounts, pod, &["serviceAccountName"])?;
    // Every namespace of every cluster has this one.
    found.service_accounts.remove("default");
    Ok(found)
}

fn note(names: &mut BTreeSet<String>, at: &Value, path: &[&str]) -> Read<()> {
    if let Some(name) = text(at, path)?.filter(|name| !name.is_empty()) {
        names.insert(name.to_owned());
    }
    Ok(())
}
