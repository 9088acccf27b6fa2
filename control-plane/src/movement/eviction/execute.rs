//! Writes a planned eviction.

use kube::api::Patch;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client;
use serde_json::json;

use super::plan::Plan;
use crate::fleet::Fleet;
pub use crate::fleet::api_error::may_be_written;
use crate::fleet::binding::{BindingKey, patch_params};

/// Writes a plan upon the binding that it was made for; gives the binding as it is then.
///
/// # Errors
/// Those of the API; a conflict when the binding is not the one any more that the plan was made
/// for.
pub async fn carry_out(
    fleet: &Fleet,
    binding: &AnyBinding,
    mut plan: Plan,
) -> Result<AnyBinding, kube::Error> {
    plan.patch["metadata"]["resourceVersion"] = json!(binding.metadata.resource_version);
    let key = BindingKey::of(binding);
    let api = key.api(&fleet.client);
    let binding = api
        .patch(&key.name, &patch_params(), &Patch::Merge(plan.patch))
        .await?;
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
