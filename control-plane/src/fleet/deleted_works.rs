//! Remembers which Works were asked to be deleted, for as long as the cache may show them as if
//! they stayed. May be lost: a process that starts reads the present Works.

use std::collections::HashSet;
use std::sync::Arc;

use kube::{Api, Client, ResourceExt as _};
use muster_shared::api::work::Work;
use muster_shared::client::Head;
use muster_shared::watch::{Change, Informer};
use parking_lot::Mutex;

use super::api_error::ApiError;
use super::works::CachedWork;

/// The uids of such Works. Cheap to clone.
#[derive(Clone, Default)]
pub struct DeletedWorks(Arc<Mutex<HashSet<String>>>);

impl DeletedWorks {
    /// Makes a memory that forgets the Works that the cache shows to be gone; make it before the
    /// cache starts.
    pub fn new(works: &Informer<CachedWork>) -> Self {
        let deleted = Self::default();
        let kept = deleted.clone();
        works.on_change(move |change| {
            if let Change::Deleted { old } = change
                && let Some(uid) = old.metadata.uid.as_deref()
            {
                kept.0.lock().remove(uid);
            }
        });
        deleted
    }

    /// Adds the uids of Works whose deletion is about to be requested. Call it before the request,
    /// because the answer may be lost. A Work whose deletion fails counts as going until it has
    /// gone, or is wanted again, so that it stands for no copy elsewhere.
    pub fn add(&self, uids: impl Iterator<Item = String>) {
        self.0.lock().extend(uids);
    }

    /// Returns whether a Work is being removed: its deletion is seen, or this process has asked for
    /// it.
    pub fn is_to_go(&self, work: &CachedWork) -> bool {
        let uid = work.metadata.uid.as_ref();
        work.metadata.deletion_timestamp.is_some()
            || uid.is_some_and(|uid| self.0.lock().contains(uid))
    }

    /// Returns whether only this process knows that a Work is being removed, because its deletion
    /// is not seen yet.
    pub fn is_asked(&self, work: &CachedWork) -> bool {
        work.metadata.deletion_timestamp.is_none() && self.is_to_go(work)
    }

    /// Returns whether a Work that is not to be removed stays. If this process asked for its
    /// deletion, the Work is read from the API: the cache may not show the deletion yet, or the
    /// request has come to nothing.
    ///
    /// # Errors
    /// The API does not say whether the Work is there.
    pub async fn stays(&self, client: &Client, work: &CachedWork) -> Result<bool, ApiError> {
        if !self.is_to_go(work) {
            return Ok(true);
        }
        if work.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let namespace = work.namespace().unwrap_or_default();
        let api = Api::namespaced(client.clone(), &namespace);
        let held = Head::<Work>::get_opt(&api, &work.name_any()).await;
        let held = held.map_err(ApiError::of("read work", &work.name_any()))?;
        let stays = held.is_some_and(|held| {
            held.metadata.uid == work.metadata.uid && held.metadata.deletion_timestamp.is_none()
        });
        if stays {
            self.forget(work);
        }
        Ok(stays)
    }

    /// Forgets a Work. Call it when the API has a Work that this process asked to be deleted, and
    /// that is not to be removed any more.
    fn forget(&self, work: &CachedWork) {
        if let Some(uid) = &work.metadata.uid {
            self.0.lock().remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn work(uid: Option<&str>) -> Arc<CachedWork> {
        let work = json!({ "metadata": { "name": "web", "uid": uid }, "spec": {} });
        Arc::new(serde_json::from_value(work).unwrap())
    }

    #[test]
    fn a_work_is_to_go_from_the_request_until_it_has_gone() {
        let deleted = DeletedWorks::default();
        let (going, staying, unknown) = (work(Some("1")), work(Some("2")), work(None));
        assert!(!deleted.is_to_go(&going));
        deleted.add(going.metadata.uid.clone().into_iter());
        assert!(deleted.is_to_go(&going) && deleted.is_asked(&going));
        assert!(!deleted.is_to_go(&staying) && !deleted.is_to_go(&unknown));
        deleted.forget(&staying);
        assert!(deleted.is_to_go(&going), "another one has gone");
        deleted.forget(&going);
        assert!(!deleted.is_to_go(&going));
        assert!(deleted.0.lock().is_empty(), "nothing is kept of it");
    }
}
