//! Follows the objects of a kind that hold interpreters, and updates [`Interpreters`].
//!
//! Answers of the interpreters count only once it is known which objects there are: from the first
//! complete list on, or since [`readable`](super::readable) says that there are none. While the
//! process may not read them, it is not known, and what was known before counts.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::Api;
use muster_shared::events::{EventType, Events};
use muster_shared::watch::{Informer, Selection};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::confirmed::Confirmed;
use super::kinds::Holder;
use super::readable::until_readable;
use crate::Interpreters;

/// Reason of the event on an object whose interpreter gives no answer.
pub const FAILED: &str = "InterpretFailed";

/// The objects of a kind in the fleet API. Cheap to clone.
#[derive(Clone)]
pub struct Follower<K: Holder> {
    informer: Informer<K>,
    interpreters: Arc<Interpreters>,
}

impl<K: Holder> Follower<K> {
    /// Prepares to follow them; nothing is sent before [`run`](Self::run).
    pub fn new(client: Client, interpreters: Arc<Interpreters>) -> Self {
        Self {
            informer: Informer::new(Api::all(client), Selection::everything()),
            interpreters,
        }
    }

    /// Returns the cache of the objects.
    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// Has failures of interpreters reported by an event on their object.
    pub fn report_failures(&self, events: &Events) {
        let (informer, events) = (self.informer.clone(), events.clone());
        self.interpreters.on_failure(move |failed| {
            let Some(name) = K::name_in(&failed.by) else {
                return;
            };
            let about = match informer.get(None, name) {
                Some(object) => object.object_ref(&()),
                None => ObjectReference {
                    name: Some(name.to_owned()),
                    ..K::default().object_ref(&())
                },
            };
            let (kind, note) = (K::kind(&()), &failed.note);
            tracing::warn!(%kind, name, note, "an interpreter gives no answer");
            events.publish_about(about, EventType::Warning, FAILED, note.clone());
        });
    }

    /// Feeds the interpreters until shutdown. `refused` is told once why the objects cannot be
    /// read, if they cannot.
    pub async fn run(self, refused: impl Fn(&str) + Send, shutdown: CancellationToken) {
        let refused = |reason: &str| {
            self.informer.hindered(reason);
            refused(reason);
        };
        let none = || K::update(&self.interpreters, std::iter::empty());
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = until_readable(self.informer.api(), K::OBJECTS, refused, none) => {}
        }
        let changed = Arc::new(Notify::new());
        let to = Arc::clone(&changed);
        self.informer.on_change(move |_| to.notify_one());
        let updating = async {
            self.informer.synced().await;
            let mut confirmed = Confirmed::default();
            loop {
                let was_deleted = |name: &str| self.informer.was_deleted(None, name);
                let listed = self.informer.list();
                let again = confirmed
                    .update(self.informer.api(), listed, was_deleted)
                    .await;
                K::update(&self.interpreters, confirmed.objects());
                tokio::select! {
                    () = changed.notified() => {}
                    () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => {}
                }
            }
        };
        tokio::select! {
            () = self.informer.clone().run(shutdown) => {}
            () = updating => {}
        }
    }
}
