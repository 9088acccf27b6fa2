//! Decides what a rebalancer has still to request, and its status afterwards.

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::rebalancer::{
    ObservedWorkload, RebalanceFailure, RebalanceResult, WorkloadRebalancer,
    WorkloadRebalancerStatus, WorkloadReference,
};
use muster_shared::k8s::Time;
use serde_json::{Value, json};

/// Returns the workloads whose placement is still to be requested: those of the spec without a
/// result of this generation or a success of any.
pub fn pending(rebalancer: &WorkloadRebalancer) -> Vec<WorkloadReference> {
    let status = rebalancer.status.clone().unwrap_or_default();
    let is_current = status.observed_generation == generation(rebalancer);
    let mut pending = Vec::new();
    for workload in &rebalancer.spec.workloads {
        let known = result(&status, workload);
        let is_done = match known {
            Some(RebalanceResult::Successful) => true,
            Some(_) => is_current,
            None => false,
        };
        if !is_done && !pending.contains(workload) {
            pending.push(workload.clone());
        }
    }
    pending
}

fn generation(rebalancer: &WorkloadRebalancer) -> i64 {
    rebalancer.metadata.generation.unwrap_or_default()
}

fn result<'a>(
    status: &'a WorkloadRebalancerStatus,
    workload: &WorkloadReference,
) -> Option<&'a RebalanceResult> {
    let mut all = status.observed_workloads.iter();
    all.find(|it| it.workload == *workload)?.result.as_ref()
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
    let latest = now.saturating_add(SKEW).unwrap_or(Timestamp::MAX);
    let is_made = asked.is_some_and(|asked| asked >= since && asked <= latest);
    if is_pending || is_made {
        return None;
    }
    let after = scheduled.map(|last| {
        let next = last.saturating_add(SignedDuration::from_secs(1));
        whole_second(next.unwrap_or(Timestamp::MAX))
    });
    Some(after.map_or(since, |after| after.max(since)))
}

/// Returns the time that a request is dated by: the creation of the rebalancer, so that a restart
/// between two writes requests nothing twice; for a later generation, the present.
pub fn trigger(rebalancer: &WorkloadRebalancer, now: Timestamp) -> Timestamp {
    let created = rebalancer.metadata.creation_timestamp.as_ref();
    match created {
        Some(created) if generation(rebalancer) <= 1 => created.0,
        _ => whole_second(now),
    }
}

/// A time without its fraction of a second.
pub fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Returns the status after requests with these results (`None`: the workload has no binding);
/// `None` if it is the one that is there.
pub fn status(
    rebalancer: &WorkloadRebalancer,
    results: &[(WorkloadReference, Option<()>)],
    now: Timestamp,
) -> Option<WorkloadRebalancerStatus> {
    let before = rebalancer.status.clone().unwrap_or_default();
    let is_wanted = |workload: &WorkloadReference| rebalancer.spec.workloads.contains(workload);
    let mut observed: Vec<ObservedWorkload> = before
        .observed_workloads
        .iter()
        .filter(|it| is_wanted(&it.workload) || it.result == Some(RebalanceResult::Successful))
        .filter(|it| !results.iter().any(|(workload, _)| *workload == it.workload))
        .cloned()
        .collect();
    observed.extend(results.iter().map(|(workload, outcome)| {
        ObservedWorkload {
            workload: workload.clone(),
            result: Some(match outcome {
                Some(()) => RebalanceResult::Successful,
                None => RebalanceResult::Failed,
            }),
            reason: outcome
                .is_none()
                .then_some(RebalanceFailure::ReferencedBindingNotFound),
        }
    }));
    observed.sort_by(|a, b| a.workload.cmp(&b.workload));
    let has_result = |workload: &WorkloadReference| {
        observed
            .iter()
            .any(|it| it.workload == *workload && it.result.is_some())
    };
    let is_finished = rebalancer.spec.workloads.iter().all(has_result);
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

/// Returns the time at which a finished rebalancer is to be deleted: one that has a result for each
/// workload of its present spec.
pub fn expiry(rebalancer: &WorkloadRebalancer) -> Option<Timestamp> {
    let status = rebalancer.status.as_ref()?;
    if status.observed_generation != generation(rebalancer) {
        return None;
    }
    let is_finished = |workload| result(status, workload).is_some();
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
                .map(|it| it.name)
                .collect::<Vec<_>>()
        };
        let results = json!([observed("ok", "Successful"), observed("none", "Failed")]);
        let status = |generation: i64| json!({ "observedWorkloads": results, "observedGeneration": generation });
        for (what, it, expected) in [
            (
                "new",
                rebalancer(1, &["ok", "ok", "none"], &Value::Null),
                vec!["ok", "none"],
            ),
            ("done", rebalancer(1, &["ok", "none"], &status(1)), vec![]),
            (
                "changed",
                rebalancer(2, &["ok", "none", "more"], &status(1)),
                vec!["none", "more"],
            ),
        ] {
            assert_eq!(names(&it), expected, "{what}");
        }
    }

    #[test]
    fn the_status_says_what_became_of_each_workload_and_when_all_had_a_result() {
        let it = rebalancer(1, &["ok", "none"], &Value::Null);
        let results = [(workload("ok"), Some(())), (workload("none"), None)];
        let half = status(&it, &results[..1], at(0)).unwrap();
        assert_eq!(half.finish_time, None);
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
        assert_eq!(status(&done, &[], at(5)), None, "nothing is written again");
        // A later result, or a later spec, is another end.
        for (generation, results, expected) in [
            (1, &[(workload("none"), Some(()))][..], 5),
            (2, &[], 5),
            (1, &[(workload("none"), None)], 0),
        ] {
            let mut again = rebalancer(generation, &["ok", "none"], &Value::Null);
            again.status.clone_from(&done.status);
            let done_at = Some(Time(at(0)));
            let finish = status(&again, results, at(5)).map_or(done_at, |it| it.finish_time);
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
        let after = status(&fewer, &[(workload("more"), Some(()))], at(9)).unwrap();
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
        let half = status(&edited, &[], at(0)).unwrap();
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
        let created: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(
            trigger(&rebalancer(1, &["a"], &Value::Null), at(7)),
            created
        );
        assert_eq!(trigger(&rebalancer(2, &["a"], &Value::Null), at(7)), at(7));
    }
}
