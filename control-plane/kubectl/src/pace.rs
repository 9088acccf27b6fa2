//! How fast workloads may move, by the state of the fleet.

use muster_control_plane::fleet::budget::rate::{Band, FleetHealth, Rates};
use muster_control_plane::movement::eviction::fleet_view::{evicts, has_failed, is_counted};
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions;
use muster_shared::names::condition::READY;
use muster_shared::taints::is_drain;
use serde::Serialize;

/// Rate at which workloads may move, and the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pace {
    pub per_second: f64,
    /// Clusters that count as failed, drained ones included.
    pub failed: usize,
    /// Clusters among the failed ones that are drained only.
    pub drained: usize,
    pub counted: usize,
    pub band: Band,
    /// Fraction of the counted clusters beyond which too many have failed
    /// (`--unhealthy-cluster-threshold`).
    pub threshold: f64,
    /// Clusters that may have failed while something moves; with one more, nothing does.
    pub may_fail: usize,
}

impl Pace {
    /// Returns the pace of a fleet.
    pub fn of<'a>(clusters: impl IntoIterator<Item = &'a Cluster>, rates: &Rates) -> Self {
        let counted = clusters.into_iter().filter(|it| is_counted(it));
        let counted: Vec<&Cluster> = counted.collect();
        let failed = || counted.iter().filter(|it| has_failed(it));
        let health = FleetHealth {
            total: counted.len(),
            failed: failed().count(),
        };
        let band = rates.band(health);
        Self {
            per_second: rates.per_second(band),
            failed: health.failed,
            drained: failed().filter(|it| is_by_order(it)).count(),
            counted: health.total,
            band,
            threshold: rates.unhealthy_threshold,
            may_fail: most_failed(rates, health),
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
        let Self {
            failed, counted, ..
        } = self;
        format!(
            "{failed} of {counted} clusters {count} as failed, drained ones included: {what} (--unhealthy-cluster-threshold)"
        )
    }
}

/// Returns whether a cluster that counts as failed is only drained: one that has failed as well
/// counts as failed alone.
fn is_by_order(cluster: &Cluster) -> bool {
    let ready = cluster.condition(READY);
    let is_ready = ready.is_none_or(|it| it.status == conditions::TRUE);
    let mut evicting = cluster.spec.taints.iter().filter(|it| evicts(it));
    is_ready && evicting.all(is_drain)
}

/// Returns the highest number of failed clusters at which workloads still move.
fn most_failed(rates: &Rates, health: FleetHealth) -> usize {
    let moves = |failed: &usize| {
        let failed = *failed;
        rates.band(FleetHealth { failed, ..health }) != Band::Stopped
    };
    (0..=health.total).rev().find(moves).unwrap_or(0)
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
