//! Writes the states of objects to the status of Works.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::events::Events;
use muster_shared::k8s::Api;
use muster_shared::queue::Next;
use serde_json::json;

use super::compose::compose;
use super::events::events;
use crate::work::CachedWork;
use crate::work::manifests::{keys, named};
use crate::work::store::Store;
use crate::work::waits::Event;
use crate::work::works::Whole;
use crate::write;

/// Pause of a Work that is gone, or another one of its name, until the cache shows that.
const UNTIL_SHOWN: Next = Next::After(Duration::from_secs(5));

/// Attempts to write a report while others write the Work.
const ATTEMPTS: usize = 4;

/// Writes `manifestStatuses`, the part of a Work's status that only the agent writes.
pub struct Reporter {
    store: Arc<Store>,
    /// API of Works, for writes on a connection apart from the watch.
    api: Api<CachedWork>,
    events: Events,
}

impl Reporter {
    /// Makes a reporter of the Works of a store.
    pub fn new(store: Arc<Store>, api: Api<CachedWork>, events: Events) -> Arc<Self> {
        Arc::new(Self { store, api, events })
    }

    /// Writes the report of one Work, unless its status has it already.
    pub async fn report(self: Arc<Self>, name: String) -> Result<Next, write::Error> {
        let (works, statuses) = (&self.store.works, &self.store.statuses);
        let Some(cached) = works.latest(&name).await? else {
            // An object may have been seen after the Work was deleted.
            statuses.forget(&name);
            return Ok(Next::Done);
        };
        if cached.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let Some(_permit) = self.store.waits.permit(&cached, Event::FreeToReport) else {
            return Ok(Next::Waits);
        };
        let mut whole = works.open(&cached).await?;
        for _ in 0..ATTEMPTS {
            let Some(present) = &whole else {
                return Ok(UNTIL_SHOWN);
            };
            if let Some(next) = self.write(&name, present).await? {
                return Ok(next);
            }
            // The cache may lag for long: the report is composed upon the Work as it is.
            let fresh = works.read(&name).await?;
            whole = fresh.filter(|fresh| fresh.cached.metadata.uid == cached.metadata.uid);
        }
        Ok(Next::Again)
    }

    /// Writes the report upon a version of a Work, unless its status has it already. Returns `None`
    /// if the Work has another version by now.
    async fn write(&self, name: &str, whole: &Whole) -> Result<Option<Next>, write::Error> {
        // The applier reports a Work that cannot be read.
        let Ok(work) = &whole.work else {
            return Ok(Some(Next::Done));
        };
        if work.metadata.deletion_timestamp.is_some() {
            return Ok(Some(Next::Done));
        }
        let statuses = &self.store.statuses;
        for (object, trouble) in statuses.new_troubles(name) {
            let (reason, text) = trouble.note(&object);
            tracing::warn!(%object, work = name, reason, text, "cannot interpret an object");
            self.events.warn(work, reason, text);
        }
        let wanted = || keys(work).map(|(_, key, _)| key).collect();
        let manifests = work.spec.workload.manifests.len();
        statuses.retain(name, manifests, wanted);
        let report = compose(work, &statuses.of(name));
        if whole
            .cached
            .reports(CachedWork::fingerprint(&report.statuses))
        {
            return Ok(Some(Next::Done));
        }
        // The applier adds the names of objects that it is about to make: a report upon an older
        // version would take them away.
        let patch = json!({ "status": { "manifestStatuses": report.statuses } });
        let (works, before) = (&self.store.works, &whole.cached.metadata);
        let call = works.patch(&self.api, before, Some("status"), patch);
        match call.await {
            Ok(_) => {
                metrics::counter!("muster_work_reports_total").increment(1);
                for (reason, text) in events(named(work), &report.statuses) {
                    self.events.inform(work, reason, text);
                }
                if report.shortened > 0 {
                    let text = too_long(report.shortened);
                    tracing::warn!(work = name, text, "cannot report everything");
                    self.events.warn(work, "ReflectStatusFailed", text);
                }
                Ok(Some(Next::Done))
            }
            Err(error) if error.is_gone() => Ok(Some(Next::Done)),
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn too_long(objects: usize) -> String {
    format!(
        "Reflect status for {objects} objects failed, err: the statuses of the Work's objects are too long together: \
         only the health of these is reported."
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use muster_interpreter::Interpreters;
    use serde_json::Value;

    use super::*;
    use crate::work::desired::ObjectKey;
    use crate::work::observed::Interpretation;
    use crate::work::works::tests::{Fleet, store, work};

    /// Returns a reporter of a Work of which an object was seen.
    async fn reporter(has_room: bool) -> (Arc<Reporter>, Arc<Fleet>) {
        let fleet = Arc::new(Fleet::default());
        let work = work("w", 100_000);
        let key = ObjectKey::of(&work["spec"]["workload"]["manifests"][0], 0).unwrap();
        fleet.put(work);
        let api = fleet.start();
        let store = store(&api, has_room).await;
        let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "a" }, "status": { "replicas": 1 } });
        store.statuses.see(
            "w",
            &key,
            Interpretation::at(&object, &Interpreters::default()),
        );
        let reporter = Reporter::new(store, api, Events::nowhere());
        (reporter, fleet)
    }

    async fn report(reporter: &Arc<Reporter>) -> Result<Next, write::Error> {
        Arc::clone(reporter).report("w".to_owned()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_whose_text_is_not_kept_is_read_for_its_report() {
        let mut patches = Vec::new();
        for (has_room, reads) in [(true, 0), (false, 1)] {
            let (reporter, fleet) = reporter(has_room).await;
            assert!(matches!(report(&reporter).await, Ok(Next::Done)));
            assert_eq!(fleet.reads.load(Ordering::Relaxed), reads);
            patches.push(fleet.patches.lock().clone());
        }
        assert_eq!(patches[0].len(), 1);
        assert_eq!(patches[0], patches[1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_written_upon_the_present_work_while_the_cache_lags() {
        let (reporter, fleet) = reporter(true).await;
        let mut newer = fleet.get("w");
        newer["metadata"]["resourceVersion"] = json!("5");
        newer["status"] = json!({ "manifestStatuses": [{ "health": "Unknown", "identifier":
            { "ordinal": 1, "version": "v1", "kind": "ConfigMap", "resource": "", "name": "new" } }] });
        fleet.put(newer);
        assert!(matches!(report(&reporter).await, Ok(Next::Done)));
        let statuses = &fleet.get("w")["status"]["manifestStatuses"];
        let statuses = statuses.as_array().unwrap().iter();
        let names: Vec<_> = statuses.map(|it| &it["identifier"]["name"]).collect();
        assert_eq!(names, ["w", "new"], "what the applier has added stays");
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_that_cannot_be_read_is_reported_later() {
        let (reporter, fleet) = reporter(false).await;
        fleet.is_down.store(true, Ordering::Relaxed);
        assert!(report(&reporter).await.is_err());
        assert!(fleet.patches.lock().is_empty());
        fleet.is_down.store(false, Ordering::Relaxed);
        assert!(matches!(report(&reporter).await, Ok(Next::Done)));
        assert_eq!(fleet.patches.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_waits_while_the_api_does_not_serve_works() {
        for has_room in [true, false] {
            let (reporter, fleet) = reporter(has_room).await;
            fleet.is_unserved.store(true, Ordering::Relaxed);
            assert!(report(&reporter).await.is_err(), "{has_room}");
            fleet.is_unserved.store(false, Ordering::Relaxed);
            assert!(matches!(report(&reporter).await, Ok(Next::Done)));
            assert_eq!(fleet.patches.lock().len(), 1, "{has_room}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_written_once_while_the_cache_lags_and_again_when_it_was_lost() {
        let (reporter, fleet) = reporter(true).await;
        let written = async |what: &str, count: usize| {
            assert!(matches!(report(&reporter).await, Ok(Next::Done)));
            assert_eq!(fleet.patches.lock().len(), count, "{what}");
        };
        written("the first", 1).await;
        written("the cache does not show it", 1).await;
        tokio::time::advance(Duration::from_mins(10)).await;
        written("the cache never shows it", 1).await;
        let mut lost = fleet.get("w");
        lost["metadata"]["resourceVersion"] = json!("5");
        lost["status"] = Value::Null;
        fleet.put(lost);
        tokio::time::advance(Duration::from_mins(2)).await;
        written("it was lost", 2).await;
    }
}
