//! Processes of the product: started, killed at any moment, and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};
use futures::future::BoxFuture;
use muster_agent::settings::Settings as AgentSettings;
use muster_control_plane::settings::Settings;
use muster_shared::clock::with_calendar;
use muster_shared::settings::BindAddress;
use muster_test_apiserver::User;
use muster_test_fleet::harness::access::Account;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::hosts::servers;
use crate::clock;
use crate::generate::PEERS;
use crate::history::{Actor, Api, Process, World};
use crate::network::{Line, Network, Users, config};
use crate::people::Site;
use crate::plan::Plan;

/// Pause before a process that ended is started again.
const RESTART: Duration = Duration::from_secs(3);

/// Runs one process until it ends.
type Program = Box<dyn Fn(Line) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>;

/// A process that is started again whenever it ends.
#[derive(Clone)]
pub(super) struct Supervised {
    restart: Arc<Notify>,
    /// Whether its host is not there.
    held: watch::Sender<bool>,
}

impl Supervised {
    /// Kills the process, and starts it again at once.
    pub(super) fn restart(&self) {
        self.restart.notify_one();
    }

    /// Kills the process, and starts it again once it is not held any more.
    pub(super) fn hold(&self, is_held: bool) {
        self.held.send_replace(is_held);
    }
}

/// Starts a replica of the control plane of the host at an address. That of the standby waits.
pub(super) fn control_plane(
    network: &Arc<Network>,
    (host, replica): (Api, u8),
    account: &Account,
    plan: &Plan,
) -> anyhow::Result<Supervised> {
    let settings = Settings {
        metrics_bind_address: BindAddress(None),
        health_probe_bind_address: BindAddress(None),
        fleet_servers: servers(plan),
        ..parsed(&plan.flags)?
    };
    let is_held = host == Api::Standby;
    let users = Users {
        fleet: service_account(account),
        members: User::authenticated(
            "system:serviceaccount:muster-system:muster",
            &["system:masters"],
        ),
        host: format!("control-plane-{replica}"),
    };
    let program = move |line: Line| -> BoxFuture<'static, anyhow::Result<()>> {
        let gateway = line.gateway("fleet", &host);
        let settings = settings.clone();
        Box::pin(muster_control_plane::run_over(
            gateway,
            settings,
            None,
            CancellationToken::new(),
        ))
    };
    Ok(supervise(
        network,
        Process::ControlPlane(replica),
        users,
        Box::new(program),
        is_held,
    ))
}

/// Starts the agent of a member.
pub(super) fn agent(
    network: &Arc<Network>,
    member: &Site,
    (at_fleet, at_member): (&Account, &Account),
    plan: &Plan,
) -> anyhow::Result<Supervised> {
    let command = AgentSettings::augment_args(clap::Command::new("muster-agent"));
    let name = "muster-agent".to_owned();
    let words = std::iter::once(&name).chain(&plan.agent_flags);
    let matches = command.try_get_matches_from(words)?;
    let settings = AgentSettings {
        cluster_name: member.name.clone(),
        cluster_provider: member.provider.clone(),
        cluster_region: member.region.clone(),
        cluster_zones: member.zone.parse()?,
        report_secrets: "None".parse()?,
        fleet_servers: servers(plan),
        cluster_api_endpoint: peer_address(plan, &member.name),
        metrics_bind_address: BindAddress(None),
        health_probe_bind_address: BindAddress(None),
        ..AgentSettings::from_arg_matches(&matches)?
    };
    let users = Users {
        fleet: service_account(at_fleet),
        members: service_account(at_member),
        host: format!("agent-{}", member.name),
    };
    let api = Api::Member(member.name.clone());
    let program = move |line: Line| -> BoxFuture<'static, anyhow::Result<()>> {
        let connections = muster_agent::Connections {
            fleet: line.gateway("fleet", &Api::Fleet),
            member: line.gateway("member", &api),
        };
        let settings = settings.clone();
        Box::pin(muster_agent::run_over(
            connections,
            settings,
            CancellationToken::new(),
        ))
    };
    let process = Process::Agent(member.name.clone());
    Ok(supervise(network, process, users, Box::new(program), false))
}

/// Returns the address at which peers call a member; empty where a plan has none.
fn peer_address(plan: &Plan, member: &str) -> String {
    let has_peers = plan.flags.iter().any(|it| it.starts_with(PEERS));
    let host = config(&Api::Member(member.to_owned())).cluster_url;
    let host = host.host().filter(|_| has_peers);
    host.map_or_else(String::new, |host| format!("https://{host}"))
}

/// Settings of the control plane from its flags.
pub(super) fn parsed(flags: &[String]) -> anyhow::Result<Settings> {
    let command = Settings::augment_args(clap::Command::new("muster-control-plane"));
    let name = "muster-control-plane".to_owned();
    let matches = command.try_get_matches_from(std::iter::once(&name).chain(flags))?;
    Ok(Settings::from_arg_matches(&matches)?)
}

fn service_account(account: &Account) -> User {
    let namespace = format!("system:serviceaccounts:{}", account.namespace);
    User::authenticated(&account.user(), &["system:serviceaccounts", &namespace])
}

fn supervise(
    network: &Arc<Network>,
    process: Process,
    users: Users,
    program: Program,
    is_held: bool,
) -> Supervised {
    let restart = Arc::new(Notify::new());
    let (network, asked) = (Arc::clone(network), Arc::clone(&restart));
    let held = watch::Sender::new(is_held);
    let mut holds = held.subscribe();
    tokio::spawn(async move {
        let starts = AtomicU64::new(0);
        loop {
            // The sender lives as long as the world.
            let _ = holds.wait_for(|it| !it).await;
            let number = starts.fetch_add(1, Ordering::Relaxed);
            let users = Users {
                host: format!("{}-{number}", users.host),
                ..users.clone()
            };
            let line = Line::new(&network, Actor::Process(process.clone()), users);
            let recorder = network.recorder();
            recorder.world(World::Started(process.clone()));
            let calendar = clock::calendar(&process);
            let running = tokio::spawn(with_calendar(calendar, program(line.clone())));
            let abort = running.abort_handle();
            let mut pause = RESTART;
            let killed = tokio::select! {
                biased;
                () = line.crashed() => true,
                _ = holds.wait_for(|it| *it) => true,
                () = asked.notified() => {
                    pause = Duration::ZERO;
                    true
                }
                ended = running => {
                    if let Ok(Err(error)) = &ended {
                        recorder.world(World::Mark(format!("{process} ended: {error:#}")));
                    }
                    false
                }
            };
            // Nothing that is left of it can say anything any more.
            line.sever();
            abort.abort();
            recorder.world(World::Stopped {
                process: process.clone(),
                killed,
            });
            tokio::time::sleep(pause).await;
        }
    });
    Supervised { restart, held }
}
