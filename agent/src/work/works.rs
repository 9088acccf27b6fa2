//! The Works of the member: read from the cache, or from the fleet API where the cache does not
//! keep the text, and written with the version that was read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use muster_shared::api::work::Work;
use muster_shared::client;
use muster_shared::k8s::{Api, ObjectMeta, ResourceExt};
use muster_shared::watch::{Expectations, Informer};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::cached::{CachedWork, Unreadable};
use crate::write::{self, within};

/// Time that a watch waits for a Work.
const PROMPT: Duration = Duration::from_secs(10);
/// Time after a failed read for which no watch reads a Work.
const REST: Duration = Duration::from_secs(10);
/// Time that the list of Works may take before an agent takes over from another one without it.
const CONFIRMATION: Duration = Duration::from_secs(20);

/// A Work with its content.
pub struct Whole {
    /// The Work as it was cached, or as it was read just now.
    pub cached: Arc<CachedWork>,
    /// Content of the Work, or the reason why it cannot be read.
    pub work: Result<Work, Unreadable>,
}

/// A Work that a watch could not read, and has to read again.
#[derive(Debug)]
pub struct Unread;

/// The Works of the member.
pub struct Works {
    /// Cache of the Works.
    pub cache: Informer<CachedWork>,
    api: Api<CachedWork>,
    /// The agent's writes that the cache does not show yet.
    expectations: Expectations<String, Arc<CachedWork>>,
    /// Time of the last failed read for a watch. Watches read one Work at a time.
    failed: tokio::sync::Mutex<Option<Instant>>,
    /// Whether another agent may have acted for the member since the Works were listed.
    has_stood_by: AtomicBool,
    /// Lock that is held while the Works are listed again before a takeover.
    taking_over: tokio::sync::Mutex<()>,
}

impl Works {
    /// Reads Works from a cache, and from this API.
    pub fn new(cache: Informer<CachedWork>, api: Api<CachedWork>) -> Self {
        Self {
            cache,
            api,
            expectations: Expectations::lasting(),
            failed: tokio::sync::Mutex::default(),
            has_stood_by: AtomicBool::default(),
            taking_over: tokio::sync::Mutex::default(),
        }
    }

    /// Notes that another agent may act for the member now.
    pub fn stand_by(&self) {
        self.has_stood_by.store(true, Ordering::SeqCst);
    }

    /// Lists the Works again if another agent may have acted for the member. The watch may have
    /// been cut off unnoticed: a Work that the other one has removed would be applied as the cache
    /// shows it, and nobody would ever remove its objects.
    pub async fn take_over(&self) {
        let _taking_over = self.taking_over.lock().await;
        if self.has_stood_by.swap(false, Ordering::SeqCst)
            && timeout(CONFIRMATION, self.cache.confirmed()).await.is_err()
        {
            tracing::warn!(
                "the Works could not be listed again: taking over with those that the watch has shown"
            );
        }
    }

    /// Returns a Work as the cache shows it.
    pub fn cached(&self, name: &str) -> Option<Arc<CachedWork>> {
        self.cache.get(self.api.namespace(), name)
    }

    /// Returns a Work as the cache shows it, or as the agent has written it if the cache is behind.
    /// A Work that the cache has not caught up with for long is read: another client may have
    /// written it since.
    pub async fn latest(&self, name: &str) -> Result<Option<Arc<CachedWork>>, write::Error> {
        let Some(cached) = self.cached(name) else {
            return Ok(None);
        };
        let shown = &cached.metadata;
        let Some(written) = self.expectations.answer(name, shown) else {
            return Ok(Some(cached));
        };
        if !self.expectations.is_overdue(name, shown) {
            return Ok(Some(written));
        }
        // A read that fails leaves what was written as it is, and is tried again.
        let Some(fresh) = self.verify(name).await? else {
            return Ok(None);
        };
        let latest = self.expectations.answer(name, shown);
        Ok(Some(latest.unwrap_or(fresh)))
    }

    /// Reads a Work from the fleet API; `None` if it is gone. Until the cache shows the state that
    /// was read or a later one, [`latest`](Self::latest) returns it.
    pub async fn verify(&self, name: &str) -> Result<Option<Arc<CachedWork>>, write::Error> {
        let shown = self.cached(name);
        let fresh = within("read the Work", client::get_opt(&self.api, name)).await?;
        let Some(fresh) = fresh.map(|fresh| self.cache.kept(fresh)) else {
            return Ok(None);
        };
        if let Some(shown) = shown {
            let (seen, present) = (&shown.metadata, &fresh.metadata);
            let answer = Arc::clone(&fresh);
            self.expectations.found(name, seen, present, answer);
            self.catch_up(name);
        }
        Ok(Some(fresh))
    }

    /// Notes what the cache shows after a request: it may have been faster, and shows nothing more
    /// of a Work that is gone.
    fn catch_up(&self, name: &str) {
        match self.cached(name) {
            Some(cached) => self.expectations.observe(name, &cached.metadata),
            None => self.expectations.forget(name),
        }
    }

    /// Notes what the cache shows. Returns whether this agent has written it.
    pub fn observe(&self, shown: &CachedWork) -> bool {
        let (name, metadata) = (shown.name_any(), &shown.metadata);
        let is_own = self.expectations.is_own_write(&name, metadata);
        self.expectations.observe(&name, metadata);
        is_own
    }

    /// Forgets a Work that is gone.
    pub fn forget(&self, name: &str) {
        self.expectations.forget(name);
    }

    /// Sends a merge patch of a Work, with the version of `before`, so that a change in between is
    /// a conflict. Returns the Work afterwards.
    pub async fn patch(
        &self,
        api: &Api<CachedWork>,
        before: &ObjectMeta,
        subresource: Option<&str>,
        mut patch: Value,
    ) -> Result<Arc<CachedWork>, write::Error> {
        patch["metadata"]["resourceVersion"] = json!(before.resource_version);
        let name = before.name.as_deref().unwrap_or_default();
        let call = write::merge(api, name, subresource, &patch);
        let after = within("update the Work", call).await?;
        let after = self.cache.kept(after);
        let (expectations, answer) = (&self.expectations, Arc::clone(&after));
        expectations.written(name, before, &after.metadata, answer);
        self.catch_up(name);
        Ok(after)
    }

    /// Opens a Work; `None` if it has to be read, and is gone or another one of its name by now.
    pub async fn open(&self, cached: &Arc<CachedWork>) -> Result<Option<Whole>, write::Error> {
        if let Some(work) = cached.open() {
            let cached = Arc::clone(cached);
            return Ok(Some(Whole { cached, work }));
        }
        metrics::counter!("muster_work_contents_read_total").increment(1);
        let fresh = self.read(&cached.name_any()).await?;
        Ok(fresh.filter(|fresh| fresh.cached.metadata.uid == cached.metadata.uid))
    }

    /// Opens a Work for a watch, which must not be held up.
    ///
    /// # Errors
    /// When the Work could not be read, here or a moment ago, or is not there any more.
    pub async fn open_promptly(&self, cached: &Arc<CachedWork>) -> Result<Whole, Unread> {
        if let Some(work) = cached.open() {
            let cached = Arc::clone(cached);
            return Ok(Whole { cached, work });
        }
        let mut failed = self.failed.lock().await;
        if failed.is_some_and(|at| at.elapsed() < REST) {
            return Err(Unread);
        }
        let outcome = timeout(PROMPT, self.open(cached)).await;
        *failed = None;
        match outcome {
            Ok(Ok(whole)) => whole.ok_or(Unread),
            outcome => {
                *failed = Some(Instant::now());
                let error = match outcome {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no answer in time".to_owned(),
                };
                tracing::warn!(
                    work = cached.name_any(),
                    error,
                    "cannot compare its objects"
                );
                Err(Unread)
            }
        }
    }

    /// Reads a Work from the fleet API as it is now.
    pub async fn read(&self, name: &str) -> Result<Option<Whole>, write::Error> {
        let fresh = within("read the Work", client::get_opt(&self.api, name)).await?;
        // A Work that was just received has its text.
        Ok(fresh.and_then(|fresh| {
            let work = fresh.open()?;
            let cached = Arc::new(fresh);
            Some(Whole { cached, work })
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests;
