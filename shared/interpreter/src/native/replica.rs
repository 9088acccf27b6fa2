//! Number of replicas of a workload, and the requirements of each.

use serde_json::Value;

use super::{Error, kind::Kind, pod};
use crate::Replicas;
use crate::pod as rules;
use crate::read::{count, integer};

/// Returns the replicas of a workload and the requirements of each. `None` for kinds without a
/// rule: they are not workloads, and are placed without counting.
pub fn interpret_replica(object: &Value) -> Result<Option<Replicas>, Error> {
    let replicas = match Kind::of(object) {
        Some(Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet) => {
            count(object, &["spec", "replicas"])?
        }
        Some(Kind::Job) => {
            let parallelism = count(object, &["spec", "parallelism"])?;
            integer(object, &["spec", "completions"])?
                .map_or(parallelism, |wanted| parallelism.min(wanted))
        }
        Some(Kind::Pod) => 1,
        _ => return Ok(None),
    };
    let needs = pod::spec(object).map(rules::requirements).transpose()?;
    Ok(Some(Replicas {
        replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
        requirements: needs.flatten(),
    }))
}
