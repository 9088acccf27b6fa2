//! Which parts there are and what each of them is given.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use metrics_exporter_prometheus::PrometheusHandle;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;

use muster_shared::capacity::default_models;
use muster_shared::client::{Gateway, Limits, Profile, Source};
use muster_shared::events::Events;
use muster_shared::k8s::{Api, Client, OwnerReference, Resource};
use muster_shared::lease::{self, Leadership};
use muster_shared::names;
use muster_shared::queue::{Queue, jittered};
use muster_shared::serve::{self, Health};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Informer, Selection};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::apply::Applier;
use crate::apply::member::Member;
use crate::census::Census;
use crate::discovery::Discovery;
use crate::health::debounce::Thresholds;
use crate::heartbeat::Heartbeat;
use crate::reflect::{self, Reflections, Watches};
use crate::report::Reporter;
use crate::report::collector::{self, Collected};
use crate::settings::Settings;
use crate::{COMPONENT, health, join};

/// How long tasks may take to finish after a shutdown was asked for; below Kubernetes' default grace of 30 s.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);
/// Works whose status is written at the same time.
const REPORTERS: usize = 8;

/// An agent that is configured and not running yet.
pub struct Agent {
    settings: Settings,
    fleet: Arc<Gateway>,
    member: Arc<Gateway>,
    leadership: Leadership,
    health: Health,
    tasks: Tasks,
    shutdown: CancellationToken,
}

impl Agent {
    /// Reads both kubeconfigs and opens the admin servers.
    pub async fn open(
        settings: Settings,
        metrics: Option<PrometheusHandle>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<Self> {
        let fleet = Source {
            kubeconfig: settings.karmada_kubeconfig.clone(),
            context: settings.karmada_context.clone(),
        };
        let member = Source {
            kubeconfig: settings.kubeconfig.clone(),
            context: settings.cluster_context.clone(),
        };
        let leadership = if settings.leader_elect {
            Leadership::elected()
        } else {
            Leadership::always()
        };
        let health = Health::default();
        for part in ["registration", "works"] {
            health.expect(part);
        }
        let mut tasks = Tasks::new(shutdown.clone());
        let addresses = [
            ("metrics server", settings.metrics_bind_address.0),
            ("health server", settings.health_probe_bind_address.0),
        ];
        for (name, address) in addresses {
            let Some(address) = address else { continue };
            let listener = tokio::net::TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot serve on {address}"))?;
            let admin = serve::admin(listener, health.clone(), metrics.clone(), shutdown.clone());
            tasks.spawn(name, admin);
        }
        Ok(Self {
            fleet: Gateway::open("fleet", fleet).await?,
            member: Gateway::open("member", member).await?,
            settings,
            leadership,
            health,
            tasks,
            shutdown,
        })
    }

    /// Stands for election, joins, and does its work until shutdown.
    pub async fn run(mut self) -> anyhow::Result<()> {
        for gateway in [&self.fleet, &self.member] {
            self.tasks.spawn(
                "credentials",
                Arc::clone(gateway).follow(self.shutdown.clone()),
            );
        }
        let election = tokio::spawn(self.campaign()?);
        let joined = tokio::select! {
            () = self.shutdown.cancelled() => Ok(false),
            joined = self.join() => joined.map(|()| true),
        };
        let started = joined.and_then(|joined| if joined { self.start() } else { Ok(()) });
        if started.is_err() {
            self.shutdown.cancel();
        }
        let ended = self.tasks.supervise(SHUTDOWN_GRACE).await;
        // Gives the lease up, so that a successor need not wait.
        election.await.context("the election ended badly")?;
        started?;
        Ok(ended?)
    }

    /// Campaigns where that was asked for, again after every loss.
    fn campaign(&self) -> anyhow::Result<impl Future<Output = ()> + use<>> {
        let settings = &self.settings;
        let candidate = lease::Candidate {
            namespace: settings.leader_elect_resource_namespace.clone(),
            name: format!("karmada-agent-{}", settings.cluster_name),
            identity: identity(),
            timing: lease::Timing {
                lease_duration: *settings.leader_elect_lease_duration,
                renew_deadline: *settings.leader_elect_renew_deadline,
                retry_period: *settings.leader_elect_retry_period,
            },
        };
        let client = self.fleet.client(Profile::Probe, Limits::NONE)?;
        let (leadership, shutdown) = (self.leadership.clone(), self.shutdown.clone());
        let elect = settings.leader_elect;
        Ok(async move {
            if !elect {
                return;
            }
            // A member cut off from the fleet loses the election by silence. Its agent stays: nobody else can act for the member,
            // and everything it does asks for leadership at each act.
            loop {
                let campaign = lease::campaign(
                    client.clone(),
                    candidate.clone(),
                    leadership.clone(),
                    shutdown.clone(),
                );
                if campaign.await == lease::Outcome::Stopped {
                    return;
                }
            }
        })
    }

    /// Registers the member, trying until it works or is refused for good.
    async fn join(&self) -> anyhow::Result<()> {
        self.leadership.acquired().await;
        let fleet = self.fleet.client(Profile::Write, Limits::NONE)?;
        let member = self.member.client(Profile::Write, Limits::NONE)?;
        let config = self.member.config();
        let endpoint = config.cluster_url.to_string();
        let models = if self.settings.models_enabled() {
            default_models()
        } else {
            Vec::new()
        };
        let (mut pause, longest) = join::RETRY;
        loop {
            let attempt = async {
                let id = join::identity(&member).await?;
                let endpoint = endpoint.trim_end_matches('/');
                let insecure = config.accept_invalid_certs;
                join::join(
                    &fleet,
                    &self.settings,
                    &id,
                    endpoint,
                    insecure,
                    models.clone(),
                )
                .await
            };
            match attempt.await {
                Ok(()) => break,
                Err(error) if error.is_final() => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, retry_in = ?pause, "could not join yet");
                    self.health.ready("registration", Err(error.to_string()));
                }
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(longest);
        }
        self.health.ready("registration", Ok(()));
        Ok(())
    }

    /// Starts everything that runs while the member belongs to the fleet.
    fn start(&mut self) -> anyhow::Result<()> {
        let clusters = self.follow_cluster()?;
        self.start_heartbeat(&clusters)?;
        let discovery = Discovery::new(self.member_client(Profile::Write)?);
        if self.runs("clusterStatus") {
            self.start_report(clusters.clone(), &discovery)?;
        }
        if self.runs("execution") || self.runs("workStatus") {
            self.start_works(clusters, discovery)?;
        }
        Ok(())
    }

    /// Our own Cluster, as the fleet has it.
    fn follow_cluster(&mut self) -> anyhow::Result<Informer<Cluster>> {
        let client = self.fleet.client(Profile::Watch, Limits::NONE)?;
        let ours = format!("metadata.name={}", self.settings.cluster_name);
        let clusters = Informer::new(Api::all(client), Selection::everything().fields(ours));
        self.tasks.spawn(
            "cluster informer",
            clusters.clone().run(self.shutdown.clone()),
        );
        Ok(clusters)
    }

    fn start_heartbeat(&mut self, clusters: &Informer<Cluster>) -> anyhow::Result<()> {
        let settings = &self.settings;
        let duration = *settings.cluster_lease_duration;
        let heartbeat = Heartbeat {
            cluster: settings.cluster_name.clone(),
            duration,
            interval: duration.mul_f64(settings.cluster_lease_renew_interval_fraction),
        };
        let client = self.fleet.client(Profile::Probe, Limits::NONE)?;
        let (clusters, name) = (clusters.clone(), settings.cluster_name.clone());
        let owner = move || owner_of(&clusters, &name);
        self.tasks.spawn(
            "heartbeat",
            heartbeat.run(client, owner, self.shutdown.clone()),
        );
        Ok(())
    }

    fn start_report(
        &mut self,
        clusters: Informer<Cluster>,
        discovery: &Discovery,
    ) -> anyhow::Result<()> {
        let period = *self.settings.cluster_status_update_frequency;
        let (publish_health, health) = watch::channel(None);
        let probe = self.member.client(Profile::Probe, Limits::NONE)?;
        let probing = health::watch(probe, period, publish_health, self.shutdown.clone());
        self.tasks.spawn("probe", probing);

        let (publish, collected) = watch::channel(Collected::nothing(jiff::Timestamp::now()));
        let asking = self.member_client(Profile::Write)?;
        let collecting = collector::collect(
            asking,
            discovery.clone(),
            period,
            publish,
            self.shutdown.clone(),
        );
        self.tasks.spawn("collector", collecting);

        let census = if self.settings.enable_cluster_resource_modeling {
            let census = Census::begin();
            let client = self.member.client(Profile::Watch, Limits::NONE)?;
            self.tasks
                .spawn("census", census.clone().run(client, self.shutdown.clone()));
            Some(census)
        } else {
            None
        };
        let reporter = Reporter {
            cluster: self.settings.cluster_name.clone(),
            clusters,
            api: Api::all(self.fleet_client(Profile::Write)?),
            health,
            collected,
            census,
            models: self.settings.models_enabled(),
            thresholds: Thresholds {
                success: *self.settings.cluster_success_threshold,
                failure: *self.settings.cluster_failure_threshold,
            },
            frequency: period,
        };
        self.tasks
            .spawn("status report", reporter.run(self.shutdown.clone()));
        Ok(())
    }

    fn start_works(
        &mut self,
        clusters: Informer<Cluster>,
        discovery: Discovery,
    ) -> anyhow::Result<()> {
        let namespace = names::execution_namespace(&self.settings.cluster_name);
        let watching = self.fleet.client(Profile::Watch, Limits::NONE)?;
        let works: Informer<Work> = Informer::new(
            Api::namespaced(watching, &namespace),
            Selection::everything(),
        );
        let api: Api<Work> = Api::namespaced(self.fleet_client(Profile::Write)?, &namespace);
        let (events, delivery) = Events::new(
            self.fleet_client(Profile::Write)?,
            COMPONENT,
            self.shutdown.clone(),
        );
        self.tasks.spawn("events", delivery);

        let (to_apply, to_report) = (Queue::new("works"), Queue::new("work-status"));
        let reflections = Arc::new(Reflections::new(to_report.clone()));
        if self.runs("workStatus") {
            let watches = Watches::new(
                works.clone(),
                self.member.client(Profile::Watch, Limits::NONE)?,
                discovery.clone(),
                Arc::clone(&reflections),
                to_apply.clone(),
            );
            self.tasks
                .spawn("member watches", watches.run(self.shutdown.clone()));
            let reporter =
                reflect::Reporter::new(works.clone(), api.clone(), Arc::clone(&reflections));
            let reporting = to_report.run(REPORTERS, self.shutdown.clone(), move |name| {
                Arc::clone(&reporter).report(name)
            });
            self.tasks.spawn("work status", reporting);
        }
        if self.runs("execution") {
            let member = Member::new(self.member_client(Profile::Write)?, discovery);
            let applier = Applier::new(
                self.settings.cluster_name.clone(),
                (works.clone(), api),
                clusters,
                member,
                events,
                reflections,
                to_apply.clone(),
            );
            let workers = self.settings.concurrent_work_syncs;
            let (synced, shutdown) = (works.clone(), self.shutdown.clone());
            self.tasks.spawn("applier", async move {
                // Before the first complete list we do not know what the fleet wants.
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = synced.synced() => {}
                }
                let work = move |name| Arc::clone(&applier).reconcile(name);
                to_apply.run(workers, shutdown, work).await;
            });
        }
        let (synced, health, shutdown) =
            (works.clone(), self.health.clone(), self.shutdown.clone());
        self.tasks.spawn("works readiness", async move {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = synced.synced() => health.ready("works", Ok(())),
            }
            shutdown.cancelled().await;
        });
        self.tasks
            .spawn("work informer", works.run(self.shutdown.clone()));
        Ok(())
    }

    fn runs(&self, controller: &str) -> bool {
        self.settings.controllers.enabled(controller, false)
    }

    /// A client of the fleet API within the operator's limits.
    fn fleet_client(&self, profile: Profile) -> anyhow::Result<Client> {
        let (qps, burst) = (self.settings.kube_api_qps, self.settings.kube_api_burst);
        Ok(self.fleet.client(profile, Limits { qps, burst })?)
    }

    /// A client of the member's API within the operator's limits.
    fn member_client(&self, profile: Profile) -> anyhow::Result<Client> {
        let (qps, burst) = (
            self.settings.cluster_api_qps,
            self.settings.cluster_api_burst,
        );
        Ok(self.member.client(profile, Limits { qps, burst })?)
    }
}

/// The reference by which the lease belongs to the Cluster; none while there is no Cluster.
fn owner_of(clusters: &Informer<Cluster>, name: &str) -> Option<OwnerReference> {
    let cluster = clusters.get(None, name)?;
    Some(OwnerReference {
        api_version: Cluster::api_version(&()).into_owned(),
        kind: Cluster::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: cluster.metadata.uid.clone()?,
        ..OwnerReference::default()
    })
}

/// A name that no other process has: the host (in a pod, the pod's name), the process and the time of its start.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| COMPONENT.to_owned());
    format!(
        "{host}_{}_{}",
        std::process::id(),
        jiff::Timestamp::now().as_millisecond()
    )
}
