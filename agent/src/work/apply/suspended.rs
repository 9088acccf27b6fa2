//! Observes the objects of a Work whose dispatching is suspended: nothing that the Work wants is
//! applied. What became of its objects is reported. What the agent stopped is started again, and
//! made again if its orders are to delete it.

use std::collections::HashSet;
use std::sync::Arc;

use muster_shared::api::work::Work;
use muster_shared::conditions::get;
use muster_shared::fencing::Orders;
use muster_shared::k8s::ResourceExt;
use muster_shared::names::condition::{APPLIED, OBJECTS_MISSING};
use muster_shared::queue::Next;
use serde_json::Value;

use super::conditions::{self, Failures};
use super::permission::stops_after;
use super::status::is_update;
use super::{Applier, CUT_OFF, Error};
use crate::work::CachedWork;
use crate::work::desired::ObjectKey;
use crate::work::manifests::{conditions_of, key_of, keys, named, origin};
use crate::work::member;
use crate::work::object;
use crate::work::observed::{Interpretation, ObjectStatus};
use crate::work::ownership;

impl Applier {
    /// Says what became of the objects of a suspended Work, and starts again what the agent has
    /// stopped or deleted while the member was cut off. One object in trouble keeps no other one
    /// waiting.
    pub(super) async fn hold(&self, cached: &CachedWork, work: Arc<Work>) -> Result<Next, Error> {
        let suspended = conditions::dispatching(true, self.clock.now());
        self.conclude(Arc::clone(&work), vec![suspended], &[])
            .await?;
        // The first lists show most objects without a request for each.
        if let Some(wait) = self.store.wait_for_lists(cached) {
            return Ok(wait);
        }
        let mut troubles = Troubles::default();
        let mut missing = self.missing(&work, &mut troubles).await;
        let stopped = self.stopped(&work);
        let mut may_start = stopped.is_empty() || self.may_start(cached, &work).await?;
        let after = stops_after(&work);
        for (key, manifest) in &stopped {
            may_start = may_start && self.may_go_on(cached, after);
            if !may_start || !troubles.go_on() {
                break;
            }
            match self.restart(&work, key, manifest, &missing).await {
                Ok(is_made) => missing.retain(|it| !is_made || it != key),
                Err(error) => troubles.add(error),
            }
        }
        self.report_missing(&work, &missing).await?;
        match troubles.first {
            Some(error) => Err(Error::Objects(error.to_string())),
            None if may_start => Ok(Next::Done),
            None => Ok(CUT_OFF),
        }
    }

    /// Says which objects of a suspended Work are gone, or that none is any more.
    async fn report_missing(&self, work: &Arc<Work>, missing: &[ObjectKey]) -> Result<(), Error> {
        let now = self.clock.now();
        let said = get(conditions_of(work), APPLIED);
        let applied = if !missing.is_empty() {
            let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
            let applied = conditions::missing(&missing, now);
            if is_update(work, &applied) {
                let note = applied.message.clone();
                self.events.warn(&**work, OBJECTS_MISSING, note);
            }
            applied
        } else if said.is_some_and(|said| said.reason == OBJECTS_MISSING) {
            let total = work.spec.workload.manifests.len();
            conditions::applied(total, &Failures::default(), now)
        } else {
            return Ok(());
        };
        self.conclude(Arc::clone(work), vec![applied], &[]).await
    }

    /// Returns the objects of a Work that were reported and are gone from the member.
    async fn missing(&self, work: &Work, troubles: &mut Troubles) -> Vec<ObjectKey> {
        let name = work.name_any();
        let reported: HashSet<_> = named(work)
            .iter()
            .map(|status| key_of(&status.identifier).object())
            .collect();
        let mut missing = Vec::new();
        let statuses = &self.store.statuses;
        for (_, key, manifest) in keys(work) {
            if !reported.contains(&key.object()) || statuses.has_run(work, &key, manifest) {
                continue;
            }
            if statuses.seen(&name, &key).is_none()
                && troubles.go_on()
                && let Err(error) = self.check(work, &key, manifest).await
            {
                troubles.add(error.into());
            }
            if statuses.seen(&name, &key).is_some_and(|seen| seen.lost) {
                missing.push(key);
            }
        }
        missing
    }

    /// Reads an object that no watch has shown, and records whether the member has no object of
    /// this Work.
    async fn check(
        &self,
        work: &Work,
        key: &ObjectKey,
        manifest: &Value,
    ) -> Result<(), member::Error> {
        let member = &self.objects.member;
        // A kind that the catalog lacks may be served nevertheless, in another version for example.
        let found = match member.served(key).await? {
            Some(served) => member.get(&served).await,
            None => Ok(None),
        };
        let check = match found {
            Ok(Some(object)) if ownership::work_of(&object) == Some(origin(work)) => {
                Interpretation::of(&object, manifest, &self.store.interpreters)
            }
            Ok(_) => Interpretation::lost(),
            Err(error) if error.is_refused_read() => Interpretation::unknown(),
            Err(error) => return Err(error),
        };
        self.store.statuses.see_first(&work.name_any(), key, check);
        Ok(())
    }

    /// Returns the objects that the agent may have stopped, with their manifests. The status of an
    /// object says so only where it has been seen.
    fn stopped<'a>(&self, work: &'a Work) -> Vec<(ObjectKey, &'a Value)> {
        let name = work.name_any();
        let is_stopped = |key: &ObjectKey| {
            let seen = self.store.statuses.seen(&name, key);
            seen.as_ref().is_some_and(ObjectStatus::is_stopped)
        };
        keys(work)
            .filter(|(_, key, manifest)| Orders::of(manifest).is_some() || is_stopped(key))
            .map(|(_, key, manifest)| (key, manifest))
            .collect()
    }

    /// Starts an object again that the agent has stopped while the member was cut off, as it was
    /// before but for the role of data, or makes it again if its orders are to delete it. Returns
    /// whether it was made.
    async fn restart(
        &self,
        work: &Work,
        key: &ObjectKey,
        manifest: &Value,
        missing: &[ObjectKey],
    ) -> Result<bool, object::Error> {
        let is_deleted = Orders::of(manifest).is_some_and(|orders| orders.stop.is_none());
        if !is_deleted {
            let fleet = self.store.fleet.now();
            let restart = self.objects.restart(key, manifest, origin(work), &fleet);
            restart.await?;
            return Ok(false);
        }
        if !missing.contains(key) || self.objects.member.get(key).await?.is_some() {
            return Ok(false);
        }
        self.ensure_applied(work, key, manifest).await?;
        Ok(true)
    }
}

/// Failures of the objects of one Work.
#[derive(Default)]
struct Troubles {
    /// The first one.
    first: Option<object::Error>,
    /// Whether no other object would do better.
    is_over: bool,
}

impl Troubles {
    fn add(&mut self, error: object::Error) {
        self.is_over |= error.is_silence() || error.is_dismissal();
        self.first.get_or_insert(error);
    }

    /// Returns whether other objects are tried: the member answers.
    fn go_on(&self) -> bool {
        !self.is_over
    }
}
