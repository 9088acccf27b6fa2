//! Writes the requests of rebalancers into bindings, and their status.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;
use muster_shared::api::rebalancer::{WorkloadRebalancer, WorkloadReference};
use muster_shared::client;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::queue::{Next, until};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer, Selection};
use muster_shared::write::delete_params;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::decide::{Pending, Progress};
use super::request::{Made, Requested, request};
use super::{decide, failback};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::attribution::Attribution;
use crate::fleet::binding::BindingKey;
use crate::fleet::budget::pace::Pace;
use crate::fleet::sets::take;
use crate::fleet::template::{Kind, TemplateKey};
use crate::fleet::write::{Written, merge_status};

const NAME: &str = "workload rebalancers";

/// Workloads of one rebalancer that are asked for and not answered yet, at most: whoever deletes it
/// ends what has not been asked for, and the scheduler is not flooded. When half of them are
/// answered, more are asked for.
const MOST_ASKED: usize = 200;
/// Time in which answers are gathered before a rebalancer is reconciled again.
const GATHER: Duration = Duration::from_millis(500);

struct Rebalancers {
    pace: Pace,
    /// Rebalancers by the bindings that they wait for.
    waiting: Mutex<HashMap<BindingKey, BTreeSet<String>>>,
    /// Memory of what this process has done for each rebalancer, by UID.
    memory: Mutex<HashMap<String, Memory>>,
}

#[derive(Clone, Default)]
struct Memory {
    /// Workloads that this process asked for: the cache may not show it yet.
    asked: BTreeMap<WorkloadReference, Made>,
    /// Time of the last write of the status.
    written: Option<Instant>,
    /// Reasons why workloads are not placed anew yet that events have reported.
    reported: BTreeSet<&'static str>,
}

/// Starts the controller. Its cache is its own: a fleet API without the kind keeps nothing else
/// from working.
pub fn start(fleet: &Arc<Fleet>, pace: Pace, tasks: &mut Tasks) {
    failback::start(fleet, pace.clone(), tasks);
    let rebalancers: Informer<WorkloadRebalancer> = Informer::new(
        Api::all(fleet.watch_client.clone()),
        Selection::everything(),
    );
    let controller = Arc::new(Rebalancers {
        pace,
        waiting: Mutex::default(),
        memory: Mutex::default(),
    });
    let (of_rebalancers, of_bindings) = (Arc::clone(&controller), Arc::clone(&controller));
    let following = Controller::new(fleet, NAME)
        .watches(&rebalancers, move |_, change| match change {
            Change::Applied { new, .. } => Some(new.name_any()),
            Change::Deleted { old } => {
                of_rebalancers.memory.lock().remove(&identity(old));
                None
            }
        })
        .gathers(GATHER, &fleet.bindings, move |_, change| {
            let key = BindingKey::of(change.object());
            let waiting = of_bindings.waiting.lock().remove(&key);
            waiting.into_iter().flatten()
        })
        .resyncs_on(&fleet.pauses, |_, ()| true);
    controller.pace.wakes(following.everything());
    let all = rebalancers.clone();
    let memory = (rebalancers.clone(), controller);
    following
        .resyncs(tasks, Duration::ZERO, move |_| {
            let all = all.list().into_iter();
            all.map(|rebalancer| rebalancer.name_any()).collect()
        })
        .run(
            tasks,
            1,
            memory,
            |fleet, (rebalancers, controller), name: String| async move {
                match rebalancers.get(None, &name) {
                    Some(rebalancer) => controller.reconcile(&fleet, &rebalancer).await,
                    None => Ok(Next::Done),
                }
            },
        );
    let shutdown = tasks.shutdown().clone();
    tasks.spawn("workload rebalancer watch", rebalancers.run(shutdown));
}

/// Result of a pass over the workloads of a rebalancer.
#[derive(Default)]
struct Pass {
    progress: BTreeMap<WorkloadReference, Progress>,
    /// Workloads that are asked for and not answered.
    asked: usize,
    /// Workloads that are not placed anew before the binding or a pause changes, and why.
    held: Vec<(WorkloadReference, &'static str)>,
    /// Whether something could not be written now.
    is_overtaken: bool,
    /// Time at which the rate permits more.
    due: Option<Instant>,
    failure: Option<ApiError>,
}

impl Rebalancers {
    async fn reconcile(
        &self,
        fleet: &Fleet,
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
        let pending = decide::pending(rebalancer);
        let uid = identity(rebalancer);
        if fleet.pauses.of_fleet(now).is_some() {
            let why = "movement is paused in the whole fleet";
            let held: Vec<_> = pending.into_iter().map(|it| (it.workload, why)).collect();
            report_held(
                fleet,
                rebalancer,
                &held,
                self.memory.lock().entry(uid).or_default(),
            );
            // Its end is reported, and all are reconciled again.
            return Ok(Next::Done);
        }
        // A finished rebalancer is reconciled again whenever all are, and requests nothing.
        let since = if pending.is_empty() {
            now
        } else {
            trigger(fleet, rebalancer, now).await?
        };
        let mut memory = self.memory.lock().remove(&uid).unwrap_or_default();
        let check = self
            .check(fleet, rebalancer, pending, &mut memory, (since, now))
            .await;
        report_held(fleet, rebalancer, &check.held, &mut memory);
        let written = write(fleet, rebalancer, &check.progress, &mut memory, now).await;
        self.memory.lock().insert(uid, memory);
        // What is known of the others is recorded first, so that they are not asked again.
        let next = written?;
        match check.failure {
            Some(error) => Err(error),
            None if check.is_overtaken => Ok(Next::Again),
            None => Ok(match (next, check.due) {
                (Next::Done, Some(when)) => {
                    Next::After(when.saturating_duration_since(Instant::now()))
                }
                // A change of a binding, a pause or the fleet wakes it.
                (next, _) => next,
            }),
        }
    }

    /// Finds out which requests are answered, and makes more.
    async fn check(
        &self,
        fleet: &Fleet,
        rebalancer: &WorkloadRebalancer,
        pending: Vec<Pending>,
        memory: &mut Memory,
        (since, now): (Timestamp, Timestamp),
    ) -> Pass {
        let mut check = Pass::default();
        let (asked, others): (Vec<_>, Vec<_>) = pending
            .into_iter()
            .partition(|it| it.is_asked || memory.asked.contains_key(&it.workload));
        let created = rebalancer.metadata.creation_timestamp.as_ref();
        let created = created.map_or(since, |it| it.0);
        for it in asked {
            let asked = memory.asked.get(&it.workload).copied();
            // A request of another process, of whatever generation, is made once more where the
            // cache does not show it: the API refuses the write if the cache is behind.
            let dated = if asked.is_some() { since } else { created };
            let state = self
                .request(fleet, rebalancer, &it.workload, asked, (dated, now))
                .await;
            check.take(it, state, memory, now);
        }
        if check.asked > MOST_ASKED / 2 {
            return check;
        }
        for it in others {
            if check.asked == MOST_ASKED {
                break;
            }
            let state = self
                .request(fleet, rebalancer, &it.workload, None, (since, now))
                .await;
            check.take(it, state, memory, now);
        }
        check
    }

    async fn request(
        &self,
        fleet: &Fleet,
        rebalancer: &WorkloadRebalancer,
        workload: &WorkloadReference,
        asked: Option<Made>,
        times: (Timestamp, Timestamp),
    ) -> Result<Requested, ApiError> {
        let template = TemplateKey {
            kind: Arc::new(Kind::new(&*workload.api_version, &*workload.kind)),
            namespace: workload.namespace.clone().filter(|it| !it.is_empty()),
            name: workload.name.clone(),
        };
        let key = BindingKey::for_template(&template);
        // Before the binding is read, so that none of its changes is missed.
        let name = rebalancer.name_any();
        self.waiting
            .lock()
            .entry(key.clone())
            .or_default()
            .insert(name);
        let requested = request(fleet, &self.pace, &key, asked, times).await;
        if let Ok(Requested::Answered | Requested::NoBinding) = requested {
            take(&mut self.waiting.lock(), &key, &rebalancer.name_any());
        }
        requested
    }
}

impl Pass {
    fn take(
        &mut self,
        it: Pending,
        state: Result<Requested, ApiError>,
        memory: &mut Memory,
        now: Timestamp,
    ) {
        match state {
            Ok(Requested::Asked(time)) => {
                self.asked += 1;
                // One of a former process that was made once more is known from now on, too.
                let made = (time, now);
                memory.asked.entry(it.workload.clone()).or_insert(made);
                if !it.is_asked {
                    self.progress.insert(it.workload, Progress::Asked);
                }
            }
            Ok(Requested::Answered) => {
                self.progress.insert(it.workload, Progress::Answered);
            }
            Ok(Requested::NoBinding) => {
                self.progress.insert(it.workload, Progress::NoBinding);
            }
            Ok(Requested::Held(why)) => self.held.push((it.workload, why)),
            Ok(Requested::Later) => self.is_overtaken = true,
            Ok(Requested::AtRate(when)) => {
                self.due = self.due.into_iter().chain(when).min();
            }
            Err(error) => self.failure = self.failure.take().or(Some(error)),
        }
    }
}

/// Reports workloads that are not placed anew before the binding or a pause changes: by one event
/// for each reason, once.
fn report_held(
    fleet: &Fleet,
    rebalancer: &WorkloadRebalancer,
    held: &[(WorkloadReference, &'static str)],
    memory: &mut Memory,
) {
    for (WorkloadReference { kind, name, .. }, why) in held {
        if !memory.reported.insert(*why) {
            continue;
        }
        let others = held.iter().filter(|it| it.1 == *why).count() - 1;
        let note = match others {
            0 => format!("{kind} {name} is not placed anew yet: {why}"),
            _ => format!("{kind} {name} and {others} more are not placed anew yet: {why}"),
        };
        let events = &fleet.events;
        events.publish(rebalancer, EventType::Normal, "RebalancePending", note);
    }
}

/// Returns the time that requests are dated by ([`decide::trigger`]). When a rebalancer was edited
/// is read from the API, as the cache does not have it.
async fn trigger(
    fleet: &Fleet,
    rebalancer: &WorkloadRebalancer,
    now: Timestamp,
) -> Result<Timestamp, ApiError> {
    if !decide::is_edited(rebalancer) {
        return Ok(decide::trigger(rebalancer, now));
    }
    let api: Api<WorkloadRebalancer> = Api::all(fleet.client.clone());
    let name = rebalancer.name_any();
    match client::get_opt(&api, &name).await {
        Ok(stored) => Ok(decide::trigger(stored.as_ref().unwrap_or(rebalancer), now)),
        // `managedFields` may have times that cannot be decoded.
        Err(kube::Error::SerdeError(_)) => Ok(decide::trigger(rebalancer, now)),
        Err(error) => Err(ApiError::of("read", &title(&name))(error)),
    }
}

/// Writes the status: at once when something was asked for or the end has come, and else from time
/// to time.
async fn write(
    fleet: &Fleet,
    rebalancer: &WorkloadRebalancer,
    progress: &BTreeMap<WorkloadReference, Progress>,
    memory: &mut Memory,
    now: Timestamp,
) -> Result<Next, ApiError> {
    let Some(status) = decide::status(rebalancer, progress, now) else {
        return Ok(Next::Done);
    };
    let is_urgent =
        status.finish_time.is_some() || progress.values().any(|it| *it == Progress::Asked);
    let pause = decide::pause(rebalancer.spec.workloads.len());
    let rest = memory
        .written
        .map(|written| (written + pause).saturating_duration_since(Instant::now()));
    if let Some(rest) = rest.filter(|rest| !is_urgent && !rest.is_zero()) {
        return Ok(Next::After(rest));
    }
    let patch = json!({
        "metadata": { "resourceVersion": rebalancer.resource_version() },
        "status": decide::patch(&status),
    });
    let api: Api<WorkloadRebalancer> = Api::all(fleet.client.clone());
    let name = rebalancer.name_any();
    let answer = merge_status(&api, &name, &patch).await;
    match Written::of(answer).map_err(ApiError::of("write the status of", &title(&name)))? {
        Written::Done(_) => {}
        late => return Ok(late.next()),
    }
    memory.written = Some(Instant::now());
    // The author of the request is reported once, with the first status that is written.
    let order = Attribution::all(&rebalancer.metadata).pop();
    if let Some(order) = order.filter(|_| rebalancer.status.is_none()) {
        let note = match &*rebalancer.spec.workloads {
            [only] => format!("{} {} is placed anew {order}", only.kind, only.name),
            all => format!("{} workloads are placed anew {order}", all.len()),
        };
        let kind = EventType::Normal;
        fleet.events.publish(rebalancer, kind, "Ordered", note);
    }
    if status.finish_time.is_some() {
        memory.asked.clear();
    }
    for (workload, it) in progress {
        if *it == Progress::NoBinding {
            let note = format!(
                "{} {} is not placed anew: no policy propagates it",
                workload.kind, workload.name
            );
            let reason = "ReferencedBindingNotFound";
            fleet.events.warn(rebalancer, reason, note);
        }
    }
    Ok(Next::Done)
}

fn identity(rebalancer: &WorkloadRebalancer) -> String {
    rebalancer.uid().unwrap_or_default()
}

fn title(name: &str) -> String {
    format!("WorkloadRebalancer {name}")
}

async fn delete(fleet: &Fleet, rebalancer: &WorkloadRebalancer) -> Result<Next, ApiError> {
    let api: Api<WorkloadRebalancer> = Api::all(fleet.client.clone());
    let name = rebalancer.name_any();
    let this_one = delete_params(rebalancer.uid(), rebalancer.resource_version());
    let deleted = Written::of(api.delete(&name, &this_one).await);
    let deleted = deleted.map_err(ApiError::of("delete", &title(&name)))?;
    Ok(deleted.next())
}
