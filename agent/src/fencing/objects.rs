//! Finds and stops fenced objects in the member, by their labels: Works cannot be read while the
//! member is cut off.

use futures::stream::{self, StreamExt};
use muster_shared::client;
use muster_shared::events::{EventType, Events};
use muster_shared::fencing::{self, Orders};
use muster_shared::k8s::{
    Api, Client, CoreObjectReference, DeleteParams, GroupVersionKind, ListParams, Patch,
    PatchParams, Preconditions, PropagationPolicy,
};
use muster_shared::names::label;
use serde_json::Value;
use tokio::time::{Duration, timeout};

use super::record::FIELD_MANAGER;
use crate::discovery::Discovery;
use crate::work::raw::Raw;

/// Deadline for one request.
const DEADLINE: Duration = Duration::from_secs(10);
/// Objects stopped at the same time.
const PARALLEL: usize = 16;

/// Objects of the member.
pub struct Objects {
    /// Client for all of it.
    pub client: Client,
    /// Kinds that the member serves.
    pub discovery: Discovery,
}

/// Result of one round over the objects of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Objects that are due and stopped.
    pub stopped: usize,
    /// Objects that are due and could not be stopped.
    pub failed: usize,
}

impl Objects {
    /// Stops the objects of a kind that are due.
    pub async fn stop(
        &self,
        kind: &GroupVersionKind,
        is_due: &(impl Fn(Duration) -> bool + Sync),
        events: &Events,
    ) -> Result<Round, String> {
        let version = self.discovery.version_of(kind).await;
        let Some(version) = version.map_err(|error| error.to_string())? else {
            return Ok(Round::default());
        };
        let kind = GroupVersionKind::gvk(&kind.group, &version, &kind.kind);
        let place = self.discovery.resolve(&kind).await;
        let Some(place) = place.map_err(|error| error.to_string())? else {
            return Ok(Round::default());
        };
        let all: Api<Raw> = Api::all_with(self.client.clone(), &place.resource);
        let params = ListParams::default().labels(label::FENCED);
        let list = within(all.list(&params)).await?;
        let due = list.items.iter().filter_map(|raw| {
            let orders = Orders::of(&raw.object)?;
            is_due(orders.after()).then_some((&raw.object, orders))
        });
        let (kind, place) = (&kind, &place);
        let stops = due.map(|(object, orders)| async move {
            let namespace = text(object, "namespace").filter(|_| place.namespaced);
            let api: Api<Raw> = match namespace {
                Some(namespace) => {
                    Api::namespaced_with(self.client.clone(), namespace, &place.resource)
                }
                None => Api::all_with(self.client.clone(), &place.resource),
            };
            stop(&api, kind, object, &orders, events).await
        });
        let stops: Vec<_> = stops.collect();
        let results: Vec<bool> = stream::iter(stops)
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        let stopped = results.iter().filter(|done| **done).count();
        Ok(Round {
            stopped,
            failed: results.len() - stopped,
        })
    }
}

/// Stops one object that is due, unless it is stopped. Returns whether it is.
async fn stop(
    api: &Api<Raw>,
    kind: &GroupVersionKind,
    object: &Value,
    orders: &Orders,
    events: &Events,
) -> bool {
    let name = text(object, "name").unwrap_or_default();
    let (done, how) = match &orders.stop {
        Some(order) => {
            let Some(patch) = fencing::stop(object, order) else {
                return true;
            };
            let params = PatchParams {
                field_manager: Some(FIELD_MANAGER.into()),
                ..PatchParams::default()
            };
            let patch = Patch::Merge(&patch);
            let call = api.patch(name, &params, &patch);
            (within(call).await.map(drop), "stopped")
        }
        None if text(object, "deletionTimestamp").is_some() => return true,
        None => {
            let params = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Foreground),
                preconditions: Some(Preconditions {
                    uid: text(object, "uid").map(str::to_owned),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            (within(api.delete(name, &params)).await.map(drop), "deleted")
        }
    };
    let result = if done.is_ok() { how } else { "error" };
    metrics::counter!("muster_fenced_objects_total", "kind" => kind.kind.clone(), "result" => result)
        .increment(1);
    let about = CoreObjectReference {
        api_version: Some(kind.api_version()),
        kind: Some(kind.kind.clone()),
        name: Some(name.to_owned()),
        namespace: text(object, "namespace").map(str::to_owned),
        uid: text(object, "uid").map(str::to_owned),
        ..CoreObjectReference::default()
    };
    let (path, after) = (name, orders.after_seconds);
    match done {
        Ok(()) => {
            let note = format!(
                "{how}, because the agent has not been able to renew the lease of its cluster for {after} s \
                 (failover.cluster.fencing): another cluster may take the workload over. It runs again when \
                 the lease is renewed and it is still wanted here"
            );
            tracing::warn!(
                kind = kind.kind,
                object = path,
                namespace = text(object, "namespace"),
                "{note}"
            );
            events.publish_about(about, EventType::Warning, "Fenced", note);
            true
        }
        Err(error) => {
            let note = format!(
                "could not be stopped, although the agent has not been able to renew the lease of its cluster \
                 for {after} s (failover.cluster.fencing), and may run twice: {error}"
            );
            tracing::error!(
                kind = kind.kind,
                object = path,
                namespace = text(object, "namespace"),
                "{note}"
            );
            events.publish_about(about, EventType::Warning, "FencingFailed", note);
            false
        }
    }
}

fn text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.as_str()
}

async fn within<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match timeout(DEADLINE, call).await {
        Ok(answer) => answer.map_err(|error| client::brief(&error)),
        Err(_) => Err("no answer in time".to_owned()),
    }
}
