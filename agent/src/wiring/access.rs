//! Starts the tasks for access: credentials of the member, and the agent's certificate.

use std::sync::Arc;

use muster_shared::api::cluster::Cluster;
use muster_shared::client::{Gateway, Limits, Profile};
use muster_shared::events::Events;
use muster_shared::serve::Health;
use muster_shared::tasks::Tasks;
use muster_shared::watch::Informer;

use super::Agent;
use crate::COMPONENT;
use crate::accounts::Report;
use crate::certificate::{Bootstrap, PART, Place, Rotation};
use crate::credentials;
use crate::fleet_id;
use crate::join::Standing;
use crate::settings::{CERT_ROTATION, Settings};

impl Agent {
    /// Starts the tasks for credentials, rotation and bootstrap that the settings ask for.
    pub(super) fn start_credentials(
        &mut self,
        clusters: &Informer<Cluster>,
        events: &Events,
        fleet_id: &fleet_id::Known,
    ) -> anyhow::Result<()> {
        let reports = self.settings.reports()?;
        if !reports.is_empty() {
            let reporter = credentials::Reporter {
                cluster: self.settings.cluster_name.clone(),
                namespace: self.settings.cluster_namespace.clone(),
                reports: reports.clone(),
                leadership: self.leadership.clone(),
                clusters: clusters.clone(),
                fleet: self.fleet_client(Profile::Write)?,
                member: self.member_client(Profile::Write)?,
                watching: self.member.client(Profile::Watch, Limits::NONE)?,
                events: events.clone(),
                fleet_id: fleet_id.clone(),
            };
            let reporting = reporter.run(self.shutdown.clone());
            self.spawn_as(Standing::Member, "credentials", reporting);
        }
        let is_unasked = |report: &Report| !reports.contains(report);
        let unasked: Vec<Report> = Report::ALL.into_iter().filter(is_unasked).collect();
        if !unasked.is_empty() {
            let withdrawal = credentials::Withdrawal {
                cluster: self.settings.cluster_name.clone(),
                namespace: self.settings.cluster_namespace.clone(),
                reports: unasked,
                leadership: self.leadership.clone(),
                clusters: clusters.clone(),
                fleet: self.fleet_client(Profile::Write)?,
                member: self.member_client(Profile::Write)?,
                events: events.clone(),
                fleet_id: fleet_id.clone(),
            };
            let withdrawing = withdrawal.run(self.shutdown.clone());
            self.spawn_as(Standing::Member, "withdrawal of credentials", withdrawing);
        }
        if self.runs(CERT_ROTATION) {
            let settings = &self.settings;
            let rotation = Rotation {
                cluster: settings.cluster_name.clone(),
                place: place(settings),
                context: settings.karmada_context.clone(),
                interval: *settings.cert_rotation_checking_interval,
                threshold: settings.cert_rotation_remaining_time_threshold,
                leadership: self.leadership.clone(),
                clusters: clusters.clone(),
                gateway: Arc::clone(&self.fleet),
                fleet: self.fleet_client(Profile::Write)?,
                member: self.member_client(Profile::Write)?,
                bootstrap: self.bootstrap.clone(),
                events: events.clone(),
            };
            let rotating = rotation.run(self.shutdown.clone());
            // Starts before the registration: the fleet API rejects an expired certificate, and the
            // Secret may have a valid one.
            self.spawn_as(Standing::Unregistered, "certificate rotation", rotating);
        }
        if let Some(bootstrap) = self.bootstrap.clone() {
            let keeping = bootstrap.keep(Arc::clone(&self.fleet), self.shutdown.clone());
            self.tasks.spawn("bootstrap", keeping);
        }
        Ok(())
    }
}

/// Makes the task that obtains credentials for the fleet API, if the settings name a bootstrap
/// kubeconfig.
pub(super) fn bootstrap(
    settings: &Settings,
    member: &Arc<Gateway>,
    health: &Health,
    tasks: &mut Tasks,
) -> anyhow::Result<Option<Arc<Bootstrap>>> {
    let Some(file) = settings.bootstrap_kubeconfig.clone() else {
        return Ok(None);
    };
    health.expect(PART);
    let client = member.client(Profile::Write, Limits::NONE)?;
    let (events, delivery) = Events::new(client.clone(), COMPONENT, tasks.shutdown().clone());
    tasks.spawn("events in the member", delivery);
    Ok(Some(Arc::new(Bootstrap {
        cluster: settings.cluster_name.clone(),
        file,
        mounted: settings.karmada_kubeconfig.clone(),
        place: place(settings),
        member: client,
        events,
        health: health.clone(),
    })))
}

/// Returns the Secret for the agent's kubeconfig.
fn place(settings: &Settings) -> Place {
    Place {
        namespace: settings.karmada_kubeconfig_namespace.clone(),
        name: settings.karmada_kubeconfig_secret.clone(),
        key: settings.karmada_kubeconfig_secret_key.clone(),
    }
}
