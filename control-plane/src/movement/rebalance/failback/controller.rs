//! Requests new placements of workloads that return to clusters that they left.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::Api;
use metrics::counter;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{ResourceBindingSpec, TargetCluster};
use muster_shared::api::cluster::Cluster;
use muster_shared::client::Head;
use muster_shared::clock::whole_second;
use muster_shared::controller::Controller;
use muster_shared::events::EventType;
use muster_shared::names::annotation::{FAILBACK_ASKED, HEALTHY_SINCE};
use muster_shared::queue::{Next, Queue, until};
use muster_shared::tasks::Tasks;
use muster_shared::watch::Change;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::decide::{Course, Home, Rule, Verdict, course, homes, is_due, record, unhealthy};
use super::in_flight::{AGAIN, InFlight, RARELY};
use super::pending::{JUDGED_AGAIN, may_still_return, take_back};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::{BindingKey, Bindings};
use crate::fleet::budget::pace::Pace;
use crate::fleet::completion::has_failed;
use crate::fleet::copy::obstacle;
use crate::fleet::memory::Backoff;
use crate::fleet::protection::protected;
use crate::fleet::sets::take;
use crate::fleet::write::{Written, merge};
use crate::movement::eviction::homes::forgotten;
use crate::movement::rebalance::decide;
use crate::movement::rebalance::request::{ask, is_answered, moved};
use crate::scheduler::controller::{
    LiveSnapshot, UNREAD, has_completed_everywhere, waits_for_others,
};
use crate::scheduler::core::Options;
use crate::scheduler::core::cycle::is_reschedule_requested;
use crate::scheduler::core::return_request::is_pending;
use crate::settings::FAILOVER;

const NAME: &str = "failbacks";
/// Number of requested failbacks.
const REQUESTED: &str = "muster_failbacks_total";
/// Workloads by the clusters that they may return to.
#[derive(Default)]
struct Homes(Mutex<HashMap<String, BTreeSet<BindingKey>>>);

impl Homes {
    fn change(&self, key: &BindingKey, old: &[String], new: &[String]) {
        let mut homes = self.0.lock();
        for name in old.iter().filter(|it| !new.contains(it)) {
            take(&mut homes, name, key);
        }
        for name in new {
            homes.entry(name.clone()).or_default().insert(key.clone());
        }
    }

    fn of(&self, cluster: &str) -> Vec<BindingKey> {
        let homes = self.0.lock();
        homes.get(cluster).into_iter().flatten().cloned().collect()
    }

    fn all(&self) -> HashSet<BindingKey> {
        self.0.lock().values().flatten().cloned().collect()
    }
}

struct Failback {
    pace: Pace,
    snapshot: LiveSnapshot,
    options: Options,
    homes: Homes,
    in_flight: InFlight,
    vain: Backoff<BindingKey>,
    queue: Queue<BindingKey>,
    clusters: Queue<String>,
    /// Beginning of the decisions of this process.
    began: OnceLock<Instant>,
}

/// Starts the controller. With the gate `Failover` off nothing moves by itself, and what was asked
/// to return before it was switched off is taken back.
pub(in crate::movement::rebalance) fn start(fleet: &Arc<Fleet>, pace: Pace, tasks: &mut Tasks) {
    let controller = Arc::new(Failback::new(fleet, pace));
    follow(&controller, fleet, &fleet.bindings);
    fleet.clusters.on_change({
        let controller = Arc::clone(&controller);
        move |change| controller.observe(change)
    });
    let following =
        Controller::with(fleet, NAME, &controller.queue).resyncs_on(&fleet.pauses, |_, ()| true);
    controller.pace.wakes_on_band(following.everything());
    following
        .resyncs(tasks, Duration::ZERO, {
            let controller = Arc::clone(&controller);
            move |_| controller.homes.all().into_iter().collect()
        })
        .run(
            tasks,
            1,
            Arc::clone(&controller),
            |fleet, controller, key| async move { controller.check(&fleet, &key).await },
        );
    let clusters = controller.clusters.clone();
    Controller::with(fleet, "healthy clusters", &clusters).run(
        tasks,
        1,
        controller,
        |fleet, controller, name| async move { controller.record(&fleet, name).await },
    );
}

fn follow(controller: &Arc<Failback>, fleet: &Arc<Fleet>, bindings: &Bindings) {
    let (controller, fleet) = (Arc::clone(controller), Arc::downgrade(fleet));
    let names = |binding: &AnyBinding| homes(binding).into_keys().collect::<Vec<_>>();
    bindings.on_change(move |change| match change {
        Change::Applied { old, new } => {
            let key = BindingKey::of(new.as_ref());
            let is_edited = old
                .as_ref()
                .is_none_or(|old| old.metadata.generation != new.metadata.generation);
            let fleet = fleet.upgrade();
            let is_asked = fleet.is_some_and(|fleet| may_return(&fleet, new.as_ref()));
            let (old, new) = (old.as_deref().map(names).unwrap_or_default(), names(new));
            if old.is_empty() && new.is_empty() {
                return;
            }
            controller.homes.change(&key, &old, &new);
            controller.note(&key, is_asked && !new.is_empty());
            for name in new.iter().filter(|it| !old.contains(it)) {
                controller.clusters.add(name.clone());
            }
            if new.is_empty() || is_edited {
                controller.vain.forget(&key);
            }
            if !new.is_empty() {
                controller.queue.add(key);
            }
        }
        Change::Deleted { old } => {
            let key = BindingKey::of(old.as_ref());
            controller.homes.change(&key, &names(old), &[]);
            controller.note(&key, false);
            controller.vain.forget(&key);
        }
    });
}

impl Failback {
    fn new(fleet: &Fleet, pace: Pace) -> Self {
        Self {
            pace,
            snapshot: LiveSnapshot::follow(fleet),
            options: Options::of(&fleet.settings),
            homes: Homes::default(),
            in_flight: InFlight::default(),
            vain: Backoff::between(AGAIN, RARELY),
            queue: Queue::new(NAME),
            clusters: Queue::new("healthy clusters"),
            began: OnceLock::new(),
        }
    }

    fn observe(&self, change: &Change<Cluster>) {
        let name = change.object().name_any();
        let waiting = self.homes.of(&name);
        if waiting.is_empty() && !change.object().annotations().contains_key(HEALTHY_SINCE) {
            return;
        }
        let seen = |cluster: &Cluster| {
            let since = cluster.annotations().get(HEALTHY_SINCE).cloned();
            (unhealthy(cluster), since)
        };
        if change.differs(|old, new| seen(old) != seen(new)) {
            self.clusters.add(name);
            for key in waiting {
                self.vain.forget(&key);
                self.queue.add(key);
            }
        }
    }

    /// Notes whether a workload is asked to return, and lets others return if it is not any
    /// more.
    fn note(&self, key: &BindingKey, is_asked: bool) {
        for next in self.in_flight.note(key, is_asked) {
            self.queue.add(next);
        }
    }

    /// Records since when a cluster is healthy, if workloads may return to it.
    async fn record(&self, fleet: &Fleet, name: String) -> Result<Next, ApiError> {
        let Some(cluster) = fleet.clusters.get(None, &name) else {
            return Ok(Next::Done);
        };
        let is_home = !self.homes.of(&name).is_empty();
        let now = whole_second(fleet.clock.now());
        if let Some(rest) = self.untrusted(fleet) {
            return Ok(Next::After(rest));
        }
        let Some(since) = record(&cluster, is_home, now) else {
            return Ok(Next::Done);
        };
        let patch = json!({ "metadata": {
            "resourceVersion": cluster.resource_version(),
            "annotations": { HEALTHY_SINCE: since },
        } });
        let api: Api<Head<Cluster>> = Api::all(fleet.client.clone());
        let answer = merge(&api, &name, &patch).await;
        let written = Written::of(answer).map_err(ApiError::of("record the health of", &name))?;
        Ok(written.next())
    }

    /// Returns the time for which what is read of clusters may be old: a process that has just
    /// started reads the last conditions of clusters that have been silent since.
    fn untrusted(&self, fleet: &Fleet) -> Option<Duration> {
        let began = *self.began.get_or_init(Instant::now);
        let grace = *fleet.settings.cluster_monitor_grace_period;
        untrusted(began, grace, Instant::now())
    }

    async fn check(&self, fleet: &Fleet, key: &BindingKey) -> Result<Next, ApiError> {
        let next = self.decide(fleet, key).await;
        if let Some(other) = self.in_flight.ends(key) {
            self.queue.add(other);
        }
        next
    }

    async fn decide(&self, fleet: &Fleet, key: &BindingKey) -> Result<Next, ApiError> {
        let Some(binding) = fleet.bindings.get(key) else {
            return Ok(Next::Done);
        };
        let homes = homes(binding.as_ref());
        if homes.is_empty() {
            return Ok(Next::Done);
        }
        // A setting that protects counts from the moment at which it is in the policy.
        let says = protected(fleet, binding.as_ref());
        let spec = &*says;
        let settings = &fleet.settings;
        let is_ours = settings.schedules(spec.scheduler_name.as_deref());
        let is_pending = is_ours && is_pending(binding.as_ref());
        let bar = settings.no_return(spec.scheduler_name.as_deref(), settings.gate(&FAILOVER));
        let Some(rule) = Rule::of(spec, settings).filter(|_| bar.is_none()) else {
            if is_pending {
                let why = bar.unwrap_or("its policy does not allow it any more");
                return take_back(fleet, key, binding.as_ref(), why).await;
            }
            // No event shows that an edit of the policy was undone before the binding followed it.
            return Ok(match says {
                Cow::Owned(_) => Next::After(AGAIN),
                Cow::Borrowed(_) => Next::Done,
            });
        };
        // The scheduler leaves a Job where it has completed, and places one anew that has failed.
        if is_pending && has_failed(spec, &binding.status().aggregated_status) {
            let why = "it has failed, and would run again";
            return take_back(fleet, key, binding.as_ref(), why).await;
        }
        if let Some(rest) = self.untrusted(fleet) {
            return Ok(Next::After(rest));
        }
        if let Some(next) = give_up(fleet, key, binding.as_ref(), &homes).await {
            return next;
        }
        if is_pending && !may_still_return(fleet, spec, &rule, &homes) {
            let why = "its policy or the clusters that it left do not allow it any more";
            return take_back(fleet, key, binding.as_ref(), why).await;
        }
        // A pause or a report of the scheduler may have come since the request.
        if is_reschedule_requested(spec, binding.status()) {
            self.note(key, may_return(fleet, binding.as_ref()));
        }
        if !is_settled(binding.as_ref()) {
            let judged = is_pending.then_some(Next::After(JUDGED_AGAIN));
            return Ok(judged.unwrap_or(Next::Done));
        }
        let now = fleet.clock.now();
        let Returns {
            due,
            waits,
            over,
            next,
        } = returns(fleet, spec, &rule, &homes, now);
        if !over.is_empty() {
            return forget(fleet, key, binding.as_ref(), &over).await;
        }
        let later = next.map_or(Next::Done, |time: Timestamp| Next::After(until(time, now)));
        if due.is_empty() {
            return Ok(later);
        }
        // A workload that is asked to return while movement is stopped would move once that begins
        // again, whatever has become of its cluster and of the window by then. All are reconciled
        // again when it does.
        if self.pace.per_second() <= 0.0 || !self.in_flight.begins(key) {
            return Ok(later);
        }
        if let Some(rest) = self.vain.rest(key) {
            return Ok(Next::After(rest));
        }
        let anew = moved(spec, binding.status(), &self.snapshot.get(), &self.options);
        let brought = match anew
            .as_ref()
            .map(|it| course(spec, it.as_ref(), &due, &waits))
        {
            Ok(Course::Returns(names)) => names,
            Ok(Course::IsHome(names)) => return forget(fleet, key, binding.as_ref(), &names).await,
            Ok(Course::Stays) | Err(_) => return Ok(Next::After(self.vain.next(key).time)),
        };
        let mut new = brought.iter().filter(|it| !spec.has_copy(it));
        if new.any(|it| obstacle(fleet, spec, it).is_some()) {
            return Ok(Next::After(self.vain.next(key).time));
        }
        // The end of a pause is reported, and all are reconciled again.
        let targets = spec.clusters.iter().map(|it| it.name.as_str());
        let mut touched = targets.chain(brought.iter().copied());
        if touched.any(|it| fleet.pauses.of(it, now).is_some()) {
            return Ok(later);
        }
        let asked = spec.reschedule_triggered_at.as_ref().map(|it| it.0);
        let scheduled = binding.status().last_scheduled_time.as_ref().map(|it| it.0);
        let Some(time) = decide::request(whole_second(now), asked, scheduled, now) else {
            return Ok(Next::After(AGAIN));
        };
        let asked = ask(fleet, key, binding.as_ref(), time, Some(FAILBACK_ASKED)).await;
        match Written::of(asked).map_err(ApiError::of("ask for a new placement of", key))? {
            Written::Done(()) => {}
            late => return Ok(late.next()),
        }
        self.note(key, true);
        counter!(REQUESTED).increment(1);
        let since = brought.iter().filter_map(|it| due.get(*it)).min();
        report(fleet, binding.as_ref(), &brought.join(", "), since);
        Ok(Next::After(JUDGED_AGAIN))
    }
}

/// Reports that a workload was asked to return to clusters that have been healthy since a time.
fn report(fleet: &Fleet, binding: &AnyBinding, to: &str, since: Option<&Timestamp>) {
    let since = since.map(ToString::to_string).unwrap_or_default();
    let note = format!("returns to {to}, healthy since {since}: it is placed anew");
    tracing::info!(binding = %BindingKey::of(binding), "{note}");
    let events = &fleet.events;
    events.publish_about(binding.reference(), EventType::Normal, "Failback", note);
}

/// Returns what is left of the time in which what is read of clusters is not trusted; `None` if it
/// is over.
fn untrusted(began: Instant, grace: Duration, now: Instant) -> Option<Duration> {
    let rest = (began + grace * 2).saturating_duration_since(now);
    (!rest.is_zero()).then_some(rest)
}

/// The clusters that a workload left, by what is decided about a return to each.
#[derive(Default)]
pub(super) struct Returns {
    /// Those that it may return to, each with the time since which it is healthy.
    pub due: BTreeMap<String, Timestamp>,
    /// Those that it may not return to yet.
    waits: Vec<String>,
    /// Those that are to be forgotten.
    over: Vec<String>,
    /// First time at which it may return to one of those that wait.
    next: Option<Timestamp>,
}

/// Judges the return of a workload to each cluster that it left.
pub(super) fn returns(
    fleet: &Fleet,
    spec: &ResourceBindingSpec,
    rule: &Rule,
    homes: &BTreeMap<String, Timestamp>,
    now: Timestamp,
) -> Returns {
    let mut found = Returns::default();
    for (name, left) in homes {
        let cluster = fleet.clusters.get(None, name);
        let home = Home {
            name,
            left: *left,
            cluster: cluster.as_deref(),
            is_gone: cluster.is_none() && fleet.clusters.presence(None, name).is_gone(),
        };
        match is_due(spec, rule, &home, now) {
            Verdict::Due { since } => {
                found.due.insert(name.clone(), since);
            }
            Verdict::NotBefore(time, _) => {
                found.next = found.next.into_iter().chain(time).min();
                found.waits.push(name.clone());
            }
            Verdict::Over => found.over.push(name.clone()),
        }
    }
    found
}

/// Returns whether nothing is under way that a failback would have to wait for. The end of each of
/// these changes the binding.
fn is_settled(binding: &AnyBinding) -> bool {
    let spec = &binding.spec;
    let is_busy = [
        binding.metadata.deletion_timestamp.is_some(),
        !is_answered(binding),
        spec.is_moving(),
        spec.scheduling_suspended(),
    ];
    !is_busy.contains(&true)
}

/// Returns whether a workload is asked to return and can be placed anew now. One whose request has
/// to wait for a person or for its target, or is another scheduler's, keeps no others from
/// returning.
fn may_return(fleet: &Fleet, binding: &AnyBinding) -> bool {
    let (spec, now) = (&binding.spec, fleet.clock.now());
    let is_paused = |it: &TargetCluster| fleet.pauses.of(&it.name, now).is_some();
    !is_answered(binding)
        && !waits_for_others(binding.status())
        && fleet.settings.schedules(spec.scheduler_name.as_deref())
        && !spec.scheduling_suspended()
        && !spec.clusters.iter().any(is_paused)
}

/// Removes the record of all clusters that a Job left which has completed, or failed for good: it
/// would run again there. Returns when to try again; `None` for a workload that may return.
async fn give_up(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &AnyBinding,
    homes: &BTreeMap<String, Timestamp>,
) -> Option<Result<Next, ApiError>> {
    match has_completed_everywhere(fleet, binding) {
        Some(false) if !has_failed(&binding.spec, &binding.status().aggregated_status) => None,
        Some(_) => {
            let left: Vec<String> = homes.keys().cloned().collect();
            Some(forget(fleet, key, binding, &left).await)
        }
        None => Some(Ok(Next::After(UNREAD))),
    }
}

/// Removes the record that a workload left clusters.
async fn forget(
    fleet: &Fleet,
    key: &BindingKey,
    binding: &AnyBinding,
    homes: &[String],
) -> Result<Next, ApiError> {
    let patch = json!({ "metadata": {
        "resourceVersion": binding.metadata.resource_version,
        "annotations": forgotten(&binding.metadata, homes),
    } });
    let written = key.merge(&fleet.client, "record the return of", &patch);
    Ok(written.await?.next())
}

#[cfg(test)]
mod tests;
