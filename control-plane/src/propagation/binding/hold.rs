//! Purge mode Directly: holds the new copy back until the old one is removed, for a bounded time.
//!
//! A cluster that is not ready cannot remove its copy, and holds nothing back: otherwise the
//! workload would be down for as long as that cluster is. A cluster that is ready and does not
//! remove its copy (because of admission or a finalizer in the member) holds the new copy back for
//! a bounded time, which a condition reports. That time begins when the removal is asked for, which
//! a pause of movement may put off. Where another copy runs already, a pause does not put that time
//! off, so that the running copy follows its template.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::binding::GracefulEvictionTask;
use muster_shared::clock::later;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::REMOVAL_PENDING;

use crate::propagation::data::gates;

/// Reason of the condition `RemovalPending` while it is True.
const HELD: &str = "WaitingForRemoval";
/// Reason of that condition once it is False.
const FREE: &str = "NothingToRemove";
/// How long an old copy may hold the new one back where its task does not say, in seconds
/// (Karmada's `--graceful-eviction-timeout`).
const LONGEST: i32 = 600;
/// How long it may do so before that is reported: most copies are gone by then.
const UNREPORTED: SignedDuration = SignedDuration::from_secs(15);

/// A copy that holds the new one back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold<'a> {
    /// The cluster that it is in.
    pub cluster: &'a str,
    /// Since when.
    pub since: Timestamp,
    /// Until when at the latest; `None` while nobody has asked for the removal of the copy yet.
    pub until: Option<Timestamp>,
}

/// Time at which the removal of a copy that is still there was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The removal was not requested yet.
    NotYet,
    /// The removal counts as asked for since the task began: nothing puts its time off.
    WithItsTask,
    /// The removal was asked for at this time.
    At(Timestamp),
}

/// Returns the copy that holds the new ones back the longest, if any does. `asked` says when the
/// removal of the copy in a cluster was asked for; `None` if the cluster has no Work any more, or
/// it is silent.
pub fn hold<'a>(
    tasks: &'a [GracefulEvictionTask],
    asked: &dyn Fn(&str) -> Option<Asked>,
    now: Timestamp,
) -> Option<Hold<'a>> {
    let directly = tasks.iter().filter(|task| task.purges_directly());
    let holds = directly.filter_map(|task| {
        let asked = asked(&task.from_cluster)?;
        // A task without a time gets it from the controller of the tasks.
        let since = task.creation_timestamp.as_ref().map_or(now, |time| time.0);
        let longest = task.grace_period_seconds.unwrap_or(LONGEST);
        let longest = SignedDuration::from_secs(longest.into());
        let until = match asked {
            Asked::NotYet => None,
            Asked::WithItsTask => Some(later(since, longest)),
            Asked::At(at) => Some(later(since.max(at), longest)),
        };
        Some(Hold {
            cluster: &task.from_cluster,
            since,
            until,
        })
    });
    holds
        .filter(|hold| hold.until.is_none_or(|until| now < until))
        .max_by_key(|hold| (hold.until.is_none(), hold.until))
}

impl Hold<'_> {
    /// Returns when to reconcile again if nothing happens: before the end, and as soon as it has to
    /// be reported.
    pub fn pause(&self, now: Timestamp, longest: Duration) -> Duration {
        let reported = self.since.saturating_add(UNREPORTED).ok();
        let reported = reported.filter(|reported| *reported > now);
        let next = reported.into_iter().chain(self.until).min();
        gates::pause(next, now, longest)
    }
}

/// Returns the condition while a copy holds the new ones back, and once it does not any more;
/// `None` where nothing has to be reported.
pub fn condition(
    hold: Option<&Hold<'_>>,
    before: &[Condition],
    now: Timestamp,
) -> Option<Condition> {
    if let Some(Hold {
        cluster,
        since,
        until,
    }) = hold
    {
        let reported = since
            .saturating_add(UNREPORTED)
            .is_ok_and(|reported| reported <= now);
        let end = match until {
            Some(until) => {
                format!("is still there: the new copies are made at {until:.0} at the latest")
            }
            None => "its removal is not asked for yet: the new copies wait for that".to_owned(),
        };
        let message = format!(
            "its copy in {cluster} has to go first (purge mode Directly), is to be removed since {since:.0}, and {end}"
        );
        return reported
            .then(|| conditions::new(REMOVAL_PENDING, conditions::TRUE, HELD, &message, now));
    }
    conditions::is_true(before, REMOVAL_PENDING).then(|| {
        let message = "nothing holds the new copies back any more";
        conditions::new(REMOVAL_PENDING, conditions::FALSE, FREE, message, now)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fleet::testing::at;

    fn task(
        cluster: &str,
        mode: &str,
        created: Option<i64>,
        grace: Option<i32>,
    ) -> GracefulEvictionTask {
        serde_json::from_value(json!({
            "fromCluster": cluster, "purgeMode": mode, "reason": "", "producer": "",
            "creationTimestamp": created.map(at), "gracePeriodSeconds": grace,
        }))
        .unwrap()
    }

    #[test]
    fn a_copy_that_a_live_cluster_does_not_remove_holds_the_new_one_back_for_a_bounded_time() {
        let asked = |second| Some(Asked::At(at(second)));
        let directly = |created, grace| task("m1", "Directly", created, grace);
        let immediately = task("m1", "Immediately", Some(0), None);
        for (task, asked, now, until) in [
            (directly(Some(0), None), asked(0), 0, Some(600)),
            (immediately, asked(0), 599, Some(600)),
            (directly(Some(0), None), asked(0), 600, None),
            (directly(Some(0), Some(30)), asked(0), 29, Some(30)),
            (directly(Some(0), Some(30)), asked(0), 30, None),
            (directly(Some(0), None), None, 0, None),
            (directly(None, None), asked(0), 50, Some(650)),
            // A pause put the removal off.
            (directly(Some(0), None), asked(3_600), 4_199, Some(4_200)),
            (directly(Some(0), None), asked(3_600), 4_200, None),
            (task("m1", "Gracefully", Some(0), None), asked(0), 0, None),
            (task("m1", "Never", Some(0), None), asked(0), 0, None),
        ] {
            let tasks = [task];
            let got = hold(&tasks, &|_| asked, at(now)).and_then(|hold| hold.until);
            assert_eq!(got, until.map(at), "{tasks:?} {asked:?} at {now}");
        }
    }

    #[test]
    fn a_copy_whose_removal_is_still_to_be_asked_for_holds_new_ones_back_until_it_is() {
        let tasks = [
            task("m1", "Directly", Some(0), Some(30)),
            task("m2", "Directly", Some(0), None),
        ];
        let asked = |cluster: &str| match cluster {
            "m1" => Some(Asked::NotYet),
            _ => Some(Asked::At(at(0))),
        };
        for now in [10, 100_000] {
            let held = hold(&tasks, &asked, at(now)).unwrap();
            assert_eq!((held.cluster, held.until), ("m1", None), "{now}");
            assert_eq!(held.pause(at(now), Duration::from_secs(5)).as_secs(), 5);
            let reported = condition(Some(&held), &[], at(now));
            let reported = reported.map(|it| it.message.contains("not asked for yet"));
            assert_eq!(reported, (now > 15).then_some(true), "{now}");
        }
    }

    #[test]
    fn of_several_copies_the_one_that_may_hold_longest_counts() {
        let tasks = [
            task("m1", "Directly", Some(0), Some(30)),
            task("m2", "Directly", Some(100), None),
            task("m3", "Directly", Some(5_000), None),
        ];
        let asked = |cluster: &str| (cluster != "m3").then_some(Asked::At(at(0)));
        let got = hold(&tasks, &asked, at(10)).unwrap();
        assert_eq!((got.cluster, got.until), ("m2", Some(at(700))));
    }

    #[test]
    fn it_is_reported_after_a_while_with_one_text_and_taken_back_when_it_is_over() {
        let held = Hold {
            cluster: "m1",
            since: at(0),
            until: Some(at(600)),
        };
        assert_eq!(condition(Some(&held), &[], at(14)), None);
        let reported = condition(Some(&held), &[], at(15)).unwrap();
        assert_eq!(
            (&*reported.status, &*reported.reason),
            ("True", "WaitingForRemoval")
        );
        assert!(reported.message.contains("m1"), "{}", reported.message);
        let list = conditions::merge(&[], [reported]).unwrap();
        let later = condition(Some(&held), &list, at(300)).unwrap();
        assert_eq!(conditions::merge(&list, [later]), None, "written once");
        let over = condition(None, &list, at(600)).unwrap();
        let list = conditions::merge(&list, [over]).unwrap();
        assert_eq!(list[0].status, "False");
        assert_eq!(condition(None, &list, at(601)), None);
        assert_eq!(condition(None, &[], at(601)), None);
    }

    #[test]
    fn it_is_reconciled_again_when_it_has_to_be_reported_and_when_it_ends() {
        let held = Hold {
            cluster: "m1",
            since: at(0),
            until: Some(at(600)),
        };
        let pause = |now| held.pause(at(now), Duration::from_mins(1)).as_secs();
        assert_eq!(
            (pause(0), pause(10), pause(20), pause(590)),
            (15, 5, 60, 10)
        );
        assert_eq!(
            pause(15),
            60,
            "what is reported is not reported again at once"
        );
    }
}
