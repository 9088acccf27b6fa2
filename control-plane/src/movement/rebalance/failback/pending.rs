//! Requests that are not answered yet. One is taken back once its policy, its window or the
//! clusters do not allow the return any more: the rate or a pause may hold the move up for hours.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::ResourceBindingSpec;
use muster_shared::events::EventType;
use muster_shared::names::annotation::FAILBACK_ASKED;
use muster_shared::queue::Next;
use serde_json::json;

use super::controller::returns;
use super::decide::Rule;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::write::Written;
use crate::movement::rebalance::request::is_answered;

/// Time after which such a request is judged again: its window may close.
pub(super) const JUDGED_AGAIN: Duration = Duration::from_secs(10);

/// Returns whether a workload is asked to return to a cluster that it left, and the scheduler has
/// not answered yet. What a person asked for has another time.
pub(super) fn is_pending(binding: &AnyBinding) -> bool {
    let marked = binding.annotations().get(FAILBACK_ASKED);
    let marked: Option<Timestamp> = marked.and_then(|it| it.parse().ok());
    let asked = binding.spec.reschedule_triggered_at.as_ref().map(|it| it.0);
    marked.is_some() && marked == asked && !is_answered(binding)
}

/// Returns whether a workload that is asked to return still may, to one of the clusters that it
/// left.
pub(super) fn may_still_return(
    fleet: &Fleet,
    spec: &ResourceBindingSpec,
    rule: &Rule,
    homes: &BTreeMap<String, Timestamp>,
) -> bool {
    // The request is not answered, so that the workload has not returned by it.
    let unasked = ResourceBindingSpec {
        reschedule_triggered_at: None,
        ..spec.clone()
    };
    let now = fleet.clock.now();
    !returns(fleet, &unasked, rule, homes, now).due.is_empty()
}

/// Takes the request back. What was asked for and answered before it stays answered.
pub(super) async fn take_back(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &AnyBinding,
) -> Result<Next, ApiError> {
    let patch = json!({
        "metadata": {
            "resourceVersion": binding.metadata.resource_version,
            "annotations": { FAILBACK_ASKED: null },
        },
        "spec": { "rescheduleTriggeredAt": binding.status().last_scheduled_time },
    });
    let written = key.merge(&fleet.client, "take back the return of", &patch);
    let written = written.await?;
    if matches!(written, Written::Done(_)) {
        let note = "does not return, although it was asked to: its policy or the clusters that it \
                    left do not allow it any more";
        tracing::info!(binding = %key, "{note}");
        let (about, kind) = (binding.reference(), EventType::Normal);
        let events = &fleet.events;
        events.publish_about(about, kind, "Failback", note.to_owned());
    }
    Ok(written.next())
}
