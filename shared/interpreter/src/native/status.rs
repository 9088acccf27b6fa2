//! The part of an object's status that the agent reports to the control plane.

use serde_json::{Map, Value, json};

use super::aggregate::{
    AUTOSCALER, BUDGET, DAEMON_SET, DEPLOYMENT, JOB, REPLICA_SET, STATEFUL_SET, Sums,
};
use super::{Error, kind::Kind};
use crate::read::{count, field, map, text};

/// Annotation on objects in members: generation of the template they were made from.
const TEMPLATE_GENERATION: &[&str] = &[
    "metadata",
    "annotations",
    "resourcetemplate.karmada.io/generation",
];
/// Generation that the controllers of the member have seen.
const OBSERVED: &str = "observedGeneration";

/// Returns the status to report for an object in a member; `None` if there is nothing to report.
///
/// A template generation that is absent or not a number counts as 0. Karmada rejects the whole
/// status then, which hides a running workload.
pub fn status(object: &Value) -> Result<Option<Value>, Error> {
    if Kind::of(object) == Some(Kind::Service) {
        return load_balancer(object);
    }
    if map(object, &["status"])?.is_none() {
        return Ok(None);
    }
    // Counters, fields of any type that are copied, and whether the generations of the object and
    // of its template are reported, which lets the control plane see whether the members have
    // caught up with the template.
    let (counters, copied, generations): (&Sums, &[&str], bool) = match Kind::of(object) {
        Some(Kind::Deployment) => (&DEPLOYMENT, &[], true),
        // Karmada leaves `observedGeneration` out, so that the template's never advances.
        Some(Kind::StatefulSet) => (&STATEFUL_SET, &[], true),
        Some(Kind::ReplicaSet) => (&REPLICA_SET, &[], true),
        Some(Kind::DaemonSet) => (&DAEMON_SET, &[], true),
        Some(Kind::Job) => (&JOB, &["conditions", "startTime", "completionTime"], false),
        Some(Kind::PodDisruptionBudget) => (&BUDGET, &["disruptedPods"], false),
        Some(Kind::HorizontalPodAutoscaler) => (&AUTOSCALER, &[], false),
        _ => return Ok(field(object, &["status"]).cloned()),
    };
    let mut reported = Map::new();
    if generations {
        for (key, value) in [
            ("generation", count(object, &["metadata", "generation"])?),
            ("resourceTemplateGeneration", template_generation(object)?),
            (OBSERVED, count(object, &["status", OBSERVED])?),
        ] {
            put_count(&mut reported, key, value);
        }
    }
    for key in counters.sparse {
        put_count(&mut reported, key, count(object, &["status", key])?);
    }
    for key in counters.always {
        reported.insert((*key).to_owned(), count(object, &["status", key])?.into());
    }
    for key in copied {
        if let Some(value) = field(object, &["status", key]) {
            reported.insert((*key).to_owned(), value.clone());
        }
    }
    let nothing = reported.is_empty() && generations;
    Ok((!nothing).then_some(Value::Object(reported)))
}

fn load_balancer(object: &Value) -> Result<Option<Value>, Error> {
    if text(object, &["spec", "type"])? != Some("LoadBalancer") {
        return Ok(None);
    }
    if map(object, &["status"])?.is_none() {
        return Ok(None);
    }
    let balancer = map(object, &["status", "loadBalancer"])?.cloned();
    Ok(Some(
        json!({ "loadBalancer": balancer.unwrap_or_default() }),
    ))
}

fn template_generation(object: &Value) -> Result<i64, Error> {
    Ok(text(object, TEMPLATE_GENERATION)?
        .and_then(|text| text.parse().ok())
        .unwrap_or(0))
}

fn put_count(into: &mut Map<String, Value>, key: &str, value: i64) {
    if value != 0 {
        into.insert(key.to_owned(), value.into());
    }
}
