//! Follows the ResourceInterpreterWebhookConfigurations of the fleet API and feeds
//! [`Interpreters`].
//!
//! Answers of the interpreters count only once it is known which webhooks there are: from the first
//! complete list on, or since [`readable`](super::readable) says that there are none.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Api;
use kube::{Client, Resource};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::confirmed::Confirmed;
use super::customizations::FAILED;
use super::readable::until_readable;
use crate::webhook::Hooks;
use crate::{Interpreters, Source};
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;
use muster_shared::events::{EventType, Events};
use muster_shared::watch::{Informer, Selection};

/// The configurations of the fleet API. Cheap to clone.
#[derive(Clone)]
pub struct InterpreterWebhooks {
    informer: Informer<ResourceInterpreterWebhookConfiguration>,
    interpreters: Arc<Interpreters>,
}

impl InterpreterWebhooks {
    /// Prepares to follow them; nothing is sent before [`run`](Self::run).
    pub fn new(client: Client, interpreters: Arc<Interpreters>) -> Self {
        Self {
            informer: Informer::new(Api::all(client), Selection::everything()),
            interpreters,
        }
    }

    /// Returns the cache of the objects.
    pub fn informer(&self) -> &Informer<ResourceInterpreterWebhookConfiguration> {
        &self.informer
    }

    /// Has failures of webhooks told by an event on their configuration.
    pub fn tell_failures(&self, events: &Events) {
        let (informer, events) = (self.informer.clone(), events.clone());
        self.interpreters.on_failure(move |failed| {
            let Source::Webhook(name) = &failed.by else {
                return;
            };
            let about = match informer.get(None, name) {
                Some(configuration) => configuration.object_ref(&()),
                None => reference(name),
            };
            let note = &failed.note;
            tracing::warn!(configuration = name, note, "a webhook gives no answer");
            events.publish_about(about, EventType::Warning, FAILED, note.clone());
        });
    }

    /// Feeds the interpreters, and sends the questions to the webhooks, until shutdown. `refused`
    /// is told once why configurations cannot be read, if they cannot.
    pub async fn run(self, refused: impl Fn(&str) + Send, shutdown: CancellationToken) {
        let interpreters = Arc::clone(&self.interpreters);
        tokio::join!(
            self.follow(refused, shutdown.clone()),
            interpreters.run(shutdown),
        );
    }

    async fn follow(self, refused: impl Fn(&str) + Send, shutdown: CancellationToken) {
        let what = "configurations of interpreter webhooks";
        let refused = |reason: &str| {
            self.informer.hindered(reason);
            refused(reason);
        };
        let none = || self.interpreters.set_hooks(Hooks::default());
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = until_readable(self.informer.api(), what, refused, none) => {}
        }
        let changed = Arc::new(Notify::new());
        let to = Arc::clone(&changed);
        self.informer.on_change(move |_| to.notify_one());
        let feed = async {
            self.informer.synced().await;
            let mut confirmed = Confirmed::default();
            loop {
                let again = confirmed
                    .update(self.informer.api(), self.informer.list())
                    .await;
                let hooks = self.interpreters.hooks().renewed(confirmed.objects());
                self.interpreters.set_hooks(hooks);
                tokio::select! {
                    () = changed.notified() => {}
                    () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => {}
                }
            }
        };
        tokio::select! {
            () = self.informer.clone().run(shutdown) => {}
            () = feed => {}
        }
    }
}

fn reference(name: &str) -> ObjectReference {
    ObjectReference {
        name: Some(name.to_owned()),
        ..ResourceInterpreterWebhookConfiguration::default().object_ref(&())
    }
}
