//! Requests that stop one object, and what is reported of it.

use kube::api::Request;
use muster_shared::client;
use muster_shared::events::{EventType, Events};
use muster_shared::fencing::{self, Orders};
use muster_shared::k8s::{
    Api, CoreObjectReference, DeleteParams, GroupVersionKind, Patch, PropagationPolicy,
};
use muster_shared::write::{delete_params, patch_params};
use serde_json::Value;
use tokio::time::timeout;

use super::fenced::Fenced;
use super::objects::DEADLINE;
use super::record::FIELD_MANAGER;
use crate::work::raw::{Raw, text};

/// Result for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object was stopped before, with all that it has made.
    Before,
    /// The object was stopped now, or something that it has made.
    Now,
    /// The object could not be stopped.
    Failed,
}

/// A request that writes, or the reason why there is none.
pub type Write = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// Makes a merge patch of the object that was read, and of no other one of its name.
pub fn merge(api: &Api<Raw>, object: &Value, mut patch: Value) -> Write {
    patch["metadata"]["uid"] = object["metadata"]["uid"].clone();
    let params = patch_params(FIELD_MANAGER);
    let name = text(object, "name").unwrap_or_default();
    Request::new(api.resource_url()).patch(name, &params, &Patch::Merge(&patch))
}

/// Makes the deletion of the object that was read.
pub fn delete(api: &Api<Raw>, object: &Value) -> Write {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..delete_params(text(object, "uid").map(str::to_owned), None)
    };
    let name = text(object, "name").unwrap_or_default();
    Request::new(api.resource_url()).delete(name, &params)
}

/// Sends a request that writes. The answer is the whole object, which is not kept.
pub async fn send(api: &Api<Raw>, request: Write) -> Result<(), String> {
    let request = request.map_err(|error| error.to_string())?;
    let member = api.clone().into_client();
    let call = async {
        let answer = member.request_stream(request).await?;
        // The connection serves the next request if the answer was read to its end.
        _ = futures::io::copy_buf(answer, &mut futures::io::sink()).await;
        Ok(())
    };
    client::in_time(timeout(DEADLINE, call).await)
}

/// Names a due object in events and the log.
pub struct Subject {
    /// Uid of the object.
    pub uid: Value,
    /// Reference for events.
    pub about: CoreObjectReference,
    /// Seconds without a renewal of the lease after which it is stopped.
    after: u32,
}

impl Subject {
    /// Describes an object of a kind.
    pub fn of(kind: &GroupVersionKind, fenced: &Fenced) -> Self {
        Self {
            uid: fenced.head["metadata"]["uid"].clone(),
            about: about(kind, &fenced.head),
            after: Orders::of(&fenced.head).map_or(0, |orders| orders.after_seconds),
        }
    }
}

/// Request that stops an object.
pub enum Step {
    /// Nothing: it is stopped, has run to its end, or is being deleted.
    None {
        /// Whether its orders stop it, and did.
        is_stopped: bool,
    },
    /// A patch.
    Stop(Write),
    /// The deletion of the object.
    Delete(Write),
}

impl Step {
    /// Decides what stops an object of a kind, as it was read. One that Kueue would start again is
    /// deleted although its orders suspend it. The fleet may not have known of the queue: the label
    /// may come from a default queue of a namespace in the member.
    pub fn of(api: &Api<Raw>, kind: &GroupVersionKind, fenced: &Fenced) -> Self {
        // Kueue has the Jobs of a CronJob in its queues, and no CronJob.
        let is_queued = fencing::is_queued(&fenced.head) && kind.kind != "CronJob";
        let stop = Orders::of(&fenced.head).and_then(|orders| orders.stop);
        match stop.filter(|order| !is_queued || order["spec"]["suspend"] != true) {
            Some(order) => {
                let object = fenced.object();
                match fencing::stop(&object, &order) {
                    None => Self::None { is_stopped: true },
                    Some(patch) => Self::Stop(merge(api, &object, patch)),
                }
            }
            None if text(&fenced.head, "deletionTimestamp").is_some() || fenced.has_ended(kind) => {
                Self::None { is_stopped: false }
            }
            None => Self::Delete(delete(api, &fenced.head)),
        }
    }
}

/// Stops one object that is due, unless it is stopped.
pub async fn take(api: &Api<Raw>, step: Step, subject: &Subject, events: &Events) -> Outcome {
    let (done, how) = match step {
        Step::None { .. } => return Outcome::Before,
        Step::Stop(request) => (send(api, request).await, "stopped"),
        Step::Delete(request) => (send(api, request).await, "deleted"),
    };
    let Subject { about, after, .. } = subject;
    let kind = about.kind.clone().unwrap_or_default();
    let result = if done.is_ok() { how } else { "error" };
    metrics::counter!("muster_fenced_objects_total", "kind" => kind.clone(), "result" => result)
        .increment(1);
    if let Err(error) = done {
        report_failure(events, subject, &error);
        return Outcome::Failed;
    }
    let note = format!(
        "{how}, because the agent has not been able to renew the lease of its cluster for {after} s \
         (failover.cluster.fencing): another cluster may take the workload over. It runs again when \
         the lease is renewed and it is still wanted here"
    );
    tracing::warn!(
        kind,
        object = about.name,
        namespace = about.namespace,
        "{note}"
    );
    events.publish_about(about.clone(), EventType::Warning, "Fenced", note);
    Outcome::Now
}

/// Reports that an object may run on.
pub fn report_failure(events: &Events, Subject { about, after, .. }: &Subject, error: &str) {
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
