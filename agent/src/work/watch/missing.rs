//! Reports objects that are gone, or no longer name their Work, and has them repaired.
//!
//! A loss is reported where it is seen. Its repair may wait, fail, or be switched off.

use std::time::Duration;

use serde_json::Value;

use super::index::Index;
use super::opened::{Opened, Watched};
use super::watches::Watches;
use crate::digest::digest;
use crate::work::desired::ObjectKey;
use crate::work::manifests::desired_for;
use crate::work::observed::Look;
use crate::work::works::Unread;

/// Time after which the applier looks at a Work that a watch could not read.
const LEFT: Duration = Duration::from_secs(5);

impl Watches {
    /// Has an object repaired that no longer names its Work: another writer removed its marks, or
    /// the agent of another fleet replaced them.
    pub(super) async fn mark_again(&self, watched: &Watched, place: &ObjectKey, name: &str) {
        let mut opened = None;
        let open = match self.open(watched, name, &mut opened).await {
            Ok(Some(open)) => open,
            Ok(None) => return,
            Err(Unread) => return self.leave_to_applier(place, name),
        };
        let Some((key, manifest)) = open.find(place) else {
            return;
        };
        self.store.drift.doubt(&key);
        if !self.store.statuses.has_run(&open.work, &key, manifest) {
            self.store.statuses.see(name, &key, Look::lost());
        }
        tracing::info!(object = %key, work = name, "does not name its work any more");
        if open.cached.is_held() {
            self.store.waits.to_apply.add(name.to_owned());
        } else {
            let desired = digest(&self.desired(open, manifest));
            self.store.waits.differs(name, &key, desired, None);
        }
    }

    /// Reports an object that is gone from the member, and has it created again. Returns the key
    /// that the Work has for it, if the Work still wants it.
    pub(super) async fn lose(
        &self,
        watched: &Watched,
        place: &ObjectKey,
        name: &str,
    ) -> Option<ObjectKey> {
        // Objects that no Work wants any more are forgotten as well.
        self.store.drift.gone(place);
        let mut opened = None;
        let Ok(open) = self.open(watched, name, &mut opened).await else {
            self.leave_to_applier(place, name);
            return None;
        };
        let open = open?;
        let Some((key, manifest)) = open.find(place) else {
            // The Work may wait until an object is gone that it does not want any more.
            if open.cached.is_pending() {
                self.store.waits.to_apply.add(name.to_owned());
            }
            return None;
        };
        self.store.drift.gone(&key);
        if self.store.statuses.has_run(&open.work, &key, manifest) {
            tracing::info!(object = %key, work = name, "gone after its task has succeeded");
            if open.cached.is_held() {
                self.store.waits.to_apply.add(name.to_owned());
            }
            return Some(key);
        }
        self.store.statuses.see(name, &key, Look::lost());
        tracing::info!(object = %key, work = name, "disappeared from the member");
        if open.cached.is_held() {
            self.store.waits.to_apply.add(name.to_owned());
        } else {
            let desired = digest(&self.desired(open, manifest));
            self.store.waits.disappeared(name, &key, desired);
        }
        Some(key)
    }

    /// Reports objects of which nothing can be known any more, because the agent may not read their
    /// kind. A list shows them when it may again.
    pub(super) async fn lose_sight(&self, watched: &Watched, index: &Index) {
        let mut opened = None;
        for (place, name) in index.wanted() {
            if let Ok(Some(open)) = self.open(watched, name, &mut opened).await
                && let Some((key, _)) = open.find(place)
            {
                self.store.statuses.see(name, &key, Look::unknown());
            }
        }
    }

    fn desired(&self, open: &Opened, manifest: &Value) -> Value {
        desired_for(&open.work, manifest, self.store.fleet.now().mark())
    }

    /// Has the applier look at an object whose Work a watch could not read: it reads the Work until
    /// that succeeds, and makes the object again if it is still wanted.
    fn leave_to_applier(&self, place: &ObjectKey, name: &str) {
        for key in &spellings(place) {
            self.store.drift.doubt(key);
        }
        self.store.waits.to_apply.add_after(name.to_owned(), LEFT);
    }
}

/// Returns the keys that a manifest may have for an object: with the namespace where the server
/// keeps it, and with none.
pub(super) fn spellings(place: &ObjectKey) -> [ObjectKey; 2] {
    let bare = ObjectKey {
        namespace: String::new(),
        ..place.clone()
    };
    [place.clone(), bare]
}
