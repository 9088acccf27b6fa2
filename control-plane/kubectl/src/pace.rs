//! How fast workloads may move, by the state of the fleet.

use muster_control_plane::fleet::budget::rate::{Band, FleetHealth, Rates};
use muster_control_plane::movement::eviction::fleet_view::{has_failed, is_counted};
use muster_shared::api::cluster::Cluster;

/// Pace of evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// Clusters that count, and those of them that count as failed.
    pub health: FleetHealth,
    /// The band.
    pub band: Band,
    /// Evictions a second.
    pub per_second: f64,
}

impl Pace {
    /// Returns the pace of a fleet.
    pub fn of<'a>(clusters: impl IntoIterator<Item = &'a Cluster>, rates: &Rates) -> Self {
        let counted = clusters.into_iter().filter(|it| is_counted(it));
        let counted: Vec<&Cluster> = counted.collect();
        let health = FleetHealth {
            total: counted.len(),
            failed: counted.iter().filter(|it| has_failed(it)).count(),
        };
        let band = rates.band(health);
        Self {
            health,
            band,
            per_second: rates.per_second(band),
        }
    }

    /// Returns the reason that nothing moves because too many clusters `count` as failed, or
    /// `would count`.
    pub fn stopped(&self, count: &str) -> Option<String> {
        let what = "nothing leaves until fewer do";
        (self.band == Band::Stopped).then(|| self.sentence(count, what))
    }

    /// Returns the reason that nothing leaves: too many clusters would count as failed, or the rate
    /// is 0.
    pub fn halted(&self) -> Option<String> {
        let why = "nothing leaves at a rate of 0 (--resource-eviction-rate)";
        let at_zero = (self.per_second <= 0.0).then(|| why.to_owned());
        self.stopped("would count").or(at_zero)
    }

    /// Returns a warning if nothing leaves, or if so much of the fleet would count as failed that
    /// the rate drops.
    pub fn warning(&self) -> Option<String> {
        let is_secondary = self.band == Band::Secondary;
        let what = "workloads leave at the secondary rate";
        let slow = || is_secondary.then(|| self.sentence("would count", what));
        self.halted().or_else(slow)
    }

    fn sentence(&self, count: &str, what: &str) -> String {
        let FleetHealth { total, failed } = self.health;
        format!(
            "{failed} of {total} clusters {count} as failed, drained ones included: {what} (--unhealthy-cluster-threshold)"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    #[test]
    fn a_fleet_of_which_too_much_has_failed_is_reported_to_move_nothing() {
        let cluster = |number: usize, drained: usize| -> Cluster {
            let mut cluster = fixtures::cluster(&format!("m{number}"), "1");
            if number < drained {
                let drain = json!({"key": "failover.muster.io/drain", "effect": "NoExecute"});
                cluster["spec"]["taints"] = json!([drain]);
            }
            fixtures::read(cluster)
        };
        for (drained, expected) in [(2, None), (3, Some("3 of 4 clusters count as failed"))] {
            let fleet = [0, 1, 2, 3].map(|number| cluster(number, drained));
            let reported = Pace::of(&fleet, &Rates::default()).stopped("count");
            assert_eq!(reported.is_some(), expected.is_some(), "{reported:?}");
            assert!(
                reported
                    .unwrap_or_default()
                    .starts_with(expected.unwrap_or_default())
            );
        }
    }
}
