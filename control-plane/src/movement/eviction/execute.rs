//! Writes a planned eviction.

use kube::api::Patch;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client;
use serde_json::json;

use super::plan::Plan;
use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, patch_params};
use crate::fleet::budget::pace::Paid;

/// Writes a plan upon the binding that it was made for; gives the binding as it is then. The
/// payment is kept, unless it is known that nothing was moved.
///
/// # Errors
/// Those of the API; a conflict when the binding is not the one any more that the plan was made
/// for.
pub async fn carry_out(
    fleet: &Fleet,
    binding: &AnyBinding,
    mut plan: Plan,
    paid: &Paid,
) -> Result<AnyBinding, kube::Error> {
    plan.patch["metadata"]["resourceVersion"] = json!(binding.metadata.resource_version);
    let key = BindingKey::of(binding);
    let api = key.api(&fleet.client);
    let written = api
        .patch(&key.name, &patch_params(), &Patch::Merge(plan.patch))
        .await;
    paid.settle(&written);
    let binding = written?;
    if let Some(name) = plan.affinity_name {
        // Where it is lost, the scheduler comes to the same group by itself.
        let status = json!({"status": {"schedulerObservingAffinityName": name}});
        if let Err(error) = api
            .patch_status(&key.name, &patch_params(), &Patch::Merge(status))
            .await
        {
            tracing::debug!(binding = %key, error = client::brief(&error), "cannot note the affinity group");
        }
    }
    Ok(binding)
}
