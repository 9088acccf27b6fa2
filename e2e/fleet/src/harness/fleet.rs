//! A whole fleet on this machine: a fleet API, members, and the real agents and control plane
//! against them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::future::try_join_all;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use muster_shared::client::{self, Profile};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::dump::dump;
use super::observer::Observer;
use super::process::{Launch, Process, Program};
use super::provider::{Ability, Cluster, Forget, Provider};
use super::route::{Condition, Route};
use super::test_bed::failed;
use super::{access, apply, clean, kubeconfig};
use crate::member::{self, Member};

/// A member to be started.
#[derive(Clone, Debug)]
pub struct MemberPlan {
    /// Its name in the fleet.
    pub name: String,
    /// What its machines are, where the provider has none.
    pub shape: member::Shape,
}

/// How a fleet is started.
pub struct Plan {
    /// The sandbox binary, which becomes the agents and the control plane.
    pub binary: PathBuf,
    /// Where kubeconfigs and logs go.
    pub directory: PathBuf,
    /// The members.
    pub members: Vec<MemberPlan>,
    /// Flags of the control plane beside the kubeconfig.
    pub control_plane: Vec<String>,
    /// Flags of every agent beside kubeconfigs and name.
    pub agent: Vec<String>,
    /// Where APIs come from.
    pub provider: Box<dyn Provider>,
}

/// An API with the clients that no fault touches.
pub struct ApiEndpoint {
    /// For single reads and writes.
    pub client: Client,
    /// For watches.
    pub watch_client: Client,
    /// A file for kubectl.
    pub kubeconfig: PathBuf,
    cluster: Box<dyn Cluster>,
}

/// A member with its agent and the network around it.
pub struct MemberCluster {
    /// The member's API.
    pub api: ApiEndpoint,
    /// Between the agent and the fleet API.
    pub to_fleet: Route,
    /// Between the agent and its member's API.
    pub to_member: Route,
    /// What the harness plays in the member; `None` where pods really run.
    pub simulation: Option<Member>,
    /// Its agent.
    pub agent: Process,
}

/// A running fleet. Dropping it ends everything in it.
pub struct Fleet {
    /// The fleet API.
    pub api: ApiEndpoint,
    /// The members by name.
    pub members: BTreeMap<String, MemberCluster>,
    /// What is seen of it all.
    pub observer: Observer,
    /// Between the control plane and the fleet API.
    pub to_api: Route,
    /// The control plane.
    pub control_plane: Process,
    /// How many times as long as on the embedded API things may take.
    pub patience: u32,
    directory: PathBuf,
    reservation: Option<clean::Reservation>,
    _guard: DropGuard,
}

impl Fleet {
    /// Starts everything: returns when all processes run and everything was seen once (not: when
    /// members are ready).
    pub async fn start(plan: Plan) -> anyhow::Result<Arc<Self>> {
        for part in ["kube", "logs"] {
            let path = plan.directory.join(part);
            std::fs::create_dir_all(&path)
                .with_context(|| format!("cannot make {}", path.display()))?;
        }
        let shutdown = CancellationToken::new();
        let reservation = clean::Reservation::take(&*plan.provider).await?;
        let api = ApiEndpoint::start(&plan, "fleet")
            .await
            .context("starting the fleet API")?;
        install(&api.client).await?;
        if reservation.is_some() {
            clean::fleet(&api.client).await?;
        }
        let account = access::admit_control_plane(&api.client)
            .await
            .context("letting the control plane in")?;
        let members = try_join_all(plan.members.iter().map(|planned| {
            let (plan, api, shutdown) = (&plan, &api, &shutdown);
            async move {
                let member = MemberCluster::start(plan, planned, api, shutdown)
                    .await
                    .with_context(|| format!("starting {}", planned.name))?;
                anyhow::Ok((planned.name.clone(), member))
            }
        }))
        .await?
        .into_iter()
        .collect::<BTreeMap<_, _>>();

        let views = members
            .iter()
            .map(|(name, member)| (name.clone(), member.api.watch_client.clone()));
        let observer = Observer::new(&api.watch_client, views);
        observer.start().await;

        let to_api = Route::open(&api.cluster.administrator()?).await?;
        let identity = to_api.kubeconfig(api.identity(&account).await?);
        let path = plan.directory.join("kube/control-plane.kubeconfig");
        kubeconfig::write(&identity, &path)?;
        let mut arguments = vec![format!("--kubeconfig={}", path.display())];
        arguments.extend(plan.control_plane.iter().cloned());
        let control_plane = Process::start(Launch {
            binary: plan.binary,
            program: Program::ControlPlane,
            arguments,
            log: plan.directory.join("logs/control-plane.log"),
        })?;
        Ok(Arc::new(Self {
            api,
            members,
            observer,
            to_api,
            control_plane,
            patience: plan.provider.patience(),
            directory: plan.directory,
            reservation,
            _guard: shutdown.drop_guard(),
        }))
    }

    /// Starts a fleet, has something observed in it, and ends it. Panics when that failed, with the
    /// failure and a dump of the fleet.
    pub async fn run<E>(plan: Plan, steps: impl AsyncFnOnce(&Arc<Self>) -> Result<(), E>)
    where
        E: Display,
    {
        let started = Self::start(plan).await.context("a fleet on this machine");
        let fleet = started.unwrap_or_else(|error| failed(&format!("{error:#}")));
        let outcome = steps(&fleet).await;
        let dump = match &outcome {
            Ok(()) => String::new(),
            Err(_) => dump(&fleet).await,
        };
        let ended = fleet.end().await;
        if let Err(failure) = outcome {
            let logs = fleet.directory.join("logs");
            failed(&format!(
                "{failure:#}\n{dump}\n{failure:#}\nlogs: {}",
                logs.display()
            ));
        }
        let ended = ended.context("the clusters are as they were before");
        ended.unwrap_or_else(|error| failed(&format!("{error:#}")));
    }

    /// Returns where kubeconfigs and logs are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns a member by name.
    pub fn member(&self, name: &str) -> anyhow::Result<&MemberCluster> {
        self.members.get(name).with_context(|| {
            let known: Vec<&str> = self.members.keys().map(String::as_str).collect();
            format!(
                "there is no member {name:?}; there are {}",
                known.join(", ")
            )
        })
    }

    /// Separates a member from the fleet API. Its workloads go on, and the test still sees them.
    pub fn cut(&self, name: &str) -> anyhow::Result<()> {
        self.member(name)?.to_fleet.set(Condition::Silent);
        Ok(())
    }

    /// Lets a member back.
    pub fn heal(&self, name: &str) -> anyhow::Result<()> {
        let member = self.member(name)?;
        member.to_fleet.heal();
        member.to_member.heal();
        Ok(())
    }

    /// Ends the product's processes, and removes from clusters that stay what would be in the way
    /// of the next fleet.
    pub async fn end(&self) -> anyhow::Result<()> {
        let processes: Vec<&Process> = self.processes().map(|(_, process)| process).collect();
        futures::future::join_all(processes.into_iter().map(Process::kill)).await;
        if self.reservation.is_none() {
            return Ok(());
        }
        for (name, member) in &self.members {
            clean::member(&self.api.client, name, &member.api.client).await?;
        }
        clean::fleet(&self.api.client).await
    }

    /// Returns how processes ended although nobody asked them to.
    pub fn lost_processes(&self) -> Vec<String> {
        let describe = |(name, process): (String, &Process)| {
            let lost = process.lost();
            let how = lost.last()?;
            Some(format!(
                "the {name} ended {} times, the last time with {how}",
                lost.len()
            ))
        };
        self.processes().filter_map(describe).collect()
    }

    /// Returns the resident memory of the product's processes in bytes.
    pub fn memory(&self) -> BTreeMap<String, u64> {
        let measured =
            |(name, process): (String, &Process)| Some((name, process.resident_memory()?));
        self.processes().filter_map(measured).collect()
    }

    fn processes(&self) -> impl Iterator<Item = (String, &Process)> {
        let agents = self
            .members
            .iter()
            .map(|(name, member)| (format!("agent of {name}"), &member.agent));
        std::iter::once(("control plane".to_owned(), &self.control_plane)).chain(agents)
    }

    /// Applies YAML to the fleet API.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        let mut objects = apply::objects(yaml)?;
        if self.reservation.is_some() {
            objects.iter_mut().for_each(clean::mark);
        }
        apply::apply_all(&self.api.client, objects).await
    }

    /// Returns the control plane's log.
    pub fn control_plane_log(&self) -> PathBuf {
        self.directory.join("logs/control-plane.log")
    }

    /// Returns a member's agent's log.
    pub fn agent_log(&self, name: &str) -> PathBuf {
        self.directory.join(format!("logs/agent-{name}.log"))
    }
}

impl ApiEndpoint {
    async fn start(plan: &Plan, name: &str) -> anyhow::Result<Self> {
        let cluster = plan.provider.start(name, &plan.directory).await?;
        let access = cluster.administrator()?;
        let kubeconfig = plan.directory.join(format!("{name}.kubeconfig"));
        kubeconfig::write(&access, &kubeconfig)?;
        let config = config(access).await?;
        Ok(Self {
            client: client::connect(&config, Profile::Write)?,
            watch_client: client::connect(&config, Profile::Watch)?,
            kubeconfig,
            cluster,
        })
    }

    /// Starts the API again, with everything that was connected cut; see [`Cluster::restart`].
    pub async fn restart(&self, forget: Forget, down: Duration) -> anyhow::Result<()> {
        self.cluster.restart(forget, down).await
    }

    /// Returns access as somebody whom the API knows.
    async fn identity(&self, account: &access::Account) -> anyhow::Result<Kubeconfig> {
        access::kubeconfig(&self.client, self.cluster.administrator()?, account).await
    }
}

impl MemberCluster {
    async fn start(
        plan: &Plan,
        member: &MemberPlan,
        fleet: &ApiEndpoint,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let name = &member.name;
        let api = ApiEndpoint::start(plan, name).await?;
        if plan.provider.is_shared() {
            clean::member(&fleet.client, name, &api.client).await?;
        }
        let simulation = if plan.provider.abilities().contains(&Ability::RunPods) {
            None
        } else {
            let clients = (api.client.clone(), api.watch_client.clone());
            Some(Member::start(name, clients, &member.shape, shutdown.child_token()).await?)
        };
        let account = access::admit_member(&fleet.client, name)
            .await
            .context("letting the agent in at the fleet API")?;
        let to_fleet = Route::open(&fleet.cluster.administrator()?).await?;
        let at_fleet = to_fleet.kubeconfig(fleet.identity(&account).await?);
        let account = access::admit_agent(&api.client)
            .await
            .context("letting the agent in at its member")?;
        let to_member = Route::open(&api.cluster.administrator()?).await?;
        let at_member = to_member.kubeconfig(api.identity(&account).await?);
        let file = |side: &str| {
            plan.directory
                .join(format!("kube/agent-{name}-{side}.kubeconfig"))
        };
        kubeconfig::write(&at_fleet, &file("fleet"))?;
        kubeconfig::write(&at_member, &file("member"))?;
        let mut arguments = vec![
            format!("--kubeconfig={}", file("member").display()),
            format!("--karmada-kubeconfig={}", file("fleet").display()),
            format!("--cluster-name={name}"),
            // As the chart has it.
            "--report-secrets=None".to_owned(),
        ];
        arguments.extend(plan.agent.iter().cloned());
        let agent = Process::start(Launch {
            binary: plan.binary.clone(),
            program: Program::Agent,
            arguments,
            log: plan.directory.join(format!("logs/agent-{name}.log")),
        })?;
        Ok(Self {
            api,
            to_fleet,
            to_member,
            simulation,
            agent,
        })
    }
}

/// Brings to the fleet API what an installation brings.
pub async fn install(client: &Client) -> anyhow::Result<()> {
    let crds = Api::all(client.clone());
    for crd in muster_shared::api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        match crds.create(&PostParams::default(), &crd).await {
            Err(error) if !client::is_conflict(&error) => {
                anyhow::bail!("cannot install CRD {name}: {}", client::brief(&error));
            }
            _ => {}
        }
    }
    for crd in muster_shared::api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let established = kube::runtime::wait::await_condition(
            crds.clone(),
            &name,
            kube::runtime::conditions::is_crd_established(),
        );
        tokio::time::timeout(Duration::from_secs(10), established)
            .await
            .with_context(|| format!("CRD {name} was not established within 10 s"))??;
    }
    Ok(())
}

/// Returns a client configuration from a kubeconfig in memory.
pub async fn config(kubeconfig: Kubeconfig) -> anyhow::Result<Config> {
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
