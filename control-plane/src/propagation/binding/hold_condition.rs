//! Reports why new Works are held back.

use kube::Client;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client::brief;
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::k8s::Condition;

use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::write::merge_status;

/// Writes what holds the new copies back, or that nothing does any more; `false` where that failed,
/// so that another reconciliation is needed.
pub async fn report_hold(
    fleet: &Fleet,
    client: &Client,
    key: &BindingKey,
    binding: &AnyBinding,
    condition: Option<Condition>,
) -> bool {
    let before = &binding.status().conditions;
    let Some(condition) = condition else {
        return true;
    };
    let Some(list) = conditions::merge(before, [condition.clone()]) else {
        return true;
    };
    let patch = conditions::patch(&binding.metadata, &list);
    match merge_status(&key.api(client), &key.name, &patch).await {
        Ok(_) => {
            let Condition {
                reason,
                message,
                status,
                ..
            } = condition;
            tracing::info!(binding = %key, reason, "{message}");
            let kind = if status == conditions::TRUE {
                EventType::Warning
            } else {
                EventType::Normal
            };
            fleet
                .events
                .publish_about(binding.reference(), kind, &reason, message);
            true
        }
        Err(error) => {
            let error = brief(&error);
            tracing::debug!(binding = %key, error, "cannot report what holds the new copies back");
            false
        }
    }
}
