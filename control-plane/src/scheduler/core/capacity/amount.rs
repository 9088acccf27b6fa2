//! Amounts of resources in the units of capacity: thousandths of a core for CPU, whole units
//! otherwise. Fractions are rounded away from zero, as in Kubernetes.

use std::collections::BTreeMap;

use muster_shared::api::cluster::ResourceSummary;
use muster_shared::k8s::Quantity as Wire;
use muster_shared::quantity::Quantity;

use super::{CPU, PODS};

/// Returns the amount of a resource, or `None` when it cannot be read.
pub fn of(name: &str, wire: &Wire) -> Option<i64> {
    Quantity::from_wire(wire)
        .ok()
        .map(|quantity| in_units(name, quantity))
}

/// Returns what is free of a resource: subtracted exactly, then rounded. What cannot be read is not
/// free.
pub fn free(summary: &ResourceSummary, name: &str) -> i64 {
    let read = |amounts: &BTreeMap<String, Wire>| match amounts.get(name) {
        Some(wire) => Quantity::from_wire(wire).ok(),
        None => Some(Quantity::ZERO),
    };
    let free = || {
        let allocatable = read(&summary.allocatable)?;
        Some(allocatable - read(&summary.allocated)? - read(&summary.allocating)?)
    };
    free().map_or(0, |quantity| in_units(name, quantity))
}

/// Returns the free pod slots: each amount is rounded, then subtracted (Karmada behaviour). What
/// cannot be read is not free.
pub fn free_pods(summary: &ResourceSummary) -> i64 {
    let read = |amounts: &BTreeMap<String, Wire>| match amounts.get(PODS) {
        Some(wire) => of(PODS, wire),
        None => Some(0),
    };
    let free = || {
        let used = read(&summary.allocated)?.saturating_add(read(&summary.allocating)?);
        Some(read(&summary.allocatable)?.saturating_sub(used))
    };
    free().unwrap_or(0)
}

fn in_units(name: &str, quantity: Quantity) -> i64 {
    if name == CPU {
        quantity.milli_value()
    } else {
        quantity.value()
    }
}
