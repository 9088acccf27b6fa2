//! Taints of clusters: which tolerations apply and for how long, and how taints are added and
//! removed.
//!
//! The rules are those of Karmada's taint manager, with one difference: each taint has the limit of
//! its own toleration. In Karmada the toleration of one taint shortens the time of another, and a
//! limited toleration of a taint without `timeAdded` never ends.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Taint, Toleration},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::clock::{is_far_ahead, later};
use crate::names;

/// Effect that keeps out new workloads that do not tolerate the taint.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// Effect that keeps out new workloads that do not tolerate the taint, and evicts those that are
/// there.
pub const NO_EXECUTE: &str = "NoExecute";
/// Effect that keeps out new workloads, and evicts those whose policy has `failover.cluster`.
/// Tolerations do not apply.
pub const PREFER_NO_EXECUTE: &str = "PreferNoExecute";
/// Effect of Kubernetes that placement ignores (Karmada behaviour).
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";

/// Time for which a workload may stay on a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stay<'a> {
    /// As long as the taints do not change.
    Unlimited,
    /// Until a time, because of a taint. The time may have passed.
    Until(Timestamp, &'a Taint),
    /// Not at all, because the taint is not tolerated.
    Never(&'a Taint),
}

/// Returns whether a taint is a person's order to empty a cluster (`kubectl muster drain`).
pub fn is_drain(taint: &Taint) -> bool {
    taint.key == names::taint::DRAIN && taint.effect == NO_EXECUTE
}

/// Returns whether a taint belongs to a command of `kubectl muster`: nothing but its counterpart
/// puts it on or takes it off.
pub fn is_of_command(taint: &Taint) -> bool {
    [names::taint::DRAIN, names::taint::CORDON].contains(&taint.key.as_str())
}

/// Returns whether taints of an effect can make workloads leave.
pub fn evicts(effect: &str) -> bool {
    [NO_EXECUTE, PREFER_NO_EXECUTE].contains(&effect)
}

/// Returns whether a taint keeps out new workloads that do not tolerate it.
pub fn keeps_away(taint: &Taint) -> bool {
    [NO_SCHEDULE, NO_EXECUTE, PREFER_NO_EXECUTE].contains(&taint.effect.as_str())
}

/// Returns whether a toleration matches a taint. Operators that Karmada has not enabled (`Lt`,
/// `Gt`) match nothing.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let unset_or = |field: &Option<String>, value: &str| {
        field
            .as_deref()
            .is_none_or(|field| field.is_empty() || field == value)
    };
    unset_or(&toleration.effect, &taint.effect)
        && unset_or(&toleration.key, &taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => {
                toleration.value.as_deref().unwrap_or_default()
                    == taint.value.as_deref().unwrap_or_default()
            }
            "Exists" => true,
            _ => false,
        }
}

/// Returns for how long a workload may stay under the `NoExecute` taints of a cluster. The first
/// toleration that matches a taint counts, as in Karmada; the earliest end decides. A taint without
/// `timeAdded` counts as added now: the cluster controller sets its time.
pub fn stay<'a>(taints: &'a [Taint], tolerations: &[Toleration], now: Timestamp) -> Stay<'a> {
    let mut earliest = Stay::Unlimited;
    for taint in taints.iter().filter(|taint| taint.effect == NO_EXECUTE) {
        let found = tolerations
            .iter()
            .find(|toleration| tolerates(toleration, taint));
        let Some(toleration) = found else {
            return Stay::Never(taint);
        };
        let Some(seconds) = toleration.toleration_seconds else {
            continue;
        };
        let end = after(added(taint, now), seconds);
        if !matches!(earliest, Stay::Until(other, _) if other <= end) {
            earliest = Stay::Until(end, taint);
        }
    }
    earliest
}

/// Returns for how long a workload may stay under the `PreferNoExecute` taints of a cluster if it
/// is to leave `seconds` after the taint was added.
pub fn preferred_stay(taints: &[Taint], seconds: i64, now: Timestamp) -> Stay<'_> {
    taints
        .iter()
        .filter(|taint| taint.effect == PREFER_NO_EXECUTE)
        .map(|taint| (after(added(taint, now), seconds), taint))
        .min_by_key(|(end, _)| *end)
        .map_or(Stay::Unlimited, |(end, taint)| Stay::Until(end, taint))
}

fn added(taint: &Taint, now: Timestamp) -> Timestamp {
    taint.time_added.as_ref().map_or(now, |time| time.0)
}

fn after(start: Timestamp, seconds: i64) -> Timestamp {
    later(start, SignedDuration::from_secs(seconds))
}

/// Returns the taint with a key and effect.
pub fn find<'a>(taints: &'a [Taint], key: &str, effect: &str) -> Option<&'a Taint> {
    taints
        .iter()
        .find(|taint| taint.key == key && taint.effect == effect)
}

/// Adds a taint at `now`, and returns whether the list changed. An existing taint of the same key
/// and effect keeps its value and time, so that no toleration starts anew.
pub fn put_on(taints: &mut Vec<Taint>, taint: Taint, now: Timestamp) -> bool {
    if find(taints, &taint.key, &taint.effect).is_some() {
        return false;
    }
    taints.push(Taint {
        time_added: Some(Time(now)),
        ..taint
    });
    true
}

/// Removes the taint with a key and effect, whatever its value, and returns whether it existed.
pub fn take_off(taints: &mut Vec<Taint>, key: &str, effect: &str) -> bool {
    let before = taints.len();
    taints.retain(|taint| taint.key != key || taint.effect != effect);
    taints.len() != before
}

/// Sets the time of taints that evict and have none, as Karmada's API server does on every write,
/// and of all taints with a time to come; returns whether there were any. Without a time, no
/// toleration would end, and with one that a clock wrote which was ahead, it would end late.
pub fn date(taints: &mut [Taint], now: Timestamp) -> bool {
    let mut changed = false;
    for taint in taints {
        let is_undated = match &taint.time_added {
            None => evicts(&taint.effect),
            Some(added) => is_far_ahead(added.0, now),
        };
        if is_undated {
            taint.time_added = Some(Time(now));
            changed = true;
        }
    }
    changed
}

/// Formats a taint as on the command line: `key=value:effect`.
pub fn describe(taint: &Taint) -> String {
    match taint.value.as_deref() {
        None | Some("") => format!("{}:{}", taint.key, taint.effect),
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_000, 0);

    fn taint(key: &str, effect: &str, age: Option<i64>) -> Taint {
        let time_added = age.map(|age| Time(after(NOW, -age)));
        Taint {
            key: key.into(),
            effect: effect.into(),
            time_added,
            value: None,
        }
    }

    #[test]
    fn the_stay_is_over_at_the_very_end() {
        let taints = [
            taint("a", PREFER_NO_EXECUTE, Some(10)),
            taint("b", PREFER_NO_EXECUTE, None),
        ];
        let stay = preferred_stay(&taints, 10, NOW);
        assert_eq!(stay, Stay::Until(NOW, &taints[0]));
        assert_eq!(preferred_stay(&taints[..0], 10, NOW), Stay::Unlimited);
    }

    #[test]
    fn a_taint_that_is_there_keeps_its_time() {
        let mut taints = vec![taint("a", NO_EXECUTE, Some(50))];
        assert!(!put_on(&mut taints, taint("a", NO_EXECUTE, None), NOW));
        assert!(put_on(&mut taints, taint("a", NO_SCHEDULE, None), NOW));
        assert_eq!(taints.len(), 2);
        assert!(take_off(&mut taints, "a", NO_EXECUTE));
        assert!(!take_off(&mut taints, "a", NO_EXECUTE));
    }

    #[test]
    fn only_taints_that_drive_out_are_dated() {
        let mut taints = [taint("a", NO_SCHEDULE, None), taint("a", NO_EXECUTE, None)];
        assert!(date(&mut taints, NOW));
        assert_eq!(taints[0].time_added, None);
        assert_eq!(taints[1].time_added, Some(Time(NOW)));
        assert!(!date(&mut taints, NOW));
    }

    #[test]
    fn a_taint_that_is_dated_far_ahead_is_one_of_now() {
        let ahead = |seconds| Some(Time(NOW + SignedDuration::from_secs(seconds)));
        for (seconds, expected) in [(61, 0), (60, 60), (-5, -5)] {
            let mut taints = [taint("a", NO_SCHEDULE, None)];
            taints[0].time_added = ahead(seconds);
            assert_eq!(date(&mut taints, NOW), seconds == 61);
            assert_eq!(taints[0].time_added, ahead(expected));
        }
    }

    #[test]
    fn a_taint_is_written_as_on_the_command_line() {
        let plain = taint("a", NO_EXECUTE, None);
        assert_eq!(describe(&plain), "a:NoExecute");
        assert_eq!(
            describe(&Taint {
                value: Some("v".into()),
                ..plain
            }),
            "a=v:NoExecute"
        );
    }
}
