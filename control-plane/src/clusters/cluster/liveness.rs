//! Liveness of every pull cluster, and the one timer that is due next.
//!
//! A renewal updates the cluster's last sign of life; its timer stays where it is and is moved when
//! it fires. A fleet of thousands costs one map look-up per renewal, and one wake-up per cluster
//! and grace period.
//!
//! Shortly before a grace period ends, the cluster's lease is read (see [`Due::confirm`]), so that
//! only the report is left when it ends.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::monitor::{Graces, Liveness, Silence, Verdict};

/// All pull clusters that are listened to.
#[derive(Debug)]
pub struct LivenessTracker {
    graces: Graces,
    ahead: Duration,
    since: Instant,
    tracked: HashMap<String, Entry>,
    /// The uids of the objects that the tracked belong to.
    uids: HashMap<String, String>,
    timers: BTreeSet<(Instant, String)>,
}

#[derive(Debug)]
struct Entry {
    liveness: Liveness,
    timer: Option<Instant>,
    /// When the API itself was asked last whether we missed a heartbeat, and knew of none.
    confirmed: Option<Instant>,
}

/// Clusters whose timers have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Clusters that were silent for almost as long as they may be: ask the API itself whether a
    /// heartbeat was missed, record the answer ([`LivenessTracker::lease`],
    /// [`LivenessTracker::confirmed`]), and wait.
    pub confirm: Vec<String>,
    /// Clusters that seem silent. Their timers have ended: judge each with
    /// [`LivenessTracker::judge`] and then either report the silence or call
    /// [`LivenessTracker::arm`].
    pub silent: Vec<String>,
}

/// How long before the end of a grace the API is asked: enough for an answer, and so little that no
/// cluster is asked about which renews its lease several times in a grace.
const AHEAD: Duration = Duration::from_secs(1);

impl LivenessTracker {
    /// Begins to listen at `since`: nobody is judged by what happened before.
    pub fn new(graces: Graces, since: Instant) -> Self {
        Self {
            graces,
            ahead: AHEAD.min(graces.monitor / 20).min(graces.startup / 20),
            since,
            tracked: HashMap::new(),
            uids: HashMap::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Takes note of which object bears a name. A cluster that was deleted and made again between
    /// two lists is another one, with a start-up grace of its own.
    pub fn identify(&mut self, name: &str, uid: Option<&str>) {
        let Some(uid) = uid else { return };
        match self.uids.get(name) {
            Some(known) if known == uid => return,
            Some(_) => self.forget(name),
            None => {}
        }
        self.uids.insert(name.to_owned(), uid.to_owned());
    }

    /// Takes note of a pull cluster's Ready condition; `age` is the time since the object was
    /// created. Says whether the cluster was not known: then its lease, which may have been seen
    /// before, is to be reported again.
    pub fn cluster(
        &mut self,
        name: &str,
        ready: Option<&Condition>,
        age: Duration,
        now: Instant,
    ) -> bool {
        let known = self.tracked.contains_key(name);
        if let Some(entry) = self.tracked.get_mut(name) {
            entry.liveness.ready(ready, now);
            if let Some(timer) = entry.timer {
                // A first report ends the start-up grace, so that the deadline may come before the
                // timer. Every other sign of life puts it off, which is noticed when the timer
                // fires.
                let sooner = matches!(entry.liveness.judge(self.graces, now), Verdict::Until(at) if at < timer);
                if !sooner {
                    return false;
                }
            }
        } else {
            let created = now.checked_sub(age).unwrap_or(self.since);
            let liveness = Liveness::new(ready, created.max(self.since), now);
            let entry = Entry {
                liveness,
                timer: None,
                confirmed: None,
            };
            self.tracked.insert(name.to_owned(), entry);
        }
        self.arm(name, now);
        !known
    }

    /// Takes note of a lease. One without a cluster is not ours to listen to.
    pub fn lease(&mut self, name: &str, renewed: Option<Timestamp>, now: Instant) {
        if let Some(entry) = self.tracked.get_mut(name) {
            entry.liveness.lease(renewed, now);
        }
    }

    /// Takes note of a condition that we wrote.
    pub fn wrote(&mut self, name: &str, ready: Condition) {
        if let Some(entry) = self.tracked.get_mut(name) {
            entry.liveness.wrote(ready);
        }
    }

    /// Forgets a cluster that left the fleet, or is not pulled any more.
    pub fn forget(&mut self, name: &str) {
        self.uids.remove(name);
        if let Some(Entry {
            timer: Some(at), ..
        }) = self.tracked.remove(name)
        {
            self.timers.remove(&(at, name.to_owned()));
        }
    }

    /// Gives all clusters back time in which no renewal could have been seen.
    pub fn give_back(&mut self, lost: Duration, now: Instant) {
        for entry in self.tracked.values_mut() {
            entry.liveness.give_back(lost, now);
        }
    }

    /// Returns the instant at which [`LivenessTracker::due`] has to be asked next.
    pub fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Returns the clusters that are silent, and those of which the API is to be asked now.
    pub fn due(&mut self, now: Instant) -> Due {
        let mut all = Due::default();
        while self.timers.first().is_some_and(|(at, _)| *at < now) {
            let Some((_, name)) = self.timers.pop_first() else {
                break;
            };
            if let Some(entry) = self.tracked.get_mut(&name) {
                entry.timer = None;
            }
            match self.judge(&name, now) {
                Some(Verdict::Silent(_)) => all.silent.push(name),
                Some(Verdict::Until(deadline)) => {
                    self.arm(&name, now);
                    if now > deadline - self.ahead {
                        all.confirm.push(name);
                    }
                }
                Some(Verdict::Settled) | None => {}
            }
        }
        all
    }

    /// Notes that the API was asked at `asked` whether a heartbeat of this cluster was missed, and
    /// has answered.
    pub fn confirmed(&mut self, name: &str, asked: Instant) {
        if let Some(entry) = self.tracked.get_mut(name) {
            entry.confirmed = entry.confirmed.max(Some(asked));
        }
    }

    /// Returns whether the API was asked about this cluster so lately that its silence can be
    /// believed.
    pub fn is_confirmed(&self, name: &str, now: Instant) -> bool {
        let asked = self.tracked.get(name).and_then(|entry| entry.confirmed);
        asked.is_some_and(|asked| asked + 2 * self.ahead >= now)
    }

    /// Returns the verdict on one cluster now; `None` if it is unknown.
    pub fn judge(&self, name: &str, now: Instant) -> Option<Verdict> {
        self.tracked
            .get(name)
            .map(|entry| entry.liveness.judge(self.graces, now))
    }

    /// Returns the silence of the cluster if it is to be reported now.
    pub fn silence(&self, name: &str, now: Instant) -> Option<Silence> {
        match self.judge(name, now)? {
            Verdict::Silent(silence) => Some(silence),
            Verdict::Settled | Verdict::Until(_) => None,
        }
    }

    /// Returns whether the agent of the cluster reports and does not renew its lease.
    pub fn lacks_renewals(&self, name: &str) -> bool {
        let entry = self.tracked.get(name);
        entry.is_some_and(|entry| entry.liveness.lacks_renewals(self.graces))
    }

    /// Sets the cluster's timer: shortly before its deadline, at the deadline, or at once,
    /// whichever is next.
    pub fn arm(&mut self, name: &str, now: Instant) {
        let at = match self.judge(name, now) {
            Some(Verdict::Until(deadline)) if now > deadline - self.ahead => Some(deadline),
            Some(Verdict::Until(deadline)) => Some(deadline - self.ahead),
            Some(Verdict::Silent(_)) => Some(now),
            Some(Verdict::Settled) | None => None,
        };
        self.set_timer(name, at);
    }

    /// Sets the cluster's timer, or takes it away.
    pub fn set_timer(&mut self, name: &str, at: Option<Instant>) {
        let Some(entry) = self.tracked.get_mut(name) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut entry.timer, at) {
            self.timers.remove(&(old, name.to_owned()));
        }
        if let Some(at) = at {
            self.timers.insert((at, name.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests;
