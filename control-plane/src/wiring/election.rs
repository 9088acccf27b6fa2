//! The election of the replica that may act.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_shared::client::Gateway;
use muster_shared::lease;
use muster_shared::names::annotation::LEADER;
use muster_shared::self_report::LeaderReport;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::namespaces;
use crate::fleet::Fleet;
use crate::settings::COMPONENT;
use crate::settings::Settings;

/// Campaigns where that was asked for, from the moment at which the process is fit to lead until it
/// has to retire; a loss is for the caller to end the process.
pub(super) async fn campaign(
    fleet: &Fleet,
    mut fit: watch::Receiver<bool>,
    retire: CancellationToken,
) -> lease::Outcome {
    namespaces::ensure(fleet).await;
    tokio::select! {
        () = retire.cancelled() => return lease::Outcome::Stopped,
        Ok(_) = fit.wait_for(|it| *it) => {}
        else => return lease::Outcome::Stopped,
    }
    let settings = &fleet.settings;
    if !settings.leader_elect {
        retire.cancelled().await;
        return lease::Outcome::Stopped;
    }
    let identity = lease::identity(COMPONENT, &fleet.gateway);
    let candidate = lease::Candidate {
        namespace: settings.leader_elect_resource_namespace.clone(),
        name: settings.leader_elect_resource_name.clone(),
        annotations: annotations(&identity, settings, &fleet.gateway),
        identity,
        timing: lease::Timing {
            lease_duration: *settings.leader_elect_lease_duration,
            renew_deadline: *settings.leader_elect_renew_deadline,
            retry_period: *settings.leader_elect_retry_period,
        },
    };
    let (client, leadership) = (fleet.urgent_client.clone(), fleet.leadership.clone());
    lease::campaign_until_retired(
        client,
        candidate,
        leadership,
        fleet.shutdown.clone(),
        retire,
    )
    .await
}

/// Returns what the leader says about itself on its lease.
fn annotations(identity: &str, settings: &Settings, gateway: &Arc<Gateway>) -> lease::Annotations {
    let report = LeaderReport {
        identity: identity.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        feature_gates: settings.gates(),
        flags: Some(settings.decisive()),
        credentials: None,
    };
    let gateway = Arc::clone(gateway);
    lease::Annotations::new(move || {
        let report = LeaderReport {
            credentials: gateway.credentials(),
            ..report.clone()
        };
        BTreeMap::from([(LEADER.to_owned(), report.write())])
    })
}
