//! Applies Works to the member, one at a time: objects are applied while the Work exists, and
//! deleted (or released) when it is deleted. The result is in the conditions of the Work.
//!
//! Nothing is deleted on the word of a cache. A Work that is deleted in the cache is read once more
//! from the API before its objects are deleted, and an object is deleted only if its annotations
//! name this Work.

mod conditions;
mod permission;
mod removal;
mod status;
mod suspended;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::cluster::Cluster;
use muster_shared::api::work::Work;
use muster_shared::clock::Clock;
use muster_shared::conditions::TRUE;
use muster_shared::events::Events;
use muster_shared::fencing::Times;
use muster_shared::finalizers;
use muster_shared::k8s::{Api, ResourceExt};
use muster_shared::queue::Next;
use muster_shared::watch::Informer;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::conditions::Failures;
use self::status::is_update;
use crate::work::CachedWork;
use crate::work::desired::{self, ObjectKey};
use crate::work::fencing::Fencer;
use crate::work::fencing::orders::{self, Fenced};
use crate::work::manifests::{FINALIZER, conditions_of, desired_for, in_order, keys, path};
use crate::work::member;
use crate::work::object::{self, Applied, Change, Objects};
use crate::work::observed::Interpretation;
use crate::work::store::Store;
use crate::work::waits::Event;
use crate::work::works::Whole;
use crate::write;

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
    /// Works, and what is known of their objects.
    pub store: Arc<Store>,
    /// API of Works, for writes on a connection apart from the watch.
    pub api: Api<CachedWork>,
    /// Cache of the member's Cluster.
    pub clusters: Informer<Cluster>,
    /// Applies and removes the objects in the member.
    pub objects: Objects,
    /// Publishes events about Works.
    pub events: Events,
    /// Clock for the times of conditions.
    pub clock: Arc<Clock>,
    /// Stops objects while the member is cut off; `None` where nothing does, because the member
    /// has no lease.
    pub fencer: Option<Arc<Fencer>>,
}

impl Applier {
    /// Brings one Work up to date.
    pub async fn reconcile(self: Arc<Self>, name: String) -> Result<Next, Error> {
        let outcome = self.attempt(&name).await;
        if outcome.is_err() {
            self.store.waits.failed(&name);
        }
        outcome
    }

    async fn attempt(&self, name: &str) -> Result<Next, Error> {
        self.store.works.take_over().await;
        let Some(cached) = self.store.works.latest(name).await? else {
            self.forget(name);
            return Ok(Next::Done);
        };
        let Some(_permit) = self.store.waits.permit(&cached, Event::FreeToApply) else {
            return Ok(Next::Waits);
        };
        self.store.waits.begin(name);
        if cached.metadata.deletion_timestamp.is_some() {
            return self.remove(&cached).await;
        }
        // The cache will report the one that is gone, or the other one of its name.
        let Some(Whole { cached, work }) = self.store.works.open(&cached).await? else {
            return Ok(Next::Done);
        };
        if cached.metadata.deletion_timestamp.is_some() {
            return self.remove(&cached).await;
        }
        let work = match work {
            Ok(work) => Arc::new(work),
            Err(why) => return self.refuse(&cached, &why).await,
        };
        if let Some(all) = finalizers::with(&work.metadata, FINALIZER) {
            // The finalizer is stored before any object is applied, so that every object can be
            // removed.
            let patch = json!({ "metadata": { "finalizers": all } });
            return promised(self.patch(&work, None, patch).await?.as_ref());
        }
        if cached.suspended {
            return self.hold(&cached, work).await;
        }
        if let Some(wait) = self.store.wait_for_lists(&cached) {
            return Ok(wait);
        }
        if !self.may_start(&cached, &work).await? {
            return Ok(CUT_OFF);
        }
        let begun = Instant::now();
        let outcome = self.apply(&cached, work).await;
        let result = if outcome.is_ok() { "success" } else { "error" };
        metrics::counter!("muster_works_applied_total", "result" => result).increment(1);
        metrics::histogram!("work_sync_workload_duration_seconds", "result" => result)
            .record(begun.elapsed());
        outcome
    }

    async fn apply(&self, cached: &CachedWork, work: Arc<Work>) -> Result<Next, Error> {
        let (name, fenced) = (work.name_any(), Fenced::of(&work));
        let after = permission::stops_after(&work);
        let confirmed = Times::confirmed(conditions_of(&work));
        if let Some(first) = orders::before(confirmed, fenced.as_ref(), self.clock.now()) {
            self.conclude(Arc::clone(&work), vec![first], &[]).await?;
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
            if !self.may_go_on(cached, after) {
                return Ok(CUT_OFF);
            }
            let outcome = self.apply_once(&work, manifest, ordinal, &mut first).await;
            match outcome {
                Ok(change) => changed |= change != Change::None,
                // A webhook has to say which fields the member keeps.
                Err(error) if error.waits(&self.store.waits.to_apply, &name) => is_asked = true,
                Err(error) => {
                    waits |= waits_for_others(&error);
                    failures.unapplied.push(error.to_string());
                }
            }
        }
        if waits {
            self.store.waits.wait(&name, Event::Prerequisite);
        } else {
            self.store.waits.go_on(&name, Event::Prerequisite);
        }
        // A failed removal does not hide the failures of applies.
        let removed = self.remove_dropped(&work, &mut failures).await;
        let gone = removed.unwrap_or_else(|error| {
            failures.unremoved.push(error.to_string());
            Vec::new()
        });
        if !self.objects.member.may_act() {
            return Err(Error::Dismissed);
        }

        let check_again = failures.check_again(self.clock.now());
        if is_asked && failures.is_empty() && check_again.is_none() {
            // What was reported stays until all objects have been applied, but for those that are
            // gone.
            self.conclude(work, Vec::new(), &gone).await?;
            return Ok(Next::Done);
        }
        let now = self.clock.now();
        failures.left_out = self.left_out(&work);
        let applied = conditions::applied(total, &failures, now);
        let (contended, again) = self.store.waits.contended(&name);
        let contended = conditions::contended(conditions_of(&work), &contended, now);
        let is_new = changed || is_update(&work, &applied);
        let mut conditions = vec![conditions::dispatching(false, now), applied];
        conditions.extend(contended);
        if let Some(fenced) = fenced.filter(|_| failures.unapplied.is_empty() && !is_asked) {
            let condition = self.confirm(&fenced).await;
            unconfirmed = condition.status != TRUE && self.fencer.is_some();
            conditions.push(condition);
        }
        self.conclude(Arc::clone(&work), conditions, &gone).await?;
        if failures.is_empty() {
            if is_new && check_again.is_none() {
                let note = format!(
                    "Sync work({}) to cluster({}) successful.",
                    path(&work),
                    self.objects.cluster
                );
                self.events.inform(&*work, "SyncSucceed", note);
            }
            let again = again.into_iter().chain(unconfirmed.then_some(UNCONFIRMED));
            let tries = keys(&work);
            let tries = tries.filter_map(|(_, key, _)| self.objects.drift.tries_again(&key));
            let again = again.chain(check_again).chain(tries);
            return Ok(again.min().map_or(Next::Done, Next::After));
        }
        let failure = failures.message();
        if is_new {
            let (work_path, cluster) = (path(&work), &self.objects.cluster);
            let note =
                format!("Failed to sync work({work_path}) to cluster({cluster}), err: {failure}");
            self.events.warn(&*work, "SyncFailed", note);
        }
        Err(Error::Objects(failure))
    }

    /// Makes the object of a manifest as that wants it, unless an earlier one of the Work means the
    /// same object.
    async fn apply_once(
        &self,
        work: &Work,
        manifest: &Value,
        ordinal: usize,
        first: &mut HashMap<(String, String, String, String), usize>,
    ) -> Result<Change, object::Error> {
        let (key, place) = self.place(manifest, ordinal).await?;
        let place = *first.entry(place.object()).or_insert(ordinal);
        if place == ordinal {
            return self.ensure_applied(work, &key, manifest).await;
        }
        Err(object::Error::Twice {
            ordinal,
            first: place,
            object: key.to_string(),
        })
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
        // A task that has run to its end does not run again because its object is cleaned up.
        let has_run = self.store.statuses.has_run(work, key, manifest);
        if has_run {
            let object = self.objects.member.get(key).await?;
            if object.is_none_or(|object| object::terminates_since(&object).is_some()) {
                self.objects.drift.gone(key);
                return Ok(Change::None);
            }
        }
        let fleet = self.store.fleet.now();
        let wanted = desired_for(work, manifest, fleet.mark());
        if !self.objects.drift.needs_read(key, &wanted) {
            return Ok(Change::None);
        }
        let outcome = self.objects.ensure_applied(key, &wanted, &fleet).await;
        let is_lost = |error: &object::Error| error.is_absence() && !has_run;
        if outcome.as_ref().is_err_and(is_lost) {
            self.store
                .statuses
                .see(&work.name_any(), key, Interpretation::lost());
        }
        if let Ok(applied) = &outcome
            && let Some(words) = &applied.left_out
        {
            let cluster = &self.objects.cluster;
            let note = format!(
                "{key} is in cluster({cluster}) without fields that it does not know: {words}"
            );
            self.events.warn(work, "FieldsLeftOut", note);
        }
        self.note_applied(&work.name_any(), key, manifest, &outcome);
        outcome.map(|applied| applied.change)
    }

    /// Returns messages about the objects of a Work that are in the member without fields that it
    /// does not know.
    fn left_out(&self, work: &Work) -> Vec<String> {
        let drift = &self.objects.drift;
        let words = |key: ObjectKey| Some(format!("{key}: {}", drift.words(&key)?));
        keys(work).filter_map(|(_, key, _)| words(key)).collect()
    }

    /// Notes the result of one apply: in the statuses of objects, the metrics and the log.
    fn note_applied(
        &self,
        work: &str,
        key: &ObjectKey,
        manifest: &Value,
        outcome: &Result<Applied, object::Error>,
    ) {
        match outcome {
            Ok(applied) => {
                let interpreters = &self.store.interpreters;
                let check = Interpretation::of(&applied.object, manifest, interpreters);
                self.store.statuses.see_first(work, key, check);
            }
            Err(error) if error.is_hidden() => {
                self.store
                    .statuses
                    .see_first(work, key, Interpretation::unknown());
            }
            Err(_) => {}
        }
        let Ok(Applied { change, .. }) = outcome else {
            return count(key, "error");
        };
        match change {
            Change::None => return,
            Change::Created => count(key, "created"),
            Change::Updated => count(key, "updated"),
        }
        tracing::info!(object = %key, ?change, work, "applied");
        if *change == Change::Created && desired::rank(&key.kind) < 2 {
            let waits = &self.store.waits;
            waits.wake(Event::Prerequisite, PREREQUISITE_PAUSE);
        }
    }

    async fn patch(
        &self,
        work: &Work,
        subresource: Option<&str>,
        patch: Value,
    ) -> Result<Arc<CachedWork>, write::Error> {
        let works = &self.store.works;
        let call = works.patch(&self.api, &work.metadata, subresource, patch);
        call.await
    }

    /// Forgets a Work that is gone.
    fn forget(&self, name: &str) {
        if let Some(fencer) = &self.fencer {
            fencer.forget(name);
        }
        self.store.waits.forget(name);
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
            error.is_not_found()
                || error.is_in_terminating_namespace()
                || matches!(error, member::Error::UnknownKind { .. })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
