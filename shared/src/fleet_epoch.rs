//! The epoch of a fleet's store. It distinguishes a promoted standby from the store whose host was
//! lost.
//!
//! It is an annotation of the namespace `karmada-cluster`, which every agent may read and none may
//! write. A promotion raises it, and nothing else writes it. Agents remember the highest that they
//! have seen, and obey no store with a lower one.

use k8s_openapi::api::coordination::v1::Lease;

use crate::k8s::ObjectMeta;
use crate::names::annotation::{FLEET_EPOCH, SEEN_EPOCH};

/// Returns the epoch that the namespace `karmada-cluster` has; 0 without one.
///
/// # Errors
/// When the annotation is no number.
pub fn of(namespace: &ObjectMeta) -> Result<u64, String> {
    let annotations = namespace.annotations.as_ref();
    let Some(text) = annotations.and_then(|it| it.get(FLEET_EPOCH)) else {
        return Ok(0);
    };
    let read = text.trim().parse();
    read.map_err(|_| format!("annotation {FLEET_EPOCH} is {text:.40?}; it has to be a number"))
}

/// Returns the newest epoch that the agent of a lease has seen in another store, if it says so.
pub fn seen(lease: &Lease) -> Option<u64> {
    let annotations = lease.metadata.annotations.as_ref()?;
    annotations.get(SEEN_EPOCH)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespace_without_an_epoch_has_the_first_one_and_what_is_no_number_is_reported() {
        for (annotations, expected) in [
            (json!({}), Ok(0)),
            (json!({FLEET_EPOCH: "3"}), Ok(3)),
            (json!({FLEET_EPOCH: " 4\n"}), Ok(4)),
            (json!({FLEET_EPOCH: ""}), Err(())),
            (json!({FLEET_EPOCH: "-1"}), Err(())),
            (json!({FLEET_EPOCH: "two"}), Err(())),
        ] {
            let namespace = serde_json::from_value(json!({ "annotations": annotations })).unwrap();
            let found = of(&namespace);
            if let Err(words) = &found {
                assert!(
                    words.contains(FLEET_EPOCH) && words.contains("number"),
                    "{words}"
                );
            }
            assert_eq!(found.map_err(drop), expected, "{annotations}");
        }
    }

    #[test]
    fn a_lease_says_what_its_agent_has_seen_elsewhere() {
        for (annotations, expected) in [
            (json!({}), None),
            (json!({SEEN_EPOCH: "2"}), Some(2)),
            (json!({SEEN_EPOCH: "x"}), None),
        ] {
            let lease = json!({"metadata": { "annotations": annotations }});
            let lease = serde_json::from_value(lease).unwrap();
            assert_eq!(seen(&lease), expected, "{annotations}");
        }
    }
}
