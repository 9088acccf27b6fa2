//! Condition of a binding that says whether its copies would be stopped, before anything fails.
//! Pure.

use jiff::Timestamp;
use muster_shared::api::cluster::ClusterSyncMode;
use muster_shared::check::few;
use muster_shared::conditions;
use muster_shared::fencing::{CONFIRMED, Times};
use muster_shared::k8s::Condition;
use muster_shared::names::condition;

use super::decide::{PUSH, unconfirmed};

/// Reason of the condition while every copy is fenced.
const ALL: &str = "ConfirmedByAgents";
/// Reason of the condition while a copy is not fenced.
pub const NOT_ALL: &str = "NotFenced";
/// Reason of the condition once nothing asks for fencing any more.
const NOT_REQUESTED: &str = "NotRequested";
/// Clusters that the message names.
const MOST: usize = 5;

/// Copy of a workload.
#[derive(Clone, Debug)]
pub struct Copy<'a> {
    /// Name of the cluster.
    pub cluster: &'a str,
    /// Sync mode of the cluster, if it is known.
    pub mode: Option<ClusterSyncMode>,
    /// Conditions of its Work.
    pub reported: &'a [Condition],
}

impl Copy<'_> {
    /// Returns why the copy is not fenced; `None` if it is, or its agent has not applied it yet.
    fn unfenced(&self) -> Option<String> {
        if self.mode == Some(ClusterSyncMode::Push) {
            return Some(PUSH.to_owned());
        }
        if Times::confirmed(self.reported).is_some() {
            return None;
        }
        let refusal = conditions::get(self.reported, CONFIRMED).map(|it| it.message.as_str());
        // An agent that fences says so together with that it has applied the Work.
        let has_said = refusal.is_some() || conditions::is_true(self.reported, condition::APPLIED);
        has_said.then(|| unconfirmed(refusal))
    }
}

/// Returns the condition of a binding that says whether its copies are fenced; `None` where there
/// is nothing to report. `is_asked` says whether its policy asks for fencing.
pub fn condition(
    is_asked: bool,
    copies: &[Copy<'_>],
    before: &[Condition],
    now: Timestamp,
) -> Option<Condition> {
    if !is_asked {
        let known = conditions::get(before, condition::FENCED)?;
        let message = "the policy asks for no fencing";
        let over = || conditions::new(&known.type_, conditions::FALSE, NOT_REQUESTED, message, now);
        return (known.reason != NOT_REQUESTED).then(over);
    }
    let unfenced: Vec<String> = copies
        .iter()
        .filter_map(|copy| Some(format!("{}: {}", copy.cluster, copy.unfenced()?)))
        .collect();
    if !unfenced.is_empty() {
        let message = format!(
            "not every copy is stopped when its cluster is cut off, and none of these is placed anew before its \
             cluster is ready and has removed it (failover.cluster.fencing): {}",
            few(&unfenced, MOST, "; ", |more| format!("; and {more} more"))
        );
        return Some(conditions::new(
            condition::FENCED,
            conditions::FALSE,
            NOT_ALL,
            &message,
            now,
        ));
    }
    let is_confirmed = |copy: &Copy<'_>| Times::confirmed(copy.reported).is_some();
    if copies.is_empty() || !copies.iter().all(is_confirmed) {
        return None;
    }
    let message = "the agents of its clusters stop it when they are cut off";
    Some(conditions::new(
        condition::FENCED,
        conditions::TRUE,
        ALL,
        message,
        now,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions_of(given: &[(&str, &str, &str)]) -> Vec<Condition> {
        let of = |(kind, status, reason): &(&str, &str, &str)| {
            conditions::new(kind, status, reason, "of the agent", Timestamp::UNIX_EPOCH)
        };
        given.iter().map(of).collect()
    }

    #[test]
    fn a_binding_says_which_copies_would_not_be_stopped() {
        let confirmed = conditions_of(&[
            ("Applied", "True", "r"),
            ("Fenced", "True", "After60Grace30"),
        ]);
        let refused = conditions_of(&[("Applied", "True", "r"), ("Fenced", "False", "TooShort")]);
        let old = conditions_of(&[("Applied", "True", "r")]);
        let (pull, push) = (Some(ClusterSyncMode::Pull), Some(ClusterSyncMode::Push));
        let stopped = Some(("True", "agents"));
        let unwilling = Some((
            "False",
            "m1: its agent does not fence this workload: of the agent",
        ));
        let unconfirmed = Some(("False", "m1: its agent has not confirmed"));
        let no_agent = Some(("False", "m1: the cluster has sync mode Push"));
        let none = Vec::new();
        for (what, mode, reported, expected) in [
            ("it confirms", &pull, &confirmed, stopped),
            ("it refuses", &pull, &refused, unwilling),
            ("an older agent", &pull, &old, unconfirmed),
            ("it has not applied it yet", &pull, &none, None),
            ("no agent", &push, &old, no_agent),
            ("no agent, nothing is applied", &push, &none, no_agent),
            ("its cluster is not known", &None, &confirmed, stopped),
        ] {
            let copies = [
                Copy {
                    cluster: "m0",
                    mode: pull.clone(),
                    reported: &confirmed,
                },
                Copy {
                    cluster: "m1",
                    mode: mode.clone(),
                    reported,
                },
            ];
            let said = condition(true, &copies, &[], Timestamp::UNIX_EPOCH);
            assert_eq!(said.is_some(), expected.is_some(), "{what}");
            let Some((said, (status, part))) = said.zip(expected) else {
                continue;
            };
            assert_eq!(said.status, status, "{what}");
            assert!(said.message.contains(part), "{what}: {}", said.message);
        }
        assert_eq!(condition(true, &[], &[], Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn what_was_reported_ends_with_the_policy_and_is_reported_once() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(condition(false, &[], &[], now), None);
        let before = conditions_of(&[("Fenced", "True", ALL)]);
        let over = condition(false, &[], &before, now).unwrap();
        assert_eq!(
            (over.status.as_str(), over.reason.as_str()),
            ("False", NOT_REQUESTED)
        );
        assert_eq!(condition(false, &[], &[over], now), None);
    }
}
