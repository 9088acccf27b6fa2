//! The world: API servers, members with kubelets, and the processes of the product, on one thread
//! in virtual time.

mod engine;
mod faults;
mod hosts;
mod member;
mod process;
mod rules;
mod steps;

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use kube::Client;
use muster_shared::client::Profile;
use muster_test_apiserver::{ApiServer, Options, Running, User};
use muster_test_fleet::harness::access;
use muster_test_fleet::member::Machines;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::process::Supervised;
use self::rules::rules;
use crate::clock;
use crate::faults::{Fault, FaultKind, Faults};
use crate::history::{Actor, Api, Phase, Process, World as WorldEvent};
use crate::network::{Line, Network, Users};
use crate::oracle::{End, Suite, objects};
use crate::people::Step;
use crate::plan::{Plan, millis};
use crate::recorder::Recorder;

/// Changes that a server remembers for each resource.
const HISTORY: usize = 5_000;

/// A running world. It ends with its runtime.
pub struct World {
    plan: Plan,
    network: Arc<Network>,
    recorder: Arc<Recorder>,
    processes: BTreeMap<Process, Supervised>,
    /// What can be done to the nodes of each member.
    machines: BTreeMap<String, Machines>,
    begun: Instant,
    _guard: DropGuard,
}

impl World {
    /// Sets a world up: its servers, members and processes.
    ///
    /// # Errors
    /// When a server refuses what an installation brings.
    pub async fn set_up(plan: Plan) -> anyhow::Result<Self> {
        clock::begin();
        let recorder = Recorder::new(Suite::new(rules(&plan)?));
        recorder.world(WorldEvent::Phase(Phase::Setup));
        let faults = Arc::new(Faults::default());
        let network = Network::new(plan.seed, Arc::clone(&recorder), faults);
        let shutdown = CancellationToken::new();

        let everywhere = &plan.everywhere;
        let fleet = start_server("fleet", true, everywhere).await?;
        network.serve(&Api::Fleet, fleet);
        let setup = Line::new(&network, Actor::Setup, administrator("setup"));
        let client = setup.client(&Api::Fleet, Profile::Write)?;
        let account = access::admit_control_plane(&client).await?;
        let (mut processes, mut machines) = (BTreeMap::new(), BTreeMap::new());
        for site in &plan.sites {
            let started = member::start(&network, &setup, site, &plan, &shutdown)
                .await
                .with_context(|| format!("setting up {}", site.name))?;
            machines.insert(site.name.clone(), started.machines);
            if let Some(agent) = started.agent {
                processes.insert(Process::Agent(site.name.clone()), agent);
            }
        }
        let replicas = (0..plan.replicas).map(|number| (Api::Fleet, number));
        let mut replicas: Vec<(Api, u8)> = replicas.collect();
        if hosts::has_standby(&plan) {
            let server = start_server("standby", true, everywhere).await?;
            network.serve(&Api::Standby, server);
            let standby = plan.replicas..2 * plan.replicas;
            replicas.extend(standby.map(|number| (Api::Standby, number)));
        }
        for replica in replicas {
            let process = Process::ControlPlane(replica.1);
            let control_plane = process::control_plane(&network, replica, &account, &plan)?;
            processes.insert(process, control_plane);
        }
        for site in &plan.sites {
            member::joined(&recorder, &client, site).await?;
        }
        for object in &plan.objects {
            steps::apply(&client, object).await?;
        }
        Ok(Self {
            plan,
            network,
            recorder,
            processes,
            machines,
            begun: Instant::now(),
            _guard: shutdown.drop_guard(),
        })
    }

    /// Returns the recorder of the history.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Returns the network.
    pub fn network(&self) -> &Arc<Network> {
        &self.network
    }

    /// Returns a client of somebody with all rights.
    ///
    /// # Errors
    /// Never, as no connection is prepared.
    pub fn client(&self, actor: Actor, api: &Api) -> anyhow::Result<Client> {
        let user = administrator(&actor.to_string());
        Ok(Line::new(&self.network, actor, user).client(api, Profile::Write)?)
    }

    /// Runs all phases of the plan, and returns the end.
    pub async fn run(&mut self) -> End {
        let phases = self.plan.phases;
        self.begun = Instant::now();
        self.recorder.world(WorldEvent::Phase(Phase::Busy));
        self.busy().await;
        let mut until = phases.busy;
        self.recorder.world(WorldEvent::Phase(Phase::Calm));
        until += phases.calm;
        self.wait(until).await;
        self.recorder.world(WorldEvent::Phase(Phase::Rest));
        until += phases.rest;
        self.wait(until).await;
        if phases.fresh > 0 {
            self.recorder.world(WorldEvent::Phase(Phase::Fresh));
            for (_, process) in self.processes.iter().filter(|(it, _)| self.is_wanted(it)) {
                process.restart();
            }
            until += phases.fresh;
            self.wait(until).await;
        }
        self.end()
    }

    /// Returns whether a process has a part in the fleet. The agent of a cluster that was taken out
    /// has none until a person starts it again, and then the fleet is another one.
    fn is_wanted(&self, process: &Process) -> bool {
        let Process::Agent(cluster) = process else {
            return true;
        };
        let key = objects::key(&Api::Fleet, "cluster.karmada.io", "clusters", "", cluster);
        self.recorder.object(&key).is_some()
    }

    async fn wait(&self, until: u64) {
        sleep_until(self.begun + millis(until)).await;
    }

    /// Lets people act and faults happen, in the order of their times.
    async fn busy(&self) {
        let mut agenda: Vec<(u64, u64, Item<'_>)> = Vec::new();
        let busy = self.plan.phases.busy;
        // What would begin when all faults are over, or end before it begins, never happens.
        let faults = self.plan.faults.iter();
        for fault in faults.filter(|fault| fault.from < fault.until.min(busy)) {
            agenda.push((fault.from, fault.id, Item::Begins(fault)));
            agenda.push((fault.until.min(busy), fault.id, Item::Ends(fault)));
            if let FaultKind::HostLoss {
                snapshot,
                promotion,
                grace,
                ..
            } = &fault.kind
            {
                let promoted = fault.from.saturating_add(*promotion).min(busy);
                agenda.push((
                    fault.from.saturating_sub(*snapshot),
                    fault.id,
                    Item::Snapshot,
                ));
                agenda.push((promoted, fault.id, Item::Promotion(grace)));
            }
        }
        for step in &self.plan.steps {
            agenda.push((step.at.min(busy), step.id, Item::Step(step)));
        }
        agenda.sort_by_key(|(at, id, item)| (*at, item.order(), *id));
        for (at, _, item) in agenda {
            self.wait(at).await;
            match item {
                Item::Begins(fault) => self.begin(fault),
                Item::Ends(fault) => self.cease(fault),
                Item::Step(step) => steps::act(self, step),
                Item::Snapshot => self.restore(),
                Item::Promotion(grace) => self.promote(grace).await,
            }
        }
        self.wait(busy).await;
    }

    fn end(&self) -> End {
        End {
            at: clock::now(),
            objects: self.recorder.objects(),
            reachable: self.plan.sites.iter().map(|it| it.name.clone()).collect(),
        }
    }
}

enum Item<'a> {
    /// The standby gets a store.
    Snapshot,
    Ends(&'a Fault),
    Begins(&'a Fault),
    Step(&'a Step),
    /// The standby is promoted, and movement paused for so long.
    Promotion(&'a str),
}

impl Item<'_> {
    const fn order(&self) -> u8 {
        match self {
            Self::Snapshot | Self::Ends(_) => 0,
            Self::Begins(_) => 1,
            Self::Step(_) => 2,
            Self::Promotion(_) => 3,
        }
    }
}

/// Starts a server in memory; a fleet API knows the project's kinds.
async fn start_server(
    name: &str,
    is_fleet: bool,
    everywhere: &[Value],
) -> anyhow::Result<Arc<Running>> {
    let crds = muster_shared::api::crds();
    let crds = crds.iter().filter(|_| is_fleet).map(serde_json::to_value);
    let crds = crds.chain(everywhere.iter().cloned().map(Ok));
    let options = Options {
        name: name.to_owned(),
        history: HISTORY,
        crds: crds.collect::<Result<_, _>>()?,
        calendar: clock::now,
        ..Options::default()
    };
    Ok(Arc::new(ApiServer::start_in_memory(options).await?))
}

/// Returns a user with all rights.
fn administrator(name: &str) -> Users {
    let user = User::authenticated(name, &["system:masters"]);
    Users {
        fleet: user.clone(),
        members: user,
        host: name.to_owned(),
    }
}
