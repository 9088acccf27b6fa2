//! When each lease of a member was last seen to change, by the monotonic clock of this process.
//!
//! A process that has just started saw each lease at its first list: it counts from there, which is
//! later than the last renewal and never earlier.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use muster_shared::names::annotation;
use muster_shared::watch::{Change, Informer};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The last change of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseChange {
    /// Time at which the change was seen.
    pub at: Instant,
    /// Version of the lease; `None` once it was seen being deleted.
    pub version: Option<String>,
    /// Whether the agent that wrote it stops workloads when it is cut off.
    pub fences: bool,
}

/// The last changes of all leases, by cluster. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LeaseChanges(Arc<Mutex<HashMap<String, LeaseChange>>>);

impl LeaseChanges {
    /// Follows the cache of leases; call it before the cache starts.
    pub fn follow(leases: &Informer<Lease>) -> Self {
        let changes = Self::default();
        let seen = changes.clone();
        leases.on_change(move |change| match change {
            Change::Applied { new, .. } => seen.see(new, Instant::now()),
            Change::Deleted { old } => seen.gone(&old.name_any(), Instant::now()),
        });
        changes
    }

    /// Returns the last change that was seen of the lease of a cluster; `None` if there never was
    /// one.
    pub fn of(&self, cluster: &str) -> Option<LeaseChange> {
        self.0.lock().get(cluster).cloned()
    }

    fn see(&self, lease: &Lease, now: Instant) {
        let version = lease.resource_version();
        let mut changes = self.0.lock();
        let known = changes.get(&lease.name_any());
        if known.is_some_and(|known| known.version.is_some() && known.version == version) {
            return;
        }
        let change = LeaseChange {
            at: now,
            version,
            fences: fences(lease),
        };
        changes.insert(lease.name_any(), change);
    }

    fn gone(&self, cluster: &str, now: Instant) {
        if let Some(change) = self.0.lock().get_mut(cluster) {
            change.at = now;
            change.version = None;
        }
    }
}

/// Returns whether the lease was renewed last by an agent that fences. An older agent renews the
/// time and leaves the annotation of its successor as it is.
fn fences(lease: &Lease) -> bool {
    let renewed = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.renew_time.as_ref());
    let said = lease.annotations().get(annotation::FENCES);
    let said = said.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    said.is_some() && said == renewed.map(|renewed| renewed.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn lease(version: &str, renewed: &str, fences: &Value) -> Lease {
        serde_json::from_value(json!({
            "metadata": { "name": "m1", "resourceVersion": version, "annotations": { annotation::FENCES: fences } },
            "spec": { "renewTime": renewed },
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_counts_from_when_a_change_of_it_was_seen() {
        let changes = LeaseChanges::default();
        assert_eq!(changes.of("m1"), None);
        let time = "2026-01-01T00:00:00.000001Z";
        let start = Instant::now();
        let s = std::time::Duration::from_secs;
        let at = |changes: &LeaseChanges| (changes.of("m1").unwrap().at - start).as_secs();
        changes.see(&lease("1", time, &json!(time)), start);
        changes.see(&lease("1", time, &json!(time)), start + s(5));
        assert_eq!(at(&changes), 0, "a list shows the same lease again");
        changes.see(
            &lease("2", "2020-01-01T00:00:00Z", &json!(time)),
            start + s(9),
        );
        assert_eq!(at(&changes), 9, "whatever its time of day");
        changes.gone("m1", start + s(20));
        assert_eq!(
            (at(&changes), changes.of("m1").unwrap().version),
            (20, None)
        );
        changes.see(&lease("2", time, &json!(time)), start + s(30));
        assert_eq!(at(&changes), 30);
    }

    #[test]
    fn an_agent_fences_if_its_last_renewal_says_so() {
        let (now, before) = ("2026-01-01T00:00:10.000001Z", "2026-01-01T00:00:00.000001Z");
        for (said, expected) in [
            (json!(now), true),
            (json!(before), false),
            (json!("yes"), false),
        ] {
            assert_eq!(fences(&lease("1", now, &said)), expected, "{said}");
        }
        assert!(!fences(&Lease::default()));
    }
}
