//! Reports the result of a Work in conditions and events.

use std::sync::Arc;

use muster_shared::api::work::{Work, WorkStatus};
use muster_shared::conditions::{FALSE, TRUE, get, merge};
use muster_shared::k8s::{Condition, ResourceExt};
use muster_shared::names::condition::{CONTENDED, DISPATCHING};
use muster_shared::queue::Next;
use serde_json::json;

use super::{Applier, Error, conditions};
use crate::work::cached::{CachedWork, Unreadable};
use crate::work::desired::ObjectKey;
use crate::work::manifests::{conditions_of, key_of, path};

impl Applier {
    /// Reports that a Work cannot be read. It is reconciled again when it changes.
    pub(super) async fn refuse(
        &self,
        cached: &CachedWork,
        why: &Unreadable,
    ) -> Result<Next, Error> {
        let work = outline(cached, why);
        let now = self.clock.now();
        let refused = conditions::unreadable(why, now);
        let is_new = is_update(&work, &refused);
        tracing::warn!(work = path(&work), %why, "stepped over");
        let work = Arc::new(work);
        self.conclude(Arc::clone(&work), vec![refused], &[]).await?;
        if is_new {
            self.events.warn(&*work, "SyncFailed", why.to_string());
        }
        Ok(Next::Done)
    }

    /// Writes conditions, and takes the names of objects that are gone out of the status, unless
    /// the Work is so already. Publishes events about dispatching and contended objects.
    pub(super) async fn conclude(
        &self,
        mut work: Arc<Work>,
        conditions: Vec<Condition>,
        gone: &[ObjectKey],
    ) -> Result<(), Error> {
        if let Some(changed) = conditions
            .iter()
            .find(|new| dispatching_changed(&work, new))
        {
            let note = changed.message.clone();
            self.events.inform(&*work, "WorkDispatching", note);
        }
        let warned = conditions.iter().find(|new| contest_changed(&work, new));
        if let Some(contended) = warned {
            let note = contended.message.clone();
            self.events.warn(&*work, CONTENDED, note);
        }
        loop {
            let status = work.status.clone().unwrap_or_default();
            let mut patch = json!({});
            if let Some(after) = merge(&status.conditions, conditions.clone()) {
                patch["status"]["conditions"] = json!(after);
            }
            let mut named = status.manifest_statuses;
            let before = named.len();
            let is_gone = |key: &ObjectKey| gone.iter().any(|gone| gone.object() == key.object());
            named.retain(|it| !is_gone(&key_of(&it.identifier)));
            if named.len() < before {
                patch["status"]["manifestStatuses"] = json!(named);
            }
            if patch.as_object().is_none_or(serde_json::Map::is_empty) {
                return Ok(());
            }
            match self.patch(&work, Some("status"), patch).await {
                Err(error) if error.is_conflict() => {
                    // Another writer's condition, or this agent's report of the objects' status,
                    // came in between.
                    match self.store.works.read(&work.name_any()).await? {
                        Some(fresh) if fresh.cached.metadata.uid == work.metadata.uid => {
                            let fresh = fresh
                                .work
                                .unwrap_or_else(|why| outline(&fresh.cached, &why));
                            work = Arc::new(fresh);
                        }
                        _ => return Ok(()),
                    }
                }
                Err(error) if error.is_gone() => return Ok(()),
                outcome => return outcome.map(|_| ()).map_err(Error::from),
            }
        }
    }
}

/// Returns whether a condition says something new about dispatching. A new Work is expected to be
/// dispatched.
fn dispatching_changed(work: &Work, new: &Condition) -> bool {
    let known = get(conditions_of(work), DISPATCHING);
    new.type_ == DISPATCHING
        && known.map_or(new.status == FALSE, |known| known.status != new.status)
}

/// Returns whether a condition says something new about other writers of the objects.
fn contest_changed(work: &Work, new: &Condition) -> bool {
    let known = get(conditions_of(work), CONTENDED);
    new.type_ == CONTENDED
        && new.status == TRUE
        && known.is_none_or(|known| known.message != new.message)
}

/// Returns as much of a Work that cannot be read as is needed to write its conditions.
fn outline(cached: &CachedWork, why: &Unreadable) -> Work {
    Work {
        metadata: cached.metadata.clone(),
        status: Some(WorkStatus {
            conditions: why.conditions().to_vec(),
            ..WorkStatus::default()
        }),
        ..Work::default()
    }
}

/// Returns whether a condition differs from the one that the Work has.
pub(super) fn is_update(work: &Work, applied: &Condition) -> bool {
    let known = get(conditions_of(work), &applied.type_);
    muster_shared::conditions::is_update(known, applied)
}
