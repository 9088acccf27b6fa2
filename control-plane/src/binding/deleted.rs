//! Remembers which Works were asked to be deleted, for as long as the cache may show them as if
//! they stayed. May be lost: a process that starts reads the present Works.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fleet::works::CachedWork;

/// The uids of such Works.
#[derive(Default)]
pub struct Deleted(Mutex<HashSet<String>>);

impl Deleted {
    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Call it before the request: the answer may be lost. A Work whose deletion fails counts as
    /// going until it has gone, so that it stands for no copy elsewhere.
    pub fn add<'a>(&self, works: impl Iterator<Item = &'a Arc<CachedWork>>) {
        let uids = works.filter_map(|it| it.metadata.uid.clone());
        self.lock().extend(uids);
    }

    /// Whether a Work is to go.
    pub fn contains(&self, work: &CachedWork) -> bool {
        let uid = work.metadata.uid.as_ref();
        uid.is_some_and(|uid| self.lock().contains(uid))
    }

    /// Call it when a Work has gone.
    pub fn forget(&self, work: &CachedWork) {
        if let Some(uid) = &work.metadata.uid {
            self.lock().remove(uid);
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
        let deleted = Deleted::default();
        let (going, staying, unknown) = (work(Some("1")), work(Some("2")), work(None));
        assert!(!deleted.contains(&going));
        deleted.add([&going, &unknown].into_iter());
        assert!(deleted.contains(&going));
        assert!(!deleted.contains(&staying) && !deleted.contains(&unknown));
        deleted.forget(&staying);
        assert!(deleted.contains(&going), "another one has gone");
        deleted.forget(&going);
        assert!(!deleted.contains(&going));
        assert!(deleted.lock().is_empty(), "nothing is kept of it");
    }
}
