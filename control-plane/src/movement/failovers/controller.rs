//! Follows clusters, bindings and Works, and writes the records of failovers.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::Api;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::failover_record::Failover;
use muster_shared::client::is_conflict;
use muster_shared::conditions;
use muster_shared::controller::{Controller, Watched as _};
use muster_shared::merge;
use muster_shared::names::CLUSTER_NAMESPACE;
use muster_shared::names::condition::FENCED;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Doubt, Informer, Presence, Selection};
use muster_shared::write::{delete_params, post_params};
use parking_lot::Mutex;
use serde_json::json;

use super::cause::{Trouble, trouble};
use super::ledger::{Ledger, Limits};
use super::measure;
use super::observed::Observed;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::copy;
use crate::fleet::fencing;
use crate::fleet::works::{binding_of, in_cluster};
use crate::fleet::write::{Written, merge_status};
use crate::notices;
use crate::settings::COMPONENT;

const NAME: &str = "failover records";
/// Time in which changes of a failover are gathered into one write.
const BATCH: Duration = Duration::from_secs(3);
/// Interval at which old records are removed.
const PRUNE: Duration = Duration::from_hours(1);

/// Failovers of this process, once it leads and knows the fleet.
struct Recorder {
    fleet: Arc<Fleet>,
    records: Informer<Failover>,
    ledger: Mutex<Option<Ledger>>,
    queue: Queue<String>,
}

/// Starts the controller. Its cache is its own: a fleet API without the kind keeps nothing else
/// from working.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let limits = Limits {
        objects: fleet.settings.failover_history_limit,
        entries: fleet.settings.failover_history_entries,
        age: SignedDuration::try_from(fleet.settings.failover_history_age.0)
            .unwrap_or(SignedDuration::MAX),
    };
    if limits.objects == 0 {
        return;
    }
    let recorder = Arc::new(Recorder {
        fleet: Arc::clone(fleet),
        records: Informer::new(
            Api::all(fleet.watch_client.clone()),
            Selection::everything(),
        ),
        ledger: Mutex::new(None),
        queue: Queue::new(NAME),
    });
    recorder.listen();
    notices::start(fleet, &recorder.records, tasks);
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(
        "failover record watch",
        recorder.records.clone().run(shutdown),
    );
    Controller::with(fleet, NAME, &recorder.queue).run(
        tasks,
        1,
        Arc::clone(&recorder),
        |_, recorder, name: String| async move { recorder.reconcile(&name).await },
    );
    tasks.spawn("failovers", async move {
        recorder.run(limits).await;
    });
}

impl Recorder {
    fn now(&self) -> Timestamp {
        self.fleet.clock.now()
    }

    /// Does something with the ledger, once there is one, and has written what changed.
    fn with(&self, act: impl FnOnce(&mut Ledger, Timestamp)) {
        let mut ledger = self.ledger.lock();
        let Some(ledger) = ledger.as_mut() else {
            return;
        };
        act(ledger, self.now());
        self.publish(ledger);
    }

    fn publish(&self, ledger: &mut Ledger) {
        measure::count(&ledger.take_tally());
        for name in ledger.take_dirty() {
            self.queue.add_after(name, BATCH);
        }
        for name in ledger.surplus() {
            self.queue.add_after(name, BATCH);
        }
    }

    fn listen(self: &Arc<Self>) {
        let fleet = &self.fleet;
        fleet.clusters.informs(self, |it, change| match change {
            Change::Applied { new, .. } => it.with(|ledger, now| it.cluster(ledger, new, now)),
            Change::Deleted { old } => {
                let name = old.name_any();
                if it.fleet.clusters.presence(None, &name).is_gone() {
                    it.with(|ledger, now| ledger.cluster_gone(&name, now));
                }
            }
        });
        fleet.bindings.informs(self, |it, change| match change {
            Change::Applied { new, .. } => it.with(|ledger, now| it.binding(ledger, new, now)),
            Change::Deleted { old } => {
                let key = BindingKey::of(old.as_ref());
                it.with(|ledger, _| ledger.binding_gone(&key));
            }
        });
        fleet.works.informs(self, |it, change| {
            if let Change::Deleted { old } = change
                && let Some(key) = binding_of(old)
            {
                it.with(|ledger, now| it.work_gone(ledger, &key, now));
            }
        });
        self.records.informs(self, |it, change| match change {
            Change::Applied { new, .. } => it.with(|ledger, now| it.record(ledger, new, now)),
            Change::Deleted { old } => {
                it.with(|ledger, now| ledger.deleted(&old.name_any(), now));
            }
        });
    }

    /// Reads what is remembered, once this process leads, and prunes old records now and then.
    async fn run(&self, limits: Limits) {
        if !self.fleet.ready().await {
            return;
        }
        let shutdown = self.fleet.shutdown.clone();
        if shutdown.run_until_cancelled(self.known()).await.is_none() {
            return;
        }
        self.load(limits);
        let pause = || shutdown.run_until_cancelled(tokio::time::sleep(PRUNE));
        while pause().await.is_some() {
            self.with(Ledger::prune);
        }
    }

    /// Waits until the records are known, and says once why they are not.
    async fn known(&self) {
        let synced = self.records.synced();
        let trouble = async {
            loop {
                tokio::time::sleep(BATCH).await;
                if let Some(reason) = self.records.trouble() {
                    return reason;
                }
            }
        };
        tokio::select! {
            () = synced => return,
            reason = trouble => tracing::warn!(
                reason,
                "failovers are not recorded: apply the definition failovers.failover.muster.io to the fleet API"
            ),
        }
        self.records.synced().await;
    }

    /// Takes in a record as the watch shows it.
    fn record(&self, ledger: &mut Ledger, record: &Failover, now: Timestamp) {
        if ledger.seen(record, now) {
            self.show_bindings(ledger, now);
        }
    }

    fn load(&self, limits: Limits) {
        let mut guard = self.ledger.lock();
        let now = self.now();
        let records = self.records.list();
        let records = records.iter().map(|it| it.as_ref().clone());
        let mut ledger = Ledger::new(limits, records, now);
        for cluster in self.fleet.clusters.list() {
            self.cluster(&mut ledger, &cluster, now);
        }
        for name in ledger.clusters() {
            // A cluster that left before the start was never seen.
            let presence = self.fleet.clusters.presence(None, &name);
            if matches!(presence, Presence::Gone | Presence::Unknown(Doubt::Unseen)) {
                ledger.cluster_gone(&name, now);
            }
        }
        self.show_bindings(&mut ledger, now);
        self.publish(&mut ledger);
        *guard = Some(ledger);
    }

    /// Shows all that bindings remember to records that another process wrote.
    fn show_bindings(&self, ledger: &mut Ledger, now: Timestamp) {
        for binding in self.fleet.bindings.iter() {
            self.binding(ledger, &binding, now);
        }
        ledger.loaded(now);
    }

    fn cluster(&self, ledger: &mut Ledger, cluster: &Cluster, now: Timestamp) {
        ledger.cluster(cluster, self.renewed(&cluster.name_any()), now);
    }

    fn renewed(&self, cluster: &str) -> Option<Timestamp> {
        let lease = self.fleet.leases.get(Some(CLUSTER_NAMESPACE), cluster)?;
        Some(lease.spec.as_ref()?.renew_time.as_ref()?.0)
    }

    fn trouble_of(&self, cluster: &str, now: Timestamp) -> Option<Trouble> {
        let known = self.fleet.clusters.get(None, cluster)?;
        trouble(&known, self.renewed(cluster), now)
    }

    fn binding(&self, ledger: &mut Ledger, binding: &AnyBinding, now: Timestamp) {
        if binding.metadata.deletion_timestamp.is_some() {
            return ledger.binding_gone(&BindingKey::of(binding));
        }
        let least = |cluster: &str, share: i32| {
            let known = copy::least(&self.fleet, &binding.spec, cluster, share);
            known.unwrap_or(share)
        };
        let observed = Observed::of(binding, &least);
        let has_copy =
            |cluster: &str| in_cluster(&self.fleet.work_index.of(&observed.key), cluster).is_some();
        let trouble_of = |cluster: &str| self.trouble_of(cluster, now);
        ledger.binding(&observed, &has_copy, &trouble_of, now);
    }

    fn work_gone(&self, ledger: &mut Ledger, key: &BindingKey, now: Timestamp) {
        if !ledger.concerns(key) {
            return;
        }
        if let Some(binding) = self.fleet.bindings.get(key) {
            self.binding(ledger, &binding, now);
        }
    }

    /// Writes or deletes one record.
    async fn reconcile(&self, name: &str) -> Result<Next, ApiError> {
        let failed = self
            .ledger
            .lock()
            .as_ref()
            .and_then(|it| it.failed_cluster(name));
        // Watches wait for the ledger: bindings are reconciled without it.
        let (here, fenced_after) = failed.map_or_else(Default::default, |it| self.placed_in(&it));
        let (wanted, known, is_surplus, stops_in) = {
            let mut ledger = self.ledger.lock();
            let Some(ledger) = ledger.as_mut() else {
                return Ok(Next::Done);
            };
            let now = self.now();
            let stops_in = ledger.affects(name, &here, fenced_after, now);
            let wanted = ledger.wanted(name, now);
            measure::count(&ledger.take_tally());
            let is_surplus = ledger.surplus().iter().any(|it| it == name);
            let known = ledger.object(name).cloned();
            (wanted, known, is_surplus, stops_in)
        };
        let next = match (wanted, known) {
            (_, known) if is_surplus => self.delete(name, known).await,
            (Some(wanted), None) => self.create(wanted).await,
            (Some(wanted), Some(known)) => self.update(&wanted, &known).await,
            (None, _) => Ok(Next::Done),
        }?;
        let stops_in = stops_in.and_then(|it| Duration::try_from(it).ok());
        Ok(match (next, stops_in) {
            (Next::Done, Some(left)) => Next::After(left),
            (next, _) => next,
        })
    }

    /// Returns the bindings whose workload has a copy in a cluster, and the shortest time of
    /// silence after which the agent there stops one of them.
    fn placed_in(&self, cluster: &str) -> (Vec<BindingKey>, Option<SignedDuration>) {
        let (mut placed, mut first) = (Vec::new(), None);
        for key in self.fleet.bindings.index().naming(cluster) {
            let binding = self.fleet.bindings.get(&key);
            let Some(binding) = binding.filter(|it| it.spec.has_copy(cluster)) else {
                continue;
            };
            placed.push(BindingKey::clone(&key));
            let is_fenced = conditions::is_true(&binding.status().conditions, FENCED);
            let after = fencing::asked(&binding.spec).filter(|_| is_fenced);
            let after = after.and_then(|it| SignedDuration::try_from(it).ok());
            first = first.into_iter().chain(after).min();
        }
        (placed, first)
    }

    async fn create(&self, mut wanted: Failover) -> Result<Next, ApiError> {
        wanted.status = None;
        let client = self.fleet.status_writer.when_idle().await;
        let api: Api<Failover> = Api::all(client.clone());
        match api.create(&post_params(COMPONENT), &wanted).await {
            Ok(object) => {
                self.with(|ledger, _| ledger.written(object));
                Ok(Next::Again)
            }
            // Another write of this process is on its way back.
            Err(error) if is_conflict(&error) => Ok(Next::After(BATCH)),
            Err(error) => Err(ApiError::of("create", &title(&wanted.name_any()))(error)),
        }
    }

    async fn update(&self, wanted: &Failover, known: &Failover) -> Result<Next, ApiError> {
        let name = wanted.name_any();
        let Some(status) = merge::difference(&json!(known.status), &json!(wanted.status)) else {
            return Ok(Next::Done);
        };
        let patch = json!({
            "metadata": { "resourceVersion": known.resource_version() },
            "status": status,
        });
        let client = self.fleet.status_writer.when_idle().await;
        let api: Api<Failover> = Api::all(client.clone());
        let answer = merge_status(&api, &name, &patch).await;
        match Written::of(answer).map_err(ApiError::of("write the status of", &title(&name)))? {
            Written::Done(object) => {
                self.with(|ledger, _| ledger.written(object));
                Ok(Next::Done)
            }
            // The cache shows what was written meanwhile, or that the record is deleted.
            Written::Overtaken | Written::Gone => Ok(Next::After(BATCH)),
        }
    }

    async fn delete(&self, name: &str, known: Option<Failover>) -> Result<Next, ApiError> {
        if let Some(known) = known {
            let parameters = delete_params(known.uid(), None);
            let client = self.fleet.status_writer.when_idle().await;
            let api: Api<Failover> = Api::all(client.clone());
            let deleted = Written::of(api.delete(name, &parameters).await);
            deleted.map_err(ApiError::of("delete", &title(name)))?;
        }
        self.with(|ledger, now| ledger.deleted(name, now));
        Ok(Next::Done)
    }
}

fn title(name: &str) -> String {
    format!("Failover {name}")
}
