//! Works, one at a time: read, bring or remove their objects, say what became of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::conditions::FALSE;
use muster_shared::events::{EventType, Events};
use muster_shared::k8s::{Api, Condition, CoreObjectReference, ResourceExt};
use muster_shared::names::annotation;
use muster_shared::names::condition::DISPATCHING;
use muster_shared::queue::{Next, Queue};
use muster_shared::watch::{Change as Seen, Informer};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cached::CachedWork;
use super::desired::{self, ObjectKey};
use super::inventory::Inventory;
use super::member::{self, Member};
use super::object::{self, Change};
use super::work::{FINALIZER, desired_for, dropped, has_finalizer, in_order, namespace, path};
use super::{marks, outcome};
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
    /// An object could not be removed.
    #[error(transparent)]
    Member(#[from] member::Error),
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
        (member, inventory): (Member, Arc<Inventory>),
        events: Events,
        reflections: Arc<Reflections>,
        queue: Queue<String>,
    ) -> Arc<Self> {
        let written = Arc::new(Written::default());
        let (keys, forget) = (queue.clone(), Arc::clone(&written));
        works.on_change(move |seen| match seen {
            Seen::Applied { old, new } => {
                // What we wrote need not be remembered once it is seen.
                forget.newest(Arc::clone(new));
                if CachedWork::concerns_us(old.as_deref(), new) {
                    keys.add(new.name_any());
                }
            }
            Seen::Deleted { old } => forget.forget(&old.name_any()),
        });
        Arc::new(Self {
            cluster,
            works,
            api,
            clusters,
            member,
            inventory,
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
        let cached = self.written.newest(cached);
        if cached.metadata.deletion_timestamp.is_some() {
            return self.remove(&cached).await;
        }
        let work = Arc::new(cached.open());
        if !has_finalizer(&work) {
            // Its objects must not come before the promise to remove them.
            let mut finalizers = work.finalizers().to_vec();
            finalizers.push(FINALIZER.to_owned());
            self.patch(
                &work,
                None,
                &json!({ "metadata": { "finalizers": finalizers } }),
            )
            .await?;
            return Ok(Next::After(Duration::ZERO));
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
        let total = work.spec.workload.manifests.len();
        let (mut failures, mut changed, mut waits) = (Vec::new(), false, false);
        for (ordinal, manifest) in in_order(&work) {
            match self.bring(&work, ordinal, manifest).await {
                Ok(change) => changed |= change != Change::None,
                Err(error) => {
                    waits |= waits_for_others(&error);
                    failures.push(error.to_string());
                }
            }
        }
        self.note_waiting(&work.name_any(), waits);
        self.remove_dropped(&work).await?;

        let now = Timestamp::now();
        let applied = outcome::applied(total, &failures, now);
        let news = changed || is_news(&work, &applied);
        self.conclude(
            Arc::clone(&work),
            vec![outcome::dispatching(false, now), applied],
        )
        .await?;
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
            return Ok(Next::Done);
        }
        let failure = failures.join("; ");
        if news {
            let (work_path, cluster) = (path(&work), &self.cluster);
            let note =
                format!("Failed to sync work({work_path}) to cluster({cluster}), err: {failure}");
            self.events
                .publish(&*work, EventType::Warning, "SyncFailed", note);
        }
        Err(Error::Objects(failure))
    }

    /// Applies one manifest and tells its template about it.
    async fn bring(
        &self,
        work: &Work,
        ordinal: usize,
        manifest: &Value,
    ) -> Result<Change, object::Error> {
        let key = ObjectKey::of(manifest, ordinal)?;
        let wanted = desired_for(work, manifest);
        if self.inventory.confirms(&key, &wanted) {
            return Ok(Change::None);
        }
        let outcome = object::bring(&self.member, &self.cluster, &key, &wanted).await;
        if let Ok((_, object)) = &outcome {
            self.reflections
                .see_first(&work.name_any(), &key, Look::at(object));
        }
        match &outcome {
            Ok((Change::None, _)) => {}
            Ok((change, _)) => {
                let result = if *change == Change::Created {
                    "created"
                } else {
                    "updated"
                };
                count(&key, result);
                tracing::info!(object = %key, ?change, work = work.name_any(), "applied");
                let note = format!(
                    "Successfully applied resource({}) to cluster {}",
                    key.path(),
                    self.cluster
                );
                self.tell_template(&key, &wanted, EventType::Normal, "SyncSucceed", note);
                if *change == Change::Created && desired::rank(&key.kind) < 2 {
                    self.wake_waiting();
                }
            }
            Err(error) => {
                count(&key, "error");
                let (path, cluster) = (key.path(), &self.cluster);
                let note = format!(
                    "Failed to create or update resource({path}) in member cluster({cluster}): {error}"
                );
                self.tell_template(&key, &wanted, EventType::Warning, "SyncFailed", note);
            }
        }
        outcome.map(|(change, _)| change)
    }

    /// Removes objects that an earlier version of the Work had and this one has not. Karmada leaves them behind.
    async fn remove_dropped(&self, work: &Work) -> Result<(), Error> {
        let dropped = dropped(work);
        if dropped.is_empty() {
            return Ok(());
        }
        // What the present version lacks is known only from the present version.
        let name = work.name_any();
        let Some(fresh) = self.read(&name).await? else {
            return Ok(());
        };
        if fresh.metadata.uid != work.metadata.uid || fresh.spec != work.spec {
            return Ok(());
        }
        let preserve = work.spec.preserve_resources_on_deletion == Some(true);
        for key in dropped {
            object::remove(&self.member, &key, (&namespace(work), &name), preserve).await?;
            tracing::info!(object = %key, work = name, "removed: the work no longer has it");
            self.reflections.drop_object(&name, &key);
        }
        Ok(())
    }

    /// Removes the objects of a Work that is being deleted, then lets it go.
    async fn remove(&self, cached: &CachedWork) -> Result<Next, Error> {
        let name = cached.name_any();
        let Some(work) = self.read(&name).await? else {
            return Ok(Next::Done);
        };
        let same = work.metadata.uid == cached.metadata.uid;
        if !same || work.metadata.deletion_timestamp.is_none() || !has_finalizer(&work) {
            return Ok(Next::Done);
        }
        let preserve = work.spec.preserve_resources_on_deletion == Some(true);
        let namespace = namespace(&work);
        let manifests = work.spec.workload.manifests.iter().enumerate();
        let listed =
            manifests.filter_map(|(ordinal, manifest)| ObjectKey::of(&manifest.0, ordinal).ok());
        for key in listed.chain(dropped(&work)) {
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
                    return Err(error.into());
                }
            }
        }
        let mut finalizers = work.finalizers().to_vec();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        match self.patch(&work, None, &patch).await {
            Err(error) if error.is_not_found() => {}
            outcome => outcome?,
        }
        self.note_waiting(&name, false);
        Ok(Next::Done)
    }

    /// Writes conditions, unless the Work has them already, and tells when dispatching was suspended or goes on again.
    async fn conclude(&self, mut work: Arc<Work>, conditions: Vec<Condition>) -> Result<(), Error> {
        if let Some(turned) = conditions.iter().find(|new| dispatching_turned(&work, new)) {
            let note = turned.message.clone();
            self.events
                .publish(&*work, EventType::Normal, "WorkDispatching", note);
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
                            work = Arc::new(fresh);
                        }
                        _ => return Ok(()),
                    }
                }
                Err(error) if error.is_not_found() => return Ok(()),
                outcome => return outcome.map_err(Error::from),
            }
        }
    }

    /// Merge patch of a Work, refused when it is no longer the version that we decided on.
    async fn patch(
        &self,
        work: &Work,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Result<(), write::Error> {
        let mut patch = patch.clone();
        patch["metadata"]["resourceVersion"] = json!(work.resource_version());
        let name = work.name_any();
        let call = write::merge(&self.api, &name, subresource, &patch);
        let after = within("update the Work", call).await?;
        self.written
            .remember(&work.metadata, self.works.kept(after));
        // The informer may have been faster.
        if let Some(cached) = self.works.get(self.api.namespace(), &name) {
            self.written.newest(cached);
        }
        Ok(())
    }

    /// A Work as the fleet has it now.
    async fn read(&self, name: &str) -> Result<Option<Work>, write::Error> {
        let found = within("read the Work", self.api.get_opt(name)).await?;
        Ok(found.map(|cached| cached.open()))
    }

    fn tell_template(
        &self,
        key: &ObjectKey,
        desired: &Value,
        kind: EventType,
        reason: &str,
        note: String,
    ) {
        let Some(uid) = marks::annotation(desired, annotation::TEMPLATE_UID) else {
            return;
        };
        let template = CoreObjectReference {
            api_version: Some(key.kind.api_version()),
            kind: Some(key.kind.kind.clone()),
            name: Some(key.name.clone()),
            namespace: (!key.namespace.is_empty()).then(|| key.namespace.clone()),
            uid: Some(uid.to_owned()),
            ..CoreObjectReference::default()
        };
        self.events.publish_about(template, kind, reason, note);
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
