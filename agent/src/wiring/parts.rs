//! The tasks of a running agent and their dependencies.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::cluster::Cluster;
use muster_shared::client::{Limits, Profile};
use muster_shared::events::Events;
use muster_shared::interner::Interner;
use muster_shared::k8s::{Api, Client, ResourceExt};
use muster_shared::names;
use muster_shared::queue::{Next, Queue};
use muster_shared::watch::{Informer, Selection};
use tokio::sync::{Notify, watch};

use super::Agent;
use crate::apply::{self, Applier};
use crate::census::Census;
use crate::discovery::Discovery;
use crate::fleet_id;
use crate::health;
use crate::health::debounce::Thresholds;
use crate::health::deeper::{self, Deeper, Lookup};
use crate::join::Standing;
use crate::reflect::{self, ObjectStatuses, Watches};
use crate::report::Reporter;
use crate::report::collector::{self, Collected};
use crate::work::CachedWork;
use crate::work::drift::Drift;
use crate::work::member::Member;
use crate::work::object::Objects;
use crate::work::repairs::Repairs;

/// Works per page of a list, where the fleet's API does not stream lists: each holds whole
/// manifests.
const WORKS_PER_PAGE: u32 = 100;
/// Works whose status is written at the same time.
const REPORTERS: usize = 8;
/// Pause of a Work while this agent does not lead.
const WHEN_LED: Next = Next::After(Duration::from_secs(1));

impl Agent {
    /// Starts everything; each part waits for the standing that it needs.
    pub(super) fn start(
        &mut self,
        clusters: Informer<Cluster>,
        events: Events,
    ) -> anyhow::Result<()> {
        let returned = Arc::new(Notify::new());
        self.start_leases(&clusters, Arc::clone(&returned))?;
        let discovery = Discovery::new(self.member_client(Profile::Write)?);
        let works_run = self.runs("execution") || self.runs("workStatus");
        let works = works_run.then(|| self.works()).transpose()?;
        if self.runs("clusterStatus") {
            let returned = Arc::clone(&returned);
            self.start_report(clusters.clone(), works.clone(), &discovery, returned)?;
        }
        let fleet_id = self.find_fleet_id(&clusters, &events)?;
        self.start_credentials(&clusters, &events, &fleet_id)?;
        if let Some(works) = works {
            self.start_works(clusters, works, discovery, events, (returned, fleet_id))?;
        }
        Ok(())
    }

    /// Finds out with what the agent marks what it makes in the member.
    fn find_fleet_id(
        &mut self,
        clusters: &Informer<Cluster>,
        events: &Events,
    ) -> anyhow::Result<fleet_id::Known> {
        let (finder, known) = fleet_id::Finder::new(
            self.settings.cluster_name.clone(),
            clusters.clone(),
            self.fleet_client(Profile::Write)?,
            events.clone(),
        );
        let finding = finder.run(self.shutdown.clone());
        self.spawn_as(Standing::Registered, "fleet id", finding);
        Ok(known)
    }

    /// Follows the Cluster of this member.
    pub(super) fn follow_cluster(&mut self) -> anyhow::Result<Informer<Cluster>> {
        let client = self.fleet.client(Profile::Watch, Limits::NONE)?;
        let ours = format!("metadata.name={}", self.settings.cluster_name);
        let clusters = Informer::new(Api::all(client), Selection::everything().fields(ours));
        self.spawn_as(
            Standing::Registered,
            "cluster informer",
            clusters.clone().run(self.shutdown.clone()),
        );
        Ok(clusters)
    }

    fn start_report(
        &mut self,
        clusters: Informer<Cluster>,
        works: Option<Informer<CachedWork>>,
        discovery: &Discovery,
        returned: Arc<Notify>,
    ) -> anyhow::Result<()> {
        let period = *self.settings.cluster_status_update_frequency;
        let (publish_health, health) = watch::channel(None);
        let probe = self.member.client(Profile::Probe, Limits::NONE)?;
        let probing = health::watch(
            probe,
            period,
            publish_health,
            returned,
            self.shutdown.clone(),
        );
        self.spawn_as(Standing::Registered, "probe", probing);

        let (publish, collected) = watch::channel(Collected::nothing(self.clock.now()));
        let asking = self.member_client(Profile::Write)?;
        let collecting = collector::collect(
            asking,
            discovery.clone(),
            period,
            publish,
            Arc::clone(&self.clock),
            self.shutdown.clone(),
        );
        self.spawn_as(Standing::Registered, "collector", collecting);

        let deeper = Deeper {
            ready_nodes: Some(self.settings.cluster_ready_nodes_threshold)
                .filter(|share| *share > 0.0),
            lookup: self.look_up_names(period),
        };
        let census = if self.settings.enable_cluster_resource_modeling {
            let census = Census::begin();
            let client = self.member.client(Profile::Watch, Limits::NONE)?;
            self.spawn_as(
                Standing::Registered,
                "census",
                census.clone().run(client, self.shutdown.clone()),
            );
            Some(census)
        } else {
            None
        };
        let reporter = Reporter {
            cluster: self.settings.cluster_name.clone(),
            leadership: self.leadership.clone(),
            clusters,
            api: Api::all(self.fleet_client(Profile::Write)?),
            health,
            collected,
            census,
            works,
            deeper,
            models: self.settings.models_enabled(),
            thresholds: Thresholds {
                success: *self.settings.cluster_success_threshold,
                failure: *self.settings.cluster_failure_threshold,
            },
            frequency: period,
            clock: Arc::clone(&self.clock),
        };
        self.spawn_as(
            Standing::Registered,
            "status report",
            reporter.run(self.shutdown.clone()),
        );
        Ok(())
    }

    /// Asks the member's DNS, where that was asked for.
    fn look_up_names(&mut self, period: Duration) -> Option<watch::Receiver<Lookup>> {
        let name = self.settings.cluster_dns_name.clone();
        if name.is_empty() {
            return None;
        }
        let (publish, answers) = watch::channel(None);
        let asking = deeper::resolve(name, period, publish, self.shutdown.clone());
        self.spawn_as(Standing::Registered, "names", asking);
        Some(answers)
    }

    /// What the fleet wants of the member; nothing is sent yet.
    fn works(&self) -> anyhow::Result<Informer<CachedWork>> {
        let namespace = names::execution_namespace(&self.settings.cluster_name);
        let watching = self.fleet.client(Profile::Watch, Limits::NONE)?;
        let kinds = Interner::default();
        Ok(Informer::keeping(
            Api::namespaced(watching, &namespace),
            Selection::everything().page_size(WORKS_PER_PAGE),
            move |work: &mut CachedWork| work.share(&kinds),
        ))
    }

    fn start_works(
        &mut self,
        clusters: Informer<Cluster>,
        works: Informer<CachedWork>,
        discovery: Discovery,
        events: Events,
        (returned, fleet_id): (Arc<Notify>, fleet_id::Known),
    ) -> anyhow::Result<()> {
        let namespace = names::execution_namespace(&self.settings.cluster_name);
        let api: Api<CachedWork> = Api::namespaced(self.fleet_client(Profile::Write)?, &namespace);
        let repairs = Arc::new(Repairs::default());
        let ranks = Arc::clone(&repairs);
        let to_apply = Queue::ranked("works", move |work: &String| ranks.rank(work));
        let to_report = Queue::new("work-status");
        let statuses = Arc::new(ObjectStatuses::new(to_report.clone()));
        // The watches list the kinds of the Works, and the applier uses the lists.
        let both = self.runs("workStatus") && self.runs("execution");
        let drift = Arc::new(Drift::new(both));
        if self.runs("workStatus") {
            let watches = Watches {
                works: works.clone(),
                member: self.member.client(Profile::Watch, Limits::NONE)?,
                discovery: discovery.clone(),
                statuses: Arc::clone(&statuses),
                drift: Arc::clone(&drift),
                repairs: Arc::clone(&repairs),
                to_apply: to_apply.clone(),
                fleet: fleet_id.clone(),
                kinds_changed: Arc::default(),
            }
            .listen();
            let watching = watches.run(self.shutdown.clone());
            self.spawn_once_identified("member watches", &fleet_id, watching);
            let reporter = reflect::Reporter::new(
                works.clone(),
                api.clone(),
                Arc::clone(&statuses),
                events.clone(),
            );
            let leadership = self.leadership.clone();
            let reporting = to_report
                .clone()
                .run(REPORTERS, self.shutdown.clone(), move |name| {
                    let (reporter, leads) = (Arc::clone(&reporter), leadership.is_current());
                    async move {
                        if leads {
                            reporter.report(name).await
                        } else {
                            Ok(WHEN_LED)
                        }
                    }
                });
            self.spawn_as(Standing::Member, "work status", reporting);
        }
        if self.runs("execution") {
            let (standing, leadership) = (self.standing.clone(), self.leadership.clone());
            let may_act = move || *standing.borrow() >= Standing::Member && leadership.is_current();
            let writing = self.member_client(Profile::Write)?;
            let applier = Applier {
                works: works.clone(),
                api,
                clusters,
                objects: Objects {
                    cluster: self.settings.cluster_name.clone(),
                    member: Member::new(writing, discovery, may_act.clone()),
                    drift,
                },
                repairs,
                statuses,
                events,
                clock: Arc::clone(&self.clock),
                queue: to_apply.clone(),
                fleet: fleet_id.clone(),
                state: apply::State::default(),
            }
            .listen();
            let workers = self.settings.concurrent_work_syncs;
            let (synced, shutdown) = (works.clone(), self.shutdown.clone());
            let applying = to_apply.clone();
            self.spawn_once_identified("applier", &fleet_id, async move {
                // Before the first complete list we do not know what the fleet wants.
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = synced.synced() => {}
                }
                let work = move |name| {
                    let applier = Arc::clone(&applier);
                    let may_act = may_act();
                    async move {
                        if may_act {
                            applier.reconcile(name).await
                        } else {
                            Ok(WHEN_LED)
                        }
                    }
                };
                applying.run(workers, shutdown, work).await;
            });
        }
        self.follow_fleet_id(works.clone(), fleet_id, to_apply.clone());
        self.retry_on_return(works.clone(), returned, to_apply, to_report);
        self.start_readiness(works.clone());
        self.spawn_as(
            Standing::Member,
            "work informer",
            works.run(self.shutdown.clone()),
        );
        Ok(())
    }

    /// Starts a task of a member that begins its work once the fleet was asked for its id.
    fn spawn_once_identified(
        &mut self,
        name: &'static str,
        fleet_id: &fleet_id::Known,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let (fleet_id, shutdown) = (fleet_id.clone(), self.shutdown.clone());
        self.spawn_as(Standing::Member, name, async move {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = fleet_id.settled() => {}
            }
            task.await;
        });
    }

    /// With another id of the fleet every object is to be marked anew.
    fn follow_fleet_id(
        &mut self,
        works: Informer<CachedWork>,
        mut fleet_id: fleet_id::Known,
        to_apply: Queue<String>,
    ) {
        let shutdown = self.shutdown.clone();
        self.spawn_once_identified("change of the fleet id", &fleet_id.clone(), async move {
            let marks_anew = async {
                loop {
                    fleet_id.changed().await;
                    for work in works.list() {
                        to_apply.add(work.name_any());
                    }
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = marks_anew => {}
            }
        });
    }

    /// What failed while an API was away is done as soon as it answers.
    fn retry_on_return(
        &mut self,
        works: Informer<CachedWork>,
        returned: Arc<Notify>,
        to_apply: Queue<String>,
        to_report: Queue<String>,
    ) {
        let shutdown = self.shutdown.clone();
        self.spawn_as(Standing::Member, "retries", async move {
            loop {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = returned.notified() => try_again(&works, &to_apply, &to_report),
                }
            }
        });
    }

    /// We are ready when we know what the fleet wants.
    fn start_readiness(&mut self, works: Informer<CachedWork>) {
        let (health, shutdown) = (self.health.clone(), self.shutdown.clone());
        self.spawn_as(Standing::Member, "works readiness", async move {
            let explains = async {
                loop {
                    if let Some(trouble) = works.trouble() {
                        health.ready("works", Err(trouble));
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = works.synced() => health.ready("works", Ok(())),
                () = explains => {}
            }
            shutdown.cancelled().await;
        });
    }

    pub(super) fn runs(&self, controller: &str) -> bool {
        self.settings.runs(controller)
    }

    /// Returns a client of the fleet API within the operator's limits.
    pub(super) fn fleet_client(&self, profile: Profile) -> anyhow::Result<Client> {
        let (qps, burst) = (self.settings.kube_api_qps, self.settings.kube_api_burst);
        Ok(self.fleet.client(profile, Limits { qps, burst })?)
    }

    /// Returns a client of the member's API within the operator's limits.
    pub(super) fn member_client(&self, profile: Profile) -> anyhow::Result<Client> {
        let (qps, burst) = (
            self.settings.cluster_api_qps,
            self.settings.cluster_api_burst,
        );
        Ok(self.member.client(profile, Limits { qps, burst })?)
    }
}

/// Does at once what failed while an API was away; its back-off may have grown to a minute.
fn try_again(works: &Informer<CachedWork>, to_apply: &Queue<String>, to_report: &Queue<String>) {
    for work in works.list() {
        to_report.add(work.name_any());
        if work.is_pending() {
            to_apply.add(work.name_any());
        }
    }
}
