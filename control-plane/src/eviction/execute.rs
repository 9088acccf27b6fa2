//! Writes a planned eviction.

use kube::api::Patch;
use muster_shared::client;
use serde_json::json;

use super::plan::Plan;
use crate::fleet::Fleet;
use crate::fleet::binding::{BindingKey, BindingKind, patch_params};

/// Writes a plan upon the binding that it was made for; gives the binding as it is then.
///
/// # Errors
/// Those of the API; a conflict when the binding is not the one any more that the plan was made
/// for.
pub async fn carry_out<B: BindingKind>(
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

/// Whether a planned eviction may be written: while nothing pauses it, and by the leader alone.
pub fn may_carry_out(is_paused: bool, leads: bool) -> bool {
    !is_paused && leads
}

/// Whether a write that failed may have been carried out all the same. Only an answer that refuses
/// it says that it was not: a deadline that passed, an error within the server and a connection
/// that broke leave it open.
pub fn may_be_written(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => !(400..500).contains(&status.code) || status.code == 408,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn only_a_leader_evicts_and_only_while_nothing_is_paused() {
        for (is_paused, leads, expected) in [
            (false, true, true),
            (true, true, false),
            (false, false, false),
            (true, false, false),
        ] {
            let may = may_carry_out(is_paused, leads);
            assert_eq!(may, expected, "{is_paused} {leads}");
        }
    }

    #[test]
    fn only_an_answer_that_refuses_says_that_nothing_was_written() {
        for (code, written) in [
            (400, false),
            (403, false),
            (404, false),
            (408, true),
            (409, false),
            (422, false),
            (429, false),
            (500, true),
            (502, true),
            (503, true),
            (504, true),
        ] {
            let status = Status::failure("", "").with_code(code).boxed();
            assert_eq!(may_be_written(&kube::Error::Api(status)), written, "{code}");
        }
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(may_be_written(&kube::Error::Service(Box::new(broken))));
    }
}
