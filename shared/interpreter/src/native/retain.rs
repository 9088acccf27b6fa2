//! Fields of the object in the member that survive an update from the control plane.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{
    Error, Operation,
    kind::{Kind, unsupported},
};
use crate::read::{Read, Unread, check_texts, field, integer, list, set, text};

/// Label on a Deployment template: the member (an autoscaler there, usually) decides the number of
/// replicas.
const RETAIN_REPLICAS: &[&str] = &[
    "metadata",
    "labels",
    "resourcetemplate.karmada.io/retain-replicas",
];

/// Returns the desired object with the fields from `observed` that the member's own controllers
/// set.
///
/// # Errors
/// A field that the rule reads has the wrong type, or the kind has no rule.
pub fn retain(mut desired: Value, observed: &Value) -> Result<Value, Error> {
    let kind = Kind::of(&desired);
    if !kind.is_some_and(|kind| kind.has(Operation::Retain)) {
        return Err(unsupported(Operation::Retain, &desired));
    }
    match kind {
        Some(Kind::Deployment) => retain_replicas(&mut desired, observed)?,
        Some(Kind::Job) => {
            for path in [
                &["spec", "selector", "matchLabels"][..],
                &["spec", "template", "metadata", "labels"],
            ] {
                check_texts(observed, path)?;
                copy(&mut desired, observed, path)?;
            }
        }
        Some(Kind::Pod) => retain_pod(&mut desired, observed)?,
        Some(Kind::Service) => retain_service(&mut desired, observed)?,
        Some(Kind::ServiceAccount) => {
            merge_references(&mut desired, observed, "secrets")?;
            merge_references(&mut desired, observed, "imagePullSecrets")?;
        }
        Some(Kind::Secret)
            if text(&desired, &["type"])? == Some("kubernetes.io/service-account-token") =>
        {
            check_texts(observed, &["data"])?;
            copy(&mut desired, observed, &["data"])?;
        }
        Some(Kind::PersistentVolumeClaim)
            if text(observed, &["spec", "volumeName"])?.is_some_and(|name| !name.is_empty()) =>
        {
            copy(&mut desired, observed, &["spec", "volumeName"])?;
        }
        Some(Kind::PersistentVolume) => copy(&mut desired, observed, &["spec", "claimRef"])?,
        _ => {}
    }
    Ok(desired)
}

/// Returns the desired object with the number of replicas from `observed`, if it is a Deployment
/// whose label leaves the number to the member. A rule of a user for the kind does not have to know
/// the label.
///
/// # Errors
/// The label or the number has the wrong type.
pub fn retain_labelled(mut desired: Value, observed: &Value) -> Result<Value, Error> {
    if Kind::of(&desired) == Some(Kind::Deployment) {
        retain_replicas(&mut desired, observed)?;
    }
    Ok(desired)
}

/// Takes the value at `path` over, when the member has one.
fn copy(desired: &mut Value, observed: &Value, path: &[&str]) -> Read<()> {
    match field(observed, path) {
        Some(value) => set(desired, path, value.clone()),
        None => Ok(()),
    }
}

fn retain_replicas(desired: &mut Value, observed: &Value) -> Read<()> {
    if text(desired, RETAIN_REPLICAS)? != Some("true") {
        return Ok(());
    }
    let replicas = integer(observed, &["spec", "replicas"])?.ok_or_else(|| Unread::Missing {
        path: "spec.replicas".into(),
    })?;
    set(desired, &["spec", "replicas"], replicas.into())
}

fn retain_service(desired: &mut Value, observed: &Value) -> Result<(), Error> {
    if integer(observed, &["spec", "healthCheckNodePort"])?.is_some_and(|port| port > 0) {
        copy(desired, observed, &["spec", "healthCheckNodePort"])?;
    }
    if text(observed, &["spec", "clusterIP"])?.is_some_and(|ip| !ip.is_empty()) {
        copy(desired, observed, &["spec", "clusterIP"])?;
    }
    Ok(())
}

/// Retains what admission and the scheduler in the member added to a Pod: a running Pod is almost
/// immutable, so that must be sent back as it is there.
fn retain_pod(desired: &mut Value, observed: &Value) -> Result<(), Error> {
    for key in ["nodeName", "serviceAccountName", "volumes"] {
        let value = field(observed, &["spec", key]).cloned();
        replace(desired, &["spec"], key, value);
    }
    for containers in ["containers", "initContainers"] {
        let running: HashMap<_, _> = list(observed, &["spec", containers])?
            .iter()
            .map(|container| (container["name"].as_str(), container))
            .collect();
        let Some(wanted) = desired
            .get_mut("spec")
            .and_then(|spec| spec.get_mut(containers))
            .and_then(Value::as_array_mut)
        else {
            continue;
        };
        for container in wanted {
            if let Some(same) = running.get(&container["name"].as_str()) {
                let mounts = field(same, &["volumeMounts"]).cloned();
                replace(container, &[], "volumeMounts", mounts);
            }
        }
    }
    Ok(())
}

/// Sets or removes one key of the object at `parent`.
fn replace(object: &mut Value, parent: &[&str], key: &str, value: Option<Value>) {
    let parent = parent.iter().try_fold(object, |at, key| at.get_mut(key));
    let Some(Value::Object(parent)) = parent else {
        return;
    };
    match value {
        Some(value) => parent.insert(key.to_owned(), value),
        None => parent.remove(key),
    };
}

/// Merges references: the desired ones first, then those of the member whose name is not among
/// them. A list empty on both sides stays absent, where Karmada writes null.
fn merge_references(desired: &mut Value, observed: &Value, key: &str) -> Read<()> {
    let mut merged = list(desired, &[key])?.to_vec();
    let name = |reference: &Value| reference["name"].as_str().map(str::to_owned);
    let mut known: HashSet<_> = merged.iter().map(name).collect();
    for reference in list(observed, &[key])? {
        if known.insert(name(reference)) {
            merged.push(reference.clone());
        }
    }
    if merged.is_empty() {
        return Ok(());
    }
    set(desired, &[key], Value::Array(merged))
}
