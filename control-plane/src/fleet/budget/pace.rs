//! Eviction rate, shared by evictions because of taints, by failing applications, and by new
//! placements that take from one cluster for another.
//!
//! The rate depends on the health of the fleet. If both kinds of evictions wait, they take turns,
//! so that neither a long eviction queue nor a thousand failing applications delay the other. New
//! placements get what the two leave: a workload that has to move comes before one that may.

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

/// Kinds of evictions that share the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payer {
    /// Evictions because of taints, including drains.
    Taints,
    /// Evictions of failing applications.
    Applications,
}

/// A payment for one move. Whoever writes a move has to show one. It is taken back when it is
/// dropped, unless something was moved for it, or may have been.
#[must_use = "a move that is paid for is written, or the payment is taken back"]
#[derive(Debug)]
pub struct Paid {
    pace: Pace,
    is_kept: AtomicBool,
    is_refunded: AtomicBool,
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
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Takes the payment back, also one that was kept: the move was paid for before.
    pub fn refund(&self) {
        if self.is_refunded.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut inner = self.pace.inner.lock();
        inner.budget.refund();
        inner.wake();
    }
}

impl Drop for Paid {
    fn drop(&mut self) {
        if !self.is_kept.load(Ordering::Relaxed) {
            self.refund();
        }
    }
}

/// How long a turn is kept for a payer who wanted it: many times what a task needs to wake up.
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
    /// Who paid last.
    last: Option<Payer>,
    /// Who could not pay and has not paid since.
    waiting: [bool; 2],
    /// Until when the turn is kept for the other.
    kept_until: Option<Instant>,
    /// Whom a change may help.
    listeners: Vec<Arc<Notify>>,
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
                last: None,
                waiting: [false; 2],
                kept_until: None,
                listeners: Vec::new(),
            })),
        }
    }

    /// Wakes somebody whenever a payment may have become possible earlier than was said.
    pub fn wakes(&self, listener: Arc<Notify>) {
        self.inner.lock().listeners.push(listener);
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

    /// Hears of a cluster that is new or changed. The cluster counts once it has begun and as long
    /// as it stays.
    pub fn observe(&self, cluster: &Cluster, now: Instant) {
        if is_counted(cluster) {
            self.put(&cluster.name_any(), has_failed(cluster), now);
        } else {
            self.gone(&cluster.name_any(), now);
        }
    }

    /// Hears of a cluster that is not known any more and that nobody saw leave. One that had failed
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

    /// Pays for one move, or says when to ask again: `None` means not in this band.
    ///
    /// # Errors
    /// The budget does not suffice yet, or it is the other's turn.
    pub fn pay(&self, payer: Payer, now: Instant) -> Result<Paid, Option<Instant>> {
        let (mut inner, other) = (self.inner.lock(), payer.other());
        if inner.last == Some(payer) && inner.waiting[other as usize] && inner.budget.suffices(now)
        {
            let until = *inner.kept_until.get_or_insert(now + KEPT);
            if now < until {
                inner.waiting[payer as usize] = true;
                return Err(Some(until));
            }
            // It did not come.
            inner.waiting[other as usize] = false;
        }
        let paid = inner.budget.pay(now);
        inner.waiting[payer as usize] = paid.is_err();
        if paid.is_ok() {
            inner.last = Some(payer);
            if inner.kept_until.take().is_some() {
                inner.wake();
            }
        }
        paid.map(|()| self.paid())
    }

    fn paid(&self) -> Paid {
        Paid {
            pace: self.clone(),
            is_kept: AtomicBool::new(false),
            is_refunded: AtomicBool::new(false),
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

    /// Withdraws a payer that wants nothing any more.
    pub fn withdraw(&self, payer: Payer) {
        let mut inner = self.inner.lock();
        if std::mem::take(&mut inner.waiting[payer as usize]) && inner.kept_until.take().is_some() {
            inner.wake();
        }
    }
}

impl Inner {
    fn pay_after_evictions(&mut self, now: Instant) -> Result<(), Option<Instant>> {
        if self.rates.per_second(self.band) <= 0.0 {
            return Err(None);
        }
        if self.waiting.contains(&true) {
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
            self.wake();
        }
    }

    fn wake(&self) {
        for listener in &self.listeners {
            listener.notify_one();
        }
    }
}

impl Payer {
    /// Returns the payer with whom this one takes turns.
    fn other(self) -> Self {
        match self {
            Self::Taints => Self::Applications,
            Self::Applications => Self::Taints,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pays for a move that is made.
    fn pay(pace: &Pace, payer: Payer, now: Instant) -> Result<(), Option<Instant>> {
        pace.pay(payer, now).map(|paid| paid.keep())
    }

    /// Returns how often each of the two payers pays until `end`, when both pay as soon as they
    /// may; the second pays only from `joins` on.
    fn spend(pace: &Pace, start: Instant, joins: Duration, end: Duration) -> [usize; 2] {
        let mut paid = [0; 2];
        let mut due = [start, start + joins];
        loop {
            let (turn, now) = if due[0] <= due[1] {
                (Payer::Taints, due[0])
            } else {
                (Payer::Applications, due[1])
            };
            if now > start + end {
                return paid;
            }
            due[turn as usize] = match pay(pace, turn, now) {
                Ok(()) => {
                    paid[turn as usize] += 1;
                    // A change wakes everybody.
                    let other = turn.other() as usize;
                    due[other] = due[other].min(now).max(start + joins);
                    now
                }
                Err(Some(at)) => {
                    assert!(at > now);
                    at
                }
                Err(None) => return paid,
            };
        }
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
    fn taints_and_failing_applications_together_keep_the_rate_of_the_band() {
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
            let paid = spend(&pace, start, Duration::ZERO, Duration::from_secs(100));
            let sum = paid[0] + paid[1];
            assert!(sum.abs_diff(expected) <= 1, "{failed} of {total}: {paid:?}");
            assert!(
                paid[0].abs_diff(paid[1]) <= 1,
                "each has its half: {paid:?}"
            );
        }
    }

    #[test]
    fn one_who_comes_late_gets_every_second_turn_and_one_alone_gets_all() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let paid = spend(&fleet(9, 0, start), start, seconds(50), seconds(100));
        assert!(
            paid[0].abs_diff(37) <= 1 && paid[1].abs_diff(12) <= 1,
            "{paid:?}"
        );
        let paid = spend(&fleet(9, 0, start), start, seconds(999), seconds(100));
        assert!(paid[0].abs_diff(50) <= 1 && paid[1] == 0, "{paid:?}");
    }

    #[test]
    fn a_turn_is_not_kept_for_one_who_does_not_come() {
        let start = Instant::now();
        let second = |s: f64| start + Duration::from_secs_f64(s);
        let pace = fleet(9, 0, start);
        assert!(pay(&pace, Payer::Taints, second(2.1)).is_ok());
        assert!(pay(&pace, Payer::Applications, second(2.1)).is_err());
        // It is the applications' turn.
        let until = pay(&pace, Payer::Taints, second(4.2)).unwrap_err().unwrap();
        assert_eq!(until, second(4.2) + KEPT);
        assert!(pay(&pace, Payer::Taints, until).is_ok());
        // Nor is the next one.
        assert!(pay(&pace, Payer::Taints, second(6.8)).is_ok());
    }

    #[test]
    fn a_payer_who_withdraws_keeps_nobody_waiting() {
        let start = Instant::now();
        let pace = fleet(9, 0, start);
        let later = start + Duration::from_secs(3);
        assert!(pay(&pace, Payer::Taints, later).is_ok());
        assert!(pay(&pace, Payer::Applications, later).is_err());
        pace.withdraw(Payer::Applications);
        assert!(pay(&pace, Payer::Taints, later + Duration::from_secs(2)).is_ok());
    }

    #[test]
    fn who_withdraws_wakes_others_only_if_a_turn_was_kept_for_it() {
        let start = Instant::now();
        let second = |s: u64| start + Duration::from_secs(s);
        for (kept, woken) in [(false, false), (true, true)] {
            let pace = fleet(9, 0, start);
            assert!(pay(&pace, Payer::Taints, second(3)).is_ok());
            assert!(pay(&pace, Payer::Applications, second(3)).is_err());
            if kept {
                assert!(pay(&pace, Payer::Taints, second(6)).is_err());
            }
            let listener = Arc::new(Notify::new());
            pace.wakes(Arc::clone(&listener));
            pace.withdraw(Payer::Applications);
            let heard = futures::FutureExt::now_or_never(listener.notified());
            assert_eq!(heard.is_some(), woken);
        }
    }

    #[test]
    fn a_new_placement_gets_what_evictions_leave() {
        let start = Instant::now();
        let second = |s: u64| start + Duration::from_secs(s);
        let pace = fleet(9, 0, start);
        assert!(pay(&pace, Payer::Taints, second(1)).is_err());
        let rebalance = |at| pace.pay_after_evictions(at).map(|paid| paid.keep());
        assert_eq!(rebalance(second(3)), Err(Some(second(3) + KEPT)));
        assert!(pay(&pace, Payer::Taints, second(3)).is_ok());
        pace.withdraw(Payer::Taints);
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
        let first = pay(&pace, Payer::Taints, later).unwrap_err();
        assert!(first.is_some_and(|first| first > later));
    }

    #[test]
    fn a_failed_cluster_that_is_lost_counts_until_it_is_heard_of_or_known_to_be_gone() {
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
        assert_eq!(pay(&pace, Payer::Applications, start), Err(None));
        pace.gone("c0", start);
        assert_eq!(pace.band(), Band::Stopped, "5 of 9");
        pace.put("c1", false, start);
        assert_eq!(pace.band(), Band::Primary);
        let woken = futures::FutureExt::now_or_never(listener.notified());
        assert!(woken.is_some());
        assert!(matches!(
            pay(&pace, Payer::Applications, start),
            Err(Some(_))
        ));
    }
}
