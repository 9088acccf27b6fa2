//! Decides what a rebalancer has still to request, and its status afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::rebalancer::{
    ObservedWorkload, RebalanceFailure, RebalanceResult, WorkloadRebalancer,
    WorkloadRebalancerStatus, WorkloadReference,
};
use muster_shared::clock::{later, whole_second};
use muster_shared::k8s::Time;
use serde_json::{Value, json};

/// A workload without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The workload.
    pub workload: WorkloadReference,
    /// Whether its placement has been requested.
    pub is_asked: bool,
}

/// Returns the workloads without a result of this generation or a success of any, in the order of
/// the spec.
pub fn pending(rebalancer: &WorkloadRebalancer) -> Vec<Pending> {
    let status = rebalancer.status.as_ref();
    let is_current = status.is_some_and(|it| it.observed_generation == generation(rebalancer));
    let mut results = results(status);
    let mut pending = Vec::new();
    for workload in &rebalancer.spec.workloads {
        let known = results.insert(workload, Some(&RebalanceResult::Successful));
        let is_asked = match known {
            Some(Some(RebalanceResult::Successful)) => continue,
            Some(Some(_)) if is_current => continue,
            Some(Some(_)) | None => false,
            Some(None) => true,
        };
        pending.push(Pending {
            workload: workload.clone(),
            is_asked,
        });
    }
    pending
}

fn generation(rebalancer: &WorkloadRebalancer) -> i64 {
    rebalancer.metadata.generation.unwrap_or_default()
}

/// Returns the result of each workload that the status names; none of one that was only asked for.
fn results(
    status: Option<&WorkloadRebalancerStatus>,
) -> BTreeMap<&WorkloadReference, Option<&RebalanceResult>> {
    let all = status.iter().flat_map(|it| &it.observed_workloads);
    all.map(|it| (&it.workload, it.result.as_ref())).collect()
}

/// Time by which another clock may be ahead.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Returns the time that a binding gets to be placed anew; `None` if it is asked for that already.
/// `since` is that of [`trigger`], `asked` the last request and `scheduled` the last scheduling.
///
/// The scheduler compares whole seconds: a request is later than the scheduling before it.
pub fn request(
    since: Timestamp,
    asked: Option<Timestamp>,
    scheduled: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let is_pending = asked.is_some_and(|asked| scheduled.is_some_and(|last| asked > last));
    // A request in the future is of a clock that was wrong; others of that time are this one.
    let latest = later(now, SKEW);
    let is_made = asked.is_some_and(|asked| asked >= since && asked <= latest);
    if is_pending || is_made {
        return None;
    }
    let after = scheduled.map(|last| whole_second(later(last, SignedDuration::from_secs(1))));
    Some(after.map_or(since, |after| after.max(since)))
}

/// Returns whether the spec of a rebalancer was edited since it was created.
pub fn is_edited(rebalancer: &WorkloadRebalancer) -> bool {
    generation(rebalancer) > 1
}

/// Returns the time that a request is dated by, so that a restart between two writes requests
/// nothing twice: the creation of the rebalancer, and the last edit of one that was edited, as
/// `managedFields` say. Without these it is the present.
pub fn trigger(rebalancer: &WorkloadRebalancer, now: Timestamp) -> Timestamp {
    let metadata = &rebalancer.metadata;
    let time = if is_edited(rebalancer) {
        let writes = metadata.managed_fields.iter().flatten();
        let edits = writes.filter(|it| it.subresource.as_ref().is_none_or(String::is_empty));
        edits.filter_map(|it| it.time.as_ref()).map(|it| it.0).max()
    } else {
        metadata.creation_timestamp.as_ref().map(|it| it.0)
    };
    time.unwrap_or_else(|| whole_second(now))
}

/// Returns whether an object was created at a time or later, or may have been: the server dates by
/// whole seconds.
pub fn is_since(created: Timestamp, time: Timestamp) -> bool {
    created >= whole_second(time)
}

/// Progress of the request for a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A new placement was requested.
    Asked,
    /// The scheduler has answered.
    Answered,
    /// The workload has no binding.
    NoBinding,
}

/// Returns the status after this progress; `None` if it is the one that is there.
///
/// A workload that was asked for is listed without a result, as Karmada lists those that it has not
/// come to: the list is what the next process knows of requests.
pub fn status(
    rebalancer: &WorkloadRebalancer,
    progress: &BTreeMap<WorkloadReference, Progress>,
    now: Timestamp,
) -> Option<WorkloadRebalancerStatus> {
    let before = rebalancer.status.clone().unwrap_or_default();
    let wanted: BTreeSet<_> = rebalancer.spec.workloads.iter().collect();
    let is_wanted = |it: &&ObservedWorkload| {
        wanted.contains(&it.workload) || it.result == Some(RebalanceResult::Successful)
    };
    let mut observed: Vec<ObservedWorkload> = before
        .observed_workloads
        .iter()
        .filter(is_wanted)
        .filter(|it| !progress.contains_key(&it.workload))
        .cloned()
        .collect();
    observed.extend(progress.iter().map(|(workload, progress)| {
        ObservedWorkload {
            workload: workload.clone(),
            result: match progress {
                Progress::Asked => None,
                Progress::Answered => Some(RebalanceResult::Successful),
                Progress::NoBinding => Some(RebalanceResult::Failed),
            },
            reason: (*progress == Progress::NoBinding)
                .then_some(RebalanceFailure::ReferencedBindingNotFound),
        }
    }));
    observed.sort_by(|a, b| a.workload.cmp(&b.workload));
    let finished = observed.iter().filter(|it| it.result.is_some());
    let finished: BTreeSet<_> = finished.map(|it| &it.workload).collect();
    let is_finished = wanted.is_subset(&finished);
    let same = observed == before.observed_workloads
        && before.observed_generation == generation(rebalancer);
    let finish_time = match before.finish_time.clone() {
        _ if !is_finished => None,
        Some(time) if same => Some(time),
        _ => Some(Time(whole_second(now))),
    };
    let after = WorkloadRebalancerStatus {
        observed_workloads: observed,
        observed_generation: generation(rebalancer),
        finish_time,
    };
    (after != before).then_some(after)
}

/// Returns the status as a merge patch, which sets every field: one that is left out would keep its
/// former value.
pub fn patch(status: &WorkloadRebalancerStatus) -> Value {
    json!({
        "observedWorkloads": status.observed_workloads,
        "observedGeneration": status.observed_generation,
        "finishTime": status.finish_time,
    })
}

/// Returns the pause between two writes of a status: 5 s, and more for more than 1,000 workloads,
/// whose status is large.
pub fn pause(workloads: usize) -> Duration {
    Duration::from_millis(5) * u32::try_from(workloads.max(1_000)).unwrap_or(u32::MAX)
}

/// Returns the time at which a finished rebalancer is to be deleted: one that has a result for each
/// workload of its present spec.
pub fn expiry(rebalancer: &WorkloadRebalancer) -> Option<Timestamp> {
    let status = rebalancer.status.as_ref()?;
    if status.observed_generation != generation(rebalancer) {
        return None;
    }
    let results = results(Some(status));
    let is_finished = |workload| results.get(workload).is_some_and(Option::is_some);
    if !rebalancer.spec.workloads.iter().all(is_finished) {
        return None;
    }
    let ttl = rebalancer.spec.ttl_seconds_after_finished?;
    let finished = status.finish_time.as_ref()?.0;
    finished
        .checked_add(SignedDuration::from_secs(ttl.into()))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str) -> WorkloadReference {
        serde_json::from_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name,
        }))
        .unwrap()
    }

    fn progress(list: &[(&str, Progress)]) -> BTreeMap<WorkloadReference, Progress> {
        let all = list
            .iter()
            .map(|(name, progress)| (workload(name), *progress));
        all.collect()
    }

    fn rebalancer(generation: i64, names: &[&str], status: &Value) -> WorkloadRebalancer {
        let workloads: Vec<_> = names.iter().map(|name| workload(name)).collect();
        serde_json::from_value(json!({
            "metadata": {
                "name": "home", "generation": generation,
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": { "workloads": workloads, "ttlSecondsAfterFinished": 60 },
            "status": status,
        }))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn observed(name: &str, result: &str) -> Value {
        let mut it = json!({ "workload": workload(name), "result": result });
        if result == "Failed" {
            it["reason"] = json!("ReferencedBindingNotFound");
        }
        it
    }

    #[test]
    fn each_workload_is_requested_once_and_a_failed_one_again_when_the_spec_changes() {
        let names = |it: &WorkloadRebalancer| {
            pending(it)
                .into_iter()
                .map(|it| (it.workload.name, it.is_asked))
                .collect::<Vec<_>>()
        };
        let waits = json!({ "workload": workload("asked") });
        let results = json!([
            observed("ok", "Successful"),
            observed("none", "Failed"),
            waits
        ]);
        let status = |generation: i64| json!({ "observedWorkloads": results, "observedGeneration": generation });
        for (what, it, expected) in [
            (
                "new",
                rebalancer(1, &["ok", "ok", "none"], &Value::Null),
                vec![("ok", false), ("none", false)],
            ),
            (
                "asked for",
                rebalancer(1, &["asked", "ok"], &status(1)),
                vec![("asked", true)],
            ),
            ("done", rebalancer(1, &["ok", "none"], &status(1)), vec![]),
            (
                "changed",
                rebalancer(2, &["ok", "none", "more", "asked"], &status(1)),
                vec![("none", false), ("more", false), ("asked", true)],
            ),
        ] {
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(name, is_asked)| (name.to_owned(), is_asked))
                .collect();
            assert_eq!(names(&it), expected, "{what}");
        }
    }

    #[test]
    fn the_status_says_what_became_of_each_workload_and_when_all_had_a_result() {
        let it = rebalancer(1, &["ok", "none"], &Value::Null);
        let results = progress(&[("ok", Progress::Answered), ("none", Progress::NoBinding)]);
        let asked = progress(&[("ok", Progress::Asked), ("none", Progress::NoBinding)]);
        let half = status(&it, &asked, at(0)).unwrap();
        assert_eq!(half.finish_time, None, "the scheduler has not looked at it");
        let mut waits = it.clone();
        waits.status = Some(half);
        assert_eq!(status(&waits, &asked, at(5)), None, "it is known");
        assert_eq!(expiry(&waits), None);
        let whole = status(&it, &results, at(0)).unwrap();
        assert_eq!(
            json!(whole.observed_workloads),
            json!([observed("none", "Failed"), observed("ok", "Successful")])
        );
        assert_eq!(whole.finish_time, Some(Time(at(0))));
        let done = WorkloadRebalancer {
            status: Some(whole),
            ..it
        };
        assert_eq!(
            status(&done, &progress(&[]), at(5)),
            None,
            "nothing is written again"
        );
        // A later result, or a later spec, is another end.
        for (generation, results, expected) in [
            (1, progress(&[("none", Progress::Answered)]), 5),
            (2, progress(&[]), 5),
            (1, progress(&[("none", Progress::NoBinding)]), 0),
        ] {
            let mut again = rebalancer(generation, &["ok", "none"], &Value::Null);
            again.status.clone_from(&done.status);
            let done_at = Some(Time(at(0)));
            let finish = status(&again, &results, at(5)).map_or(done_at, |it| it.finish_time);
            assert_eq!(finish, Some(Time(at(expected))), "{generation} {results:?}");
        }
        assert_eq!(expiry(&done), Some(at(60)));
        let it = rebalancer(1, &["ok", "none", "later"], &Value::Null);
        let most = status(&it, &results, at(0)).unwrap();
        assert_eq!(most.finish_time, None, "one of three has no result yet");
        // A workload that was taken out stays in the list if it was placed anew.
        let mut fewer = rebalancer(2, &["more"], &Value::Null);
        fewer.status.clone_from(&done.status);
        assert_eq!(expiry(&fewer), None);
        let after = status(&fewer, &progress(&[("more", Progress::Answered)]), at(9)).unwrap();
        let names: Vec<_> = after
            .observed_workloads
            .iter()
            .map(|it| it.workload.name.as_str())
            .collect();
        assert_eq!(names, ["more", "ok"]);
        assert_eq!(after.finish_time, Some(Time(at(9))));
    }

    #[test]
    fn an_edited_rebalancer_is_not_deleted_by_the_end_of_its_former_work() {
        let finished = json!({
            "observedWorkloads": [observed("ok", "Successful")], "observedGeneration": 1,
            "finishTime": "2026-01-01T00:00:10Z",
        });
        let edited = rebalancer(2, &["ok", "more"], &finished);
        let half = status(&edited, &progress(&[]), at(0)).unwrap();
        assert_eq!(patch(&half)["finishTime"], Value::Null);
        assert!(patch(&half).as_object().unwrap().contains_key("finishTime"));
        // What another writer left is judged by its results, too.
        let mut left = finished;
        left["observedGeneration"] = json!(2);
        assert_eq!(expiry(&rebalancer(2, &["ok", "more"], &left)), None);
        assert!(expiry(&rebalancer(2, &["ok"], &left)).is_some());
        let emptied = WorkloadRebalancerStatus::default();
        assert_eq!(patch(&emptied)["observedWorkloads"], json!([]));
    }

    #[test]
    fn each_request_is_later_than_the_last_scheduling_and_is_made_once() {
        let second = |second: i64| Some(at(second));
        for (what, asked, scheduled, expected) in [
            ("never placed", None, None, second(10)),
            ("placed before", None, second(3), second(10)),
            ("placed in the same second", None, second(10), second(11)),
            ("placed since", None, second(12), second(13)),
            ("an older request is pending", second(5), second(3), None),
            (
                "an older request was answered",
                second(5),
                second(6),
                second(10),
            ),
            ("this one is pending", second(11), second(10), None),
            ("this one was answered", second(11), second(11), None),
            (
                "a clock was wrong",
                second(9000),
                second(9000),
                second(9001),
            ),
        ] {
            assert_eq!(
                request(at(10), asked, scheduled, at(14)),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn the_first_generation_is_dated_by_the_creation_and_a_later_one_by_the_change() {
        let time = |text: &str| -> Timestamp { text.parse().unwrap() };
        let (created, edited) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let wrote =
            |time: &str, subresource: &str| json!({"time": time, "subresource": subresource});
        let status = wrote("2026-01-03T00:00:00Z", "status");
        let writes = json!([wrote(created, ""), wrote(edited, ""), status]);
        for (generation, writes, expected) in [
            (1, Value::Null, time(created)),
            (1, writes.clone(), time(created)),
            (2, Value::Null, at(7)),
            (2, writes, time(edited)),
        ] {
            let mut it = rebalancer(generation, &["a"], &Value::Null);
            it.metadata.managed_fields = serde_json::from_value(writes.clone()).unwrap();
            assert_eq!(trigger(&it, at(7)), expected, "{generation} {writes}");
        }
    }

    #[test]
    fn what_was_created_in_the_second_of_a_time_may_have_been_created_since() {
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        for (created, expected) in [
            ("2026-01-01T00:00:01Z", false),
            ("2026-01-01T00:00:02Z", true),
            ("2026-01-01T00:00:03Z", true),
        ] {
            let asked = at("2026-01-01T00:00:02.335Z");
            assert_eq!(is_since(at(created), asked), expected, "{created}");
        }
    }
}
