//! The election of the replica that may act.

use muster_shared::lease;
use tokio_util::sync::CancellationToken;

use super::namespaces;
use crate::fleet::{COMPONENT, Fleet};

/// Campaigns where that was asked for, until it is told to retire; a loss is for the caller to end
/// the process.
pub(super) async fn stand(fleet: &Fleet, retire: CancellationToken) -> lease::Outcome {
    namespaces::ensure(fleet).await;
    let settings = &fleet.settings;
    if !settings.leader_elect {
        retire.cancelled().await;
        return lease::Outcome::Stopped;
    }
    let candidate = lease::Candidate {
        namespace: settings.leader_elect_resource_namespace.clone(),
        name: settings.leader_elect_resource_name.clone(),
        identity: lease::identity(COMPONENT, &fleet.gateway),
        timing: lease::Timing {
            lease_duration: *settings.leader_elect_lease_duration,
            renew_deadline: *settings.leader_elect_renew_deadline,
            retry_period: *settings.leader_elect_retry_period,
        },
    };
    let (client, leadership) = (fleet.urgent_client.clone(), fleet.leadership.clone());
    lease::stand(
        client,
        candidate,
        leadership,
        fleet.shutdown.clone(),
        retire,
    )
    .await
}
