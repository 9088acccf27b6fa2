//! Lists that the server does not stream: in one answer, or in pages.

use kube::runtime::watcher::Event;

use super::{Follower, State};
use crate::watch::Followed;
use crate::watch::listing::{Listing, Part};
use crate::watch::source::{ANSWER_DEADLINE, Extent, WatchError};

/// Objects that the first page is asked for, while it is unknown how large they are: at most 30 MB,
/// as etcd stores them.
pub(in crate::watch) const FIRST_LIMIT: u32 = 20;
/// Bytes that a page is to have about, so that it is answered within a second or two.
const PAGE_BYTES: u64 = 4 << 20;
/// How often everything is asked for in one answer before it is asked for in pages.
const WHOLE_ATTEMPTS: u32 = 2;

impl<K: Followed> Follower<K> {
    /// Begins a list of everything.
    pub(super) async fn list_all(&mut self) -> Result<State<K>, (State<K>, WatchError)> {
        self.notify(Event::Init);
        let extent = if self.source.selection.recent && self.broken < WHOLE_ATTEMPTS {
            Extent::Whole
        } else {
            self.page(None)
        };
        self.open(extent).await
    }

    /// Returns the page of a list that goes on from there.
    fn page(&self, from: Option<String>) -> Extent {
        let limit = self.limit.min(self.source.selection.page_size);
        Extent::Page { limit, from }
    }

    async fn open(&mut self, extent: Extent) -> Result<State<K>, (State<K>, WatchError)> {
        match self.source.list(&extent).await {
            Ok(listing) => Ok(State::Listing {
                extent,
                listing,
                objects: 0,
            }),
            // An expired continue token (410) or any other failure: the list starts anew. What was
            // not even begun says nothing about its length, unless the server took too long to
            // begin.
            Err(stumble) => {
                if matches!(stumble, WatchError::Deadline(_)) {
                    self.broke(&extent);
                }
                Err((State::Unlisted, stumble))
            }
        }
    }

    /// Reads the next object of a list.
    pub(super) async fn list(
        &mut self,
        extent: Extent,
        mut listing: Listing<K>,
        objects: u32,
    ) -> Result<State<K>, (State<K>, WatchError)> {
        let meta = match listing.next(ANSWER_DEADLINE).await {
            Ok(Part::End(meta)) => meta,
            Ok(part) => {
                match part {
                    Part::Object(object) => self.notify(Event::InitApply(object)),
                    Part::Rejected(rejected) => self.report(rejected),
                    Part::End(_) => {}
                }
                return Ok(State::Listing {
                    extent,
                    listing,
                    objects: objects.saturating_add(1),
                });
            }
            Err(stumble) => {
                self.broke(&extent);
                return Err((State::Unlisted, stumble));
            }
        };
        if let Extent::Page { limit, .. } = extent {
            self.limit = next_limit(limit, listing.read());
        }
        if let Some(token) = meta.continue_token {
            let next = self.page(Some(token));
            return self.open(next).await;
        }
        let Some(resource_version) = meta.resource_version else {
            return Err((State::Unlisted, WatchError::NoResourceVersion));
        };
        self.broken = 0;
        self.notify(Event::InitDone);
        Ok(State::Listed { resource_version })
    }

    /// Notes that a list broke off. One that is too long for the server or the way to it comes in
    /// pages after that.
    fn broke(&mut self, extent: &Extent) {
        match extent {
            Extent::Whole => self.broken += 1,
            Extent::Page { limit, .. } => self.limit = (limit / 2).max(1),
        }
    }
}

/// Objects to ask the next page for, after one of so many (or fewer) had this many bytes: about
/// [`PAGE_BYTES`] of them.
pub(in crate::watch) fn next_limit(limit: u32, bytes: u64) -> u32 {
    if bytes > PAGE_BYTES {
        (limit / 2).max(1)
    } else if bytes < PAGE_BYTES / 2 {
        limit.saturating_mul(2)
    } else {
        limit
    }
}
