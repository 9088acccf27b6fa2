//! Values that the tasks of the agent share.

use std::sync::Arc;

use muster_interpreter::Interpreters;
use muster_interpreter::sources::Customizations;
use muster_interpreter::sources::InterpreterWebhooks;
use muster_shared::api::cluster::Cluster;
use muster_shared::client::{Gateway, Limits, Profile};
use muster_shared::clock::{self, Clock};
use muster_shared::events::Events;
use muster_shared::fleet_id::FleetId;
use muster_shared::interner::Interner;
use muster_shared::k8s::{Api, Client};
use muster_shared::lease::Leadership;
use muster_shared::names;
use muster_shared::serve::Health;
use muster_shared::watch::{Informer, Selection};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Threads;
use crate::census::Census;
use crate::certificate::Bootstrap;
use crate::discovery::Discovery;
use crate::fleet_id;
use crate::fleet_server::{self, Obeyed, Restart};
use crate::health;
use crate::health::deeper::Lookup;
use crate::health::peers::Sights;
use crate::join::{self, JoinState};
use crate::report::collector::Collected;
use crate::settings::Settings;
use crate::work::CachedWork;
use crate::work::fencing::{self, Fencer, Machine, Silence};
use crate::work::orphans::Orphans;
use crate::work::store::Store;
use crate::work::texts::Texts;

/// Works per page of a list, if the fleet API does not stream lists: each holds whole manifests.
const WORKS_PER_PAGE: u32 = 100;

/// Values that every task may use.
pub(super) struct Base {
    pub(super) settings: Settings,
    /// Connection to the fleet API.
    pub(super) fleet: Arc<Gateway>,
    /// Connection to the member's API.
    pub(super) member: Arc<Gateway>,
    pub(super) leadership: Leadership,
    pub(super) health: Health,
    pub(super) threads: Threads,
    /// Has the agent begin anew.
    pub(super) restart: Restart,
    pub(super) shutdown: CancellationToken,
    /// Ends the tasks that outlive the others.
    pub(super) retire: CancellationToken,
    /// Obtains the credentials for the fleet API; `None` without a bootstrap kubeconfig.
    pub(super) bootstrap: Option<Arc<Bootstrap>>,
}

impl Base {
    /// Returns whether a controller runs.
    pub(super) fn runs(&self, controller: &str) -> bool {
        self.settings.runs(controller)
    }

    /// Returns whether both connections lead to one server.
    pub(super) fn is_same_server(&self) -> bool {
        let (member, fleet) = (self.member.config(), self.fleet.config());
        member.cluster_url == fleet.cluster_url && member.tls_server_name == fleet.tls_server_name
    }

    /// Returns a client of the fleet API for single requests, within the operator's limits.
    pub(super) fn fleet_client(&self) -> anyhow::Result<Client> {
        let (qps, burst) = (self.settings.kube_api_qps, self.settings.kube_api_burst);
        Ok(self.fleet.client(Profile::Write, Limits { qps, burst })?)
    }

    /// Returns a client of the member's API for single requests, within the operator's limits.
    pub(super) fn member_client(&self) -> anyhow::Result<Client> {
        let (qps, burst) = (
            self.settings.cluster_api_qps,
            self.settings.cluster_api_burst,
        );
        Ok(self.member.client(Profile::Write, Limits { qps, burst })?)
    }
}

/// Everything of which the tasks are made. Senders are those of tasks, too: the context is dropped
/// once all tasks are made, so that a receiver notices when its task has ended.
pub(super) struct Context {
    pub(super) base: Base,
    /// Clock for the times of decisions.
    pub(super) clock: Arc<Clock>,
    pub(super) events: Events,
    /// Cache of the member's Cluster.
    pub(super) clusters: Informer<Cluster>,
    /// Cache of the member's Works.
    pub(super) works: Informer<CachedWork>,
    /// The Works, and what is known of their objects.
    pub(super) store: Arc<Store>,
    /// Kinds that the member serves.
    pub(super) discovery: Discovery,
    /// Progress of the registration.
    pub(super) join_state: watch::Sender<JoinState>,
    /// The store that is obeyed, once there is one.
    pub(super) obeyed: watch::Sender<Obeyed>,
    /// Objects in the member without a Work, since a promotion.
    pub(super) orphans: watch::Sender<Option<Orphans>>,
    /// Final refusal of the registration.
    pub(super) refused: mpsc::Sender<join::Error>,
    /// The id of the fleet.
    pub(super) fleet_id: fleet_id::Known,
    pub(super) found_fleet_id: watch::Sender<Option<Arc<FleetId>>>,
    /// Time at which the thread of the leases last showed that it runs.
    pub(super) pulse: watch::Sender<Instant>,
    /// Notified when an API answers again.
    pub(super) returned: Arc<Notify>,
    /// Latest result of the probe.
    pub(super) probed: watch::Sender<Option<health::Health>>,
    /// Latest version and kinds of the member.
    pub(super) collected: watch::Sender<Collected>,
    /// Latest lookup of a name.
    pub(super) lookup: watch::Sender<Lookup>,
    /// Latest connection out of the member.
    pub(super) egress: watch::Sender<Lookup>,
    /// States of the clusters that this one watches.
    pub(super) peers: watch::Sender<Sights>,
    /// Sums of nodes and pods.
    pub(super) census: Census,
    /// The customizations and webhooks that the interpreters get; `None` where the control plane
    /// does.
    pub(super) feeds: Option<(Customizations, InterpreterWebhooks)>,
    /// Times of the renewals of the cluster's lease.
    pub(super) silence: Silence,
    /// Stops fenced workloads; `None` for a member without a lease.
    pub(super) fencer: Option<Arc<Fencer>>,
}

impl Context {
    /// Makes the shared values; sends no request. `hosted` has the interpreters of the process that
    /// hosts the agent, and the epoch of its store; without it the agent follows the fleet API
    /// itself.
    pub(super) fn new(
        base: Base,
        events: Events,
        refused: mpsc::Sender<join::Error>,
        hosted: Option<(Arc<Interpreters>, u64)>,
    ) -> anyhow::Result<Self> {
        let epoch = hosted.as_ref().map(|(_, epoch)| *epoch);
        let (interpreters, feeds) = if let Some((interpreters, _)) = hosted {
            (interpreters, None)
        } else {
            let interpreters = Arc::new(Interpreters::default());
            let client = base.fleet.client(Profile::Watch, Limits::NONE)?;
            let customizations = Customizations::new(client.clone(), Arc::clone(&interpreters));
            let webhooks = InterpreterWebhooks::new(client, Arc::clone(&interpreters));
            (interpreters, Some((customizations, webhooks)))
        };
        let clock = Arc::new(Clock::of_server(Arc::clone(base.fleet.server_clock())));
        let (found_fleet_id, fleet_id) = fleet_id::channel();
        let is_hosted = feeds.is_none();
        let (works, discovery) = (works(&base)?, Discovery::new(base.member_client()?));
        let (applies, reports) = (base.runs("execution"), base.runs("workStatus"));
        // The watches list the kinds of the Works, and the applier uses the lists.
        let lists_come = applies && reports;
        let (cache, api) = (works.clone(), works_api(&base)?);
        let store = Store::new(cache, api, lists_come, interpreters, fleet_id.clone());
        store.follow(applies, reports);
        let (machine, uptime): (fn() -> Machine, fn() -> _) = match base.threads {
            Threads::Apart => (Machine::now, clock::uptime),
            // Time may be paused, and no machine is suspended.
            Threads::One => (Machine::of_runtime, || None),
        };
        let silence = Silence::begin(*base.settings.cluster_lease_duration, uptime);
        let fencer = Fencer::new(fencing::Setup {
            cluster: base.settings.cluster_name.clone(),
            namespace: base.settings.karmada_kubeconfig_namespace.clone(),
            member: base.member.client(Profile::Write, Limits::NONE)?,
            discovery: discovery.clone(),
            silence: silence.clone(),
            machine,
            leadership: base.leadership.clone(),
            is_elected: base.settings.leader_elect,
            lease: *base.settings.cluster_lease_duration,
            interval: base.settings.lease_interval(),
            fleet: fleet_id.clone(),
            works: works.clone(),
            to_apply: store.waits.to_apply.clone(),
        });
        Ok(Self {
            events,
            clusters: cluster(&base)?,
            works,
            store,
            discovery,
            silence,
            fencer: (!is_hosted).then(|| Arc::new(fencer)),
            join_state: watch::Sender::new(JoinState::Unregistered),
            // The control plane that hosts an agent judges the store itself.
            obeyed: watch::Sender::new(epoch.map_or_else(fleet_server::unknown, Ok)),
            orphans: watch::Sender::new(None),
            refused,
            fleet_id,
            found_fleet_id,
            pulse: watch::Sender::new(Instant::now()),
            returned: Arc::default(),
            probed: watch::Sender::new(None),
            collected: watch::Sender::new(Collected::nothing(clock.now())),
            lookup: watch::Sender::new(None),
            egress: watch::Sender::new(None),
            peers: watch::Sender::default(),
            census: Census::begin(),
            feeds,
            clock,
            base,
        })
    }

    /// Returns the API of Works, for writes.
    pub(super) fn works_api(&self) -> anyhow::Result<Api<CachedWork>> {
        works_api(&self.base)
    }
}

fn works_api(base: &Base) -> anyhow::Result<Api<CachedWork>> {
    let namespace = names::execution_namespace(&base.settings.cluster_name);
    let client = base.fleet_client()?;
    Ok(Api::namespaced(client, &namespace))
}

/// Returns the cache of the member's Cluster.
fn cluster(base: &Base) -> anyhow::Result<Informer<Cluster>> {
    let client = base.fleet.client(Profile::Watch, Limits::NONE)?;
    let name = format!("metadata.name={}", base.settings.cluster_name);
    let selection = Selection::everything().fields(name);
    Ok(Informer::new(Api::all(client), selection))
}

/// Returns the cache of the member's Works.
fn works(base: &Base) -> anyhow::Result<Informer<CachedWork>> {
    let namespace = names::execution_namespace(&base.settings.cluster_name);
    let client = base.fleet.client(Profile::Watch, Limits::NONE)?;
    let (kinds, namespaces, texts) = (Interner::default(), Interner::default(), Texts::default());
    Ok(Informer::keeping(
        Api::namespaced(client, &namespace),
        Selection::everything().page_size(WORKS_PER_PAGE),
        move |work: &mut CachedWork| {
            work.share(&kinds, &namespaces);
            work.fit(&texts);
        },
    ))
}
