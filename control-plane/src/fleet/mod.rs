//! State that all controllers share: connections, one cache per kind, leadership.

pub mod allocated;
pub mod api_error;
pub mod attribution;
pub mod availability;
pub mod binding;
pub mod binding_index;
pub mod budget;
pub mod claim;
pub mod completion;
pub mod confirmations;
pub mod copy;
pub mod deleted_works;
pub mod fencing;
pub mod followers;
pub mod intern;
pub mod labelled;
pub mod last_patches;
pub mod lease_changes;
pub mod lookups;
pub mod memory;
pub mod parked;
pub mod pause;
pub mod place_state;
pub mod policy;
pub mod protection;
pub mod remade;
pub mod scope;
pub mod scoped;
pub mod selection;
pub mod served;
pub mod sets;
pub mod silent_reports;
pub mod template;
pub mod template_event;
pub mod templates;
#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod unseen_works;
mod waiting;
pub mod works;
pub mod write;

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use muster_interpreter::sources::{Customizations, InterpreterWebhooks};
use muster_interpreter::{Changed, Interpreters};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::any_policy::{
    AnyOverridePolicy, AnyPolicy, AnyPropagationPolicy, PolicySpec,
};
use muster_shared::api::cluster::Cluster;
use muster_shared::api::scope::ResourceScope;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::client::{Gateway, Limits, Priority, Profile, Writer};
use muster_shared::clock::Clock;
use muster_shared::controller::{Context, Watched};
use muster_shared::events::{EventType, Events};
use muster_shared::k8s::{ConfigMap, CoreObjectReference};
use muster_shared::lease::Leadership;
use muster_shared::names::{CLUSTER_NAMESPACE, SYSTEM_NAMESPACE};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Followed, Informer, Refused, Selection};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::fleet::binding::{BindingKey, Bindings, event_reference};
use crate::fleet::confirmations::Confirmations;
use crate::fleet::deleted_works::DeletedWorks;
use crate::fleet::lease_changes::LeaseChanges;
use crate::fleet::lookups::{Dependencies, OverrideLookup};
use crate::fleet::pause::Pauses;
use crate::fleet::scope::Scope;
use crate::fleet::scoped::Scoped;
use crate::fleet::template::{Kind, Template, TemplateKey};
use crate::fleet::template_event::TemplateChange;
use crate::fleet::templates::Templates;
use crate::fleet::unseen_works::UnseenWorks;
use crate::fleet::works::{CachedWork, WorkIndex};
use crate::settings::{COMPONENT, Settings};

/// Time that the lists may take which a process makes before it takes over. An API that does not
/// answer them must not keep the fleet without anybody who acts.
const CONFIRMATION: Duration = Duration::from_secs(20);
/// Time after the first lists in which they need not be made again: a process that starts alone
/// gets its lease a moment later.
const FRESH: Duration = Duration::from_secs(2);

/// The fleet as the control plane sees it. The caches may be read by anybody at any time; what is
/// written goes through `client`.
pub struct Fleet {
    /// Client for single reads and for writes of placements. It has deadlines and never retries.
    pub client: Client,
    /// Write path of Works and claims, which carry placements out.
    pub work_writer: Writer,
    /// Write path of conditions and statuses.
    pub status_writer: Writer,
    /// Client for requests that must not wait behind others, nor for a rate limit: the election and
    /// the lease monitor.
    pub urgent_client: Client,
    /// Way to the fleet API, for the tasks of members that the control plane manages.
    pub gateway: Arc<Gateway>,
    /// For lists and watches of further collections.
    pub watch_client: Client,
    /// The settings of this process.
    pub settings: Settings,
    /// What the settings keep from being propagated.
    pub scope: Scope,
    /// All clusters.
    pub clusters: Informer<Cluster>,
    /// All bindings.
    pub bindings: Bindings,
    /// All propagation policies.
    pub policies: Scoped<AnyPropagationPolicy>,
    /// All override policies.
    pub override_policies: Scoped<AnyOverridePolicy>,
    /// All taint policies.
    pub taint_policies: Informer<ClusterTaintPolicy>,
    /// All Works.
    pub works: Informer<CachedWork>,
    /// The members' leases (namespace `karmada-cluster`).
    pub leases: Informer<Lease>,
    /// Times at which each lease was last seen to change.
    pub lease_changes: LeaseChanges,
    /// All namespaces.
    pub namespaces: Informer<Namespace>,
    /// The users' objects, of the kinds that are asked for.
    pub templates: Templates,
    /// Which Works belong to which binding.
    pub work_index: WorkIndex,
    /// Works that this process has asked the API to delete.
    pub deleted_works: DeletedWorks,
    /// Works that may exist although the cache does not show them.
    pub unseen_works: UnseenWorks,
    /// Interpreters of resources: replicas, health, status, dependencies.
    pub interpreters: Arc<Interpreters>,
    /// The scripts of users that the interpreters ask first.
    pub customizations: Customizations,
    /// The webhooks of users that the interpreters ask next.
    pub interpreter_webhooks: InterpreterWebhooks,
    /// How override policies change a workload, and whether a Work could be made for it.
    pub override_lookup: OverrideLookup,
    /// What workloads need, once their controller has registered itself; nothing where this process
    /// distributes no dependencies.
    pub dependencies: OnceLock<Box<dyn Dependencies>>,
    /// The snapshot of the clusters that all share who choose among these, of a type of the
    /// scheduler, once one of them follows it.
    pub live_snapshot: OnceLock<Box<dyn Any + Send + Sync>>,
    /// Which movement is paused.
    pub pauses: Pauses,
    /// Clusters that the API was asked about before workloads left them.
    pub confirmations: Confirmations,
    /// The ConfigMap that pauses the fleet.
    pause_records: Informer<ConfigMap>,
    /// Clock by which decisions are dated.
    pub clock: Arc<Clock>,
    /// Publisher of events.
    pub events: Events,
    /// Whether the bindings name the kinds of their templates.
    templates_followed: OnceLock<()>,
    /// Whether this process may act.
    pub leadership: Leadership,
    /// Set once the caches were listed again that were filled before this process could act.
    confirmed: OnceCell<()>,
    /// Cancelled when the process is to end.
    pub shutdown: CancellationToken,
}

impl Fleet {
    /// Prepares connections and caches; the task that delivers events is started.
    ///
    /// # Errors
    /// When a client cannot be made, or what is not to be propagated cannot be understood.
    pub fn new(
        gateway: &Arc<Gateway>,
        settings: Settings,
        leadership: Leadership,
        tasks: &mut Tasks,
    ) -> anyhow::Result<Arc<Self>> {
        let scope = Scope::new(
            &settings.skipped_propagating_apis,
            &settings.skipped_propagating_namespaces.0,
        );
        let limits = Limits {
            qps: settings.kube_api_qps,
            burst: settings.kube_api_burst,
        };
        let pool = gateway.pool(Profile::Write, limits);
        let client = pool.client()?;
        let watch_client = gateway.client(Profile::Watch, Limits::NONE)?;
        let shutdown = tasks.shutdown().clone();
        // Goes on while the others finish, since these still tell what they did.
        let retire = tasks.retire().clone();
        let (events, delivery) = Events::new(pool.background_client()?, COMPONENT, retire);
        tasks.spawn_last("events", delivery);
        let everything = Selection::everything;
        let works = Informer::packing(
            Api::all(watch_client.clone()),
            everything(),
            |_| {},
            works::codec(),
        );
        let interpreters = Arc::new(Interpreters::default());
        let leases = Informer::new(
            Api::namespaced(watch_client.clone(), CLUSTER_NAMESPACE),
            everything(),
        );
        let clusters = Informer::new(Api::all(watch_client.clone()), everything());
        let pause_records = Informer::new(
            Api::namespaced(watch_client.clone(), SYSTEM_NAMESPACE),
            everything().fields(format!("metadata.name={}", pause::NAME)),
        );
        Ok(Arc::new(Self {
            pauses: Pauses::follow(&pause_records, &clusters),
            confirmations: Confirmations::default(),
            pause_records,
            templates: Templates::new(
                pool.background_client()?,
                watch_client.clone(),
                shutdown.clone(),
            ),
            templates_followed: OnceLock::new(),
            override_lookup: OverrideLookup::default(),
            dependencies: OnceLock::new(),
            live_snapshot: OnceLock::new(),
            customizations: Customizations::new(watch_client.clone(), Arc::clone(&interpreters)),
            interpreter_webhooks: InterpreterWebhooks::new(
                watch_client.clone(),
                Arc::clone(&interpreters),
            ),
            interpreters,
            work_index: WorkIndex::new(&works),
            deleted_works: DeletedWorks::new(&works),
            unseen_works: UnseenWorks::new(&works),
            works,
            clusters,
            bindings: Bindings::new(&watch_client),
            policies: policies(
                &watch_client,
                ["propagationpolicies", "clusterpropagationpolicies"],
            ),
            override_policies: policies(
                &watch_client,
                ["overridepolicies", "clusteroverridepolicies"],
            ),
            taint_policies: Informer::new(Api::all(watch_client.clone()), everything()),
            lease_changes: LeaseChanges::follow(&leases),
            leases,
            namespaces: Informer::new(Api::all(watch_client.clone()), everything()),
            client,
            work_writer: pool.writer(Priority::Work)?,
            status_writer: pool.writer(Priority::Status)?,
            urgent_client: gateway.client(Profile::Probe, Limits::NONE)?,
            gateway: Arc::clone(gateway),
            watch_client,
            settings,
            scope: scope.map_err(anyhow::Error::msg)?,
            clock: Arc::new(Clock::of_server(Arc::clone(gateway.server_clock()))),
            events,
            leadership,
            confirmed: OnceCell::new(),
            shutdown,
        }))
    }

    /// Has the kinds of the templates of all bindings watched, for controllers that read a
    /// binding's template. Call it before they install their listeners.
    pub fn follow_templates(&self) {
        fn kind(binding: &AnyBinding) -> (&str, &str) {
            let resource = &binding.spec.resource;
            (&resource.api_version, &resource.kind)
        }
        self.templates_followed.get_or_init(|| {
            let templates = self.templates.clone();
            self.bindings.on_change(move |change| {
                let (old, new) = change.sides();
                let (old, new) = (old.map(kind), new.map(kind));
                if old == new {
                    return;
                }
                let of = |(api_version, kind): (&str, &str)| Kind::new(api_version, kind);
                if let Some(new) = new.map(of) {
                    templates.name(&new);
                }
                if let Some(old) = old.map(of) {
                    templates.unname(&old);
                }
            });
        });
    }

    /// Returns the bindings of templates of the kinds whose interpretation has changed.
    pub fn interpreted_anew(&self, changed: &Changed) -> Vec<BindingKey> {
        let concerned = self.bindings.iter().filter(|binding| {
            let resource = &binding.spec.resource;
            changed.has(&resource.api_version, &resource.kind)
        });
        concerned.map(|it| BindingKey::of(&it)).collect()
    }

    /// Publishes an event about a problem on a binding, none on its template.
    pub fn warn(&self, binding: &AnyBinding, reason: &str, note: impl Into<String>) {
        let kind = EventType::Warning;
        self.events
            .publish_about(binding.reference(), kind, reason, note);
    }

    /// Publishes an event about a problem on a template.
    pub fn warn_of_template(
        &self,
        key: &TemplateKey,
        template: &Template,
        reason: &str,
        note: impl Into<String>,
    ) {
        let about = event_reference(&key.resource(template.metadata()));
        let kind = EventType::Warning;
        self.events.publish_about(about, kind, reason, note);
    }

    /// Publishes an event about a problem of the fleet API on one of its namespaces.
    pub fn warn_of_api(&self, namespace: &str, reason: &str, note: impl Into<String>) {
        let about = CoreObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: Some(namespace.to_owned()),
            ..CoreObjectReference::default()
        };
        let kind = EventType::Warning;
        self.events.publish_about(about, kind, reason, note);
    }

    /// Publishes an event on a binding and one on its template.
    pub fn publish(&self, binding: &AnyBinding, kind: EventType, reason: &str, note: String) {
        let template = event_reference(&binding.spec.resource);
        let events = &self.events;
        events.publish_about(binding.reference(), kind, reason, note.clone());
        events.publish_about(template, kind, reason, note);
    }

    /// Returns the names of all clusters.
    pub fn cluster_names(&self) -> Vec<String> {
        let clusters = self.clusters.list();
        clusters.iter().map(|cluster| cluster.name_any()).collect()
    }

    /// Starts following everything. Call it after every controller has installed its listeners.
    pub fn follow(&self, tasks: &mut Tasks) {
        fn follow<K: Followed>(name: &'static str, informer: &Informer<K>, tasks: &mut Tasks) {
            let shutdown = tasks.shutdown().clone();
            tasks.spawn(name, informer.clone().run(shutdown));
        }
        follow("pauses", &self.pause_records, tasks);
        follow("clusters", &self.clusters, tasks);
        for (name, informer) in self.bindings.informers() {
            follow(name, informer, tasks);
        }
        for (name, informer) in self.policies.informers() {
            follow(name, informer, tasks);
        }
        for (name, informer) in self.override_policies.informers() {
            follow(name, informer, tasks);
        }
        follow("taint policies", &self.taint_policies, tasks);
        follow("works", &self.works, tasks);
        follow("leases", &self.leases, tasks);
        follow("namespaces", &self.namespaces, tasks);
        let shutdown = tasks.shutdown().clone();
        let pauses = self.pauses.clone();
        tasks.spawn(
            "ends of pauses",
            pauses.run(Arc::clone(&self.clock), shutdown),
        );
        let shutdown = tasks.shutdown().clone();
        let (pauses, client) = (self.pauses.clone(), self.urgent_client.clone());
        tasks.spawn("pauses read", pauses.confirm(client, shutdown));
        let customizations = self.customizations.clone();
        customizations.report_failures(&self.events);
        let shutdown = tasks.shutdown().clone();
        let refused = |reason: &str| tracing::warn!(reason, "no customizations of interpreters");
        tasks.spawn(
            "interpreter customizations",
            customizations.run(refused, shutdown),
        );
        let webhooks = self.interpreter_webhooks.clone();
        webhooks.report_failures(&self.events);
        let (interpreters, shutdown) = (Arc::clone(&self.interpreters), tasks.shutdown().clone());
        let refused = |reason: &str| tracing::warn!(reason, "no interpreter webhooks");
        tasks.spawn("interpreter webhooks", async move {
            tokio::join!(
                webhooks.run(refused, shutdown.clone()),
                interpreters.run(shutdown),
            );
        });
        tasks.spawn("template kinds", self.templates.clone().run());
    }

    /// Waits until every cache holds a complete list, but for those of override policies: what asks
    /// them waits for them, so that a fleet API without these kinds stops nothing else.
    pub async fn synced(&self) {
        self.pause_records.synced().await;
        self.clusters.synced().await;
        for (_, informer) in self.bindings.informers() {
            informer.synced().await;
        }
        for (_, informer) in self.policies.informers() {
            informer.synced().await;
        }
        self.taint_policies.synced().await;
        self.works.synced().await;
        self.leases.synced().await;
        self.namespaces.synced().await;
        self.interpreters.known().await;
    }

    /// Returns the caches that hold no complete list yet, with the reasons; `None` when all do.
    pub fn waits_for(&self) -> Option<String> {
        fn missing<K: Followed>(
            name: &'static str,
            informer: &Informer<K>,
        ) -> Option<(&'static str, Option<Refused>)> {
            (!informer.is_synced()).then(|| (name, informer.refused()))
        }
        let unknown = !self.interpreters.is_known();
        let [bindings, cluster_bindings] = self.bindings.informers();
        let [policies, cluster_policies] = self.policies.informers();
        let missing: Vec<_> = [
            missing("configmaps", &self.pause_records),
            missing("clusters", &self.clusters),
            missing(bindings.0, bindings.1),
            missing(cluster_bindings.0, cluster_bindings.1),
            missing(policies.0, policies.1),
            missing(cluster_policies.0, cluster_policies.1),
            missing("clustertaintpolicies", &self.taint_policies),
            missing("works", &self.works),
            missing("leases", &self.leases),
            missing("namespaces", &self.namespaces),
            unknown
                .then(|| missing("interpreter customizations", self.customizations.informer()))
                .flatten(),
            unknown
                .then(|| missing("interpreter webhooks", self.interpreter_webhooks.informer()))
                .flatten(),
        ]
        .into_iter()
        .flatten()
        .collect();
        (!missing.is_empty()).then(|| waiting::words(&missing))
    }

    /// Returns whether all override policies are known. A kind that the API does not serve has
    /// none.
    pub fn knows_overrides(&self) -> bool {
        let mut informers = self.override_policies.informers().into_iter();
        informers.all(|(_, it)| it.is_synced() || it.is_unserved())
    }

    /// Waits until this process may act and knows the fleet; `false` when it is to end instead.
    ///
    /// Nothing is decided before: a decision on half a list would be a decision on stale knowledge
    /// (safety contract 5). So would be one on what a standby has seen of what the
    /// former leader did: a watch of its own may have been cut off unnoticed.
    pub async fn ready(&self) -> bool {
        let ready = async {
            self.synced().await;
            let synced = Instant::now();
            self.leadership.acquired().await;
            if synced.elapsed() > FRESH {
                self.confirmed.get_or_init(|| self.confirm()).await;
            }
        };
        tokio::select! {
            () = ready => true,
            () = self.shutdown.cancelled() => false,
        }
    }

    /// Lists clusters, policies, templates, bindings and Works again, whose states decisions
    /// compare with each other.
    async fn confirm(&self) {
        async fn again<K: Followed>(cache: &Informer<K>) {
            // A kind that is not served is never listed.
            if cache.is_synced() {
                cache.confirmed().await;
            }
        }
        async fn both<K: Followed>(caches: &Scoped<K>) {
            let [(_, near), (_, wide)] = caches.informers();
            tokio::join!(again(near), again(wide));
        }
        let lists = async {
            tokio::join!(
                again(&self.clusters),
                again(&self.taint_policies),
                both(&self.policies),
                both(&self.override_policies),
                both::<AnyBinding>(&self.bindings),
                self.templates.confirmed(),
                again(&self.works)
            )
        };
        if timeout(CONFIRMATION, lists).await.is_err() {
            tracing::warn!(
                "clusters, policies, templates, bindings and works could not all be listed again: taking over with what the watches have shown"
            );
        }
    }
}

/// Prepares the caches of policies of both scopes, of which the plural names are given.
fn policies<S, T>(client: &Client, [near, wide]: [&'static str; 2]) -> Scoped<AnyPolicy<S, T>>
where
    S: PolicySpec,
    AnyPolicy<S, T>: Followed<DynamicType = ResourceScope>,
{
    let informer = |scope: ResourceScope| -> Informer<AnyPolicy<S, T>> {
        let api = Api::all_with(client.clone(), &scope);
        Informer::new(api, Selection::everything())
    };
    Scoped::new([
        (near, informer(ResourceScope::Namespaced)),
        (wide, informer(ResourceScope::Cluster)),
    ])
}

impl Context for Fleet {
    async fn ready(&self) -> bool {
        self.ready().await
    }

    fn may_act(&self) -> bool {
        self.leadership.is_current()
    }
}

impl Watched for Bindings {
    type Change = Change<AnyBinding>;

    fn on_change(&self, listener: impl Fn(&Self::Change) + Send + Sync + 'static) {
        Scoped::<AnyBinding>::on_change(self, listener);
    }
}

impl Watched for Templates {
    type Change = TemplateChange;

    fn on_change(&self, listener: impl Fn(&Self::Change) + Send + Sync + 'static) {
        Self::on_change(self, listener);
    }
}

impl Watched for Pauses {
    type Change = ();

    fn on_change(&self, listener: impl Fn(&Self::Change) + Send + Sync + 'static) {
        Self::on_change(self, move || listener(&()));
    }
}
