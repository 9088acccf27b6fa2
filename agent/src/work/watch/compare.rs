//! Compares one object in the member with what its Work wants, and has a difference repaired.
//!
//! A loss is reported where it is seen. Its repair may wait, fail, or be switched off.

use std::time::Duration;

use muster_interpreter::webhook::Pending;
use muster_shared::fencing;
use muster_shared::fleet_id::Owner;
use serde_json::Value;

use super::stream::{LIST_AGAIN, Stream};
use crate::digest::digest;
use crate::work::desired::ObjectKey;
use crate::work::drift::rival;
use crate::work::manifests::desired_for;
use crate::work::observed::Interpretation;
use crate::work::works::Unread;
use crate::work::{object, ownership};

/// Time after which the applier reconciles a Work that a watch could not read.
const LEFT: Duration = Duration::from_secs(5);

/// Result of interpreting one object.
#[derive(Default)]
pub(super) struct Seen {
    /// Name of the Work in its annotations, if that is one of this member's.
    pub(super) work: Option<String>,
    /// Whether that Work wants it.
    pub(super) wanted: bool,
    /// Key that its Work has for it.
    pub(super) key: Option<ObjectKey>,
    /// Digest of its desired state, if it is as desired.
    pub(super) as_desired: Option<u64>,
    /// Time after which another interpretation may find more.
    pub(super) again: Option<Duration>,
    /// Question to a webhook that is not answered yet.
    pending: Option<Pending>,
}

impl Stream {
    /// Reflects an object, and has it repaired if it is not what its Work wants. Interprets it
    /// again when a question about it is answered. The text says why the object cannot be read, if
    /// it cannot.
    pub(super) async fn see(
        &mut self,
        place: &ObjectKey,
        (mut object, unreadable): (Value, Option<String>),
    ) -> Seen {
        // Elements of a list come without them.
        object["apiVersion"] = self.watched.kind.api_version().into();
        object["kind"] = self.watched.kind.kind.as_str().into();
        let mut seen = self.compare(place, &object, unreadable).await;
        self.relist.after(seen.again);
        match seen.pending.take() {
            Some(pending) => self.waiting.keep(place, &object, pending),
            None => self.waiting.forget(place),
        }
        seen
    }

    async fn compare(
        &mut self,
        place: &ObjectKey,
        object: &Value,
        unreadable: Option<String>,
    ) -> Seen {
        let store = &self.on.store;
        let fleet = store.fleet.now();
        let owner = fleet.owner(ownership::fleet(object));
        // Two fleets may have Works of one name, each in a namespace of one name.
        let work = ownership::work_of(object)
            .filter(|_| owner != Owner::Other)
            .filter(|work| Some(work.namespace) == store.works.cache.api().namespace())
            .map(|work| work.name.to_owned());
        let mut seen = Seen {
            work,
            ..Seen::default()
        };
        let Some(name) = &seen.work else { return seen };
        let open = match self.on.open(&self.watched, name, &mut self.opened).await {
            Ok(Some(open)) => open,
            Ok(None) => return seen,
            // The Work may want it, and a list shows it again.
            Err(Unread) => {
                for key in &place.spellings() {
                    store.drift.doubt(key);
                }
                seen.wanted = true;
                seen.again = Some(LIST_AGAIN);
                return seen;
            }
        };
        let Some((key, manifest)) = open.find(place) else {
            return seen;
        };
        seen.wanted = true;
        seen.key = Some(key.clone());
        if let Some(reason) = unreadable {
            store
                .statuses
                .see(name, &key, Interpretation::unreadable(reason));
            store.drift.doubt(&key);
            return seen;
        }
        let check = Interpretation::of(object, manifest, &store.interpreters);
        seen.again = check.again;
        seen.pending.clone_from(&check.pending);
        let is_stopped = fencing::stopped(object).is_some();
        store.statuses.see(name, &key, check);
        if open.cached.is_held_and_unapplied() || (open.cached.suspended && is_stopped) {
            store.waits.to_apply.add(name.clone());
        }
        if !open.cached.is_to_be_kept() || owner == Owner::Unclear {
            return seen;
        }
        if object::terminates_since(object).is_some() {
            // The applier says so, and makes it again when it is gone.
            store.drift.doubt(&key);
            store.waits.to_apply.add(name.clone());
            return seen;
        }
        let wanted = desired_for(&open.work, manifest, fleet.mark());
        match store.drift.seen(&key, &wanted, object) {
            // The Work may say nothing of what the stop has changed. The applier releases it.
            Ok(None) if is_stopped => {
                store.drift.doubt(&key);
                store.waits.to_apply.add(name.clone());
            }
            Ok(None) => seen.as_desired = Some(digest(&wanted)),
            Ok(Some(_)) => {
                metrics::counter!("muster_drift_detected_total", "kind" => key.kind.kind.clone())
                    .increment(1);
                let by = rival(&wanted, object);
                let pause = store.waits.differs(name, &key, digest(&wanted), by);
                tracing::debug!(object = %key, work = name, by, ?pause, "differs from its work");
            }
            // An object that cannot be compared is not repaired.
            Err(error) => {
                seen.again = seen.again.or_else(|| error.retry_after());
                seen.pending = seen.pending.or_else(|| error.pending());
            }
        }
        seen
    }

    /// Reports an object that is gone from the member, or no longer names its Work because another
    /// writer removed its marks or the agent of another fleet replaced them, and has it repaired.
    /// Returns the key that the Work has for it, if the Work still wants it.
    pub(super) async fn lose(
        &mut self,
        place: &ObjectKey,
        name: &str,
        is_gone: bool,
    ) -> Option<ObjectKey> {
        let store = &self.on.store;
        // Objects that no Work wants any more are forgotten as well.
        store.drift.gone(place);
        let mut opened = None;
        let Ok(open) = self.on.open(&self.watched, name, &mut opened).await else {
            // The applier reads the Work until that succeeds, and makes the object again if it is
            // still wanted.
            for key in &place.spellings() {
                store.drift.doubt(key);
            }
            store.waits.to_apply.add_after(name.to_owned(), LEFT);
            return None;
        };
        let open = open?;
        let Some((key, manifest)) = open.find(place) else {
            // The Work may wait until an object is gone that it does not want any more.
            if open.cached.is_pending() {
                store.waits.to_apply.add(name.to_owned());
            }
            return None;
        };
        store.drift.gone(&key);
        let has_run = store.statuses.has_run(&open.work, &key, manifest);
        if has_run {
            store.statuses.ended(name, &key);
        } else {
            store.statuses.see(name, &key, Interpretation::lost());
        }
        tracing::info!(object = %key, work = name, is_gone, has_run, "lost in the member");
        let wish = || digest(&desired_for(&open.work, manifest, store.fleet.now().mark()));
        if open.cached.is_held() {
            store.waits.to_apply.add(name.to_owned());
        } else if !is_gone {
            store.waits.differs(name, &key, wish(), None);
        } else if !has_run {
            store.waits.disappeared(name, &key, wish());
        }
        Some(key)
    }

    /// Reports objects of which nothing can be known any more, because the agent may not read their
    /// kind or the member does not serve it, and has their Works applied, which says why. A list
    /// shows the objects when that is over.
    pub(super) async fn lose_sight(&mut self) {
        let (store, mut opened) = (&self.on.store, None);
        for (place, name) in self.index.wanted() {
            if let Ok(Some(open)) = self.on.open(&self.watched, name, &mut opened).await
                && let Some((key, _)) = open.find(place)
            {
                let statuses = &store.statuses;
                statuses.see(name, &key, Interpretation::unknown());
                store.drift.doubt(&key);
                store.waits.to_apply.add(name.to_owned());
            }
        }
    }
}
