//! Taints that follow a cluster's Ready condition.
//!
//! `not-ready` and `unreachable` with effect NoSchedule follow the condition as in Karmada.
//! NoExecute taints with the same keys are added only in classic mode, the behaviour of Karmada
//! 1.3, which `--failover-eviction-timeout` enables.

use jiff::Timestamp;
use muster_shared::clock::later;
use muster_shared::k8s::{Condition, Taint};
use muster_shared::names::condition::{CREDENTIALS_REFUSED, SILENT};
use muster_shared::names::taint::{DUPLICATE, NOT_READY, UNREACHABLE};
use muster_shared::taints::{self, NO_EXECUTE, NO_SCHEDULE, date, put_on};

use crate::settings::Settings;

/// The taints a cluster should have, and when to decide again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// The complete new list, if it differs from the present one.
    pub taints: Option<Vec<Taint>>,
    /// Time at which a NoExecute taint falls due (classic mode only).
    pub again: Option<Timestamp>,
}

/// Compares the taints with the Ready condition. Kept taints keep their place, added ones follow
/// with `timeAdded` = `now`.
///
/// Taints that evict and lack `timeAdded` (written by hand, say) are stamped with `now`: without it
/// a finite toleration would never run out. `is_duplicate`: the member is registered already, so
/// that its agent applies nothing. `owned_elsewhere` reports taints that a taint policy answers
/// for.
pub fn wanted(
    present: &[Taint],
    ready: Option<&Condition>,
    is_duplicate: bool,
    settings: &Settings,
    owned_elsewhere: impl Fn(&Taint) -> bool,
    now: Timestamp,
) -> Wanted {
    let (follows, classic) = (
        settings.condition_taints,
        settings.failover_eviction_timeout,
    );
    let key = match ready.map(|c| c.status.as_str()) {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    let mut keep: Vec<(&str, &str)> = key
        .filter(|_| follows)
        .map(|key| (key, NO_SCHEDULE))
        .into_iter()
        .collect();
    keep.extend(is_duplicate.then_some((DUPLICATE, NO_SCHEDULE)));
    let mut again = None;
    // A member that refuses only the fleet's credentials runs its workloads, and nothing could
    // remove their old copies there.
    let may_be_down = ready.filter(|ready| ready.reason != CREDENTIALS_REFUSED);
    if let (Some(key), Some(ready), Some(wait)) = (key, may_be_down, classic) {
        // The moment when the control plane saw it: the condition's own time may be the member's
        // clock.
        let known = taints::find(present, key, NO_SCHEDULE);
        let seen = known.map_or(Some(now), |it| it.time_added.as_ref().map(|time| time.0));
        let reported = ready.last_transition_time.0;
        // What the control plane wrote itself is by its own clock, and may be newer than a taint
        // that reports refused credentials.
        let since = match seen {
            Some(seen) if ready.reason == SILENT => seen.max(reported),
            seen => seen.unwrap_or(reported),
        };
        let due = later(since.min(now), *wait);
        if due <= now {
            keep.push((key, NO_EXECUTE));
        } else {
            again = Some(due);
        }
    }
    // Without a condition nothing speaks against `unreachable`: it stays until a status is posted,
    // as in Karmada.
    // What is left to policies goes with the recovery of the cluster, as it did before.
    let follows = |taint: &Taint| follows || key.is_none() && !owned_elsewhere(taint);
    let ours = |taint: &Taint| {
        (taint.key == DUPLICATE && taint.effect == NO_SCHEDULE)
            || (taint.key == NOT_READY || taint.key == UNREACHABLE && ready.is_some())
                && (taint.effect == NO_SCHEDULE && follows(taint)
                    || classic.is_some() && taint.effect == NO_EXECUTE && !owned_elsewhere(taint))
    };
    let mut taints: Vec<Taint> = present
        .iter()
        .filter(|t| !ours(t) || keep.contains(&(t.key.as_str(), t.effect.as_str())))
        .cloned()
        .collect();
    date(&mut taints, now);
    for (key, effect) in keep {
        let taint = Taint {
            key: key.to_owned(),
            effect: effect.to_owned(),
            ..Taint::default()
        };
        put_on(&mut taints, taint, now);
    }
    Wanted {
        taints: (taints != present).then_some(taints),
        again,
    }
}

/// Returns what events say of the taints of a cluster, in the form that `kubectl taint` takes.
pub fn describe(taints: &[Taint]) -> String {
    if taints.is_empty() {
        return "The cluster has no taints now.".to_owned();
    }
    let list: Vec<String> = taints.iter().map(taints::describe).collect();
    format!("The cluster has these taints now: {}.", list.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use muster_shared::conditions;
    use muster_shared::k8s::Time;
    use muster_shared::taints::PREFER_NO_EXECUTE;

    use super::*;
    use crate::fleet::testing::at;

    fn taint(key: &str, effect: &str, added: Option<i64>) -> Taint {
        Taint {
            key: key.to_owned(),
            effect: effect.to_owned(),
            time_added: added.map(|s| Time(at(s))),
            value: None,
        }
    }

    fn ready(status: &str, since: i64) -> Condition {
        conditions::new("Ready", status, "", "", at(since))
    }

    /// Returns what is wanted at a second of a cluster that is registered once, and of whose taints
    /// no policy holds any.
    fn judge(
        present: &[Taint],
        ready: Option<&Condition>,
        classic: Option<Duration>,
        second: i64,
    ) -> Wanted {
        let settings = following(classic);
        wanted(present, ready, false, &settings, |_| false, at(second))
    }

    /// Returns settings by which taints follow the condition.
    fn following(classic: Option<Duration>) -> Settings {
        Settings {
            failover_eviction_timeout: classic.map(muster_shared::settings::Duration),
            ..Settings::default()
        }
    }

    #[test]
    fn taints_that_are_left_to_policies_are_not_put_on_and_go_with_the_recovery_at_the_latest() {
        let settings = Settings {
            condition_taints: false,
            ..Settings::default()
        };
        let left = taint(NOT_READY, NO_SCHEDULE, Some(1));
        let of_policy = taint(UNREACHABLE, NO_SCHEDULE, Some(1));
        for (status, present, expected) in [
            ("False", vec![], None),
            ("Unknown", vec![], None),
            ("False", vec![of_policy.clone(), left.clone()], None),
            (
                "True",
                vec![of_policy.clone(), left.clone()],
                Some(vec![of_policy.clone()]),
            ),
        ] {
            let condition = ready(status, 0);
            let is_owned = |taint: &Taint| taint.key == UNREACHABLE;
            let wanted = wanted(
                &present,
                Some(&condition),
                false,
                &settings,
                is_owned,
                at(100),
            );
            assert_eq!(wanted.taints, expected, "{status} {present:?}");
        }
    }

    #[test]
    fn evicting_taints_without_a_time_are_stamped_and_others_left_alone() {
        let present = [
            taint("a", NO_EXECUTE, None),
            taint("b", PREFER_NO_EXECUTE, None),
            taint("c", NO_SCHEDULE, None),
            taint("d", NO_EXECUTE, Some(3)),
        ];
        assert_eq!(
            judge(&present, Some(&ready("True", 0)), None, 100).taints,
            Some(vec![
                taint("a", NO_EXECUTE, Some(100)),
                taint("b", PREFER_NO_EXECUTE, Some(100)),
                taint("c", NO_SCHEDULE, None),
                taint("d", NO_EXECUTE, Some(3)),
            ])
        );
    }

    /// Checks the proposal's example of a ClusterTaintPolicy, which adds a taint of the same key.
    #[test]
    fn a_taint_of_a_policy_stays_beside_the_automatic_one_of_the_same_key() {
        let own = taint(NOT_READY, NO_SCHEDULE, Some(1));
        let of_policy = taint(NOT_READY, PREFER_NO_EXECUTE, Some(301));
        let both = vec![own.clone(), of_policy.clone()];
        let judge = |present: &[Taint], status, classic| {
            judge(present, Some(&ready(status, 0)), classic, 302).taints
        };
        let classic = Some(Duration::from_hours(1));
        for mode in [None, classic] {
            assert_eq!(judge(&both, "False", mode), None);
            // Windows end after the condition, and the policy itself takes its taint away.
            assert_eq!(judge(&both, "True", mode), Some(vec![of_policy.clone()]));
            assert_eq!(
                judge(std::slice::from_ref(&of_policy), "False", mode),
                Some(vec![
                    of_policy.clone(),
                    taint(NOT_READY, NO_SCHEDULE, Some(302))
                ])
            );
        }
    }

    #[test]
    fn no_workload_comes_to_a_second_registration_as_long_as_it_is_one() {
        let judge = |present: &[Taint], is_duplicate| {
            let ready = ready("True", 0);
            let settings = following(None);
            wanted(
                present,
                Some(&ready),
                is_duplicate,
                &settings,
                |_| false,
                at(9),
            )
            .taints
        };
        let tainted = judge(&[], true).unwrap();
        assert_eq!(tainted, [taint(DUPLICATE, NO_SCHEDULE, Some(9))]);
        assert_eq!(judge(&tainted, true), None);
        assert_eq!(judge(&tainted, false), Some(vec![]));
    }

    #[test]
    fn the_classic_mode_adds_no_execute_after_its_time_and_takes_it_back() {
        let classic = Some(Duration::from_mins(5));
        let unreachable = taint(UNREACHABLE, NO_SCHEDULE, Some(10));
        let down = ready("Unknown", 10);
        let judge = |present: &[Taint], condition: &Condition, now| {
            judge(present, Some(condition), classic, now)
        };

        let early = judge(std::slice::from_ref(&unreachable), &down, 309);
        assert_eq!(
            early,
            Wanted {
                taints: None,
                again: Some(at(310))
            }
        );
        let due = judge(std::slice::from_ref(&unreachable), &down, 310)
            .taints
            .unwrap();
        assert_eq!(
            due,
            vec![unreachable, taint(UNREACHABLE, NO_EXECUTE, Some(310))]
        );
        assert_eq!(judge(&due, &ready("True", 320), 320).taints, Some(vec![]));
    }

    #[test]
    fn a_member_that_refuses_the_credentials_of_the_fleet_is_not_emptied() {
        let classic = Some(Duration::from_mins(5));
        let unreachable = taint(UNREACHABLE, NO_SCHEDULE, Some(10));
        for (reason, is_emptied) in [("Other", true), (CREDENTIALS_REFUSED, false)] {
            let mut unknown = ready("Unknown", 10);
            unknown.reason = reason.to_owned();
            let present = std::slice::from_ref(&unreachable);
            let found = judge(present, Some(&unknown), classic, 900);
            let expected = Wanted {
                taints: is_emptied.then(|| {
                    vec![
                        unreachable.clone(),
                        taint(UNREACHABLE, NO_EXECUTE, Some(900)),
                    ]
                }),
                again: None,
            };
            assert_eq!(found, expected, "{reason}");
        }
    }

    #[test]
    fn the_classic_mode_counts_from_the_silence_of_a_member_that_refused_the_credentials_before() {
        let classic = Some(Duration::from_mins(5));
        let present = [taint(UNREACHABLE, NO_SCHEDULE, Some(10))];
        let mut silent = ready("Unknown", 9_000);
        silent.reason = SILENT.to_owned();
        let found = judge(&present, Some(&silent), classic, 9_000);
        let expected = Wanted {
            taints: None,
            again: Some(at(9_300)),
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn the_classic_mode_counts_from_when_the_failure_was_seen_here_whatever_clock_the_member_has() {
        let classic = Some(Duration::from_mins(5));
        let not_ready = |added| taint(NOT_READY, NO_SCHEDULE, added);
        for (present, reported, again) in [
            // Seen for the first time: an hour ago by the member's clock, or in an hour.
            (vec![], 0, Some(3_900)),
            (vec![], 7_200, Some(3_900)),
            // Seen a hundred seconds ago.
            (vec![not_ready(Some(3_500))], 0, Some(3_800)),
            (vec![not_ready(Some(3_500))], 7_200, Some(3_800)),
            // By a leader whose clock was ahead.
            (vec![not_ready(Some(9_000))], 0, Some(3_900)),
            // By somebody who did not say when: the condition is all there is.
            (vec![not_ready(None)], 3_400, Some(3_700)),
            // Other taints, older ones, say nothing about this failure.
            (
                vec![
                    taint("maintenance", NO_SCHEDULE, Some(1)),
                    taint(NOT_READY, PREFER_NO_EXECUTE, Some(2)),
                    not_ready(Some(3_500)),
                ],
                0,
                Some(3_800),
            ),
            (vec![not_ready(Some(3_300))], 3_600, None),
        ] {
            let wanted = judge(&present, Some(&ready("False", reported)), classic, 3_600);
            assert_eq!(wanted.again, again.map(at), "{present:?} {reported}");
            let evicts = wanted
                .taints
                .iter()
                .flatten()
                .any(|t| t.effect == NO_EXECUTE);
            assert_eq!(evicts, again.is_none());
        }
    }

    #[test]
    fn without_the_classic_mode_a_persons_no_execute_taint_of_the_same_key_stays() {
        let present = [taint(UNREACHABLE, NO_EXECUTE, Some(1))];
        let ready = ready("True", 0);
        assert_eq!(judge(&present, Some(&ready), None, 9), Wanted::default());
        let settings = following(Some(Duration::ZERO));
        let classic = wanted(&present, Some(&ready), false, &settings, |_| true, at(9));
        assert_eq!(classic, Wanted::default(), "a policy answers for it");
    }

    #[test]
    fn an_event_lists_the_taints_in_the_form_of_kubectl() {
        let valued = |value: &str| Taint {
            value: Some(value.to_owned()),
            ..taint("b", NO_EXECUTE, None)
        };
        for (taints, expected) in [
            (vec![], "The cluster has no taints now."),
            (
                vec![taint("a", NO_SCHEDULE, None)],
                "The cluster has these taints now: a:NoSchedule.",
            ),
            (
                vec![valued("v"), valued("")],
                "The cluster has these taints now: b=v:NoExecute, b:NoExecute.",
            ),
        ] {
            assert_eq!(describe(&taints), expected);
        }
    }
}
