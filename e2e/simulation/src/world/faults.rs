//! Faults of the world: what begins and ends beside what happens to requests.

use std::time::Duration;

use http::Request;

use super::World;
use crate::clock;
use crate::faults::{Fault, FaultKind};
use crate::history::{Actor, Api, Process, World as WorldEvent};

impl World {
    pub(super) fn begin(&self, fault: &Fault) {
        self.recorder.world(WorldEvent::FaultBegins {
            id: fault.id,
            kind: fault.kind.name(),
            detail: serde_json::to_value(&fault.kind).unwrap_or_default(),
        });
        if let Some(skew) = fault.kind.skew(clock::now()) {
            clock::set_wrong(fault.id, skew);
        }
        self.set_server(&fault.kind, true);
        self.set_host(&fault.kind, true);
        self.fail_nodes(&fault.kind, true);
        self.network.faults().begin(self.plan.seed, fault);
        self.evict_pods(&fault.kind);
        if let Some(member) = separated(&fault.kind) {
            self.recorder.world(WorldEvent::CutOff(member));
        } else if let FaultKind::Down { member } = &fault.kind {
            self.recorder.world(WorldEvent::Down(member.clone()));
        }
        self.network.changed();
    }

    /// Lets nodes fail, or work again.
    fn fail_nodes(&self, kind: &FaultKind, fails: bool) {
        let FaultKind::Nodes { member, count } = kind else {
            return;
        };
        let Some(machines) = self.machines.get(member) else {
            return;
        };
        for number in 1..=*count {
            let (machines, node) = (machines.clone(), format!("{member}-node-{number}"));
            // A node that the site does not have cannot fail.
            tokio::spawn(async move {
                let _ = if fails {
                    machines.fail(&node).await
                } else {
                    machines.revive(&node).await
                };
            });
        }
    }

    pub(super) fn cease(&self, fault: &Fault) {
        self.network.faults().end(fault.id);
        self.fail_nodes(&fault.kind, false);
        clock::set_right(fault.id);
        self.set_server(&fault.kind, false);
        self.set_host(&fault.kind, false);
        self.recorder.world(WorldEvent::FaultEnds { id: fault.id });
        if let Some(member) = separated(&fault.kind) {
            self.recorder.world(WorldEvent::Healed(member));
        } else if let FaultKind::Down { member } = &fault.kind {
            self.recorder.world(WorldEvent::Up(member.clone()));
        }
        self.network.changed();
    }

    /// Makes the clock of a server wrong, or right again.
    fn set_server(&self, kind: &FaultKind, is_wrong: bool) {
        let FaultKind::ServerClock { api, jump } = kind else {
            return;
        };
        // The hosts of the fleet API have one source of time.
        let standby = (*api == Api::Fleet).then_some(Api::Standby);
        let servers = std::iter::once(api.clone()).chain(standby);
        for server in servers.filter_map(|api| self.network.server(&api)) {
            let by = if is_wrong { jump.unsigned_abs() } else { 0 };
            server.clock().shift(Duration::from_secs(by), *jump < 0);
        }
    }

    /// Evicts pods of a member whose quota is used up.
    fn evict_pods(&self, kind: &FaultKind) {
        let FaultKind::Quota { api, evicted } = kind else {
            return;
        };
        let Ok(client) = self.client(Actor::Workloads, api) else {
            return;
        };
        let pods = self.recorder.objects().into_keys();
        for pod in pods
            .filter(|it| it.api == *api && it.plural == "pods")
            .take(*evicted)
        {
            let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
            let Ok(request) = Request::delete(path).body(Vec::new()) else {
                continue;
            };
            let client = client.clone();
            // A pod that ended meanwhile needs no end.
            tokio::spawn(async move { client.request_text(request).await });
        }
    }
}

/// Returns the member whose agent a fault separates from the fleet API.
fn separated(kind: &FaultKind) -> Option<String> {
    match kind {
        FaultKind::Partition {
            actor: Actor::Process(Process::Agent(name)),
            api: Api::Fleet,
            ..
        } => Some(name.clone()),
        _ => None,
    }
}
