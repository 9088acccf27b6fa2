//! Writes the requests of rebalancers into bindings, and their status.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::api::rebalancer::{WorkloadRebalancer, WorkloadReference};
use muster_shared::client::{is_conflict, is_not_found};
use muster_shared::events::EventType;
use muster_shared::k8s::Time;
use muster_shared::queue::{Next, Queue, until};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Doubt, Informer, Presence, Selection};
use serde_json::json;

use super::decide;
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::{BindingKey, BindingKind, patch_params};
use crate::fleet::template::{Kind, TemplateKey};

const NAME: &str = "workload rebalancers";

/// Starts the controller. Its cache is its own: a fleet API without the kind keeps nothing else
/// from working.
pub fn start(fleet: &Arc<Fleet>, tasks: &mut Tasks) {
    let rebalancers: Informer<WorkloadRebalancer> = Informer::new(
        Api::all(fleet.watch_client.clone()),
        Selection::everything(),
    );
    let queue = Queue::<String>::new(NAME);
    rebalancers.on_change({
        let queue = queue.clone();
        move |change| {
            if let Change::Applied { new, .. } = change {
                queue.add(new.name_any());
            }
        }
    });
    fleet.pauses.on_change({
        let (rebalancers, queue) = (rebalancers.clone(), queue.clone());
        move || {
            for rebalancer in rebalancers.list() {
                queue.add(rebalancer.name_any());
            }
        }
    });
    let cache = rebalancers.clone();
    fleet.work(tasks, NAME, queue, 1, move |fleet, name: String| {
        let rebalancer = cache.get(None, &name);
        async move {
            match rebalancer {
                Some(rebalancer) => reconcile(&fleet, &rebalancer).await,
                None => Ok(Next::Done),
            }
        }
    });
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("workload rebalancer watch", rebalancers.run(shutdown));
}

async fn reconcile(fleet: &Fleet, rebalancer: &WorkloadRebalancer) -> Result<Next, ApiError> {
    if rebalancer.metadata.deletion_timestamp.is_some() {
        return Ok(Next::Done);
    }
    let now = fleet.clock.now();
    if let Some(expiry) = decide::expiry(rebalancer) {
        return if expiry <= now {
            delete(fleet, rebalancer).await
        } else {
            Ok(Next::After(until(expiry, now)))
        };
    }
    if fleet.pauses.of_fleet(now).is_some() {
        // Its end is told, and all are looked at again.
        return Ok(Next::Done);
    }
    let time = decide::trigger(rebalancer, now);
    let mut results = Vec::new();
    let mut is_complete = true;
    let mut failure = None;
    for workload in decide::pending(rebalancer) {
        match request(fleet, &workload, time, now).await {
            Ok(Requested::Yes) => results.push((workload, Some(()))),
            Ok(Requested::NoBinding) => results.push((workload, None)),
            Ok(Requested::Later) => is_complete = false,
            // The results of the others are recorded first, so that they are not asked again.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let next = match failure {
        Some(error) => Err(error),
        None if is_complete => Ok(Next::Done),
        None => Ok(Next::Again),
    };
    let Some(status) = decide::status(rebalancer, &results, now) else {
        return next;
    };
    let patch = json!({
        "metadata": { "resourceVersion": rebalancer.resource_version() },
        "status": decide::patch(&status),
    });
    let api: Api<WorkloadRebalancer> = Api::all(fleet.client.clone());
    let name = rebalancer.name_any();
    match api
        .patch_status(&name, &patch_params(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => {}
        Err(error) if is_conflict(&error) => return Ok(Next::Again),
        Err(error) if is_not_found(&error) => return Ok(Next::Done),
        Err(error) => return Err(ApiError::of("write the status of", &title(&name))(error)),
    }
    for (workload, outcome) in &results {
        if outcome.is_none() {
            let note = format!(
                "{} {} is not placed anew: no policy propagates it",
                workload.kind, workload.name
            );
            let reason = "ReferencedBindingNotFound";
            fleet
                .events
                .publish(rebalancer, EventType::Warning, reason, note);
        }
    }
    next
}

fn title(name: &str) -> String {
    format!("WorkloadRebalancer {name}")
}

/// Result of a request to place a workload anew.
enum Requested {
    /// The binding says so.
    Yes,
    /// There is no binding.
    NoBinding,
    /// The binding cannot be written now.
    Later,
}

async fn request(
    fleet: &Fleet,
    workload: &WorkloadReference,
    time: Timestamp,
    now: Timestamp,
) -> Result<Requested, ApiError> {
    let template = TemplateKey {
        kind: Arc::new(Kind::new(&*workload.api_version, &*workload.kind)),
        namespace: workload.namespace.clone().filter(|it| !it.is_empty()),
        name: workload.name.clone(),
    };
    let key = BindingKey::for_template(&template);
    if key.namespace.is_some() {
        request_of::<ResourceBinding>(fleet, &key, time, now).await
    } else {
        request_of::<ClusterResourceBinding>(fleet, &key, time, now).await
    }
}

async fn request_of<B: BindingKind>(
    fleet: &Fleet,
    key: &BindingKey,
    time: Timestamp,
    now: Timestamp,
) -> Result<Requested, ApiError> {
    let binding = match B::cache(fleet).presence(key.namespace.as_deref(), &key.name) {
        Presence::There(binding) => binding,
        Presence::Unknown(Doubt::Unlisted | Doubt::Unreadable { .. }) => {
            return Ok(Requested::Later);
        }
        Presence::Gone | Presence::Unknown(_) => return Ok(Requested::NoBinding),
    };
    let asked = binding.spec().reschedule_triggered_at.as_ref();
    let scheduled = binding.status().last_scheduled_time.as_ref();
    let (asked, scheduled) = (asked.map(|it| it.0), scheduled.map(|it| it.0));
    let Some(time) = decide::request(time, asked, scheduled, now) else {
        return Ok(Requested::Yes);
    };
    let patch = json!({
        "metadata": { "resourceVersion": binding.meta().resource_version },
        "spec": { "rescheduleTriggeredAt": Time(time) },
    });
    match B::api(&fleet.client, key)
        .patch(&key.name, &patch_params(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => {
            tracing::info!(binding = %key, "asked for a new placement");
            Ok(Requested::Yes)
        }
        Err(error) if is_conflict(&error) => Ok(Requested::Later),
        Err(error) if is_not_found(&error) => Ok(Requested::NoBinding),
        Err(error) => Err(ApiError::of("ask for a new placement of", key)(error)),
    }
}

async fn delete(fleet: &Fleet, rebalancer: &WorkloadRebalancer) -> Result<Next, ApiError> {
    let api: Api<WorkloadRebalancer> = Api::all(fleet.client.clone());
    let name = rebalancer.name_any();
    let preconditions = Preconditions {
        uid: rebalancer.uid(),
        resource_version: rebalancer.resource_version(),
    };
    let parameters = DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    match api.delete(&name, &parameters).await {
        Ok(_) => Ok(Next::Done),
        Err(error) if is_conflict(&error) => Ok(Next::Again),
        Err(error) if is_not_found(&error) => Ok(Next::Done),
        Err(error) => Err(ApiError::of("delete", &title(&name))(error)),
    }
}
