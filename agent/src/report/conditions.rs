//! Conditions of the Cluster that the agent computes. Pure.

use jiff::{SignedDuration, Timestamp};
use muster_shared::conditions::{self, FALSE, TRUE, UNKNOWN};
use muster_shared::k8s::Condition;
use muster_shared::names::condition::{
    CREDENTIALS_REFUSED, OBJECTS_WITHOUT_WORK, READY, WORKS_UP_TO_DATE,
};

use crate::fleet_server::Obeyed;
use crate::health::probe::Observation;
use crate::work::orphans::Orphans;

/// Time for which Works may be unread before that is reported: servers restart, and an agent that
/// has just started may not know yet which store it obeys.
pub const WORKS_GRACE: SignedDuration = SignedDuration::from_secs(30);
/// Condition that shows the age of the rest of the status. Karmada has none, and overwrites values
/// that it failed to collect with empty ones (defects K6 and K7).
pub const UP_TO_DATE: &str = "StatusUpToDate";

/// Returns the condition `Ready` for an observation, with Karmada's reasons and messages.
///
/// Karmada has none for refused credentials: those are a matter of the connection, and the member
/// may be well.
pub fn ready(observation: &Observation, now: Timestamp) -> Condition {
    let (status, reason, message) = match observation {
        Observation::Ready => (
            TRUE,
            "ClusterReady",
            "cluster is healthy and ready to accept workloads",
        ),
        Observation::NotReady { .. } => (
            FALSE,
            "ClusterNotReady",
            "cluster is reachable but health endpoint responded without ok",
        ),
        Observation::Refused { .. } => (
            UNKNOWN,
            CREDENTIALS_REFUSED,
            "the API server of the cluster refuses the credentials that the fleet has for it, so that its health is not known: give it new ones",
        ),
        Observation::Unreachable { .. } => {
            (FALSE, "ClusterNotReachable", "cluster is not reachable")
        }
    };
    conditions::new(READY, status, reason, message, now)
}

/// One part of the status, and the time since when it has not been collected (`None`: it is fresh).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Age {
    /// Name of the part in messages.
    pub part: &'static str,
    /// The last success; the start of the process when there was none.
    pub since: Option<Timestamp>,
}

/// Returns the condition that says which parts of the status are old. The message names points in
/// time rather than ages, so that it stays the same while nothing changes.
pub fn up_to_date(ages: &[Age], now: Timestamp) -> Condition {
    let old: Vec<String> = ages
        .iter()
        .filter_map(|age| {
            Some(format!(
                "{} not collected since {:.0}",
                age.part, age.since?
            ))
        })
        .collect();
    if old.is_empty() {
        conditions::new(
            UP_TO_DATE,
            TRUE,
            "Collected",
            "every part of the status is up to date",
            now,
        )
    } else {
        conditions::new(UP_TO_DATE, FALSE, "CollectionFailed", &old.join("; "), now)
    }
}

/// Returns the condition unless the first questions of the process are still under way and the
/// status has one of its type: until they are answered, it is kept. Otherwise each start of an
/// agent would report for a moment that nothing is collected.
pub fn unless_awaited(
    condition: Condition,
    stored: &[Condition],
    is_asked: bool,
) -> Option<Condition> {
    let is_known = stored.iter().any(|it| it.type_ == condition.type_);
    (is_asked || !is_known).then_some(condition)
}

/// Returns the condition that says whether Works are read; `lost` has the time since when they are
/// not, and the reason. A member whose agent cannot read Works looks healthy otherwise, and
/// workloads that are placed there never start: the scheduler places nothing new there.
pub fn works_up_to_date(lost: Option<(Timestamp, String)>, now: Timestamp) -> Condition {
    match lost {
        None => conditions::new(
            WORKS_UP_TO_DATE,
            TRUE,
            "Followed",
            "the agent follows the Works of the member",
            now,
        ),
        Some((since, why)) => {
            let message =
                format!("no Work of the member is read and applied since {since:.0}: {why}");
            conditions::new(WORKS_UP_TO_DATE, FALSE, "CannotFollow", &message, now)
        }
    }
}

/// Returns the condition that reports objects without a Work; `None` where there are none and none
/// were reported.
pub fn objects_without_work(
    orphans: &Orphans,
    stored: &[Condition],
    now: Timestamp,
) -> Option<Condition> {
    let (number, message) = orphans.reported();
    let (status, reason) = match number {
        0 => (FALSE, "NoneFound"),
        _ => (TRUE, "StoreIsOlder"),
    };
    let was_reported = stored.iter().any(|it| it.type_ == OBJECTS_WITHOUT_WORK);
    (number > 0 || was_reported)
        .then(|| conditions::new(OBJECTS_WITHOUT_WORK, status, reason, &message, now))
}

/// Returns the reason why Works are not read, with what to do where the agent may not read them:
/// its rights go with its Cluster, and do not come back with one of the same name.
pub fn unread(why: String, is_forbidden: bool, cluster: &str) -> String {
    if is_forbidden {
        format!(
            "{why}; the agent has no rights, for instance because Cluster {cluster} was deleted and made again: \
             kubectl muster token create --cluster-name {cluster} grants them anew (the token need not be used)"
        )
    } else {
        why
    }
}

/// Returns since when no Work is applied because no store of the fleet API is obeyed, and why:
/// `None` where one is, or where the process that began at `started` is still finding out.
pub fn unobeyed(
    obeyed: &Obeyed,
    started: Timestamp,
    now: Timestamp,
) -> Option<(Timestamp, String)> {
    let why = obeyed.as_ref().err()?;
    let is_over = now.duration_since(started) > WORKS_GRACE;
    is_over.then(|| (started, why.clone()))
}

/// Returns whether a condition says that Works cannot be read.
pub fn says_unread(condition: &Condition) -> bool {
    condition.type_ == WORKS_UP_TO_DATE && condition.status == FALSE
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const T1: Timestamp = Timestamp::constant(1_800_000_060, 0);

    #[test]
    fn an_agent_that_starts_again_reports_no_failure_before_it_has_asked() {
        let failed = up_to_date(
            &[Age {
                part: "Kubernetes version",
                since: Some(T0),
            }],
            T1,
        );
        let stored = [up_to_date(&[], T0)];
        for (stored, is_asked, is_reported) in [
            (&stored[..], false, false),
            (&stored[..], true, true),
            (&[], false, true),
        ] {
            let reported = unless_awaited(failed.clone(), stored, is_asked);
            assert_eq!(reported.is_some(), is_reported, "{stored:?} {is_asked}");
        }
    }

    #[test]
    fn an_agent_that_may_apply_nothing_says_so_once_it_has_had_time_to_find_out() {
        let why = || Err("the record cannot be written".to_owned());
        for (obeyed, now, is_reported) in [
            (why(), T0, false),
            (why(), T1, true),
            (Ok(1), T1, false),
            (Ok(0), T1, false),
        ] {
            let reported = unobeyed(&obeyed, T0, now);
            assert_eq!(reported.is_some(), is_reported, "{obeyed:?} {now}");
        }
        let reported = works_up_to_date(unobeyed(&why(), T0, T1), T1);
        let expected = "no Work of the member is read and applied since 2027-01-15T08:00:00Z: the record cannot be written";
        assert_eq!(reported.message, expected);
    }

    #[test]
    fn an_agent_without_rights_says_that_its_member_has_to_be_registered_again() {
        let why = || "works is forbidden".to_owned();
        let reported = unread(why(), true, "m1");
        assert!(reported.starts_with(&why()), "{reported}");
        assert!(
            reported.contains("kubectl muster token create --cluster-name m1"),
            "{reported}"
        );
        assert_eq!(unread(why(), false, "m1"), why());
        let lost = works_up_to_date(Some((T0, why())), T1);
        let found = works_up_to_date(None, T1);
        assert_eq!([&lost, &found].map(says_unread), [true, false]);
    }

    #[test]
    fn a_member_that_cannot_read_its_works_says_since_when_and_why() {
        let lost = works_up_to_date(Some((T0, "works is forbidden".to_owned())), T1);
        assert_eq!(
            (lost.status.as_str(), lost.reason.as_str()),
            (FALSE, "CannotFollow")
        );
        assert!(
            lost.message.contains("forbidden") && lost.message.contains("2027"),
            "{}",
            lost.message
        );
        assert_eq!(works_up_to_date(None, T1).status, TRUE);
    }

    #[test]
    fn a_member_that_refuses_the_credentials_is_not_known_to_be_ill() {
        let refused = ready(&Observation::Refused { code: 401 }, T0);
        let said = (refused.status.as_str(), refused.reason.as_str());
        assert_eq!(said, ("Unknown", "ClusterCredentialsRefused"));
    }

    #[test]
    fn an_old_part_is_named_with_the_time_of_its_last_success() {
        let ages = [
            Age {
                part: "nodes and pods",
                since: Some(T0),
            },
            Age {
                part: "Kubernetes version",
                since: None,
            },
        ];
        let condition = up_to_date(&ages, T1);
        assert_eq!(condition.status, "False");
        assert_eq!(
            condition.message,
            format!("nodes and pods not collected since {T0}")
        );
        assert_eq!(up_to_date(&ages[1..], T1).status, "True");
    }
}
