//! Pod templates of workloads, and the objects that a pod refers to.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Error,
    kind::Kind,
    read::{field, list, text},
};

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
pub(super) struct References {
    pub config_maps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
    pub service_accounts: BTreeSet<String>,
    pub claims: BTreeSet<String>,
}

/// The pod spec of a workload, of a Pod itself, or `None` for kinds without one. A workload without
/// a template has an empty pod.
pub(super) fn spec(object: &Value) -> Option<&Value> {
    let path: &[&str] = match Kind::of(object)? {
        Kind::Pod => &["spec"],
        Kind::CronJob => &["spec", "jobTemplate", "spec", "template", "spec"],
        Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet | Kind::DaemonSet | Kind::Job => {
            &["spec", "template", "spec"]
        }
        _ => return None,
    };
    Some(field(object, path).unwrap_or(&Value::Null))
}

/// Everything in the namespace that the pod cannot start without.
pub(super) fn references(pod: &Value) -> Result<References, Error> {
    let mut found = References::default();
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(pod, &[containers])? {
            for source in list(container, &["envFrom"])? {
                note(&mut found.config_maps, source, &["configMapRef", "name"])?;
                note(&mut found.secrets, source, &["secretRef", "name"])?;
            }
            for variable in list(container, &["env"])? {
                note(
                    &mut found.config_maps,
                    variable,
                    &["valueFrom", "configMapKeyRef", "name"],
                )?;
                note(
                    &mut found.secrets,
                    variable,
                    &["valueFrom", "secretKeyRef", "name"],
                )?;
            }
        }
    }
    for secret in list(pod, &["imagePullSecrets"])? {
        note(&mut found.secrets, secret, &["name"])?;
    }
    for volume in list(pod, &["volumes"])? {
        note(&mut found.config_maps, volume, &["configMap", "name"])?;
        note(
            &mut found.claims,
            volume,
            &["persistentVolumeClaim", "claimName"],
        )?;
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

fn note(names: &mut BTreeSet<String>, at: &Value, path: &[&str]) -> Result<(), Error> {
    if let Some(name) = text(at, path)?.filter(|name| !name.is_empty()) {
        names.insert(name.to_owned());
    }
    Ok(())
}
