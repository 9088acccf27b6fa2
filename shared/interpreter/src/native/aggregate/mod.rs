//! Aggregates the statuses of a template's copies into the status of the template.

mod accepted;
mod address;
mod batch;
mod phase;
mod reported;

use jiff::Timestamp;
use muster_shared::api::binding::AggregatedStatusItem;
use serde_json::{Map, Value};

pub use self::reported::reported_status;

use super::{
    Error, Operation,
    kind::{Kind, unsupported},
};
use crate::read::{count, field, map};

/// Counters of a status, which members report and which are summed over them.
pub(super) struct Sums {
    /// Absent when 0, as the API server writes them.
    pub(super) sparse: &'static [&'static str],
    /// Always present.
    pub(super) always: &'static [&'static str],
}

pub(super) const DEPLOYMENT: Sums = Sums {
    sparse: &[
        "replicas",
        "readyReplicas",
        "updatedReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ],
    always: &[],
};
pub(super) const STATEFUL_SET: Sums = Sums {
    sparse: &["currentReplicas", "readyReplicas", "updatedReplicas"],
    always: &["replicas", "availableReplicas"],
};
pub(super) const REPLICA_SET: Sums = Sums {
    sparse: &["readyReplicas", "availableReplicas"],
    always: &["replicas"],
};
pub(super) const DAEMON_SET: Sums = Sums {
    sparse: &[
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ],
    always: &[
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
    ],
};
pub(super) const JOB: Sums = Sums {
    sparse: &["active", "succeeded", "failed"],
    always: &[],
};
pub(super) const BUDGET: Sums = Sums {
    sparse: &[],
    always: &[
        "disruptionsAllowed",
        "expectedPods",
        "desiredHealthy",
        "currentHealthy",
    ],
};
pub(super) const AUTOSCALER: Sums = Sums {
    sparse: &["currentReplicas"],
    always: &["desiredReplicas"],
};

/// Returns the status of the template, or `None` if it should stay as it is: the Job has finished,
/// or nothing was reported.
///
/// `now` is the time of the conditions of a Job that finishes with this aggregation. The result may
/// not be acceptable to an API server; see [`acceptable_status`].
///
/// # Errors
/// A member's status cannot be read, or the kind has no rule.
pub fn aggregate_status(
    template: &Value,
    members: &[AggregatedStatusItem],
    now: Timestamp,
) -> Result<Option<Value>, Error> {
    let kind = Kind::of(template);
    // Of these, no status is read.
    let is_left_alone = match kind {
        Some(Kind::Job) => batch::is_finished(template)?,
        Some(Kind::Service) => !address::is_load_balancer(template)?,
        _ => false,
    };
    if is_left_alone {
        return Ok(None);
    }
    let collected = collected(members)?;
    match kind {
        Some(Kind::Deployment) => replicas(template, members, &collected, &DEPLOYMENT),
        Some(Kind::StatefulSet) => replicas(template, members, &collected, &STATEFUL_SET),
        Some(Kind::ReplicaSet) => replicas(template, members, &collected, &REPLICA_SET),
        Some(Kind::DaemonSet) => replicas(template, members, &collected, &DAEMON_SET),
        Some(Kind::Job) => batch::job(template, members, &collected, now),
        Some(Kind::CronJob) => batch::cron_job(&collected),
        Some(Kind::Pod) => phase::pod(template, members, &collected),
        Some(Kind::PersistentVolume) => phase::volume(template, members, &collected),
        Some(Kind::PersistentVolumeClaim) => phase::claim(&collected),
        Some(Kind::Service | Kind::Ingress) => address::balancer(&collected),
        Some(Kind::PodDisruptionBudget) => budget(&collected),
        Some(Kind::HorizontalPodAutoscaler) => autoscaler(template, &collected),
        Some(Kind::ServiceAccount | Kind::Secret | Kind::ServiceImport) | None => {
            Err(unsupported(Operation::AggregateStatus, template))
        }
    }
}

/// Returns the wanted status of a template, changed as little as possible so that an API server
/// accepts it in place of the stored one.
pub fn acceptable_status(template: &Value, wanted: Value, now: Timestamp) -> Value {
    match (Kind::of(template), wanted) {
        (Some(Kind::Job), Value::Object(wanted)) => {
            let held = template.get("status").and_then(Value::as_object);
            Value::Object(accepted::accepted(held, wanted, now))
        }
        (Some(Kind::Pod), Value::Object(wanted)) => {
            Value::Object(phase::accepted_pod(template, wanted))
        }
        (_, wanted) => wanted,
    }
}

/// A status that is there and is an object, with the cluster it is from.
struct Collected<'a> {
    cluster: &'a str,
    status: &'a Value,
}

impl Collected<'_> {
    /// Names the cluster in an error about its status.
    fn blame<T>(&self, result: Result<T, impl Into<Error>>) -> Result<T, Error> {
        result.map_err(|source| Error::Member {
            cluster: self.cluster.to_owned(),
            source: Box::new(source.into()),
        })
    }

    fn count(&self, key: &str) -> Result<i64, Error> {
        self.blame(count(self.status, &[key]))
    }
}

fn collected(members: &[AggregatedStatusItem]) -> Result<Vec<Collected<'_>>, Error> {
    members
        .iter()
        .filter_map(|member| {
            Some(Collected {
                cluster: &member.cluster_name,
                status: Some(&member.status.as_ref()?.0).filter(|status| !status.is_null())?,
            })
        })
        .map(|member| {
            member.blame(map(member.status, &[]))?;
            Ok(member)
        })
        .collect()
}

fn sum(collected: &[Collected<'_>], key: &str) -> Result<i64, Error> {
    collected.iter().try_fold(0_i64, |sum, member| {
        Ok(sum.saturating_add(member.count(key)?))
    })
}

fn put_sums(
    into: &mut Map<String, Value>,
    sums: &Sums,
    collected: &[Collected<'_>],
) -> Result<(), Error> {
    for key in sums.sparse {
        match sum(collected, key)? {
            0 => into.remove(*key),
            sum => into.insert((*key).to_owned(), sum.into()),
        };
    }
    for key in sums.always {
        into.insert((*key).to_owned(), sum(collected, key)?.into());
    }
    Ok(())
}

/// Sums the counters and leaves the rest of the template's status (its conditions, for one) alone.
///
/// The template's generation counts as observed once every member has a copy made from it and has
/// observed that copy. For StatefulSets Karmada compares two numbers of the member instead, by
/// mistake; we treat all kinds alike.
fn replicas(
    template: &Value,
    members: &[AggregatedStatusItem],
    collected: &[Collected<'_>],
    sums: &Sums,
) -> Result<Option<Value>, Error> {
    let mut status = map(template, &["status"])?.cloned().unwrap_or_default();
    put_sums(&mut status, sums, collected)?;
    let generation = count(template, &["metadata", "generation"])?;
    let mut observing = 0;
    for member in collected {
        let own = member.count("observedGeneration")? >= member.count("generation")?;
        let of_template = member.count("resourceTemplateGeneration")? >= generation;
        observing += usize::from(own && of_template);
    }
    if observing == members.len() {
        match generation {
            0 => status.remove("observedGeneration"),
            generation => status.insert("observedGeneration".to_owned(), generation.into()),
        };
    }
    Ok(Some(Value::Object(status)))
}

fn budget(collected: &[Collected<'_>]) -> Result<Option<Value>, Error> {
    let mut status = Map::new();
    put_sums(&mut status, &BUDGET, collected)?;
    let mut disrupted = Map::new();
    for member in collected {
        for (pod, since) in member
            .blame(map(member.status, &["disruptedPods"]))?
            .into_iter()
            .flatten()
        {
            disrupted.insert(format!("{}/{pod}", member.cluster), since.clone());
        }
    }
    if !disrupted.is_empty() {
        status.insert("disruptedPods".to_owned(), Value::Object(disrupted));
    }
    Ok(Some(Value::Object(status)))
}

fn autoscaler(template: &Value, collected: &[Collected<'_>]) -> Result<Option<Value>, Error> {
    let mut status = Map::new();
    put_sums(&mut status, &AUTOSCALER, collected)?;
    let known = |key: &str| {
        field(template, &["status", key])
            .and_then(Value::as_i64)
            .unwrap_or(0)
    };
    let unchanged = ["currentReplicas", "desiredReplicas"]
        .iter()
        .all(|key| status.get(*key).and_then(Value::as_i64).unwrap_or(0) == known(key));
    Ok((!unchanged).then_some(Value::Object(status)))
}
