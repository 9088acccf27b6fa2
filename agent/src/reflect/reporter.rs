//! Writes the states of objects to the status of Works.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::events::{EventType, Events};
use muster_shared::k8s::Api;
use muster_shared::k8s::ResourceExt;
use muster_shared::queue::Next;
use muster_shared::watch::{Change, Informer};
use serde_json::json;

use super::compose::compose;
use super::news::news;
use super::sent::{Sent, Verdict};
use super::statuses::ObjectStatuses;
use crate::work::CachedWork;
use crate::work::manifests::keys;
use crate::work::reader::{Turns, Whole, WorkReader};
use crate::write::{self, within};

/// Pause of a Work that is gone, or another one of its name, until the cache shows that.
const UNTIL_SHOWN: Next = Next::After(Duration::from_secs(5));

/// Attempts to write a report while others write the Work.
const ATTEMPTS: usize = 4;

/// Writes `manifestStatuses`, the part of a Work's status that only the agent writes.
pub struct Reporter {
    works: Informer<CachedWork>,
    api: Api<CachedWork>,
    reader: Arc<WorkReader>,
    turns: Turns,
    statuses: Arc<ObjectStatuses>,
    events: Events,
    sent: Sent,
}

impl Reporter {
    /// Makes a reporter, which forgets Works when they are deleted.
    pub fn new(
        works: Informer<CachedWork>,
        api: Api<CachedWork>,
        reader: Arc<WorkReader>,
        statuses: Arc<ObjectStatuses>,
        events: Events,
    ) -> Arc<Self> {
        let reporter = Arc::new(Self {
            works,
            api,
            reader,
            turns: Turns::default(),
            statuses,
            events,
            sent: Sent::default(),
        });
        let weak = Arc::downgrade(&reporter);
        reporter.works.on_change(move |change| {
            let Some(reporter) = weak.upgrade() else {
                return;
            };
            match change {
                Change::Applied { old, new } => {
                    let (name, old) = (new.name_any(), old.as_deref());
                    // The status was lost, or another writer changed it.
                    let is_lost = CachedWork::reports_otherwise(old, new)
                        && reporter.sent.is_foreign(&name, new);
                    if is_lost || CachedWork::becomes_readable(old, new) {
                        reporter.statuses.again(&name, Duration::ZERO);
                    }
                }
                Change::Deleted { old } => reporter.forget(&old.name_any()),
            }
        });
        reporter
    }

    /// Forgets a Work that is gone.
    fn forget(&self, name: &str) {
        self.statuses.forget(name);
        self.sent.forget(name);
    }

    /// Writes the report of one Work, unless its status has it already.
    pub async fn report(self: Arc<Self>, name: String) -> Result<Next, write::Error> {
        let Some(cached) = self.works.get(self.api.namespace(), &name) else {
            // An object may have been seen, or a report written, after the Work was deleted.
            self.forget(&name);
            return Ok(Next::Done);
        };
        if cached.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let Some(_turn) = self.turns.take(&cached, self.statuses.queue()) else {
            return Ok(Next::Waits);
        };
        let mut whole = self.reader.open(&cached).await?;
        for _ in 0..ATTEMPTS {
            let Some(present) = &whole else {
                return Ok(UNTIL_SHOWN);
            };
            if let Some(next) = self.write(&name, present).await? {
                return Ok(next);
            }
            // The cache may lag for long: the report is composed upon the Work as it is.
            let fresh = self.reader.read(&name).await?;
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
        for (object, trouble) in self.statuses.new_troubles(name) {
            let (reason, text) = trouble.note(&object);
            tracing::warn!(%object, work = name, reason, text, "cannot interpret an object");
            self.events.publish(work, EventType::Warning, reason, text);
        }
        let wanted = || keys(work).map(|(_, key, _)| key).collect();
        let manifests = work.spec.workload.manifests.len();
        self.statuses.retain(name, manifests, wanted);
        let (seen, gone) = self.statuses.of(name);
        let report = compose(work, &seen, &gone);
        let fingerprint = CachedWork::fingerprint(&report.statuses);
        match self.sent.judge(name, &whole.cached, fingerprint) {
            Verdict::Said => {
                self.statuses.settle_gone(name, &gone);
                return Ok(Some(Next::Done));
            }
            Verdict::Wait(rest) => return Ok(Some(Next::After(rest))),
            Verdict::Write => {}
        }
        // The applier adds the names of objects that it is about to make: a report upon an older
        // version would take them away.
        let version = &whole.cached.metadata.resource_version;
        let patch = json!({
            "metadata": { "resourceVersion": version },
            "status": { "manifestStatuses": report.statuses },
        });
        let call = write::merge(&self.api, name, Some("status"), &patch);
        match within("report the status of a Work", call).await {
            Ok(_) => {
                metrics::counter!("muster_work_reports_total").increment(1);
                let before = work.status.as_ref();
                let before = before.map_or(&[][..], |status| &status.manifest_statuses);
                for (reason, text) in news(before, &report.statuses) {
                    self.events.publish(work, EventType::Normal, reason, text);
                }
                if report.shortened > 0 {
                    let text = too_long(report.shortened);
                    tracing::warn!(work = name, text, "cannot report everything");
                    self.events
                        .publish(work, EventType::Warning, "ReflectStatusFailed", text);
                }
                self.statuses.settle_gone(name, &gone);
                let shown = self.works.get(self.api.namespace(), name);
                let uid = work.metadata.uid.as_deref();
                self.sent.wrote(name, shown.as_deref(), uid, fingerprint);
                if self.works.get(self.api.namespace(), name).is_none() {
                    self.forget(name);
                }
                Ok(Some(Next::Done))
            }
            Err(error) if error.is_not_found() => Ok(Some(Next::Done)),
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
    use muster_shared::queue::Queue;

    use super::*;
    use crate::reflect::Look;
    use crate::work::desired::ObjectKey;
    use crate::work::reader::tests::{Fleet, cache, work};

    /// Returns a reporter of a Work of which an object was seen.
    async fn reporter(has_room: bool) -> (Arc<Reporter>, Arc<Fleet>) {
        let fleet = Arc::new(Fleet::default());
        let work = work("w", 100_000);
        let key = ObjectKey::of(&work["spec"]["workload"]["manifests"][0], 0).unwrap();
        fleet.put(work);
        let api = fleet.start();
        let works = cache(&api, has_room).await;
        let reader = Arc::new(WorkReader::new(api.clone()));
        let statuses = Arc::new(ObjectStatuses::new(Queue::new("test")));
        let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "a" }, "status": { "replicas": 1 } });
        statuses.see("w", &key, Look::at(&object, &Interpreters::default()));
        let reporter = Reporter::new(works, api, reader, statuses, Events::nowhere());
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
            patches.push(fleet.patches.lock().unwrap().clone());
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
        assert!(fleet.patches.lock().unwrap().is_empty());
        fleet.is_down.store(false, Ordering::Relaxed);
        assert!(matches!(report(&reporter).await, Ok(Next::Done)));
        assert_eq!(fleet.patches.lock().unwrap().len(), 1);
    }
}
