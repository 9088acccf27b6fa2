//! Eviction rate, shared by evictions, whatever their reason, and by new placements that take from
//! one cluster for another.
//!
//! The rate depends on the health of the fleet. New placements get what evictions leave: a workload
//! that has to move comes before one that may.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::failed::{has_failed, is_counted};
use super::rate::{Band, Budget, FleetHealth, Rates};
use crate::fleet::api_error::may_be_written;
use crate::settings::Settings;

/// A payment for one move. Whoever writes a move has to show one. It is taken back when it is
/// dropped, unless something was moved for it, or may have been.
#[must_use = "a move that is paid for is written, or the payment is taken back"]
#[derive(Debug)]
pub struct Paid {
    pace: Pace,
    is_settled: AtomicBool,
}

impl Paid {
    /// Keeps the payment, unless the answer to the write says that nothing was moved.
    pub fn settle<T>(&self, answer: &Result<T, kube::Error>) {
        if answer.as_ref().err().is_none_or(may_be_written) {
            self.keep();
        }
    }

    /// Keeps the payment: something was moved, or may have been.
    pub fn keep(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }

    /// Takes the payment back, also one that was kept: the move was paid for before.
    pub fn refund(&self) {
        // Dropping the payment must not take it back once more.
        self.keep();
        let mut inner = self.pace.inner.lock();
        inner.budget.refund();
        wake(&inner.listeners);
    }
}

impl Drop for Paid {
    fn drop(&mut self) {
        if !self.is_settled.load(Ordering::Relaxed) {
            self.refund();
        }
    }
}

/// Pause before a new placement asks again that waits for an eviction: many times what a task needs
/// to wake up.
const KEPT: Duration = Duration::from_millis(500);

/// The budget, shared by all who pay from it.
#[derive(Clone, Debug)]
pub struct Pace {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    rates: Rates,
    budget: Budget,
    /// Which clusters there are, and which of them have failed.
    clusters: HashMap<String, bool>,
    failed: usize,
    band: Band,
    /// Whether an eviction could not be paid for, and none has been since.
    is_awaited: bool,
    /// Tasks that wait for any change of the pace.
    listeners: Vec<Arc<Notify>>,
    /// Tasks that wait for a change of the band.
    band_listeners: Vec<Arc<Notify>>,
}

impl Pace {
    /// Returns the budget that the settings give to a control plane.
    pub fn of(settings: &Settings) -> Self {
        Self::new(Rates::of(settings), Instant::now())
    }

    /// Returns an empty budget, of which nothing is spent before [`begin`](Self::begin).
    pub fn new(rates: Rates, now: Instant) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                rates,
                budget: Budget::new(rates.primary, now),
                clusters: HashMap::new(),
                failed: 0,
                band: Band::Primary,
                is_awaited: false,
                listeners: Vec::new(),
                band_listeners: Vec::new(),
            })),
        }
    }

    /// Wakes somebody whenever a payment may have become possible earlier than was said.
    pub fn wakes(&self, listener: Arc<Notify>) {
        self.inner.lock().listeners.push(listener);
    }

    /// Wakes somebody whenever the band changes: what was stopped may move, or the reverse.
    pub fn wakes_on_band(&self, listener: Arc<Notify>) {
        self.inner.lock().band_listeners.push(listener);
    }

    /// Evictions begin: what accrued before does not count.
    pub fn begin(&self, now: Instant) {
        let mut inner = self.inner.lock();
        inner.budget = Budget::new(inner.rates.per_second(inner.band), now);
    }

    /// Sets other rates from now on.
    #[cfg(test)]
    pub fn set_rates(&self, rates: Rates, now: Instant) {
        let mut inner = self.inner.lock();
        inner.rates = rates;
        let per_second = rates.per_second(inner.band);
        inner.budget.set_rate(per_second, now);
    }

    /// Records a cluster that is new or changed. The cluster counts once it has begun and as long
    /// as it stays.
    pub fn observe(&self, cluster: &Cluster, now: Instant) {
        if is_counted(cluster) {
            self.put(&cluster.name_any(), has_failed(cluster), now);
        } else {
            self.gone(&cluster.name_any(), now);
        }
    }

    /// Records that a cluster is not known any more and that nobody saw leave. One that had failed
    /// goes on to count, because otherwise the rate would rise by something that nobody knows.
    pub fn lost(&self, cluster: &str, now: Instant) {
        if !self.has_failed(cluster) {
            self.gone(cluster, now);
        }
    }

    /// Puts in a cluster that counts and is new or changed.
    pub fn put(&self, cluster: &str, has_failed: bool, now: Instant) {
        let mut inner = self.inner.lock();
        let before = if let Some(known) = inner.clusters.get_mut(cluster) {
            std::mem::replace(known, has_failed)
        } else {
            inner.clusters.insert(cluster.to_owned(), has_failed);
            false
        };
        inner.failed += usize::from(has_failed);
        inner.failed -= usize::from(before);
        inner.settle_band(now);
    }

    /// Removes a cluster that is gone.
    pub fn gone(&self, cluster: &str, now: Instant) {
        let mut inner = self.inner.lock();
        if let Some(before) = inner.clusters.remove(cluster) {
            inner.failed -= usize::from(before);
            inner.settle_band(now);
        }
    }

    /// Returns whether a cluster counts as failed.
    pub fn has_failed(&self, cluster: &str) -> bool {
        self.inner.lock().clusters.get(cluster) == Some(&true)
    }

    /// Returns whether a cluster counts, and not as failed.
    pub fn is_well(&self, cluster: &str) -> bool {
        self.inner.lock().clusters.get(cluster) == Some(&false)
    }

    /// Returns how much of the fleet has failed.
    pub fn health(&self) -> FleetHealth {
        self.inner.lock().health()
    }

    /// Returns the band that follows from the health of the fleet.
    pub fn band(&self) -> Band {
        self.inner.lock().band
    }

    /// Evictions a second in that band.
    pub fn per_second(&self) -> f64 {
        let inner = self.inner.lock();
        inner.rates.per_second(inner.band)
    }

    /// Pays for one eviction, or says when to ask again: `None` means not in this band.
    ///
    /// # Errors
    /// The budget does not suffice yet.
    pub fn pay(&self, now: Instant) -> Result<Paid, Option<Instant>> {
        let mut inner = self.inner.lock();
        let paid = inner.budget.pay(now);
        inner.is_awaited = paid.is_err();
        paid.map(|()| self.paid())
    }

    fn paid(&self) -> Paid {
        Paid {
            pace: self.clone(),
            is_settled: AtomicBool::new(false),
        }
    }

    /// Pays for one new placement, which comes after all evictions, or says when to ask again:
    /// `None` means not in this band.
    ///
    /// # Errors
    /// The budget does not suffice yet, or an eviction waits for it.
    pub fn pay_after_evictions(&self, now: Instant) -> Result<Paid, Option<Instant>> {
        let mut inner = self.inner.lock();
        inner.pay_after_evictions(now)?;
        Ok(self.paid())
    }

    /// Returns whether one new placement could be paid for now, or when to ask again. Nothing is
    /// paid.
    ///
    /// # Errors
    /// The budget does not suffice yet, or an eviction waits for it.
    pub fn suffices_after_evictions(&self, now: Instant) -> Result<(), Option<Instant>> {
        let mut inner = self.inner.lock();
        inner.pay_after_evictions(now)?;
        inner.budget.refund();
        Ok(())
    }

    /// Notes that nothing is to be evicted any more.
    pub fn withdraw(&self) {
        self.inner.lock().is_awaited = false;
    }
}

impl Inner {
    fn pay_after_evictions(&mut self, now: Instant) -> Result<(), Option<Instant>> {
        if self.rates.per_second(self.band) <= 0.0 {
            return Err(None);
        }
        if self.is_awaited {
            return Err(Some(now + KEPT));
        }
        self.budget.pay(now)
    }

    fn health(&self) -> FleetHealth {
        FleetHealth {
            total: self.clusters.len(),
            failed: self.failed,
        }
    }

    fn settle_band(&mut self, now: Instant) {
        let band = self.rates.band(self.health());
        if band != self.band {
            self.band = band;
            self.budget.set_rate(self.rates.per_second(band), now);
            wake(&self.listeners);
            wake(&self.band_listeners);
        }
    }
}

fn wake(listeners: &[Arc<Notify>]) {
    for listener in listeners {
        listener.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pays for a move that is made.
    fn pay(pace: &Pace, now: Instant) -> Result<(), Option<Instant>> {
        pace.pay(now).map(|paid| paid.keep())
    }

    fn fleet(total: usize, failed: usize, start: Instant) -> Pace {
        let pace = Pace::new(Rates::default(), start);
        for n in 0..total {
            pace.put(&format!("c{n}"), n < failed, start);
        }
        pace.begin(start);
        pace
    }

    #[test]
    fn evictions_keep_the_rate_of_the_band() {
        let start = Instant::now();
        for (total, failed, expected) in [
            (10, 1, 50_usize),
            (10, 6, 0),
            (11, 7, 10),
            (20, 11, 50),
            (20, 12, 10),
            (1, 1, 0),
        ] {
            let pace = fleet(total, failed, start);
            let (mut now, mut paid) = (start, 0_usize);
            while now <= start + Duration::from_secs(100) {
                match pay(&pace, now) {
                    Ok(()) => paid += 1,
                    Err(Some(at)) => now = at,
                    Err(None) => break,
                }
            }
            assert!(paid.abs_diff(expected) <= 1, "{failed} of {total}: {paid}");
        }
    }

    #[test]
    fn a_new_placement_gets_what_evictions_leave() {
        let start = Instant::now();
        let second = |s: u64| start + Duration::from_secs(s);
        let pace = fleet(9, 0, start);
        assert!(pay(&pace, second(1)).is_err());
        let rebalance = |at| pace.pay_after_evictions(at).map(|paid| paid.keep());
        assert_eq!(rebalance(second(3)), Err(Some(second(3) + KEPT)));
        assert!(pay(&pace, second(3)).is_ok());
        pace.withdraw();
        let next = rebalance(second(3)).unwrap_err().unwrap();
        assert_eq!(rebalance(next), Ok(()), "nothing is to be evicted");
        let then = rebalance(next).unwrap_err().unwrap();
        assert!(then >= next + Duration::from_secs(2), "the rate holds");
        let paid = pace.pay_after_evictions(then).unwrap();
        paid.refund();
        assert_eq!(rebalance(then), Ok(()), "nothing was moved for it");
        let stopped = fleet(10, 6, start).pay_after_evictions(start);
        assert_eq!(stopped.map(drop), Err(None));
    }

    #[test]
    fn what_accrued_before_evictions_begin_does_not_count() {
        let start = Instant::now();
        let later = start + Duration::from_hours(1);
        let pace = Pace::new(Rates::default(), start);
        pace.put("c", false, start);
        pace.begin(later);
        let first = pay(&pace, later).unwrap_err();
        assert!(first.is_some_and(|first| first > later));
    }

    #[test]
    fn a_failed_cluster_that_is_lost_counts_until_it_is_seen_or_known_to_be_gone() {
        let start = Instant::now();
        let counted = |pace: &Pace| (pace.health().failed, pace.health().total);
        let pace = fleet(4, 2, start);
        pace.lost("c0", start);
        pace.lost("c3", start);
        pace.lost("never", start);
        assert_eq!(counted(&pace), (2, 3), "of the others nothing is known");
        pace.put("c0", false, start);
        assert_eq!(counted(&pace), (1, 3));
        pace.lost("c1", start);
        pace.gone("c1", start);
        assert_eq!(counted(&pace), (0, 2));
    }

    #[test]
    fn a_change_of_the_fleet_changes_the_rate_and_wakes_those_who_wait() {
        let start = Instant::now();
        let pace = fleet(10, 6, start);
        let listener = Arc::new(Notify::new());
        pace.wakes(Arc::clone(&listener));
        assert_eq!(pay(&pace, start), Err(None));
        pace.gone("c0", start);
        assert_eq!(pace.band(), Band::Stopped, "5 of 9");
        pace.put("c1", false, start);
        assert_eq!(pace.band(), Band::Primary);
        let woken = futures::FutureExt::now_or_never(listener.notified());
        assert!(woken.is_some());
        assert!(matches!(pay(&pace, start), Err(Some(_))));
    }

    #[test]
    fn a_payment_that_is_taken_back_wakes_those_who_pay_and_not_those_who_wait_for_a_band() {
        let start = Instant::now();
        let pace = fleet(10, 5, start);
        let [payers, others] = [(), ()].map(|()| Arc::new(Notify::new()));
        pace.wakes(Arc::clone(&payers));
        pace.wakes_on_band(Arc::clone(&others));
        let woken = || {
            let is_woken = |it: &Notify| futures::FutureExt::now_or_never(it.notified()).is_some();
            [is_woken(&payers), is_woken(&others)]
        };
        drop(pace.pay(start + Duration::from_secs(100)).unwrap());
        assert_eq!(woken(), [true, false]);
        pace.put("c5", true, start + Duration::from_secs(100));
        assert_eq!(pace.band(), Band::Stopped);
        assert_eq!(woken(), [true, true]);
    }
}
