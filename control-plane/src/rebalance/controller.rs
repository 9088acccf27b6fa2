//! Writes the requests of rebalancers into bindings, and their status.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, Preconditions};
use muster_shared::api::binding::{ClusterResourceBinding, ResourceBinding};
use muster_shared::api::rebalancer::{WorkloadRebalancer, WorkloadReference};
use muster_shared::events::EventType;
use muster_shared::queue::{Next, Queue, until};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer, Selection};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::request::{Requested, Requests};
use super::{decide, failback};
use crate::eviction::pace::Pace;
use crate::fleet::Fleet;
use crate::fleet::api_error::{ApiError, overtaken};
use crate::fleet::binding::{BindingKey, patch_params};
use crate::fleet::template::{Kind, TemplateKey};

const NAME: &str = "workload rebalancers";

/// Starts the controller. Its cache is its own: a fleet API without the kind keeps nothing else
/// from working.
pub fn start(fleet: &Arc<Fleet>, pace: Pace, tasks: &mut Tasks) {
    let requests = Arc::new(Requests::new(fleet, pace));
    failback::start(fleet, &requests, tasks);
    let changed = Arc::new(Notify::new());
    requests.wakes(&changed);
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
    let add_all = {
        let (rebalancers, queue) = (rebalancers.clone(), queue.clone());
        move || {
            for rebalancer in rebalancers.list() {
                queue.add(rebalancer.name_any());
            }
        }
    };
    fleet.pauses.on_change(add_all.clone());
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("workload rebalancer turns", async move {
        let turns = async {
            loop {
                changed.notified().await;
                add_all();
            }
        };
        let _: Option<()> = shutdown.run_until_cancelled(turns).await;
    });
    let cache = rebalancers.clone();
    fleet.work(tasks, NAME, queue, 1, move |fleet, name: String| {
        let (rebalancer, requests) = (cache.get(None, &name), Arc::clone(&requests));
        async move {
            match rebalancer {
                Some(rebalancer) => reconcile(&fleet, &requests, &rebalancer).await,
                None => Ok(Next::Done),
            }
        }
    });
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("workload rebalancer watch", rebalancers.run(shutdown));
}

/// Workloads that are placed in thought in vain for each turn of the rate: thousands may wait for
/// one.
const MOST_REFUSED: usize = 16;

async fn reconcile(
    fleet: &Fleet,
    requests: &Requests,
    rebalancer: &WorkloadRebalancer,
) -> Result<Next, ApiError> {
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
    let (mut turn, mut refused) = (None, 0);
    for workload in decide::pending(rebalancer) {
        let may_think = refused < MOST_REFUSED;
        match request(fleet, requests, &workload, (time, now), may_think).await {
            Ok(Requested::Yes) => results.push((workload, Some(()))),
            Ok(Requested::NoBinding) => results.push((workload, None)),
            Ok(Requested::Later) => is_complete = false,
            // Others may need no turn, which costs a placement in thought each time to find out.
            Ok(Requested::AtRate(when)) => {
                if refused < MOST_REFUSED {
                    turn = Some(when);
                }
                refused += 1;
            }
            // The results of the others are recorded first, so that they are not asked again.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    let next = match failure {
        Some(error) => Err(error),
        None if !is_complete => Ok(Next::Again),
        None => Ok(match turn {
            Some(Some(when)) => Next::After(when.saturating_duration_since(Instant::now())),
            // A change of the fleet wakes it.
            Some(None) | None => Next::Done,
        }),
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
        Err(error) => {
            let next = overtaken(&error);
            return next.ok_or_else(|| ApiError::of("write the status of", &title(&name))(error));
        }
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

async fn request(
    fleet: &Fleet,
    requests: &Requests,
    workload: &WorkloadReference,
    (time, now): (Timestamp, Timestamp),
    may_think: bool,
) -> Result<Requested, ApiError> {
    let template = TemplateKey {
        kind: Arc::new(Kind::new(&*workload.api_version, &*workload.kind)),
        namespace: workload.namespace.clone().filter(|it| !it.is_empty()),
        name: workload.name.clone(),
    };
    let key = BindingKey::for_template(&template);
    if key.namespace.is_some() {
        requests
            .make::<ResourceBinding>(fleet, &key, time, now, may_think)
            .await
    } else {
        requests
            .make::<ClusterResourceBinding>(fleet, &key, time, now, may_think)
            .await
    }
}

async fn delete(fleet: &Fleet, rebalancer: &WorkloadRebalancer) -> Result<Next, ApiError> {
    let api: Api<WorkloadRebalancer> = Api::all(fleet.client.clone());
    let name = rebalancer.name_any();
    let this_one = DeleteParams::default().preconditions(Preconditions {
        uid: rebalancer.uid(),
        resource_version: rebalancer.resource_version(),
    });
    match api.delete(&name, &this_one).await {
        Ok(_) => Ok(Next::Done),
        Err(error) => overtaken(&error).ok_or_else(|| ApiError::of("delete", &title(&name))(error)),
    }
}
