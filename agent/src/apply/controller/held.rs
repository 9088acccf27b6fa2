//! Looks after the objects of a Work whose dispatching is suspended: nothing that the Work wants is
//! applied. What became of its objects is told, and what the agent stopped is started again.

use std::collections::HashSet;
use std::sync::Arc;

use muster_shared::api::work::Work;
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::k8s::ResourceExt;
use muster_shared::names::condition::APPLIED;
use muster_shared::queue::Next;
use serde_json::Value;

use super::super::outcome::{self, Failures, MISSING};
use super::telling::is_news;
use super::{Applier, CUT_OFF, Error};
use crate::fencing::orders::Fenced;
use crate::reflect::{Look, ObjectStatus, has_run};
use crate::work::CachedWork;
use crate::work::desired::ObjectKey;
use crate::work::manifests::{key_of, keys, namespace};
use crate::work::member;
use crate::work::ownership::{self, Origin};

impl Applier {
    /// Tells what became of the objects of a suspended Work, and starts again what the agent has
    /// stopped while the member was cut off.
    pub(super) async fn hold(&self, cached: &CachedWork, work: Arc<Work>) -> Result<Next, Error> {
        let (name, now) = (work.name_any(), self.clock.now());
        let mut conditions = vec![outcome::dispatching(true, now)];
        // The first lists show most objects without a request for each.
        if let Some(wait) = self.objects.drift.wait(&name, cached.kinds()) {
            self.conclude(work, conditions).await?;
            return Ok(Next::After(wait));
        }
        let missing = self.missing(&work).await?;
        let status = work.status.as_ref();
        let known = status.map_or(&[][..], |status| &status.conditions);
        let told = conditions::get(known, APPLIED);
        if !missing.is_empty() {
            conditions.push(outcome::missing(&missing, now));
        } else if told.is_some_and(|told| told.reason == MISSING) {
            let total = work.spec.workload.manifests.len();
            conditions.push(outcome::applied(total, &Failures::default(), now));
        }
        if let Some(applied) = conditions.get(1).filter(|_| !missing.is_empty())
            && is_news(&work, applied)
        {
            let note = applied.message.clone();
            self.events
                .publish(&*work, EventType::Warning, MISSING, note);
        }
        self.conclude(Arc::clone(&work), conditions).await?;
        self.restart(&work).await
    }

    /// Returns the objects of a Work that were reported and are gone from the member.
    async fn missing(&self, work: &Work) -> Result<Vec<String>, Error> {
        let name = work.name_any();
        let status = work.status.as_ref();
        let reported = status.map_or(&[][..], |status| &status.manifest_statuses);
        let reported: HashSet<_> = reported
            .iter()
            .map(|status| key_of(&status.identifier).object())
            .collect();
        let mut missing = Vec::new();
        for (_, key, manifest) in keys(work) {
            let seen = self.statuses.seen(&name, &key);
            if !reported.contains(&key.object()) || has_run(work, seen.as_ref(), &key, manifest) {
                continue;
            }
            let is_missing = match seen {
                Some(seen) => seen.lost,
                None => self.look(work, &key, manifest).await?,
            };
            if is_missing {
                missing.push(key.to_string());
            }
        }
        Ok(missing)
    }

    /// Looks at an object that no watch has shown. Returns whether the member has no object of this
    /// Work.
    async fn look(&self, work: &Work, key: &ObjectKey, manifest: &Value) -> Result<bool, Error> {
        let (namespace, name) = (namespace(work), work.name_any());
        let origin = Origin {
            namespace: &namespace,
            name: &name,
        };
        let look = match self.objects.member.get(key).await {
            Ok(Some(object)) if ownership::work_of(&object) == Some(origin) => {
                Look::of(&object, manifest, &self.interpreters)
            }
            Ok(_) | Err(member::Error::UnknownKind { .. }) => Look::lost(),
            Err(error) if error.is_refused_read() => Look::unknown(),
            Err(error) => return Err(Error::Objects(error.to_string())),
        };
        let is_lost = look.status.as_ref().is_some_and(|status| status.lost);
        self.statuses.see_first(&name, key, look);
        Ok(is_lost)
    }

    /// Starts the objects again that the agent has stopped while the member was cut off, as they
    /// were before.
    async fn restart(&self, work: &Work) -> Result<Next, Error> {
        let name = work.name_any();
        let is_stopped = |key: &ObjectKey| {
            let seen = self.statuses.seen(&name, key);
            seen.as_ref().is_some_and(ObjectStatus::is_stopped)
        };
        let stopped: Vec<_> = keys(work)
            .map(|(_, key, _)| key)
            .filter(is_stopped)
            .collect();
        if stopped.is_empty() {
            return Ok(Next::Done);
        }
        if !self.may_start(work, Fenced::of(work).as_ref()).await? {
            return Ok(CUT_OFF);
        }
        let namespace = namespace(work);
        let origin = Origin {
            namespace: &namespace,
            name: &name,
        };
        for key in &stopped {
            let outcome = self.objects.restart(key, origin, &self.fleet.now()).await;
            outcome.map_err(|error| Error::Objects(error.to_string()))?;
        }
        Ok(Next::Done)
    }
}
