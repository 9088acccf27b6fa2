//! Decides what the reports of the witnesses of a cluster add up to.
//!
//! One agent that lies about what it does not see, or sees nothing itself, changes nothing alone:
//! `False` takes the word of two, and none that says otherwise.

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::cluster::Cluster;
use muster_shared::conditions::{self, FALSE, TRUE, UNKNOWN};
use muster_shared::k8s::{Condition, ResourceExt as _};
use muster_shared::names::condition::{CREDENTIALS_REFUSED, READY, UNIQUE_IDENTITY};
use muster_shared::peers::{PEERS, Reach, SEEN_BY_PEERS, read};

/// Number of witnesses that have to have lost a cluster.
pub const QUORUM: usize = 2;
/// Time before the trouble of a cluster from which on a loss belongs to it. A witness that lost the
/// cluster earlier, while that was ready, has a trouble of its own.
const BEFORE_TROUBLE: SignedDuration = SignedDuration::from_mins(5);
/// Number of peers all of which an agent has to have lost to be cut off itself, if one of them
/// lives. If none does, as when the other one of two regions is lost, it is right.
const SEVERAL: usize = 2;

/// A witness of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Name of its Cluster.
    pub name: String,
    /// Whether its agent is not silent.
    pub is_reporting: bool,
    /// Whether its agent has lost all of its peers, of which there are several.
    pub has_lost_all: bool,
    /// Whether it is cut off itself: it has lost all, and one of them lives.
    pub is_cut_off: bool,
    /// Report of the witness about the cluster, and since when it says so.
    pub report: Option<(Reach, Timestamp)>,
}

impl Witness {
    /// Reads the report of an agent about a cluster from the agent's own Cluster. `lives` says of a
    /// peer whether others know that it lives.
    pub fn of(witness: &Cluster, about: &str, lives: impl Fn(&str) -> bool) -> Self {
        let reports = witness.conditions();
        let peers = read(witness.annotations().get(PEERS).map(String::as_str));
        let is_lost = |peer: &str| {
            let report = Reach::reported(reports, peer);
            report.is_some_and(|(reach, _)| reach == Reach::Lost)
        };
        let is_duplicate = conditions::status(reports, UNIQUE_IDENTITY) == Some(FALSE);
        let has_lost_all = peers.len() >= SEVERAL && peers.iter().all(|it| is_lost(&it.name));
        Self {
            name: witness.name_any(),
            is_reporting: conditions::get(reports, READY).is_some_and(is_reporting)
                && witness.metadata.deletion_timestamp.is_none()
                && !is_duplicate,
            has_lost_all,
            is_cut_off: has_lost_all && peers.iter().any(|it| lives(&it.name)),
            report: Reach::reported(reports, about),
        }
    }
}

/// Returns whether `Ready` is the report of an agent: one that is Unknown is silent, unless
/// the agent says that its member refuses it.
fn is_reporting(ready: &Condition) -> bool {
    ready.status != UNKNOWN || ready.reason == CREDENTIALS_REFUSED
}

/// Returns since when a cluster is not ready; `None` if it is ready, or has never reported. What
/// its witnesses have lost once is lost until it is ready again, though another trouble follows.
pub fn troubled_since(cluster: &Cluster) -> Option<Timestamp> {
    let ready = cluster.condition(READY).filter(|it| it.status != TRUE)?;
    let seen = cluster.condition(SEEN_BY_PEERS);
    let lost = seen.filter(|it| it.status == FALSE);
    let since = ready.last_transition_time.0;
    Some(lost.map_or(since, |lost| since.min(lost.last_transition_time.0)))
}

/// Result of the reports of all witnesses.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Condition `SeenByPeers` of the cluster.
    pub condition: Condition,
    /// Time at which the verdict may change though no report does.
    pub again: Option<Timestamp>,
}

/// Judges the reports about a cluster that is not ready since `troubled_since`, or is ready.
///
/// - `True`: a witness that is not silent reaches the cluster.
/// - `False`: none does, and two that are not silent have lost it, not much before its trouble
///   began.
/// - `Unknown`: otherwise.
pub fn judge(witnesses: &[Witness], troubled_since: Option<Timestamp>, now: Timestamp) -> Verdict {
    let earliest = |since: Timestamp| {
        let earliest = since.saturating_sub(BEFORE_TROUBLE);
        earliest.unwrap_or(Timestamp::MIN)
    };
    let limit = earliest(troubled_since.unwrap_or(now));
    let mut reaching = Vec::new();
    let mut lost = Vec::new();
    let mut others = Vec::new();
    for witness in witnesses {
        let name = &witness.name;
        match witness.report {
            _ if !witness.is_reporting => others.push(format!("{name} is silent")),
            None => others.push(format!("{name} has not reported")),
            Some((Reach::Reached, _)) => reaching.push(name.clone()),
            Some((Reach::Never, _)) => others.push(format!("{name} has never reached it")),
            Some((Reach::Lost, _)) if witness.is_cut_off => {
                others.push(format!(
                    "{name} reaches none of its peers, although one of them is alive, so that it is cut off itself"
                ));
            }
            Some((Reach::Lost, since)) if since < limit => {
                others.push(format!("{name} lost it at {since:.0}, while it was ready"));
            }
            Some((Reach::Lost, since)) => lost.push((name.clone(), since)),
        }
    }
    let lost_by: Vec<String> = lost
        .iter()
        .map(|(name, since)| format!("{name} since {since:.0}"))
        .collect();
    let (status, reason, message) = if !reaching.is_empty() {
        (
            TRUE,
            "Reached",
            format!("reached by {}", reaching.join(", ")),
        )
    } else if lost.len() >= QUORUM {
        (
            FALSE,
            "NotReached",
            format!("not reached by {}", lost_by.join(", ")),
        )
    } else if witnesses.is_empty() {
        let message = "no agent of another cluster is asked to watch this one";
        (UNKNOWN, "NoWitnesses", message.to_owned())
    } else {
        let lost_by = lost_by.into_iter().map(|it| format!("not reached by {it}"));
        others.extend(lost_by);
        (UNKNOWN, "TooFewWitnesses", others.join(", "))
    };
    // While the cluster is ready, a loss counts for some time only.
    let expires = lost
        .iter()
        .filter_map(|(_, since)| since.checked_add(BEFORE_TROUBLE).ok());
    let again = if troubled_since.is_none() {
        expires.min()
    } else {
        None
    };
    Verdict {
        condition: conditions::new(SEEN_BY_PEERS, status, reason, &message, now),
        again,
    }
}

#[cfg(test)]
mod tests;
