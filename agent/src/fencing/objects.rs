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
use crate::discovery::catalog::Place;
use crate::work::dependents::{self, Action};
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
    /// Objects that were stopped in this round.
    pub changed: usize,
    /// Shortest time of the objects that are not due.
    pub next: Option<Duration>,
    /// Whether some objects are not known.
    pub is_partial: bool,
}

impl Round {
    /// Adds the result for another kind.
    pub fn add(&mut self, other: &Self) {
        self.stopped += other.stopped;
        self.failed += other.failed;
        self.changed += other.changed;
        self.next = self.next.into_iter().chain(other.next).min();
        self.is_partial |= other.is_partial;
    }
}

/// Result for one object that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was stopped before, with all that it has made.
    Before,
    /// It was stopped now, or something that it has made.
    Now,
    /// It could not be stopped.
    Failed,
}

impl Objects {
    /// Stops the objects of a kind that are due.
    pub async fn stop(
        &self,
        kind: &GroupVersionKind,
        is_due: &(impl Fn(Duration) -> bool + Sync),
        events: &Events,
    ) -> Result<Round, String> {
        let Some((kind, place)) = self.place(kind).await? else {
            return Ok(Round::default());
        };
        let all: Api<Raw> = Api::all_with(self.client.clone(), &place.resource);
        let params = ListParams::default().labels(label::FENCED);
        let list = within(all.list(&params)).await?;
        let mut round = Round::default();
        let (mut due, mut unclear) = (Vec::new(), Vec::new());
        for raw in &list.items {
            match Orders::of(&raw.object) {
                Some(orders) if is_due(orders.after()) => due.push((&raw.object, orders)),
                Some(orders) => {
                    round.next = round.next.into_iter().chain([orders.after()]).min();
                }
                None => unclear.push(text(&raw.object, "name").unwrap_or_default()),
            }
        }
        let (kind, place) = (&kind, &place);
        let stops = due.into_iter().map(|(object, orders)| async move {
            let api = self.api_of(place, text(object, "namespace"));
            let outcome = stop(&api, kind, object, &orders, events).await;
            let runs_on = orders.stop.is_some()
                && match outcome {
                    Outcome::Before => dependents::has_stopped(object),
                    Outcome::Now => true,
                    Outcome::Failed => false,
                };
            if !runs_on {
                return outcome;
            }
            match self.stop_dependents(kind, object).await {
                Ok(0) => outcome,
                Ok(_) => Outcome::Now,
                Err(error) => {
                    tell_failure(events, &about(kind, object), &orders, &error);
                    Outcome::Failed
                }
            }
        });
        let stops: Vec<_> = stops.collect();
        let outcomes: Vec<_> = stream::iter(stops)
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        let count = |outcome| outcomes.iter().filter(|it| **it == outcome).count();
        round.failed = count(Outcome::Failed);
        round.changed = count(Outcome::Now);
        round.stopped = outcomes.len() - round.failed;
        if let Some(name) = unclear.first() {
            tracing::error!(
                kind = kind.kind,
                object = name,
                "its annotation failover.muster.io/fencing cannot be read, so that it is not stopped"
            );
            round.is_partial = true;
        }
        Ok(round)
    }

    /// Returns whether the member has fenced objects of a kind.
    pub async fn has_fenced(&self, kind: &GroupVersionKind) -> Result<bool, String> {
        let Some((_, place)) = self.place(kind).await? else {
            return Ok(false);
        };
        let all: Api<Raw> = Api::all_with(self.client.clone(), &place.resource);
        // From the server's cache: the kinds are searched that may have most objects.
        let params = ListParams::default().labels(label::FENCED).match_any();
        let list = within(all.list(&params)).await?;
        Ok(!list.items.is_empty())
    }

    /// Stops what an object that is stopped has made. Returns how much of it was running.
    async fn stop_dependents(
        &self,
        kind: &GroupVersionKind,
        owner: &Value,
    ) -> Result<usize, String> {
        let Some(kind) = dependents::of(kind) else {
            return Ok(0);
        };
        let Some((kind, place)) = self.place(&kind).await? else {
            return Ok(0);
        };
        let api = self.api_of(&place, text(owner, "namespace"));
        let list = within(api.list(&ListParams::default())).await?;
        let mut running = 0;
        for raw in list
            .items
            .iter()
            .filter(|raw| dependents::is_of(&raw.object, owner))
        {
            let object = &raw.object;
            let Some(action) = dependents::action(object, &kind) else {
                continue;
            };
            running += 1;
            let name = text(object, "name").unwrap_or_default();
            let done = match action {
                Action::Patch(patch) => merge(&api, object, patch).await,
                Action::Delete => delete(&api, object).await,
            };
            done.map_err(|error| format!("{} {name}: {error}", kind.kind))?;
            tracing::warn!(
                kind = kind.kind,
                object = name,
                "stopped with what has made it"
            );
        }
        Ok(running)
    }

    async fn place(
        &self,
        kind: &GroupVersionKind,
    ) -> Result<Option<(GroupVersionKind, Place)>, String> {
        let version = self.discovery.version_of(kind).await;
        let Some(version) = version.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let kind = GroupVersionKind::gvk(&kind.group, &version, &kind.kind);
        let place = self.discovery.resolve(&kind).await;
        let place = place.map_err(|error| error.to_string())?;
        Ok(place.map(|place| (kind, place)))
    }

    fn api_of(&self, place: &Place, namespace: Option<&str>) -> Api<Raw> {
        match namespace.filter(|_| place.namespaced) {
            Some(namespace) => {
                Api::namespaced_with(self.client.clone(), namespace, &place.resource)
            }
            None => Api::all_with(self.client.clone(), &place.resource),
        }
    }
}

/// Sends a merge patch of the object that was read, and of no other one of its name.
async fn merge(api: &Api<Raw>, object: &Value, mut patch: Value) -> Result<(), String> {
    patch["metadata"]["uid"] = object["metadata"]["uid"].clone();
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let name = text(object, "name").unwrap_or_default();
    let patch = Patch::Merge(&patch);
    let call = api.patch(name, &params, &patch);
    within(call).await.map(drop)
}

/// Deletes the object that was read.
async fn delete(api: &Api<Raw>, object: &Value) -> Result<(), String> {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        preconditions: Some(Preconditions {
            uid: text(object, "uid").map(str::to_owned),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let name = text(object, "name").unwrap_or_default();
    within(api.delete(name, &params)).await.map(drop)
}

/// Stops one object that is due, unless it is stopped.
async fn stop(
    api: &Api<Raw>,
    kind: &GroupVersionKind,
    object: &Value,
    orders: &Orders,
    events: &Events,
) -> Outcome {
    let (done, how) = match &orders.stop {
        Some(order) => match fencing::stop(object, order) {
            None => return Outcome::Before,
            Some(patch) => (merge(api, object, patch).await, "stopped"),
        },
        None if text(object, "deletionTimestamp").is_some() => return Outcome::Before,
        None => (delete(api, object).await, "deleted"),
    };
    let result = if done.is_ok() { how } else { "error" };
    metrics::counter!("muster_fenced_objects_total", "kind" => kind.kind.clone(), "result" => result)
        .increment(1);
    let about = about(kind, object);
    if let Err(error) = done {
        tell_failure(events, &about, orders, &error);
        return Outcome::Failed;
    }
    let after = orders.after_seconds;
    let note = format!(
        "{how}, because the agent has not been able to renew the lease of its cluster for {after} s \
         (failover.cluster.fencing): another cluster may take the workload over. It runs again when \
         the lease is renewed and it is still wanted here"
    );
    tracing::warn!(
        kind = kind.kind,
        object = about.name,
        namespace = about.namespace,
        "{note}"
    );
    events.publish_about(about, EventType::Warning, "Fenced", note);
    Outcome::Now
}

/// Reports that an object may run on.
fn tell_failure(events: &Events, about: &CoreObjectReference, orders: &Orders, error: &str) {
    let after = orders.after_seconds;
    let note = format!(
        "could not be stopped, although the agent has not been able to renew the lease of its cluster \
         for {after} s (failover.cluster.fencing), and may run twice: {error}"
    );
    tracing::error!(
        kind = about.kind,
        object = about.name,
        namespace = about.namespace,
        "{note}"
    );
    events.publish_about(about.clone(), EventType::Warning, "FencingFailed", note);
}

fn about(kind: &GroupVersionKind, object: &Value) -> CoreObjectReference {
    let text = |field| text(object, field).map(str::to_owned);
    CoreObjectReference {
        api_version: Some(kind.api_version()),
        kind: Some(kind.kind.clone()),
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        ..CoreObjectReference::default()
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
