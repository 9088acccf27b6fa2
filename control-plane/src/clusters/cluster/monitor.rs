//! Decides whether a pull cluster has gone silent.
//!
//! A cluster is alive when its lease is renewed or its Ready condition changes, at the moment when
//! the control plane sees the change. The renew time in the lease is compared with the one before
//! only, never with a clock, so that the member's clock does not matter. The rule is that of
//! Karmada's cluster controller, without losing its memory on a change of Ready (K15).

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use muster_shared::conditions;
use muster_shared::names::condition::{CREDENTIALS_REFUSED, READY, SILENT};
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
    /// Returns the Ready condition that reports the silence.
    pub fn condition(self, now: Timestamp) -> Condition {
        let (reason, message) = match self {
            Self::NeverReported => (
                "ClusterStatusNeverUpdated",
                "Cluster status controller never posted cluster status.",
            ),
            Self::Stopped => (
                SILENT,
                "Cluster status controller stopped posting cluster status.",
            ),
        };
        conditions::new(READY, conditions::UNKNOWN, reason, message, now)
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

    /// Takes note of the Ready condition as it is. Any new content is a sign of life; its
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
    /// cluster that had no lease when it was reported silent is silent until its status says
    /// otherwise, as in Karmada: no renewal of a lease ends that.
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

    /// Gives back time in which no renewal could have been seen.
    pub fn give_back(&mut self, lost: Duration, now: Instant) {
        self.heard = (self.heard + lost).min(now);
    }

    /// Says whether Ready has to become Unknown. Silence must last *longer* than the grace, not
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
        conditions::new(READY, status, "Posted", "", Timestamp::UNIX_EPOCH)
    }

    fn renewal(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(second).ok()
    }

    /// A cluster that is listened to, by seconds since that began.
    struct Story {
        start: Instant,
        heard: Liveness,
    }

    impl Story {
        fn new(ready: &Condition) -> Self {
            let start = Instant::now();
            Self {
                start,
                heard: Liveness::new(Some(ready), start, start),
            }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        fn judge(&self, second: u64) -> Verdict {
            self.heard.judge(GRACES, self.at(second))
        }

        fn until(&self, second: u64) -> Verdict {
            Verdict::Until(self.at(second))
        }

        fn lease(&mut self, renewed: Option<Timestamp>, second: u64) {
            let at = self.at(second);
            self.heard.lease(renewed, at);
        }

        fn report(&mut self, second: u64) {
            let at = self.at(second);
            self.heard.ready(Some(&ready("True")), at);
        }

        fn write_silence(&mut self) {
            let silence = Silence::Stopped.condition(Timestamp::UNIX_EPOCH);
            self.heard.wrote(silence);
        }
    }

    const SILENT: Verdict = Verdict::Silent(Silence::Stopped);

    #[test]
    fn every_new_renewal_is_a_sign_of_life_whatever_the_members_clock_says() {
        let mut story = Story::new(&ready("True"));
        for (at, renewed, heard) in [
            (5, renewal(4_000_000_000), 5),
            (10, renewal(4_000_000_000), 5),
            (15, renewal(1), 15),
            (20, None, 15),
            (25, renewal(4_000_000_001), 25),
        ] {
            story.lease(renewed, at);
            assert_eq!(story.judge(at), story.until(heard + 40), "at {at}");
        }
    }

    #[test]
    fn an_agent_that_reports_and_does_not_renew_its_lease_is_told_from_one_that_is_silent() {
        let mut story = Story::new(&ready("True"));
        story.lease(renewal(1), 10);
        story.heard.wrote(ready("Unknown"));
        assert!(!story.heard.lacks_renewals(GRACES), "it is silent");
        story.report(51);
        assert!(story.heard.lacks_renewals(GRACES), "only its status came");
        story.lease(renewal(2), 52);
        assert!(!story.heard.lacks_renewals(GRACES), "it is renewed again");
    }

    #[test]
    fn time_given_back_moves_the_deadline_but_never_past_a_full_grace() {
        let mut story = Story::new(&ready("True"));
        for (lost, now, expected) in [(15, 30, 55), (500, 50, 90)] {
            let at = story.at(now);
            story.heard.give_back(Duration::from_secs(lost), at);
            assert_eq!(story.judge(now), story.until(expected));
        }
    }

    #[test]
    fn a_cluster_that_refused_the_credentials_of_the_fleet_before_it_fell_silent_is_silent() {
        let mut refused = ready("Unknown");
        refused.reason = CREDENTIALS_REFUSED.to_owned();
        let mut story = Story::new(&refused);
        story.lease(renewal(1), 30);
        assert_eq!(story.judge(60), story.until(70), "its agent is alive");
        assert_eq!(story.judge(71), SILENT);
        story.write_silence();
        assert_eq!(story.judge(200), Verdict::Settled);
    }
}
