//! Hosts of the fleet API: the first one dies and comes back, and the standby is restored from a
//! snapshot and promoted.

use muster_shared::client::Profile;
use muster_shared::fleet_servers::FleetServer;
use muster_shared::settings::FleetServers;

use super::process::Supervised;
use super::{World, administrator};
use crate::faults::FaultKind;
use crate::history::{Actor, Api, Process, World as WorldEvent};
use crate::network::{Line, config};
use crate::plan::Plan;

/// Returns whether the fleet of a plan has a standby.
pub(super) fn has_standby(plan: &Plan) -> bool {
    let mut faults = plan.faults.iter();
    faults.any(|fault| matches!(fault.kind, FaultKind::HostLoss { .. }))
}

/// Returns the addresses of the fleet: none where it has one host.
pub(super) fn servers(plan: &Plan) -> FleetServers {
    let hosts = [(Api::Fleet, "first"), (Api::Standby, "second")];
    let hosts = hosts.iter().filter(|_| has_standby(plan));
    let servers = hosts.map(|(api, store)| FleetServer {
        server: config(api).cluster_url.to_string(),
        store: (*store).to_owned(),
        ..FleetServer::default()
    });
    FleetServers(servers.collect())
}

impl World {
    /// Restores the standby from the first host as it is now.
    pub(super) fn restore(&self) {
        let hosts = [Api::Fleet, Api::Standby].map(|api| self.network.server(&api));
        if let [Some(first), Some(standby)] = hosts
            && let Err(error) = standby.restore(&first.snapshot())
        {
            let words = format!("the standby could not be restored: {error}");
            self.recorder.world(WorldEvent::Mark(words));
        }
    }

    /// Lets the first host die with its control plane, or come back.
    pub(super) fn set_host(&self, kind: &FaultKind, is_lost: bool) {
        let FaultKind::HostLoss { silent, .. } = kind else {
            return;
        };
        if is_lost {
            self.network.lose(Api::Fleet, *silent);
        } else {
            self.network.bring_back(&Api::Fleet);
        }
        self.control_planes(0..self.plan.replicas)
            .for_each(|it| it.hold(is_lost));
    }

    fn control_planes(&self, numbers: std::ops::Range<u8>) -> impl Iterator<Item = &Supervised> {
        numbers.filter_map(|number| self.processes.get(&Process::ControlPlane(number)))
    }

    /// Promotes the standby as a person does, and then starts its control plane.
    pub(super) async fn promote(&self, grace: &str) {
        let operator = Actor::Person("operator".to_owned());
        let line = Line::new(&self.network, operator, administrator("operator"));
        let words = ["kubectl-muster", "promote", "--grace", grace];
        let ordered = async {
            let client = line.client(&Api::Standby, Profile::Write)?;
            muster_kubectl::order(client, &config(&Api::Standby), words).await
        };
        if let Err(error) = ordered.await {
            let words = format!("the promotion failed: {error:#}");
            self.recorder.world(WorldEvent::Mark(words));
            return;
        }
        self.network.changed();
        let replicas = self.plan.replicas;
        self.control_planes(replicas..2 * replicas)
            .for_each(|it| it.hold(false));
    }
}
