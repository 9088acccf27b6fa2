//! How many replicas a workload wants, and what each of them needs.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    Error,
    kind::Kind,
    pod,
    read::{count, field, integer, list, map, wrong_type},
};
use crate::api::binding::{NodeClaim, ReplicaRequirements};
use crate::k8s;
use crate::quantity::{Format, Quantity};

/// What a workload wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replicas {
    /// How many replicas.
    pub replicas: i32,
    /// What one replica needs, `None` when nothing in particular.
    pub requirements: Option<ReplicaRequirements>,
}

/// The replicas of a workload and the needs of each; `None` for kinds without a rule, which are no workloads: they are placed without
/// counting.
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
    let requirements = pod::spec(object).map(requirements).transpose()?.flatten();
    Ok(Some(Replicas {
        replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
        requirements,
    }))
}

fn requirements(pod: &Value) -> Result<Option<ReplicaRequirements>, Error> {
    let claim = NodeClaim {
        hard_node_affinity: typed(
            pod,
            &[
                "affinity",
                "nodeAffinity",
                "requiredDuringSchedulingIgnoredDuringExecution",
            ],
        )?,
        node_selector: typed(pod, &["nodeSelector"])?.unwrap_or_default(),
        tolerations: typed(pod, &["tolerations"])?.unwrap_or_default(),
    };
    let needs = ReplicaRequirements {
        node_claim: (claim != NodeClaim::default()).then_some(claim),
        resource_request: request(pod)?,
        ..ReplicaRequirements::default()
    };
    Ok((needs != ReplicaRequirements::default()).then_some(needs))
}

fn typed<T: DeserializeOwned>(pod: &Value, path: &[&str]) -> Result<Option<T>, Error> {
    let Some(value) = field(pod, path) else {
        return Ok(None);
    };
    serde_json::from_value(value.clone())
        .map(Some)
        .map_err(|_| wrong_type(path, "what a pod has there", value))
}

/// Amounts by resource name: thousandths of CPUs, whole units of anything else.
type Amounts = BTreeMap<String, i64>;

/// What the scheduler of the member will reserve for the pod: the sum of its containers or the largest init container, and the overhead.
/// Each amount is rounded up before it is added, as schedulers do.
fn request(pod: &Value) -> Result<BTreeMap<String, k8s::Quantity>, Error> {
    let mut sum = Amounts::new();
    for container in list(pod, &["containers"])? {
        add(&mut sum, &effective(container)?);
    }
    for container in list(pod, &["initContainers"])? {
        for (name, amount) in effective(container)? {
            let held = sum.entry(name).or_default();
            *held = amount.max(*held);
        }
    }
    if let Some(overhead) = map(pod, &["overhead"])? {
        add(&mut sum, &amounts(overhead)?);
    }
    sum.retain(|_, amount| *amount != 0);
    Ok(sum
        .into_iter()
        .map(|(name, amount)| {
            let quantity = if name == "cpu" {
                Quantity::milli(amount, Format::DecimalSi)
            } else {
                Quantity::units(amount, notation(&name))
            };
            (name, quantity.to_wire())
        })
        .collect())
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let held = sum.entry(name.clone()).or_default();
        *held = held.saturating_add(*amount);
    }
}

/// What a container reserves: its requests, and its limits where it requests nothing.
fn effective(container: &Value) -> Result<Amounts, Error> {
    let mut reserved = match map(container, &["resources", "limits"])? {
        Some(limits) => amounts(limits)?,
        None => Amounts::new(),
    };
    if let Some(requests) = map(container, &["resources", "requests"])? {
        reserved.extend(amounts(requests)?);
    }
    Ok(reserved)
}

fn amounts(quantities: &Map<String, Value>) -> Result<Amounts, Error> {
    quantities
        .iter()
        .filter(|(name, _)| is_counted(name))
        .map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            let quantity: Quantity = text.parse().map_err(|_| Error::Quantity {
                path: name.clone(),
                text,
            })?;
            Ok((
                name.clone(),
                if name == "cpu" {
                    quantity.milli_value()
                } else {
                    quantity.value()
                },
            ))
        })
        .collect()
}

/// Names that schedulers count: the native ones and extended resources; not, for instance, those of quotas.
fn is_counted(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "pods" | "ephemeral-storage")
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
        || name.contains("kubernetes.io/")
        || (name.contains('/') && !name.starts_with("requests."))
}

fn notation(name: &str) -> Format {
    if matches!(name, "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
        Format::BinarySi
    } else {
        Format::DecimalSi
    }
}
