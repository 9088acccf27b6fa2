//! Rates at which workloads may be evicted, for all clusters together.
//!
//! The rule is the proposal's, taken from Kubernetes' node controller: the more of the fleet has
//! failed, the less is evicted, because the control plane itself is then the likely cause.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::settings::Settings;

/// The settings of the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Evictions per second as long as the fleet is healthy (`--resource-eviction-rate`, 0.5).
    pub primary: f64,
    /// Evictions per second when too many clusters of a large fleet have failed
    /// (`--secondary-resource-eviction-rate`, 0.1).
    pub secondary: f64,
    /// The fraction of failed clusters beyond which there are too many
    /// (`--unhealthy-cluster-threshold`, 0.55).
    pub unhealthy_threshold: f64,
    /// A fleet is large when it has more clusters than this (`--large-cluster-num-threshold`, 10).
    pub large_threshold: usize,
}

impl Default for Rates {
    /// Returns the rates that the flags have by default.
    fn default() -> Self {
        Self::of(&Settings::default())
    }
}

/// Number of clusters, and of those that have failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetHealth {
    /// All clusters.
    pub total: usize,
    /// Those that have failed.
    pub failed: usize,
}

impl FleetHealth {
    /// Returns the failed clusters as a fraction of all; it is 0 for an empty fleet.
    pub fn failed_fraction(self) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        // Exact for any number of clusters that fits into memory.
        #[expect(clippy::cast_precision_loss)]
        let fraction = self.failed as f64 / self.total as f64;
        fraction
    }
}

/// Rate that applies, by the health of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Band {
    /// Few enough clusters have failed.
    #[default]
    Primary,
    /// Too many clusters of a large fleet have failed.
    Secondary,
    /// Too many clusters of a small fleet have failed, or of one whose secondary rate is 0: nothing
    /// is evicted.
    Stopped,
}

impl Rates {
    /// Returns the rates that the settings ask for.
    pub fn of(settings: &Settings) -> Self {
        Self {
            primary: settings.resource_eviction_rate,
            secondary: settings.secondary_resource_eviction_rate,
            unhealthy_threshold: settings.unhealthy_cluster_threshold,
            large_threshold: settings.large_cluster_num_threshold,
        }
    }

    /// Returns the band for the present health. Both thresholds must be *exceeded*.
    pub fn band(&self, health: FleetHealth) -> Band {
        if health.failed_fraction() <= self.unhealthy_threshold {
            Band::Primary
        } else if health.total > self.large_threshold && self.secondary > 0.0 {
            Band::Secondary
        } else {
            Band::Stopped
        }
    }

    /// Evictions per second in a band.
    pub fn per_second(&self, band: Band) -> f64 {
        match band {
            Band::Primary => self.primary,
            Band::Secondary => self.secondary,
            Band::Stopped => 0.0,
        }
    }
}

/// How much may be saved up while nothing is evicted: what accrues in this time, but never less
/// than one eviction. It lets high rates be kept in spite of timers that are exact to a millisecond
/// only.
const SAVED_UP: Duration = Duration::from_millis(50);

/// The one budget that all evictions are paid from.
///
/// It starts empty: a control plane that keeps being restarted does not evict faster than one that
/// runs.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    saved: f64,
    per_second: f64,
    settled: Instant,
}

impl Budget {
    /// Returns a budget from which nothing can be paid yet.
    pub fn new(per_second: f64, now: Instant) -> Self {
        Self {
            saved: 0.0,
            per_second: per_second.max(0.0),
            settled: now,
        }
    }

    /// Returns how many evictions accrue in a second.
    pub fn per_second(&self) -> f64 {
        self.per_second
    }

    /// Changes the rate from now on; what accrued until now stays.
    pub fn set_rate(&mut self, per_second: f64, now: Instant) {
        self.settle(now);
        self.per_second = per_second.max(0.0);
    }

    /// Pays for one eviction, or says when that will be possible: `None` means not at this rate.
    ///
    /// # Errors
    /// The budget does not suffice yet.
    pub fn pay(&mut self, now: Instant) -> Result<(), Option<Instant>> {
        if self.per_second <= 0.0 {
            return Err(None);
        }
        self.settle(now);
        if self.saved >= 1.0 {
            self.saved -= 1.0;
            return Ok(());
        }
        let wait = (1.0 - self.saved) / self.per_second;
        // Rates below one per decade overflow nothing that way.
        Err(Some(
            now + Duration::from_secs_f64(wait.min(3e8)) + Duration::from_nanos(1),
        ))
    }

    /// Returns whether one eviction can be paid for now.
    pub fn suffices(&mut self, now: Instant) -> bool {
        self.settle(now);
        self.per_second > 0.0 && self.saved >= 1.0
    }

    /// Takes a payment back: nothing was evicted for it.
    pub fn refund(&mut self) {
        self.saved = (self.saved + 1.0).min(self.limit());
    }

    fn limit(&self) -> f64 {
        (self.per_second * SAVED_UP.as_secs_f64()).max(1.0)
    }

    fn settle(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.settled).as_secs_f64();
        self.saved = self
            .limit()
            .min(passed.mul_add(self.per_second, self.saved));
        self.settled = self.settled.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_depends_on_the_failed_fraction_and_on_the_size_of_the_fleet() {
        let rates = Rates::default();
        for (failed, total, band, per_second) in [
            (0, 0, Band::Primary, 0.5),
            (0, 10, Band::Primary, 0.5),
            (1, 1, Band::Stopped, 0.0),
            (5, 10, Band::Primary, 0.5),
            (6, 10, Band::Stopped, 0.0),
            (6, 11, Band::Primary, 0.5),   // 54.5 %
            (7, 11, Band::Secondary, 0.1), // 11 clusters are a large fleet, 10 are not
            (11, 20, Band::Primary, 0.5),  // 55 % exactly is not exceeded
            (22, 40, Band::Primary, 0.5),
            (55, 100, Band::Primary, 0.5),
            (12, 20, Band::Secondary, 0.1),
            (7, 12, Band::Secondary, 0.1),
            (5, 8, Band::Stopped, 0.0),
            (4, 8, Band::Primary, 0.5),
            (3_500, 3_500, Band::Secondary, 0.1),
        ] {
            let got = rates.band(FleetHealth { total, failed });
            assert_eq!(
                (got, rates.per_second(got)),
                (band, per_second),
                "{failed} of {total}"
            );
        }
        // Workloads that wait say so.
        let halting = Rates {
            secondary: 0.0,
            ..rates
        };
        for (failed, band) in [(6, Band::Primary), (7, Band::Stopped)] {
            let health = FleetHealth { total: 11, failed };
            assert_eq!(halting.band(health), band, "{failed}");
        }
    }

    /// Evictions that happen until `end` when somebody pays as soon as the budget allows.
    fn spend(budget: &mut Budget, start: Instant, end: Duration) -> usize {
        let (mut now, mut paid) = (start, 0);
        while now <= start + end {
            match budget.pay(now) {
                Ok(()) => paid += 1,
                Err(Some(at)) => {
                    assert!(at > now);
                    now = at;
                }
                Err(None) => break,
            }
        }
        paid
    }

    #[test]
    fn each_rate_is_kept_over_ten_minutes() {
        let start = Instant::now();
        for (rate, expected) in [
            (0.5, 300),
            (0.1, 60),
            (0.0, 0),
            (-1.0, 0),
            (200.0, 120_000),
            (5_000.0, 3_000_000),
        ] {
            let paid = spend(
                &mut Budget::new(rate, start),
                start,
                Duration::from_mins(10),
            );
            assert!(paid <= expected && paid + 2 >= expected, "{rate}/s: {paid}");
        }
    }

    #[test]
    fn an_idle_hour_saves_up_a_single_eviction() {
        let start = Instant::now();
        let mut budget = Budget::new(0.5, start);
        assert_eq!(
            budget.pay(start),
            Err(Some(
                start + Duration::from_secs(2) + Duration::from_nanos(1)
            ))
        );
        let later = start + Duration::from_hours(1);
        assert_eq!(budget.pay(later), Ok(()));
        assert_eq!(
            budget.pay(later),
            Err(Some(
                later + Duration::from_secs(2) + Duration::from_nanos(1)
            ))
        );
    }

    #[test]
    fn what_is_saved_up_is_what_accrues_in_fifty_milliseconds() {
        let start = Instant::now();
        for (rate, expected) in [(0.5, 1), (20.0, 1), (200.0, 10), (5_000.0, 250)] {
            let mut budget = Budget::new(rate, start);
            let later = start + Duration::from_hours(1);
            let paid = (0..1_000).take_while(|_| budget.pay(later).is_ok()).count();
            assert_eq!(paid, expected, "{rate}/s");
        }
    }

    #[test]
    fn what_evicts_nothing_costs_nothing() {
        let start = Instant::now();
        let mut budget = Budget::new(0.5, start);
        let later = start + Duration::from_secs(2);
        for _ in 0..1_000 {
            assert_eq!(budget.pay(later), Ok(()));
            budget.refund();
        }
        assert_eq!(budget.pay(later), Ok(()));
        assert!(budget.pay(later).is_err());
    }

    #[test]
    fn a_stop_keeps_what_was_saved_and_adds_nothing() {
        let start = Instant::now();
        let second = |s| start + Duration::from_secs(s);
        let mut budget = Budget::new(0.5, start);
        budget.set_rate(0.0, second(1));
        assert_eq!(budget.pay(second(1_000)), Err(None));
        assert!(!budget.suffices(second(1_000)));
        budget.set_rate(0.1, second(1_000));
        assert_eq!(
            budget.pay(second(1_000)),
            Err(Some(second(1_005) + Duration::from_nanos(1)))
        );
        // One that is saved up is not spent either.
        assert!(budget.suffices(second(2_000)));
        budget.set_rate(0.0, second(2_000));
        assert!(!budget.suffices(second(2_000)));
        assert_eq!(budget.pay(second(2_000)), Err(None));
    }
}
