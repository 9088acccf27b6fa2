//! Requests new placements of bindings. Whatever a request moves is paid for by the scheduler, in
//! the moment in which it moves.

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, ResourceBindingStatus, TargetCluster};
use muster_shared::conditions;
use muster_shared::k8s::{Condition, Time};
use muster_shared::names::annotation::FAILBACK_ASKED;
use muster_shared::names::condition::SCHEDULED;
use muster_shared::watch::{Doubt, Presence};
use serde_json::json;
use tokio::time::Instant;

use super::decide;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::Pace;
use crate::fleet::write::{Written, merge};
use crate::scheduler::controller::{waits_for_others, waits_to_move};
use crate::scheduler::core::cycle::is_reschedule_requested;
use crate::scheduler::core::return_request::is_pending;
use crate::scheduler::core::{Decision, FitError, Options, Snapshot, schedule};

/// State of the request for one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requested {
    /// The binding asks for it since this time, and the scheduler has not answered yet.
    Asked(Timestamp),
    /// The scheduler has placed it anew, has left it where it is, or has said why it cannot be
    /// placed.
    Answered,
    /// The workload has no binding.
    NoBinding,
    /// Nothing is asked, or comes of it, before the binding or a pause changes, for this reason.
    Held(&'static str),
    /// The binding cannot be written now.
    Later,
    /// The rate permits it at this instant; `None`: not while so many clusters have failed.
    AtRate(Option<Instant>),
}

const SUSPENDED: &str = "scheduling is suspended";

/// A request that was made: the time that was written, and that at which it was.
pub(super) type Made = (Timestamp, Timestamp);

/// Asks for a new placement of a binding, unless that is `asked` for already. `since` is that of
/// [`decide::trigger`].
pub(super) async fn request(
    fleet: &Fleet,
    pace: &Pace,
    key: &BindingKey,
    asked: Option<Made>,
    (since, now): (Timestamp, Timestamp),
) -> Result<Requested, ApiError> {
    let binding = match fleet.bindings.presence(key) {
        Presence::There(binding) => binding,
        Presence::Gone | Presence::Unknown(Doubt::Unseen) => return Ok(Requested::NoBinding),
        Presence::Unknown(_) => return Ok(Requested::Later),
    };
    let (spec, status) = (&binding.spec, binding.status());
    let shown = spec.reschedule_triggered_at.as_ref().map(|it| it.0);
    if let Some((asked, at)) = asked {
        // A binding that was made after the request was asked for nothing.
        let created = binding.metadata.creation_timestamp.as_ref();
        let is_newer = created.is_some_and(|it| decide::is_since(it.0, at));
        let is_seen = is_newer || shown.is_some_and(|shown| shown >= asked);
        return Ok(match () {
            () if is_seen && is_answered(&binding) => Requested::Answered,
            // The workload may wait for long, so it keeps no others from being asked for.
            () if spec.scheduling_suspended() => Requested::Held(SUSPENDED),
            () if waits_for_others(status) => {
                Requested::Held("the move waits, as the condition Scheduled of the binding says")
            }
            () => Requested::Asked(asked),
        });
    }
    let is_paused = |it: &TargetCluster| fleet.pauses.of(&it.name, now).is_some();
    if spec.scheduling_suspended() {
        return Ok(Requested::Held(SUSPENDED));
    }
    if spec.clusters.iter().any(is_paused) {
        let why = "movement out of a cluster in which it is placed is paused";
        return Ok(Requested::Held(why));
    }
    let scheduled = status.last_scheduled_time.as_ref().map(|it| it.0);
    let Some(time) = decide::request(since, shown, scheduled, now) else {
        if is_answered(&binding) {
            return Ok(Requested::Answered);
        }
        let asked = Requested::Asked(shown.unwrap_or(since));
        return if is_pending(&binding) {
            take_over(fleet, key, &binding, asked).await
        } else {
            Ok(asked)
        };
    };
    // Another scheduler knows of no budget.
    let paid = if fleet.settings.schedules(spec.scheduler_name.as_deref()) {
        None
    } else {
        match pace.pay_after_evictions(Instant::now()) {
            Ok(paid) => Some(paid),
            Err(when) => return Ok(Requested::AtRate(when)),
        }
    };
    let asked = ask(fleet, key, binding.as_ref(), time, None).await;
    if let Some(paid) = paid {
        paid.settle(&asked);
    }
    let written = Written::of(asked);
    Ok(
        match written.map_err(ApiError::of("ask for a new placement of", key))? {
            Written::Done(()) => Requested::Asked(time),
            Written::Overtaken => Requested::Later,
            Written::Gone => Requested::NoBinding,
        },
    )
}

/// Makes a request of the failback one of a person's, which is not taken back with the return.
async fn take_over(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &AnyBinding,
    asked: Requested,
) -> Result<Requested, ApiError> {
    let patch = json!({ "metadata": {
        "resourceVersion": binding.metadata.resource_version,
        "annotations": { FAILBACK_ASKED: null },
    } });
    let written = key.merge(&fleet.client, "take over the request of", &patch);
    Ok(match written.await? {
        Written::Done(_) => asked,
        Written::Overtaken => Requested::Later,
        Written::Gone => Requested::NoBinding,
    })
}

/// Returns whether the scheduler has answered the last request. A refusal that says nothing of the
/// generation it is about, as other schedulers write it, counts as one.
pub(super) fn is_answered(binding: &AnyBinding) -> bool {
    let status = binding.status();
    let is_new = |reported: &Condition| {
        let about = reported.observed_generation;
        about.is_none() || about >= binding.metadata.generation
    };
    let reported = conditions::get(&status.conditions, SCHEDULED);
    let reported = reported.filter(|it| it.status == conditions::FALSE && is_new(it));
    let is_refused = reported.is_some() && !waits_to_move(status);
    !is_reschedule_requested(&binding.spec, status) || is_refused
}

/// Writes a request, and its time with that of the request before it into an annotation `mark` of
/// the binding if there is one.
pub(super) async fn ask(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &AnyBinding,
    time: Timestamp,
    mark: Option<&str>,
) -> Result<(), kube::Error> {
    let mut patch = json!({
        "metadata": { "resourceVersion": binding.metadata.resource_version },
        "spec": { "rescheduleTriggeredAt": Time(time) },
    });
    if let Some(mark) = mark {
        let before = binding.spec.reschedule_triggered_at.as_ref();
        let before = before.map_or_else(String::new, |it| format!(" {}", it.0));
        patch["metadata"]["annotations"] = json!({ mark: format!("{time}{before}") });
    }
    merge(&key.api(&fleet.client), &key.name, &patch).await?;
    tracing::info!(binding = %key, "asked for a new placement");
    Ok(())
}

/// Returns where a new placement would put a workload that has one; `None` if it would stay.
///
/// # Errors
/// No allowed set of clusters takes the whole workload.
pub fn moved(
    spec: &ResourceBindingSpec,
    status: &ResourceBindingStatus,
    snapshot: &Snapshot,
    options: &Options,
) -> Result<Option<Decision>, FitError> {
    if spec.clusters.is_empty() || spec.placement.is_none() {
        return Ok(None);
    }
    let (mut asked, mut status) = (spec.clone(), status.clone());
    // The scheduler compares the two.
    asked.reschedule_triggered_at = Some(Time(Timestamp::MAX));
    status.last_scheduled_time = Some(Time(Timestamp::UNIX_EPOCH));
    let decision = schedule(&asked, &status, snapshot, options)?;
    let has = |some: &[TargetCluster], others: &[TargetCluster]| {
        some.iter().all(|it| others.contains(it))
    };
    let (before, after) = (&spec.clusters, &decision.clusters);
    let is_same = has(before, after) && has(after, before);
    Ok((!is_same).then_some(decision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::tests::fixtures::{cluster, deployment, placed, snapshot};

    #[test]
    fn only_what_would_get_other_targets_or_other_replicas_moves() {
        let among = json!({ "clusterAffinity": { "clusterNames": ["m1", "m2"] } });
        let unplaced = json!(null);
        for (what, placement, targets, expected) in [
            (
                "where it would go",
                &among,
                &[("m1", 2), ("m2", 2)][..],
                false,
            ),
            ("in another order", &among, &[("m2", 2), ("m1", 2)], false),
            ("one too few", &among, &[("m1", 2)], true),
            (
                "one too many",
                &among,
                &[("m1", 2), ("m2", 2), ("m3", 2)],
                true,
            ),
            ("other replicas", &among, &[("m1", 1), ("m2", 2)], true),
            ("nowhere", &among, &[], false),
            ("without a placement", &unplaced, &[("m1", 1)], false),
        ] {
            let spec = placed(deployment(2, placement), targets);
            let clusters = ["m1", "m2", "m3"].map(|name| cluster(name, 10));
            let status = ResourceBindingStatus::default();
            let decision = moved(&spec, &status, &snapshot(&clusters), &Options::default());
            assert_eq!(decision.unwrap().is_some(), expected, "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_asked_for_and_is_suspended_since_keeps_no_others_from_being_asked_for() {
        use crate::fleet::testing::{Bench, binding, cluster, key};

        let mut suspended = binding();
        suspended["spec"]["rescheduleTriggeredAt"] = json!("2025-01-01T00:00:00Z");
        suspended["spec"]["suspension"] = json!({ "scheduling": true });
        suspended["status"] = json!({ "lastScheduledTime": "2024-01-01T00:00:00Z" });
        let objects = [("clusters", cluster("m1")), ("resourcebindings", suspended)];
        let bench = Bench::followed(objects).await;
        let (fleet, now) = (&bench.fleet, bench.fleet.clock.now());
        let pace = Pace::of(&fleet.settings);
        let asked = Some((Timestamp::MIN, Timestamp::MIN));
        let state = request(fleet, &pace, &key("web-deployment"), asked, (now, now)).await;
        assert_eq!(state.unwrap(), Requested::Held(SUSPENDED));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_of_the_failback_that_a_person_makes_too_is_not_taken_back_any_more() {
        use crate::fleet::testing::{Bench, binding, cluster, key};

        let asked = "2025-01-01T00:00:00Z";
        let mut away = binding();
        away["metadata"]["annotations"] = json!({ FAILBACK_ASKED: asked });
        away["spec"]["rescheduleTriggeredAt"] = json!(asked);
        away["status"] = json!({ "lastScheduledTime": "2024-01-01T00:00:00Z" });
        let objects = [("clusters", cluster("m1")), ("resourcebindings", away)];
        let bench = Bench::followed(objects).await;
        let (fleet, now) = (&bench.fleet, bench.fleet.clock.now());
        let pace = Pace::of(&fleet.settings);
        let state = request(fleet, &pace, &key("web-deployment"), None, (now, now)).await;
        assert_eq!(state.unwrap(), Requested::Asked(asked.parse().unwrap()));
        let away = bench.api.binding("web-deployment");
        assert_eq!(away["spec"]["rescheduleTriggeredAt"], asked);
        assert!(away["metadata"]["annotations"][FAILBACK_ASKED].is_null());
    }
}
