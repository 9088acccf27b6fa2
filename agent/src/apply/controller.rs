//! Reconciles one Work at a time: reads it, applies or removes its objects, and reports the result.

mod held;
mod removal;
mod telling;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_interpreter::Interpreters;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::clock::Clock;
use muster_shared::conditions::TRUE;
use muster_shared::events::{EventType, Events};
use muster_shared::fencing::{Orders, Times};
use muster_shared::k8s::{Api, Condition, ResourceExt};
use muster_shared::queue::{Next, Queue};
use muster_shared::watch::{Change as Seen, Expectations, Informer};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::removal::Departure;
use self::telling::is_news;
use super::outcome::{self, Failures};
use crate::fencing::orders::{self, Fenced};
use crate::fencing::{Fencer, Permission};
use crate::fleet_id;
use crate::reflect::{Look, ObjectStatuses, has_run};
use crate::work::CachedWork;
use crate::work::desired::{self, ObjectKey};
use crate::work::manifests::{FINALIZER, desired_for, has_finalizer, in_order, path};
use crate::work::member;
use crate::work::object::{self, Change, Objects};
use crate::work::reader::{Turns, Whole, WorkReader};
use crate::work::repairs::Repairs;
use crate::write::{self, within};

/// After a namespace or a definition was created, Works that wait for one are tried again; a
/// definition takes a moment to be served.
const PREREQUISITE_PAUSE: Duration = Duration::from_millis(500);

/// Pause of a Work that could not be confirmed as fenced.
const UNCONFIRMED: Duration = Duration::from_secs(30);
/// Pause of a fenced Work while the member counts as cut off.
const CUT_OFF: Next = Next::After(Duration::from_secs(1));

/// Reason why a Work has to be reconciled again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The fleet API rejected a request or did not answer.
    #[error(transparent)]
    Fleet(#[from] write::Error),
    /// Some objects were not applied.
    #[error("{0}")]
    Objects(String),
    /// The fleet API accepts the finalizer and does not store it. Nothing may be applied, because
    /// it could not be removed again.
    #[error(
        "the fleet API does not keep the finalizer {FINALIZER:?} on the Work: look for an admission webhook that removes it"
    )]
    Finalizer,
    /// Another agent leads now, or the identity of the member is in doubt; the Work is not
    /// reported.
    #[error("this agent may not act for the member at present")]
    Dismissed,
}

/// Applies the Works of one member.
pub struct Applier {
    /// Cache of Works.
    pub works: Informer<CachedWork>,
    /// API of Works, for writes on a connection apart from the watch.
    pub api: Api<CachedWork>,
    /// Opens Works.
    pub reader: Arc<WorkReader>,
    /// Cache of the member's Cluster.
    pub clusters: Informer<Cluster>,
    /// Applies and removes the objects in the member.
    pub objects: Objects,
    /// Times of repairs, and ranks of Works.
    pub repairs: Arc<Repairs>,
    /// Meaning of resources.
    pub interpreters: Arc<Interpreters>,
    /// Statuses of objects, which begin with the answers to applies.
    pub statuses: Arc<ObjectStatuses>,
    /// Publishes events about Works.
    pub events: Events,
    /// Clock for the times of conditions.
    pub clock: Arc<Clock>,
    /// Works to reconcile.
    pub queue: Queue<String>,
    /// The id of the fleet.
    pub fleet: fleet_id::Known,
    /// Stops objects while the member is cut off; `None` where nothing does, because the member
    /// has no lease.
    pub fencer: Option<Arc<Fencer>>,
    /// State between two reconciliations.
    pub state: State,
}

/// State of an [`Applier`].
#[derive(Default)]
pub struct State {
    /// The agent's writes of Works that the cache does not show yet.
    expectations: Arc<Expectations<String, Arc<CachedWork>>>,
    /// Turns of large Works.
    turns: Turns,
    /// Works with an object whose namespace or kind the member does not have yet.
    waiting: Mutex<BTreeSet<String>>,
    /// Objects of deleted Works.
    departing: Mutex<HashMap<String, Departure>>,
}

impl State {
    fn forget_departure(&self, name: &str) {
        let departing = self.departing.lock();
        departing
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

impl Applier {
    /// Adds Works to the queue when they change. They are reconciled when
    /// [`reconcile`](Self::reconcile) is called for the keys of the queue.
    pub fn listen(self) -> Arc<Self> {
        let (keys, asked) = (self.queue.clone(), Arc::clone(&self.repairs));
        let expectations = Arc::clone(&self.state.expectations);
        self.works.on_change(move |seen| match seen {
            Seen::Applied { old, new } => {
                let name = new.name_any();
                let own = expectations.is_last_write(&name, &new.metadata);
                expectations.observe(&name, &new.metadata);
                let lost = !own && CachedWork::tells_otherwise(old.as_deref(), new);
                if lost || CachedWork::concerns_us(old.as_deref(), new) {
                    asked.ask(&name);
                    keys.add(name);
                }
            }
            // A reconciliation that is under way may still record something about the Work, so it
            // is forgotten in its turn on the queue.
            Seen::Deleted { old } => keys.add(old.name_any()),
        });
        Arc::new(self)
    }

    /// Brings one Work up to date.
    pub async fn reconcile(self: Arc<Self>, name: String) -> Result<Next, Error> {
        let outcome = self.attempt(&name).await;
        if outcome.is_err() {
            self.repairs.failed(&name);
        }
        outcome
    }

    async fn attempt(&self, name: &str) -> Result<Next, Error> {
        let namespace = self.api.namespace().map(str::to_owned);
        let Some(cached) = self.works.get(namespace.as_deref(), name) else {
            self.forget(name);
            return Ok(Next::Done);
        };
        let written = self.state.expectations.answer(name, &cached.metadata);
        let cached = written.unwrap_or(cached);
        let Some(_turn) = self.state.turns.take(&cached, &self.queue) else {
            return Ok(Next::Waits);
        };
        self.repairs.begin(name);
        if cached.metadata.deletion_timestamp.is_some() {
            return self.remove(&cached).await;
        }
        // The cache will tell of the one that is gone, or of the other one of its name.
        let Some(Whole { cached, work }) = self.reader.open(&cached).await? else {
            return Ok(Next::Done);
        };
        if cached.metadata.deletion_timestamp.is_some() {
            return self.remove(&cached).await;
        }
        let work = match work {
            Ok(work) => Arc::new(work),
            Err(why) => return self.refuse(&cached, &why).await,
        };
        if !has_finalizer(&work) {
            // The finalizer is stored before any object is applied, so that every object can be
            // removed.
            let mut finalizers = work.finalizers().to_vec();
            finalizers.push(FINALIZER.to_owned());
            let patch = json!({ "metadata": { "finalizers": finalizers } });
            return promised(self.patch(&work, None, &patch).await?.as_ref());
        }
        if cached.suspended {
            return self.hold(&cached, work).await;
        }
        if let Some(wait) = self.objects.drift.wait(name, cached.kinds()) {
            return Ok(Next::After(wait));
        }
        let fenced = Fenced::of(&work);
        if !self.may_start(&work, fenced.as_ref()).await? {
            return Ok(CUT_OFF);
        }
        let begun = Instant::now();
        let outcome = self.apply(work, fenced).await;
        let result = if outcome.is_ok() { "success" } else { "error" };
        metrics::counter!("muster_works_applied_total", "result" => result).increment(1);
        metrics::histogram!("work_sync_workload_duration_seconds", "result" => result)
            .record(begun.elapsed());
        outcome
    }

    /// Returns whether a Work may be applied. Nothing fenced is while the member counts as cut off;
    /// afterwards the Work is read first, because the control plane may have withdrawn it and
    /// placed the workload elsewhere.
    async fn may_start(&self, work: &Work, fenced: Option<&Fenced>) -> Result<bool, Error> {
        let (Some(silence), Some(fenced)) = (&self.fencer, fenced) else {
            return Ok(true);
        };
        let name = work.name_any();
        match silence.permission(&name, fenced) {
            Permission::Granted => return Ok(true),
            Permission::Refused => return Ok(false),
            Permission::Verify => {}
        }
        let asked = Instant::now();
        let fresh = self.reader.read(&name).await?;
        let is_wanted = fresh.is_some_and(|Whole { cached, .. }| {
            cached.metadata.uid == work.metadata.uid && cached.metadata.deletion_timestamp.is_none()
        });
        if is_wanted {
            silence.verify(&name, asked);
        }
        Ok(is_wanted)
    }

    /// Returns the condition that tells the control plane whether the objects of a Work are
    /// stopped when the member is cut off.
    async fn confirm(&self, fenced: &Fenced) -> Condition {
        let now = self.clock.now();
        let Some(record) = &self.fencer else {
            let why = "the cluster has sync mode Push: no agent in it could stop the objects";
            return orders::refusal("PushMode", why, now);
        };
        match record.arm(fenced).await {
            Ok(()) => orders::confirmation(fenced.longest, now),
            Err((reason, why)) => {
                tracing::warn!(reason, why, "does not fence");
                orders::refusal(reason, &why, now)
            }
        }
    }

    async fn apply(&self, work: Arc<Work>, fenced: Option<Fenced>) -> Result<Next, Error> {
        let name = work.name_any();
        let known = work.status.as_ref();
        let confirmed = known.and_then(|status| Times::confirmed(&status.conditions));
        if let Some(first) = orders::before(confirmed, fenced.as_ref(), self.clock.now()) {
            self.conclude(Arc::clone(&work), vec![first]).await?;
        }
        let Some(work) = self.remember(work).await? else {
            return Ok(Next::Again);
        };
        let total = work.spec.workload.manifests.len();
        let (mut failures, mut changed, mut waits) = (Failures::default(), false, false);
        let (mut is_asked, mut unconfirmed) = (false, false);
        let mut first: HashMap<_, usize> = HashMap::new();
        for (ordinal, manifest) in in_order(&work) {
            if !self.objects.member.may_act() {
                return Err(Error::Dismissed);
            }
            let outcome = match self.place(manifest, ordinal).await {
                Ok((key, place)) => {
                    let place = first.entry(place.object()).or_insert(ordinal);
                    if *place == ordinal {
                        self.ensure_applied(&work, &key, manifest).await
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
                // A webhook has to say which fields the member keeps.
                Err(error) if error.waits(&self.queue, &name) => is_asked = true,
                Err(error) => {
                    waits |= waits_for_others(&error);
                    failures.unapplied.push(error.to_string());
                }
            }
        }
        self.note_waiting(&name, waits);
        // A failed removal does not hide the failures of applies.
        if let Err(error) = self.remove_dropped(&work, &mut failures).await {
            failures.unremoved.push(error.to_string());
        }
        if !self.objects.member.may_act() {
            return Err(Error::Dismissed);
        }

        let look_again = failures.look_again(self.clock.now());
        if is_asked && failures.is_empty() && look_again.is_none() {
            // What was reported stays until all objects have been applied.
            return Ok(Next::Done);
        }
        let now = self.clock.now();
        let applied = outcome::applied(total, &failures, now);
        let (contended, again) = self.repairs.contended(&name);
        let status = work.status.as_ref();
        let known = status.map_or(&[][..], |status| &status.conditions);
        let contended = outcome::contended(known, &contended, now);
        let news = changed || is_news(&work, &applied);
        let mut conditions = vec![outcome::dispatching(false, now), applied];
        conditions.extend(contended);
        if let Some(fenced) = fenced.filter(|_| failures.unapplied.is_empty() && !is_asked) {
            let condition = self.confirm(&fenced).await;
            unconfirmed = condition.status != TRUE && self.fencer.is_some();
            conditions.push(condition);
        }
        self.conclude(Arc::clone(&work), conditions).await?;
        if failures.is_empty() {
            if news && look_again.is_none() {
                let note = format!(
                    "Sync work({}) to cluster({}) successful.",
                    path(&work),
                    self.objects.cluster
                );
                self.events
                    .publish(&*work, EventType::Normal, "SyncSucceed", note);
            }
            let again = again.into_iter().chain(unconfirmed.then_some(UNCONFIRMED));
            let again = again.chain(look_again);
            return Ok(again.min().map_or(Next::Done, Next::After));
        }
        let failure = failures.message();
        if news {
            let (work_path, cluster) = (path(&work), &self.objects.cluster);
            let note =
                format!("Failed to sync work({work_path}) to cluster({cluster}), err: {failure}");
            self.events
                .publish(&*work, EventType::Warning, "SyncFailed", note);
        }
        Err(Error::Objects(failure))
    }

    /// Returns the key of a manifest, and the key under which the member stores the object.
    async fn place(
        &self,
        manifest: &Value,
        ordinal: usize,
    ) -> Result<(ObjectKey, ObjectKey), object::Error> {
        let key = ObjectKey::of(manifest, ordinal)?;
        let place = self.objects.member.place(&key).await?;
        Ok((key, place))
    }

    /// Applies one manifest.
    async fn ensure_applied(
        &self,
        work: &Work,
        key: &ObjectKey,
        manifest: &Value,
    ) -> Result<Change, object::Error> {
        let seen = self.statuses.seen(&work.name_any(), key);
        // A task that has succeeded does not run again because its object is cleaned up.
        let has_run = has_run(work, seen.as_ref(), key, manifest);
        if has_run {
            let object = self.objects.member.get(key).await?;
            if object.is_none_or(|object| object::terminates_since(&object).is_some()) {
                return Ok(Change::None);
            }
        }
        let fleet = self.fleet.now();
        let wanted = desired_for(work, manifest, fleet.mark());
        // A list shows an object as desired that was stopped where the member decides its replicas.
        let may_be_stopped = Orders::of(&wanted).is_some();
        if !may_be_stopped && !self.objects.drift.needs_read(key, &wanted) {
            return Ok(Change::None);
        }
        let outcome = self.objects.ensure_applied(key, &wanted, &fleet).await;
        let is_lost = |error: &object::Error| error.is_absence() && !has_run;
        if outcome.as_ref().is_err_and(is_lost) {
            self.statuses.see(&work.name_any(), key, Look::lost());
        }
        self.note_applied(&work.name_any(), key, manifest, &outcome);
        outcome.map(|(change, _)| change)
    }

    /// Notes the result of one apply: in the statuses of objects, the metrics and the log.
    fn note_applied(
        &self,
        work: &str,
        key: &ObjectKey,
        manifest: &Value,
        outcome: &Result<(Change, Value), object::Error>,
    ) {
        match outcome {
            Ok((_, object)) => {
                let look = Look::of(object, manifest, &self.interpreters);
                self.statuses.see_first(work, key, look);
            }
            Err(error) if error.is_hidden() => self.statuses.see_first(work, key, Look::unknown()),
            Err(_) => {}
        }
        match outcome {
            Ok((Change::None, _)) => return,
            Ok((Change::Created, _)) => count(key, "created"),
            Ok((Change::Updated, _)) => count(key, "updated"),
            Err(_) => return count(key, "error"),
        }
        let change = outcome.as_ref().ok().map(|(change, _)| *change);
        tracing::info!(object = %key, ?change, work, "applied");
        if change == Some(Change::Created) && desired::rank(&key.kind) < 2 {
            self.wake_waiting();
        }
    }

    /// Sends a merge patch of a Work, with the version of `work`, so that a change in between is a
    /// conflict. Returns the Work afterwards.
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
        let after = self.works.kept(after);
        let (expectations, answer) = (&self.state.expectations, Arc::clone(&after));
        expectations.written(name.as_str(), &work.metadata, &after.metadata, answer);
        // The informer may have been faster, and shows nothing more of a Work that is gone.
        match self.works.get(self.api.namespace(), &name) {
            Some(cached) => expectations.observe(&name, &cached.metadata),
            None => expectations.forget(&name),
        }
        Ok(after)
    }

    /// Forgets a Work that is gone.
    fn forget(&self, name: &str) {
        if let Some(fencer) = &self.fencer {
            fencer.forget(name);
        }
        self.state.expectations.forget(name);
        self.repairs.forget(name);
        self.objects.drift.forget_work(name);
        self.note_waiting(name, false);
        self.state.forget_departure(name);
    }

    fn note_waiting(&self, name: &str, waits: bool) {
        let mut waiting = self
            .state
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if waits {
            waiting.insert(name.to_owned());
        } else {
            waiting.remove(name);
        }
    }

    fn wake_waiting(&self) {
        let waiting = std::mem::take(
            &mut *self
                .state
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for name in waiting {
            self.queue.add_after(name, PREREQUISITE_PAUSE);
        }
    }
}

/// Decides by the Work after the finalizer was added: it is applied if it has the finalizer.
/// Otherwise the finalizer would be added again and again.
fn promised(after: &CachedWork) -> Result<Next, Error> {
    if after.has_finalizer {
        Ok(Next::After(Duration::ZERO))
    } else {
        Err(Error::Finalizer)
    }
}

/// Counts the result for an object.
fn count(key: &ObjectKey, result: &'static str) {
    metrics::counter!("muster_objects_applied_total", "kind" => key.kind.kind.clone(), "result" => result)
        .increment(1);
}

/// Returns whether the failure may be over as soon as some other Work is applied.
fn waits_for_others(error: &object::Error) -> bool {
    match error {
        object::Error::Member(error) | object::Error::NotMade(error) => {
            error.is_not_found() || matches!(error, member::Error::UnknownKind { .. })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
