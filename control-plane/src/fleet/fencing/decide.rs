//! Decides whether the copy in a cluster is certainly stopped. Pure, apart from [`of_work`].

use std::time::Duration;

use muster_shared::api::cluster::ClusterSyncMode;
use muster_shared::conditions;
use muster_shared::fencing::{CONFIRMED, Times};
use tokio::time::Instant;

use crate::fleet::Fleet;
use crate::fleet::lease_changes::LeaseChange;
use crate::fleet::works::CachedWork;

/// Part of the time by which two clocks may differ: a hundredth. Crystals differ by less than a
/// ten-thousandth, and NTP slews by at most 500 ppm.
const DRIFT: u32 = 100;

/// Facts about a copy whose cluster does not answer.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Time of the policy.
    pub after: Duration,
    /// Times that the agent has confirmed.
    pub confirmed: Option<Times>,
    /// Reason why the agent does not fence the copy, if it gives one.
    pub refused: Option<String>,
    /// Whether the cluster has an agent.
    pub has_agent: bool,
    /// Last change of the cluster's lease.
    pub last_change: Option<LeaseChange>,
    /// `--fencing-margin`.
    pub margin: Duration,
}

/// Decision about a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The copy is stopped, provided that the lease was not renewed since the version that was
    /// seen.
    Stopped,
    /// The copy may run until this instant, or longer if the lease is renewed.
    Waits {
        /// Instant at which the copy is stopped.
        until: Instant,
        /// Time between the last renewal and that instant.
        time: Duration,
    },
    /// Nothing stops it, for this reason.
    Unfenced(String),
}

/// Reason why nothing stops a copy in a cluster of sync mode Push.
pub(super) const PUSH: &str =
    "the cluster has sync mode Push, so that no agent in it could stop the copy";

/// Returns the reason why nothing stops a copy that its agent has not confirmed to fence, with what
/// the agent says of it.
pub(super) fn unconfirmed(refused: Option<&str>) -> String {
    match refused {
        Some(why) => format!("its agent does not fence this workload: {why}"),
        None => "its agent has not confirmed that it fences this workload".to_owned(),
    }
}

/// Judges a copy.
///
/// The agent counts from the sending of the last renewal that was acknowledged, the control plane
/// from when it saw the last change, which came later.
pub fn judge(facts: &Facts, now: Instant) -> Verdict {
    let unfenced = |why: &str| Verdict::Unfenced(why.to_owned());
    if !facts.has_agent {
        return unfenced(PUSH);
    }
    let Some(last_change) = &facts.last_change else {
        return unfenced("the cluster has no lease");
    };
    if !last_change.fences {
        return unfenced(
            "the agent that renewed the lease last does not fence: it is an older one, or Karmada's",
        );
    }
    let Some(confirmed) = facts.confirmed else {
        return Verdict::Unfenced(unconfirmed(facts.refused.as_deref()));
    };
    let after = Duration::from_secs(confirmed.after.into()).max(facts.after);
    let grace = Duration::from_secs(confirmed.grace.into());
    let time = after + after / DRIFT + grace + facts.margin;
    let until = last_change.at + time;
    if now >= until {
        Verdict::Stopped
    } else {
        Verdict::Waits { until, time }
    }
}

/// Judges the copy that a Work made in a cluster.
pub fn of_work(
    fleet: &Fleet,
    cluster: &str,
    work: Option<&CachedWork>,
    after: Duration,
    now: Instant,
) -> (Verdict, Option<LeaseChange>) {
    let known = work
        .map(|work| work.status().conditions)
        .unwrap_or_default();
    let refused =
        conditions::get(&known, CONFIRMED).filter(|known| known.status != conditions::TRUE);
    let pull = |mode: &ClusterSyncMode| *mode == ClusterSyncMode::Pull;
    let last_change = fleet.lease_changes.of(cluster);
    let facts = Facts {
        after,
        confirmed: Times::confirmed(&known),
        refused: refused.map(|known| known.message.clone()),
        has_agent: fleet
            .clusters
            .get(None, cluster)
            .is_none_or(|cluster| pull(&cluster.spec.sync_mode)),
        last_change: last_change.clone(),
        margin: *fleet.settings.fencing_margin,
    };
    (judge(&facts, now), last_change)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Change of the facts.
    type Change = fn(&mut Facts);

    #[test]
    fn a_copy_is_stopped_when_its_agent_has_certainly_been_silent_for_long_enough() {
        let start = Instant::now();
        let s = Duration::from_secs;
        let facts = Facts {
            after: s(100),
            confirmed: Some(Times {
                after: 100,
                grace: 30,
            }),
            refused: None,
            has_agent: true,
            last_change: Some(LeaseChange {
                at: start,
                version: Some("1".to_owned()),
                fences: true,
            }),
            margin: s(30),
        };
        let waits = |time| Verdict::Waits {
            until: start + s(time),
            time: s(time),
        };
        // 100 s, 1 s of drift, 30 s for the pods, 30 s of margin.
        for (now, expected) in [
            (0, waits(161)),
            (160, waits(161)),
            (161, Verdict::Stopped),
            (1_000, Verdict::Stopped),
        ] {
            assert_eq!(judge(&facts, start + s(now)), expected, "{now}");
        }
        for (what, after, grace, time) in [
            ("the agent has a longer time yet", 200, 30, 262),
            ("the policy has a longer time by now", 50, 30, 161),
            ("its pods take long", 100, 600, 731),
        ] {
            let confirmed = Some(Times { after, grace });
            let facts = Facts {
                confirmed,
                ..facts.clone()
            };
            assert_eq!(judge(&facts, start), waits(time), "{what}");
        }
        let older = |it: &mut Facts| it.last_change.as_mut().unwrap().fences = false;
        let refused = |it: &mut Facts| {
            it.confirmed = None;
            it.refused = Some("too short".to_owned());
        };
        let unfenced: [(Change, &str); 5] = [
            (|it| it.has_agent = false, PUSH),
            (|it| it.last_change = None, "no lease"),
            (older, "an older one"),
            (|it| it.confirmed = None, "has not confirmed"),
            (refused, "this workload: too short"),
        ];
        for (change, expected) in unfenced {
            let mut facts = facts.clone();
            change(&mut facts);
            let verdict = judge(&facts, start);
            let is_it = matches!(&verdict, Verdict::Unfenced(why) if why.contains(expected));
            assert!(is_it, "{verdict:?} and {expected}");
        }
    }
}
