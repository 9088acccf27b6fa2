//! Publishes events on objects that this control plane does not act on: resource interpreters that
//! are webhooks.
//!
//! Their definition is served because Karmada's programs wait for it, so the API server accepts
//! such objects. An event on each says that the built-in rules apply instead.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

use kube::api::Api;
use muster_shared::api::Object;
use muster_shared::api::interpreter_webhook::ResourceInterpreterWebhookConfiguration;
use muster_shared::events::EventType;
use muster_shared::k8s::ResourceExt as _;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Followed, Informer, Selection};

use crate::fleet::Fleet;

/// Reason of the event.
const REASON: &str = "NotSupported";

/// Starts telling; nothing waits for this cache.
pub(crate) fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    watch::<ResourceInterpreterWebhookConfiguration>(
        fleet,
        tasks,
        "interpreter webhooks",
        "this control plane asks no interpreter webhooks: customizations and the built-in rules of the kinds apply, and none for kinds that have none",
    );
}

fn watch<K>(fleet: &Arc<Fleet>, tasks: &mut Tasks, name: &'static str, note: &'static str)
where
    K: Object + Followed + kube::Resource<Scope = kube::core::ClusterResourceScope> + Debug,
{
    let informer: Informer<K> = Informer::new(
        Api::all(fleet.watch_client.clone()),
        Selection::everything(),
    );
    let queue = Queue::<String>::new(name);
    informer.on_change({
        let queue = queue.clone();
        move |change| {
            if let Change::Applied { old, new } = change
                && old
                    .as_ref()
                    .is_none_or(|old| old.meta().generation != new.meta().generation)
            {
                queue.add(new.name_any());
            }
        }
    });
    let objects = informer.clone();
    fleet.work(tasks, name, queue, 1, move |fleet, key| {
        let object = objects.get(None, &key);
        async move {
            if let Some(object) = object {
                tracing::warn!(object = %key, kind = %K::kind(&()), "{note}");
                fleet
                    .events
                    .publish(&*object, EventType::Warning, REASON, note);
            }
            Ok::<_, Infallible>(Next::Done)
        }
    });
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(name, informer.run(shutdown));
}
