//! Opens Works: from the cache, or from the fleet API where the cache does not keep the text.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::api::work::Work;
use muster_shared::k8s::{Api, ResourceExt};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::cached::{CachedWork, Unreadable};
use crate::write::{self, within};

/// Large Works that are applied at a time, and as many that are reported. As a tree one may take
/// ten times the memory of its text.
const LARGE: usize = 2;
/// Time that a watch waits for a Work.
const PROMPT: Duration = Duration::from_secs(10);
/// Time after a failed read for which no watch reads a Work.
const REST: Duration = Duration::from_secs(10);

/// A Work with its content.
pub struct Whole {
    /// The Work as it was cached, or as it was read just now.
    pub cached: Arc<CachedWork>,
    /// Content of the Work, or the reason why it cannot be read.
    pub work: Result<Work, Unreadable>,
}

/// Bounds how many large Works are held at a time. Others need no turn.
pub struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(LARGE))
    }
}

impl Turns {
    /// Waits for the turn of a Work, which lasts until the permit is dropped.
    pub async fn of(&self, cached: &CachedWork) -> Option<SemaphorePermit<'_>> {
        if cached.is_large() {
            self.0.acquire().await.ok()
        } else {
            None
        }
    }
}

/// A Work that a watch could not read, and has to look at again.
#[derive(Debug)]
pub struct Unread;

/// Opens Works.
pub struct WorkReader {
    api: Api<CachedWork>,
    /// Time of the last failed read for a watch. Watches read one Work at a time.
    failed: tokio::sync::Mutex<Option<Instant>>,
}

impl WorkReader {
    /// Reads Works from this API.
    pub fn new(api: Api<CachedWork>) -> Self {
        Self {
            api,
            failed: tokio::sync::Mutex::default(),
        }
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
                let error = outcome.map_or_else(
                    |_| "no answer in time".to_owned(),
                    |read| {
                        read.err()
                            .map(|error| error.to_string())
                            .unwrap_or_default()
                    },
                );
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
        let fresh = within("read the Work", self.api.get_opt(name)).await?;
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
