//! Works, one at a time: read, bring or remove their objects, say what became of it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::{Work, WorkStatus};
use muster_shared::conditions::{FALSE, TRUE};
use muster_shared::events::{EventType, Events};
use muster_shared::k8s::{Api, Condition, ResourceExt};
use muster_shared::names::condition::{CONTENDED, DISPATCHING};
use muster_shared::queue::{Next, Queue};
use muster_shared::watch::{Change as Seen, Informer};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cached::{CachedWork, Unreadable};
use super::desired::{self, ObjectKey};
use super::inventory::Inventory;
use super::member::{self, Member};
use super::object::{self, Change};
use super::outcome::{self, Failures};
use super::repairs::Repairs;
use super::work::{FINALIZER, desired_for, dropped, has_finalizer, in_order, namespace, path};
use crate::reflect::{Look, Reflections};
use crate::write::{self, within};
use crate::written::Written;

/// After a namespace or a definition was created, Works that wait for one are tried again; a definition takes a moment to be served.
const PREREQUISITE_PAUSE: Duration = Duration::from_millis(500);

/// Why a Work has to be looked at again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The fleet API refused or did not answer.
    #[error(transparent)]
    Fleet(#[from] write::Error),
    /// Some of its objects were not applied.
    #[error("{0}")]
    Objects(String),
    /// The fleet API takes our finalizer and does not keep it, so that nothing may be applied: it could not be removed again.
    #[error(
        "the fleet API does not keep the finalizer {FINALIZER:?} on the Work: look for an admission webhook that removes it"
    )]
    Finalizer,
}

/// Applies the Works of one member.
pub struct Applier {
    cluster: String,
    works: Informer<CachedWork>,
    /// For writes to Works, on a connection apart from the watch.
    api: Api<CachedWork>,
    clusters: Informer<Cluster>,
    member: Member,
    inventory: Arc<Inventory>,
    repairs: Arc<Repairs>,
    events: Events,
    reflections: Arc<Reflections>,
    queue: Queue<String>,
    written: Arc<Written<CachedWork>>,
    /// Works with an object whose namespace or kind the member does not have yet.
    waiting: Mutex<BTreeSet<String>>,
}

impl Applier {
    /// Listens to the Works; they are worked on when [`reconcile`](Self::reconcile) is called for the keys of `queue`.
    pub fn new(
        cluster: String,
        (works, api): (Informer<CachedWork>, Api<CachedWork>),
        clusters: Informer<Cluster>,
        (member, inventory, repairs): (Member, Arc<Inventory>, Arc<Repairs>),
        events: Events,
        reflections: Arc<Reflections>,
        queue: Queue<String>,
    ) -> Arc<Self> {
        let written = Arc::new(Written::default());
        let (keys, forget, asked) = (queue.clone(), Arc::clone(&written), Arc::clone(&repairs));
        works.on_change(move |seen| match seen {
            Seen::Applied { old, new } => {
                let ours = forget.wrote(new.as_ref());
                // What we wrote need not be remembered once it is seen.
                forget.newest(Arc::clone(new));
                let lost = !ours && CachedWork::tells_otherwise(old.as_deref(), new);
                if lost || CachedWork::concerns_us(old.as_deref(), new) {
                    asked.ask(&new.name_any());
                    keys.add(new.name_any());
                }
            }
            Seen::Deleted { old } => {
                forget.forget(&old.name_any());
                asked.forget(&old.name_any());
            }
        });
        Arc::new(Self {
            cluster,
            works,
            api,
            clusters,
            member,
            inventory,
            repairs,
            events,
            reflections,
            queue,
            written,
            waiting: Mutex::default(),
        })
    }

    /// Brings one Work up to date.
    pub async fn reconcile(self: Arc<Self>, name: String) -> Result<Next, Error> {
        let namespace = self.api.namespace().map(str::to_owned);
        let Some(cached) = self.works.get(namespace.as_deref(), &name) else {
            return Ok(Next::Done);
        };
        self.repairs.begin(&name);
        let cached = self.written.newest(cached);
        if cached.metadata.deletion_timestamp.is_some() {
            return self.remove(&cached).await;
        }
        let work = match cached.open() {
            Ok(work) => Arc::new(work),
            Err(why) => return self.refuse(&cached, &why).await,
        };
        if !has_finalizer(&work) {
            // Its objects must not come before the promise to remove them.
            let mut finalizers = work.finalizers().to_vec();
            finalizers.push(FINALIZER.to_owned());
            let patch = json!({ "metadata": { "finalizers": finalizers } });
            let after = self.patch(&work, None, &patch).await?;
            let kept = after.open().is_ok_and(|after| has_finalizer(&after));
            return if kept {
                Ok(Next::After(Duration::ZERO))
            } else {
                Err(Error::Finalizer)
            };
        }
        if cached.suspended {
            self.conclude(work, vec![outcome::dispatching(true, Timestamp::now())])
                .await?;
            return Ok(Next::Done);
        }
        if let Some(wait) = self.inventory.wait(&name, cached.kinds()) {
            return Ok(Next::After(wait));
        }
        let begun = Instant::now();
        let outcome = self.apply(work).await;
        let result = if outcome.is_ok() { "success" } else { "error" };
        metrics::counter!("muster_works_applied_total", "result" => result).increment(1);
        metrics::histogram!("work_sync_workload_duration_seconds", "result" => result)
            .record(begun.elapsed());
        outcome
    }

    async fn apply(&self, work: Arc<Work>) -> Result<Next, Error> {
        let name = work.name_any();
        let total = work.spec.workload.manifests.len();
        let (mut failures, mut changed, mut waits) = (Failures::default(), false, false);
        let mut first: HashMap<_, usize> = HashMap::new();
        for (ordinal, manifest) in in_order(&work) {
            let outcome = match self.place(manifest, ordinal).await {
                Ok((key, place)) => {
                    let place = first.entry(place.object()).or_insert(ordinal);
                    if *place == ordinal {
                        self.bring(&work, &key, manifest).await
                    } else {
                        Err(object::Error::Twice {
                            ordinal,
                            first: *place,
                            object: key.to_string(),
                        })
                    }
                }
                Err(error) => Err(error),
            };
            match outcome {
                Ok(change) => changed |= change != Change::None,
                Err(error) => {
                    waits |= waits_for_others(&error);
                    failures.unapplied.push(error.to_string());
                }
            }
        }
        self.note_waiting(&name, waits);
        // An object that cannot be removed must not keep the others from being told of.
        if let Err(error) = self.remove_dropped(&work, &mut failures.unremoved).await {
            failures.unremoved.push(error.to_string());
        }

        let now = Timestamp::now();
        let applied = outcome::applied(total, &failures, now);
        let (contended, again) = self.repairs.contended(&name);
        let status = work.status.as_ref();
        let known = status.map_or(&[][..], |status| &status.conditions);
        let contended = outcome::contended(known, &contended, now);
        let news = changed || is_news(&work, &applied);
        let mut conditions = vec![outcome::dispatching(false, now), applied];
        conditions.extend(contended);
        self.conclude(Arc::clone(&work), conditions).await?;
        if failures.is_empty() {
            if news {
                let note = format!(
                    "Sync work({}) to cluster({}) successful.",
                    path(&work),
                    self.cluster
                );
                self.events
                    .publish(&*work, EventType::Normal, "SyncSucceed", note);
            }
            return Ok(again.map_or(Next::Done, Next::After));
        }
        let failure = failures.message();
        if news {
            let (work_path, cluster) = (path(&work), &self.cluster);
            let note =
                format!("Failed to sync work({work_path}) to cluster({cluster}), err: {failure}");
            self.events
                .publish(&*work, EventType::Warning, "SyncFailed", note);
        }
        Err(Error::Objects(failure))
    }

    /// What a manifest names, and where in the member that is.
    async fn place(
        &self,
        manifest: &Value,
        ordinal: usize,
    ) -> Result<(ObjectKey, ObjectKey), object::Error> {
        let key = ObjectKey::of(manifest, ordinal)?;
        let place = self.member.place(&key).await?;
        Ok((key, place))
    }

    /// Tells that a Work cannot be read. It is looked at again when it changes.
    async fn refuse(&self, cached: &CachedWork, why: &Unreadable) -> Result<Next, Error> {
        let work = outline(cached);
        let now = Timestamp::now();
        let refused = outcome::unreadable(why, now);
        let news = is_news(&work, &refused);
        tracing::warn!(work = path(&work), %why, "stepped over");
        let work = Arc::new(work);
        self.conclude(Arc::clone(&work), vec![refused]).await?;
        if news {
            self.events
                .publish(&*work, EventType::Warning, "SyncFailed", why.to_string());
        }
        Ok(Next::Done)
    }

    /// Applies one manifest.
    async fn bring(
        &self,
        work: &Work,
        key: &ObjectKey,
        manifest: &Value,
    ) -> Result<Change, object::Error> {
        let wanted = desired_for(work, manifest);
        if self.inventory.confirms(key, &wanted) {
            return Ok(Change::None);
        }
        let outcome = object::bring(&self.member, &self.cluster, key, &wanted).await;
        if let Ok((_, object)) = &outcome {
            self.reflections
                .see_first(&work.name_any(), key, Look::at(object));
        }
        match &outcome {
            Ok((Change::None, _)) => {}
            Ok((change, _)) => {
                let created = *change == Change::Created;
                count(key, if created { "created" } else { "updated" });
                tracing::info!(object = %key, ?change, work = work.name_any(), "applied");
                if created && desired::rank(&key.kind) < 2 {
                    self.wake_waiting();
                }
            }
            Err(_) => count(key, "error"),
        }
        outcome.map(|(change, _)| change)
    }

    /// Removes objects that an earlier version of the Work had and this one has not. Karmada leaves them behind. Says of which it could not.
    async fn remove_dropped(&self, work: &Work, failures: &mut Vec<String>) -> Result<(), Error> {
        let dropped = dropped(work);
        if dropped.is_empty() {
            return Ok(());
        }
        // What the present version lacks is known only from the present version.
        let name = work.name_any();
        let Some(fresh) = self.read(&name).await? else {
            return Ok(());
        };
        let same = fresh.open().is_ok_and(|fresh| fresh.spec == work.spec);
        if fresh.metadata.uid != work.metadata.uid || !same {
            return Ok(());
        }
        // Two names may be those of one object, which is still wanted then.
        let mut wanted = HashSet::new();
        for (ordinal, manifest) in work.spec.workload.manifests.iter().enumerate() {
            match self.place(&manifest.0, ordinal).await {
                Ok((_, place)) => _ = wanted.insert(place.object()),
                Err(error) => {
                    failures.push(error.to_string());
                    return Ok(());
                }
            }
        }
        let preserve = work.spec.preserve_resources_on_deletion == Some(true);
        for key in dropped {
            let outcome = match self.member.place(&key).await {
                Ok(place) if wanted.contains(&place.object()) => Ok(()),
                Ok(_) => {
                    let owner = (namespace(work), name.clone());
                    object::remove(&self.member, &key, (&owner.0, &owner.1), preserve).await
                }
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => {
                    tracing::info!(object = %key, work = name, "removed: the work no longer has it");
                    self.reflections.drop_object(&name, &key);
                }
                Err(error) => {
                    count(&key, "error");
                    failures.push(error.to_string());
                }
            }
        }
        Ok(())
    }

    /// Removes the objects of a Work that is being deleted, then lets it go.
    async fn remove(&self, cached: &CachedWork) -> Result<Next, Error> {
        let name = cached.name_any();
        let Some(fresh) = self.read(&name).await? else {
            return Ok(Next::Done);
        };
        let same = fresh.metadata.uid == cached.metadata.uid;
        if !same || fresh.metadata.deletion_timestamp.is_none() {
            return Ok(Next::Done);
        }
        let work = match fresh.open() {
            Ok(work) => work,
            // What it has in the member cannot be told.
            Err(why) => return self.refuse(&fresh, &why).await,
        };
        if !has_finalizer(&work) {
            return Ok(Next::Done);
        }
        let failures = self.remove_all(&work).await;
        if !failures.is_empty() {
            let failure = failures.message();
            let (work_path, cluster) = (path(&work), &self.cluster);
            let note = format!(
                "Failed to delete work({work_path}) from cluster({cluster}), err: {failure}"
            );
            let known = outcome::applied(0, &failures, Timestamp::now());
            if is_news(&work, &known) {
                self.events
                    .publish(&work, EventType::Warning, "SyncFailed", note);
                self.conclude(Arc::new(work), vec![known]).await?;
            }
            return Err(Error::Objects(failure));
        }
        let mut finalizers = work.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        match self.patch(&work, None, &patch).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        self.note_waiting(&name, false);
        Ok(Next::Done)
    }

    /// Removes all objects of a Work; one that cannot be removed does not keep the others.
    async fn remove_all(&self, work: &Work) -> Failures {
        let preserve = work.spec.preserve_resources_on_deletion == Some(true);
        let (namespace, name) = (namespace(work), work.name_any());
        let manifests = work.spec.workload.manifests.iter().enumerate();
        let listed =
            manifests.filter_map(|(ordinal, manifest)| ObjectKey::of(&manifest.0, ordinal).ok());
        let mut failures = Failures::default();
        for key in listed.chain(dropped(work)) {
            let owner = (namespace.as_str(), name.as_str());
            match object::remove(&self.member, &key, owner, preserve).await {
                Ok(()) => {
                    count(&key, "removed");
                    tracing::info!(object = %key, work = name, preserve, "removed");
                }
                Err(error) if error.is_silence() && self.cluster_is_leaving() => {
                    tracing::warn!(object = %key, %error, "left behind: the cluster leaves the fleet and its API is silent");
                }
                Err(error) => {
                    count(&key, "error");
                    failures.unremoved.push(error.to_string());
                    if error.is_silence() {
                        // The others would wait as long in vain.
                        break;
                    }
                }
            }
        }
        failures
    }

    /// Writes conditions, unless the Work has them already, and tells when dispatching was suspended or goes on again.
    async fn conclude(&self, mut work: Arc<Work>, conditions: Vec<Condition>) -> Result<(), Error> {
        if let Some(turned) = conditions.iter().find(|new| dispatching_turned(&work, new)) {
            let note = turned.message.clone();
            self.events
                .publish(&*work, EventType::Normal, "WorkDispatching", note);
        }
        let warned = conditions.iter().find(|new| contest_turned(&work, new));
        if let Some(contended) = warned {
            let note = contended.message.clone();
            self.events
                .publish(&*work, EventType::Warning, CONTENDED, note);
        }
        loop {
            let before = work
                .status
                .as_ref()
                .map_or(&[][..], |status| &status.conditions);
            let Some(after) = muster_shared::conditions::merge(before, conditions.clone()) else {
                return Ok(());
            };
            let patch = json!({ "status": { "conditions": after } });
            match self.patch(&work, Some("status"), &patch).await {
                Err(error) if error.is_conflict() => {
                    // Somebody else's condition, or our own report of the objects' status.
                    match self.read(&work.name_any()).await? {
                        Some(fresh) if fresh.metadata.uid == work.metadata.uid => {
                            work = Arc::new(outline(&fresh));
                        }
                        _ => return Ok(()),
                    }
                }
                Err(error) if error.is_not_found() => return Ok(()),
                outcome => return outcome.map(|_| ()).map_err(Error::from),
            }
        }
    }

    /// Merge patch of a Work, refused when it is no longer the version that we decided on. Gives the Work as it is then.
    async fn patch(
        &self,
        work: &Work,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Result<Arc<CachedWork>, write::Error> {
        let mut patch = patch.clone();
        patch["metadata"]["resourceVersion"] = json!(work.resource_version());
        let name = work.name_any();
        let call = write::merge(&self.api, &name, subresource, &patch);
        let after = within("update the Work", call).await?;
        let after = self
            .written
            .remember(&work.metadata, self.works.kept(after));
        // The informer may have been faster.
        if let Some(cached) = self.works.get(self.api.namespace(), &name) {
            self.written.newest(cached);
        }
        Ok(after)
    }

    /// A Work as the fleet has it now.
    async fn read(&self, name: &str) -> Result<Option<CachedWork>, write::Error> {
        within("read the Work", self.api.get_opt(name)).await
    }

    fn cluster_is_leaving(&self) -> bool {
        self.clusters
            .get(None, &self.cluster)
            .is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_some())
    }

    fn note_waiting(&self, name: &str, waits: bool) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waits {
            waiting.insert(name.to_owned());
        } else {
            waiting.remove(name);
        }
    }

    fn wake_waiting(&self) {
        let waiting =
            std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for name in waiting {
            self.queue.add_after(name, PREREQUISITE_PAUSE);
        }
    }
}

/// Whether a condition says something new about dispatching. That a new Work is dispatched goes without saying.
fn dispatching_turned(work: &Work, new: &Condition) -> bool {
    let mut known = work.status.iter().flat_map(|status| &status.conditions);
    let known = known.find(|known| known.type_ == DISPATCHING);
    new.type_ == DISPATCHING
        && known.map_or(new.status == FALSE, |known| known.status != new.status)
}

/// Whether a condition says something new about others who change the objects.
fn contest_turned(work: &Work, new: &Condition) -> bool {
    let mut known = work.status.iter().flat_map(|status| &status.conditions);
    new.type_ == CONTENDED
        && new.status == TRUE
        && !known.any(|known| (&known.type_, &known.message) == (&new.type_, &new.message))
}

/// A Work, or as much of it as is needed to write its conditions.
fn outline(cached: &CachedWork) -> Work {
    cached.open().unwrap_or_else(|unreadable| Work {
        metadata: cached.metadata.clone(),
        status: Some(WorkStatus {
            conditions: unreadable.conditions().to_vec(),
            ..WorkStatus::default()
        }),
        ..Work::default()
    })
}

/// Counts what became of an object.
fn count(key: &ObjectKey, result: &'static str) {
    metrics::counter!("muster_objects_applied_total", "kind" => key.kind.kind.clone(), "result" => result)
        .increment(1);
}

fn is_news(work: &Work, applied: &Condition) -> bool {
    let known = work.status.iter().flat_map(|status| &status.conditions);
    !known
        .filter(|known| known.type_ == applied.type_)
        .any(|known| known.status == applied.status && known.message == applied.message)
}

/// Whether the failure may be over as soon as some other Work is applied.
fn waits_for_others(error: &object::Error) -> bool {
    match error {
        object::Error::Member(error) => {
            error.is_not_found() || matches!(error, member::Error::UnknownKind { .. })
        }
        _ => false,
    }
}
