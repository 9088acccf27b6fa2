//! Requests that are not answered yet. One is taken back once its policy, its window, the clusters
//! or the feature gate `Failover` do not allow the return any more: the rate or a pause may hold
//! the move up for hours.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
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
use crate::scheduler::core::return_request;

/// Time after which such a request is judged again: its window may close.
pub(super) const JUDGED_AGAIN: Duration = Duration::from_secs(10);

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

/// Takes the request back, for a reason: the one before it stands again, which was answered. The
/// workload has not been placed anew since it left.
pub(super) async fn take_back(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &AnyBinding,
    why: &str,
) -> Result<Next, ApiError> {
    let patch = json!({
        "metadata": {
            "resourceVersion": binding.metadata.resource_version,
            "annotations": { FAILBACK_ASKED: null },
        },
        "spec": { "rescheduleTriggeredAt": return_request::before(binding) },
    });
    let written = key.merge(&fleet.client, "take back the return of", &patch);
    let written = written.await?;
    if matches!(written, Written::Done(_)) {
        let note = format!("does not return, although it was asked to: {why}");
        tracing::info!(binding = %key, "{note}");
        let (about, kind) = (binding.reference(), EventType::Normal);
        let events = &fleet.events;
        events.publish_about(about, kind, "Failback", note);
    }
    Ok(written.next())
}
