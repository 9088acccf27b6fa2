//! Writing what was seen into the status of Works.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use muster_shared::api::work::{ManifestStatus, Work};
use muster_shared::events::{EventType, Events};
use muster_shared::k8s::Api;
use muster_shared::k8s::ResourceExt;
use muster_shared::queue::Next;
use muster_shared::watch::{Change, Informer};
use serde_json::json;

use super::compose::compose;
use super::news::news;
use super::reflections::Reflections;
use crate::apply::CachedWork;
use crate::apply::echo::digest;
use crate::write::{self, within};

/// Writes `manifestStatuses`, the part of a Work's status that is ours alone.
pub struct Reporter {
    works: Informer<CachedWork>,
    api: Api<CachedWork>,
    reflections: Arc<Reflections>,
    events: Events,
    /// Digest of what we wrote last, by Work, with its uid. The cache may still show what was there before.
    written: Mutex<HashMap<String, (Option<String>, u64)>>,
}

impl Reporter {
    /// Forgets Works that go.
    pub fn new(
        works: Informer<CachedWork>,
        api: Api<CachedWork>,
        reflections: Arc<Reflections>,
        events: Events,
    ) -> Arc<Self> {
        let reporter = Arc::new(Self {
            works,
            api,
            reflections,
            events,
            written: Mutex::default(),
        });
        let forget = Arc::downgrade(&reporter);
        reporter.works.on_change(move |change| {
            if let (Change::Deleted { old }, Some(reporter)) = (change, forget.upgrade()) {
                let name = old.name_any();
                reporter.reflections.forget(&name);
                reporter.lock().remove(&name);
            }
        });
        reporter
    }

    /// Writes the report of one Work, unless that is what it says already.
    pub async fn report(self: Arc<Self>, name: String) -> Result<Next, write::Error> {
        let Some(cached) = self.works.get(self.api.namespace(), &name) else {
            return Ok(Next::Done);
        };
        if cached.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        let work = cached.open();
        for (object, trouble) in self.reflections.new_troubles(&name) {
            let (reason, text) = trouble.note(&object);
            tracing::warn!(%object, work = name, reason, text, "cannot interpret an object");
            self.events.publish(&work, EventType::Warning, reason, text);
        }
        let (seen, gone) = self.reflections.of(&name);
        let report = compose(&work, &seen, &gone);
        let patch = json!({ "status": { "manifestStatuses": report } });
        let digest = (work.uid(), digest(&patch));
        if !self.is_news(&work, &report, &digest) {
            return Ok(Next::Done);
        }
        let call = write::merge(&self.api, &name, Some("status"), &patch);
        match within("report the status of a Work", call).await {
            Ok(_) => {
                metrics::counter!("muster_work_reports_total").increment(1);
                let before = work.status.as_ref();
                let before = before.map_or(&[][..], |status| &status.manifest_statuses);
                for (reason, text) in news(before, &report) {
                    self.events.publish(&work, EventType::Normal, reason, text);
                }
                self.reflections.settle_gone(&name, &gone);
                self.lock().insert(name, digest);
                Ok(Next::Done)
            }
            Err(error) if error.is_not_found() => Ok(Next::Done),
            Err(error) => Err(error),
        }
    }

    fn is_news(
        &self,
        work: &Work,
        report: &[ManifestStatus],
        digest: &(Option<String>, u64),
    ) -> bool {
        match self.lock().get(&work.name_any()) {
            Some(written) if written.0 == digest.0 => written.1 != digest.1,
            _ => {
                let status = work.status.as_ref();
                status.map_or(&[][..], |status| &status.manifest_statuses) != report
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Option<String>, u64)>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
