//! Carries a planned departure out.

use kube::api::Patch;
use muster_shared::client;
use serde_json::json;

use super::plan::Plan;
use crate::binding::kept::{BindingKey, Kept, patch_params};
use crate::fleet::Fleet;

/// Writes a plan upon the binding that it was made for; gives the binding as it is then.
///
/// # Errors
/// Those of the API; a conflict when the binding is not the one any more that the plan was made for.
pub async fn carry_out<B: Kept>(
    fleet: &Fleet,
    key: &BindingKey,
    version: Option<&str>,
    mut plan: Plan,
) -> Result<B, kube::Error> {
    plan.patch["metadata"]["resourceVersion"] = json!(version);
    let api = B::api(&fleet.client, key);
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
