//! Reads a collection once, in pages and object by object while they arrive.
//!
//! A list in one answer holds whatever the collection holds, which users of the cluster decide.
//! Here one object is held at a time, and of a page what its decoder keeps of the objects.

use std::time::Duration;

use kube::api::Api;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Selection;
use super::follower::{FIRST_LIMIT, next_limit};
use super::listing::{Listing, Part};
use super::source::{Extent, Source, WatchError};
pub use super::wire::Rejected;

/// How often a collection is read anew because the server forgot where it was.
const MOST_RESTARTS: u32 = 3;

/// Reason why a page could not be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PageError(#[from] WatchError);

impl PageError {
    /// Returns whether the server gave no answer that says something.
    pub fn is_silence(&self) -> bool {
        self.0.code().is_none()
    }
}

/// A page of a collection.
#[derive(Debug)]
pub struct Page<K> {
    /// Objects that were to be kept.
    pub objects: Vec<K>,
    /// Objects that do not decode.
    pub unreadable: Vec<Rejected>,
}

/// The pages of a collection, as fresh as can be read. An object may come twice if the server
/// forgets between two pages where the reader was.
pub struct Pages<K> {
    source: Source<K>,
    silence: Duration,
    limit: u32,
    from: Option<String>,
    restarts: u32,
    is_over: bool,
}

impl<K: DeserializeOwned> Pages<K> {
    /// Reads the collection of `api`. The head of an answer, and each object, may take `silence` to
    /// come.
    pub fn of<O: kube::Resource + Clone>(
        api: &Api<O>,
        selection: Selection,
        silence: Duration,
    ) -> Self {
        Self {
            limit: FIRST_LIMIT.min(selection.page_size),
            source: Source::new(api, selection, None),
            silence,
            from: None,
            restarts: 0,
            is_over: false,
        }
    }

    /// Reads at most so many objects in the first page.
    #[must_use]
    pub fn beginning_with(mut self, limit: u32) -> Self {
        self.limit = self.limit.min(limit).max(1);
        self
    }

    /// Returns how many objects the next page is asked for. It is smaller after a page that failed.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Reads the next page, and keeps of it what `keep` says; `None` after the last one. After an
    /// error the same page is read again, with fewer objects.
    ///
    /// # Errors
    /// When the server refuses, or the answer breaks off.
    pub async fn next(
        &mut self,
        mut keep: impl FnMut(&K) -> bool,
    ) -> Result<Option<Page<K>>, PageError> {
        while !self.is_over {
            match self.read(&mut keep).await {
                Ok(page) => return Ok(Some(page)),
                // The continue token has expired.
                Err(error)
                    if error.code() == Some(410)
                        && self.from.is_some()
                        && self.restarts < MOST_RESTARTS =>
                {
                    self.restarts += 1;
                    self.from = None;
                }
                Err(error) => {
                    self.limit = (self.limit / 2).max(1);
                    return Err(error.into());
                }
            }
        }
        Ok(None)
    }

    async fn read(&mut self, keep: &mut impl FnMut(&K) -> bool) -> Result<Page<K>, WatchError> {
        let extent = Extent::Page {
            limit: self.limit,
            from: self.from.clone(),
        };
        let mut listing = open(&self.source, &extent, self.silence).await?;
        let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
        let meta = loop {
            match listing.next(self.silence).await? {
                Part::Object(object) if keep(&object) => objects.push(object),
                Part::Object(_) => {}
                Part::Rejected(rejected) => unreadable.push(rejected),
                Part::End(meta) => break meta,
            }
        };
        self.limit = next_limit(self.limit, listing.read()).min(self.source.selection.page_size);
        self.from = meta.continue_token;
        self.is_over = self.from.is_none();
        Ok(Page {
            objects,
            unreadable,
        })
    }
}

/// Returns whether a collection has an object, by the server's cache, which may be a moment old.
/// Reads no further than the first object.
///
/// # Errors
/// When the server refuses, or the answer breaks off.
pub async fn has_any<O: kube::Resource + Clone>(
    api: &Api<O>,
    selection: Selection,
    silence: Duration,
) -> Result<bool, PageError> {
    let source: Source<serde::de::IgnoredAny> = Source::new(api, selection, None);
    let mut listing = open(&source, &Extent::Whole, silence).await?;
    let first = listing.next(silence).await?;
    Ok(!matches!(first, Part::End(_)))
}

async fn open<K: DeserializeOwned>(
    source: &Source<K>,
    extent: &Extent,
    silence: Duration,
) -> Result<Listing<K>, WatchError> {
    let listing = timeout(silence, source.list(extent)).await;
    listing.map_err(|_| WatchError::Deadline(silence))?
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing;

    const SILENCE: Duration = Duration::from_secs(10);

    /// Answers to requests in turn, and the queries of the requests.
    struct Server {
        answers: Mutex<VecDeque<(u16, Value)>>,
        asked: Mutex<Vec<String>>,
    }

    fn page(names: &[&str], next: &str) -> (u16, Value) {
        let item = |name: &&str| json!({ "metadata": { "name": name }, "data": {} });
        let items: Vec<_> = names.iter().map(item).collect();
        let list = json!({ "metadata": { "continue": next }, "items": items });
        (200, list)
    }

    fn refusal(code: u16) -> (u16, Value) {
        (code, json!({ "kind": "Status", "code": code }))
    }

    fn pages(answers: Vec<(u16, Value)>) -> (Pages<ConfigMap>, Arc<Server>) {
        let server = Arc::new(Server {
            answers: Mutex::new(answers.into()),
            asked: Mutex::default(),
        });
        let answering = Arc::clone(&server);
        let api: Api<ConfigMap> = Api::all(testing::api(move |uri| {
            let query = uri.query().unwrap_or_default().to_owned();
            answering.asked.lock().push(query);
            let (code, body) = answering.answers.lock().pop_front().unwrap();
            (code, body.to_string())
        }));
        let pages = Pages::of(&api, Selection::default().labels("a"), SILENCE);
        (pages, server)
    }

    /// Reads pages to the end, or to the first error.
    async fn read(pages: &mut Pages<ConfigMap>) -> Result<Vec<String>, String> {
        let mut names = Vec::new();
        while let Some(page) = pages
            .next(|it| it.name_any() != "unwanted")
            .await
            .map_err(|it| it.to_string())?
        {
            names.extend(page.objects.iter().map(ResourceExt::name_any));
            names.extend(page.unreadable.iter().map(|it| format!("{}?", it.name)));
        }
        Ok(names)
    }

    #[tokio::test(start_paused = true)]
    async fn a_collection_is_read_in_pages_and_what_does_not_decode_is_stepped_over() {
        let (code, mut odd) = page(&["b", "odd", "unwanted"], "");
        odd["items"][1]["metadata"]["creationTimestamp"] = json!("9999-12-31T23:59:59Z");
        let (mut pages, server) = pages(vec![page(&["a"], "t"), (code, odd)]);
        assert_eq!(read(&mut pages).await.unwrap(), ["a", "b", "odd?"]);
        let asked = server.asked.lock();
        assert!(asked[0].contains("limit=20") && asked[0].contains("labelSelector=a"));
        assert!(asked[1].contains("continue=t"), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_collection_whose_place_is_forgotten_is_read_anew_a_few_times() {
        let first = || page(&["a"], "t");
        let (mut found, _) = pages(vec![first(), refusal(410), first(), page(&["b"], "")]);
        assert_eq!(read(&mut found).await.unwrap(), ["a", "a", "b"]);
        let answers = std::iter::repeat_with(|| [first(), refusal(410)]).take(4);
        let (mut never, server) = pages(answers.flatten().collect());
        assert!(read(&mut never).await.is_err());
        assert_eq!(server.asked.lock().len(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_fails_is_read_again_with_fewer_objects() {
        let (mut pages, server) = pages(vec![refusal(504), page(&["a"], "")]);
        assert!(read(&mut pages).await.is_err());
        assert_eq!(read(&mut pages).await.unwrap(), ["a"]);
        assert!(server.asked.lock()[1].contains("limit=10"));
    }
}
