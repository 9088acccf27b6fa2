//! The part of an object's status that the agent reports to the control plane.

use serde_json::{Map, Value, json};

use super::{Error, kind::Kind};
use crate::read::{count, field, map, text};

/// Annotation on objects in members: generation of the template they were made from.
const TEMPLATE_GENERATION: &[&str] = &[
    "metadata",
    "annotations",
    "resourcetemplate.karmada.io/generation",
];

/// What is reported for one kind.
struct Reflection {
    /// Numbers of the status that are reported, absent when 0.
    sparse: &'static [&'static str],
    /// Numbers of the status that are reported even when 0.
    always: &'static [&'static str],
    /// Fields of any type that are copied when present.
    copied: &'static [&'static str],
    /// Whether the generations of the object and of its template are reported, which lets the
    /// control plane tell whether the members have caught up with the template.
    generations: bool,
}

const DEPLOYMENT: Reflection = Reflection {
    sparse: &[
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "observedGeneration",
    ],
    always: &[],
    copied: &[],
    generations: true,
};
/// Karmada leaves `observedGeneration` out, so that the template's never advances; we report it.
const STATEFUL_SET: Reflection = Reflection {
    sparse: &[
        "currentReplicas",
        "readyReplicas",
        "updatedReplicas",
        "observedGeneration",
    ],
    always: &["replicas", "availableReplicas"],
    copied: &[],
    generations: true,
};
const REPLICA_SET: Reflection = Reflection {
    sparse: &["readyReplicas", "availableReplicas", "observedGeneration"],
    always: &["replicas"],
    copied: &[],
    generations: true,
};
const DAEMON_SET: Reflection = Reflection {
    sparse: &[
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "observedGeneration",
    ],
    always: &[
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
    ],
    copied: &[],
    generations: true,
};
const JOB: Reflection = Reflection {
    sparse: &["active", "succeeded", "failed"],
    always: &[],
    copied: &["conditions", "startTime", "completionTime"],
    generations: false,
};
const BUDGET: Reflection = Reflection {
    sparse: &[],
    always: &[
        "disruptionsAllowed",
        "expectedPods",
        "desiredHealthy",
        "currentHealthy",
    ],
    copied: &["disruptedPods"],
    generations: false,
};
const AUTOSCALER: Reflection = Reflection {
    sparse: &["currentReplicas"],
    always: &["desiredReplicas"],
    copied: &[],
    generations: false,
};

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
    let reflection = match Kind::of(object) {
        Some(Kind::Deployment) => DEPLOYMENT,
        Some(Kind::StatefulSet) => STATEFUL_SET,
        Some(Kind::ReplicaSet) => REPLICA_SET,
        Some(Kind::DaemonSet) => DAEMON_SET,
        Some(Kind::Job) => JOB,
        Some(Kind::PodDisruptionBudget) => BUDGET,
        Some(Kind::HorizontalPodAutoscaler) => AUTOSCALER,
        _ => return Ok(field(object, &["status"]).cloned()),
    };
    let mut reported = Map::new();
    if reflection.generations {
        put_count(
            &mut reported,
            "generation",
            count(object, &["metadata", "generation"])?,
        );
        put_count(
            &mut reported,
            "resourceTemplateGeneration",
            template_generation(object)?,
        );
    }
    for key in reflection.sparse {
        put_count(&mut reported, key, count(object, &["status", key])?);
    }
    for key in reflection.always {
        reported.insert((*key).to_owned(), count(object, &["status", key])?.into());
    }
    for key in reflection.copied {
        if let Some(value) = field(object, &["status", key]) {
            reported.insert((*key).to_owned(), value.clone());
        }
    }
    let nothing = reported.is_empty() && reflection.generations;
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
