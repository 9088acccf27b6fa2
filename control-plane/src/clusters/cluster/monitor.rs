//! Decides whether a pull cluster has gone silent.
//!
//! A cluster is alive when its lease is renewed or its Ready condition changes, at the moment when
//! the control plane sees the change. The renew time in the lease is compared with the one before
//! only, never with a clock, so that the member's clock does not matter. The rule is that of
//! Karmada's cluster controller, without losing its memory on a change of Ready (K15).

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use muster_shared::names::condition::{CREDENTIALS_REFUSED, SILENT};
use tokio::time::Instant;

/// How long a cluster may be silent before its Ready condition becomes Unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graces {
    /// For a cluster that has a Ready condition (`--cluster-monitor-grace-period`).
    pub monitor: Duration,
    /// For one that never posted any (`--cluster-startup-grace-period`).
    pub startup: Duration,
}

/// Reason why a cluster counts as silent, as Karmada writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The Ready condition was never posted.
    NeverReported,
    /// There was no sign of life for a whole grace period.
    Stopped,
}

impl Silence {
    /// Returns the `reason` of the Ready condition.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NeverReported => "ClusterStatusNeverUpdated",
            Self::Stopped => SILENT,
        }
    }

    /// Returns the `message` of the Ready condition.
    pub fn message(self) -> &'static str {
        match self {
            Self::NeverReported => "Cluster status controller never posted cluster status.",
            Self::Stopped => "Cluster status controller stopped posting cluster status.",
        }
    }

    /// Returns the Ready condition that tells of the silence.
    pub fn condition(self, now: Timestamp) -> Condition {
        Condition {
            type_: "Ready".to_owned(),
            status: "Unknown".to_owned(),
            reason: self.reason().to_owned(),
            message: self.message().to_owned(),
            last_transition_time: Time(now),
            observed_generation: None,
        }
    }
}

/// Conclusion of the monitor about one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Ready is Unknown already: there is nothing to wait for.
    Settled,
    /// The cluster becomes silent right after this instant, unless there is a sign of life.
    Until(Instant),
    /// Ready has to become Unknown.
    Silent(Silence),
}

/// The signs of life of one pull cluster.
#[derive(Clone, Debug)]
pub struct Liveness {
    heard: Instant,
    /// Time at which the lease was last seen to be renewed, or at which the listening began.
    renewal_heard: Instant,
    ready: Option<Condition>,
    renewed: Option<Timestamp>,
    leased: bool,
    deaf: bool,
}

impl Liveness {
    /// Starts to listen. A cluster with a Ready condition gets a full grace from `now`; one without
    /// gets its start-up grace from `since`, the moment it was created or we began to watch the
    /// fleet, whichever is later.
    pub fn new(ready: Option<&Condition>, since: Instant, now: Instant) -> Self {
        let heard = if ready.is_some() { now } else { since.min(now) };
        Self {
            heard,
            renewal_heard: now,
            ready: ready.cloned(),
            renewed: None,
            leased: false,
            deaf: false,
        }
    }

    /// Takes note of the Ready condition as it stands. Any new content is a sign of life; its
    /// disappearance is not.
    pub fn ready(&mut self, ready: Option<&Condition>, now: Instant) {
        if self.ready.as_ref() == ready {
            return;
        }
        if ready.is_some() {
            self.heard = now;
            self.deaf = false;
        }
        self.ready = ready.cloned();
    }

    /// Takes note of the lease's renew time (`None`: there is no lease). Any that differs from the
    /// one before is a sign of life, an earlier one too: a clock that was set back is no silence.
    pub fn lease(&mut self, renewed: Option<Timestamp>, now: Instant) {
        self.leased = renewed.is_some();
        if !self.deaf && renewed.is_some() && self.renewed != renewed {
            self.renewed = renewed;
            self.heard = now;
            self.renewal_heard = now;
        }
    }

    /// Takes note of a Ready condition that we wrote ourselves: known, but no sign of life. A
    /// cluster that had no lease when it was reported silent is heard again through its status
    /// only, as in Karmada.
    pub fn wrote(&mut self, ready: Condition) {
        self.deaf = !self.leased;
        self.ready = Some(ready);
    }

    /// Returns whether the status was reported anew although the lease had not been renewed for a
    /// whole grace: the agent lives and cannot renew it, so that Ready changes to and fro.
    pub fn lacks_renewals(&self, graces: Graces) -> bool {
        let without = self.heard.saturating_duration_since(self.renewal_heard);
        without > graces.monitor
    }

    /// Gives back time in which nobody could have been heard.
    pub fn give_back(&mut self, lost: Duration, now: Instant) {
        self.heard = (self.heard + lost).min(now);
    }

    /// Tells whether Ready has to become Unknown. Silence must last *longer* than the grace, not
    /// just as long.
    pub fn judge(&self, graces: Graces, now: Instant) -> Verdict {
        let (grace, silence) = match &self.ready {
            None => (graces.startup, Silence::NeverReported),
            // The agent of a member that refuses its credentials says so itself, and may end.
            Some(ready) if ready.status == "Unknown" && ready.reason != CREDENTIALS_REFUSED => {
                return Verdict::Settled;
            }
            Some(_) => (graces.monitor, Silence::Stopped),
        };
        let deadline = self.heard + grace;
        if now > deadline {
            Verdict::Silent(silence)
        } else {
            Verdict::Until(deadline)
        }
    }
}

#[cfg(test)]
pub(in crate::clusters) mod tests {
    use super::*;

    pub(in crate::clusters) const GRACES: Graces = Graces {
        monitor: Duration::from_secs(40),
        startup: Duration::from_mins(1),
    };

    pub(in crate::clusters) fn ready(status: &str) -> Condition {
        Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: "Posted".to_owned(),
            message: String::new(),
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            observed_generation: None,
        }
    }

    fn renewal(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    fn seconds(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_cluster_that_was_ready_when_we_took_over_gets_a_full_grace() {
        let takeover = Instant::now();
        let liveness = Liveness::new(Some(&ready("True")), takeover, takeover);
        assert_eq!(
            liveness.judge(GRACES, takeover + seconds(40)),
            Verdict::Until(takeover + seconds(40))
        );
        assert_eq!(
            liveness.judge(GRACES, takeover + Duration::from_millis(40_001)),
            Verdict::Silent(Silence::Stopped)
        );
    }

    #[test]
    fn every_new_renewal_is_a_sign_of_life_whatever_the_members_clock_says() {
        let start = Instant::now();
        let mut liveness = Liveness::new(Some(&ready("True")), start, start);
        for (at, renewed, heard) in [
            (5, renewal(4_000_000_000), 5),
            (10, renewal(4_000_000_000), 5),
            (15, renewal(1), 15),
            (20, None, 15),
            (25, renewal(4_000_000_001), 25),
        ] {
            liveness.lease(renewed, start + seconds(at));
            assert_eq!(
                liveness.judge(GRACES, start + seconds(at)),
                Verdict::Until(start + seconds(heard + 40)),
                "at {at}"
            );
        }
    }

    #[test]
    fn our_own_unknown_is_no_sign_of_life_and_a_posted_status_ends_it() {
        let start = Instant::now();
        let mut liveness = Liveness::new(Some(&ready("True")), start, start);
        liveness.wrote(Silence::Stopped.condition(Timestamp::UNIX_EPOCH));
        assert_eq!(
            liveness.judge(GRACES, start + seconds(100)),
            Verdict::Settled
        );
        liveness.lease(renewal(1), start + seconds(101));
        assert_eq!(
            liveness.judge(GRACES, start + seconds(101)),
            Verdict::Settled,
            "a lease says nothing of health"
        );
        liveness.ready(Some(&ready("True")), start + seconds(102));
        assert_eq!(
            liveness.judge(GRACES, start + seconds(102)),
            Verdict::Until(start + seconds(142))
        );
    }

    #[test]
    fn an_agent_that_reports_and_does_not_renew_its_lease_is_told_from_one_that_is_silent() {
        let start = Instant::now();
        let mut liveness = Liveness::new(Some(&ready("True")), start, start);
        liveness.lease(renewal(1), start + seconds(10));
        liveness.wrote(ready("Unknown"));
        assert!(!liveness.lacks_renewals(GRACES), "it is silent");
        liveness.ready(Some(&ready("True")), start + seconds(51));
        assert!(liveness.lacks_renewals(GRACES), "only its status came");
        liveness.lease(renewal(2), start + seconds(52));
        assert!(!liveness.lacks_renewals(GRACES), "it is renewed again");
    }

    #[test]
    fn time_given_back_moves_the_deadline_but_never_past_a_full_grace() {
        let start = Instant::now();
        let mut liveness = Liveness::new(Some(&ready("True")), start, start);
        liveness.give_back(seconds(15), start + seconds(30));
        assert_eq!(
            liveness.judge(GRACES, start + seconds(30)),
            Verdict::Until(start + seconds(55))
        );
        liveness.give_back(seconds(500), start + seconds(50));
        assert_eq!(
            liveness.judge(GRACES, start + seconds(50)),
            Verdict::Until(start + seconds(90))
        );
    }

    #[test]
    fn a_cluster_that_refused_the_credentials_of_the_fleet_before_it_fell_silent_is_silent() {
        let start = Instant::now();
        let mut refused = ready("Unknown");
        refused.reason = CREDENTIALS_REFUSED.to_owned();
        let mut liveness = Liveness::new(Some(&refused), start, start);
        liveness.lease(renewal(1), start + seconds(30));
        assert_eq!(
            liveness.judge(GRACES, start + seconds(60)),
            Verdict::Until(start + seconds(70)),
            "its agent is alive"
        );
        assert_eq!(
            liveness.judge(GRACES, start + seconds(71)),
            Verdict::Silent(Silence::Stopped)
        );
        liveness.wrote(Silence::Stopped.condition(Timestamp::UNIX_EPOCH));
        assert_eq!(
            liveness.judge(GRACES, start + seconds(200)),
            Verdict::Settled
        );
    }
}
