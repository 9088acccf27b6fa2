//! Health of an object.

use serde_json::Value;

use super::{Error, kind::Kind};
use crate::read::{count, field, integer, list, map, text};

/// Returns whether the object in a member is healthy; `None` for kinds without a rule, which
/// Karmada reports as healthy.
///
/// An error means that the object could not be judged: its health is unknown.
pub fn health(object: &Value) -> Result<Option<bool>, Error> {
    map(object, &["status"])?;
    let healthy = match Kind::of(object) {
        Some(Kind::Deployment | Kind::StatefulSet) => rolled_out(object)?,
        Some(Kind::ReplicaSet) => observed(object)? && enough(object, "availableReplicas")?,
        Some(Kind::DaemonSet) => daemons_rolled_out(object)?,
        Some(Kind::Pod) => pod_ready(object)?,
        Some(Kind::Service) => {
            text(object, &["spec", "type"])? != Some("LoadBalancer") || has_address(object)?
        }
        Some(Kind::Ingress) => has_address(object)?,
        Some(Kind::PersistentVolumeClaim) => text(object, &["status", "phase"])? == Some("Bound"),
        Some(Kind::PodDisruptionBudget) => {
            count(object, &["status", "currentHealthy"])?
                >= count(object, &["status", "desiredHealthy"])?
        }
        _ => return Ok(None),
    };
    Ok(Some(healthy))
}

/// Returns whether the controller in the member has seen the present generation.
fn observed(object: &Value) -> Result<bool, Error> {
    Ok(count(object, &["status", "observedGeneration"])?
        == count(object, &["metadata", "generation"])?)
}

/// Returns whether the status counts at least as many as the spec wants; anything is enough when
/// the spec does not say.
fn enough(object: &Value, status_field: &str) -> Result<bool, Error> {
    let have = count(object, &["status", status_field])?;
    Ok(integer(object, &["spec", "replicas"])?.is_none_or(|wanted| have >= wanted))
}

/// Returns whether all replicas are of the present revision, but for those that a person holds
/// back, and available.
fn rolled_out(object: &Value) -> Result<bool, Error> {
    let available = count(object, &["status", "availableReplicas"])?;
    let updated = count(object, &["status", "updatedReplicas"])?;
    let wanted = integer(object, &["spec", "replicas"])?.unwrap_or(updated);
    Ok(observed(object)? && is_enough(object, wanted, updated, available)?)
}

fn daemons_rolled_out(object: &Value) -> Result<bool, Error> {
    let wanted = count(object, &["status", "desiredNumberScheduled"])?;
    let updated = count(object, &["status", "updatedNumberScheduled"])?;
    let available = count(object, &["status", "numberAvailable"])?;
    Ok(observed(object)? && is_enough(object, wanted, updated, available)?)
}

/// Returns whether as many pods as are wanted are of the present revision, but for those that a
/// person holds back, and available. Where some are held back, those of former revisions have to be
/// available, too. (Karmada takes a rollout that somebody has stopped for a failure.)
fn is_enough(object: &Value, wanted: i64, updated: i64, available: i64) -> Result<bool, Error> {
    let held = held_back(object, wanted)?;
    let needed = if held > 0 {
        updated.max(wanted)
    } else {
        updated
    };
    Ok(updated.saturating_add(held) >= wanted && available >= needed)
}

/// Returns how many of the wanted pods stay at a former revision for as long as a person says so:
/// those below the partition of a StatefulSet, and all while a Deployment is paused or where pods
/// are replaced by hand only.
fn held_back(object: &Value, wanted: i64) -> Result<i64, Error> {
    let strategy = text(object, &["spec", "updateStrategy", "type"])?;
    let is_paused = field(object, &["spec", "paused"]) == Some(&Value::Bool(true));
    if is_paused || strategy == Some("OnDelete") {
        return Ok(wanted);
    }
    let partition = ["spec", "updateStrategy", "rollingUpdate", "partition"];
    Ok(count(object, &partition)?)
}

fn pod_ready(object: &Value) -> Result<bool, Error> {
    Ok(match text(object, &["status", "phase"])? {
        Some("Succeeded") => true,
        Some("Running") => list(object, &["status", "conditions"])?
            .iter()
            .find(|condition| condition["type"] == "Ready")
            .is_some_and(|ready| ready["status"] == "True"),
        _ => false,
    })
}

fn has_address(object: &Value) -> Result<bool, Error> {
    for ingress in list(object, &["status", "loadBalancer", "ingress"])? {
        for key in ["ip", "hostname"] {
            if text(ingress, &[key])?.is_some_and(|address| !address.is_empty()) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
