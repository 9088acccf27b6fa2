//! Moves a workload on from a cluster in which its order could not be carried out.
//!
//! A placement that came to nothing is no place: a foreign object of that name, a quota or an
//! admission webhook of the member refused the copy, or an override policy that was changed since
//! lets no Work be made for it. Where the workload was moved there, the next cluster is tried, as
//! an eviction from the one that refuses it; its former copy stays meanwhile.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::{AggregatedStatusItem, GracefulEvictionTask, TargetCluster};
use muster_shared::api::policy::PurgeMode;
use muster_shared::conditions;
use muster_shared::events::EventType;
use muster_shared::names::condition;
use muster_shared::text;
use tokio::time::Instant;

use super::controller::OnwardContext;
use super::reports::{carrying_out, reports_copy};
use crate::fleet::Fleet;
use crate::fleet::binding::BindingKey;
use crate::fleet::memory::Since;
use crate::fleet::protection::protected;
use crate::fleet::works::CachedWork;
use crate::movement::eviction::execute::{carry_out, plan_in};
use crate::movement::eviction::plan::{Departure, Nowhere};
use crate::movement::eviction::reason::EvictionReason;
use crate::movement::eviction::record::Record;
use crate::scheduler::core::replacement::purge_mode;

/// Time for which an order has to have been seen to be refused: what refuses it may end by itself,
/// such as a webhook that is being restarted.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time after a move in which a refusal that begins is one of the move.
const SOON: SignedDuration = SignedDuration::from_mins(10);
/// Pause before another cluster is searched for again where there was none.
pub(super) const AGAIN: Duration = Duration::from_mins(1);
/// Longest text of a member that is repeated, in bytes.
const LONGEST: usize = 256;

/// A target in which the order for a workload could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused {
    cluster: String,
    since: Timestamp,
    why: String,
}

/// The refusals of workloads, each a cluster and since when it says so, and since when this process
/// sees them: members date them by their own clocks. May be lost.
pub(super) type Refusals = Since<BindingKey, (String, Timestamp)>;

impl OnwardContext {
    /// Forgets what is known of a workload that no target refuses.
    pub(super) fn forget(&self, key: &BindingKey) {
        self.refusals.forget(key);
        self.nowhere.forget(key);
    }
}

impl Refused {
    /// Returns what the Work for a target says if it says that the order could not be carried out,
    /// and nothing of a copy of before.
    fn of(binding: &AnyBinding, cluster: &str, work: &CachedWork) -> Option<Self> {
        let said = work.status();
        let applied = conditions::get(&said.conditions, condition::APPLIED)?;
        let runs = reports_copy(&binding.spec.resource, &said);
        // A copy that was applied and deleted while dispatching is suspended is not refused by the
        // cluster: it stays away until whoever suspended dispatching resumes it.
        let is_missing = applied.reason == condition::OBJECTS_MISSING;
        if applied.status != conditions::FALSE || is_missing || runs {
            return None;
        }
        Some(Self {
            cluster: cluster.to_owned(),
            since: applied.last_transition_time.0,
            why: text::cut(&applied.message, LONGEST, ""),
        })
    }

    /// Returns what keeps a Work from being made for a target that has none since the last move.
    fn without_work(
        fleet: &Fleet,
        binding: &AnyBinding,
        cluster: &str,
        now: Timestamp,
    ) -> Option<Self> {
        let since = last_move(binding).filter(|_| was_moved(binding, Some(now)))?;
        let why = fleet.override_lookup.refuse(&binding.spec, cluster)?;
        Some(Self {
            cluster: cluster.to_owned(),
            since,
            why: why.to_string(),
        })
    }
}

/// Returns when a workload was moved last, as far as its binding says.
fn last_move(binding: &AnyBinding) -> Option<Timestamp> {
    let spec = &binding.spec;
    let tasks = spec.graceful_eviction_tasks.iter();
    let begun = tasks.filter_map(|task| task.creation_timestamp.as_ref());
    let requested = spec.reschedule_triggered_at.iter();
    let evicted = Record::read(binding.metadata.annotations.as_ref()).map(|record| record.at);
    let reported = begun.chain(requested).map(|at| at.0);
    reported.chain(evicted).max()
}

/// Returns whether a workload was moved to where it is, by an eviction or by somebody's request;
/// `since` is the time from which on it was refused there. A refusal long after the move is about a
/// later edit.
fn was_moved(binding: &AnyBinding, since: Option<Timestamp>) -> bool {
    let spec = &binding.spec;
    let requested = spec.reschedule_triggered_at.as_ref().map(|at| at.0);
    let annotations = binding.metadata.annotations.as_ref();
    let evicted = Record::read(annotations).map(|record| record.at);
    let is_recent =
        |moved: Timestamp| since.is_none_or(|since| since.duration_since(moved) <= SOON);
    // A copy that is kept for ever reports its move no longer than others do.
    let tells = |task: &GracefulEvictionTask| {
        let created = task.creation_timestamp.as_ref().map(|at| at.0);
        !task.is_kept() || created.is_none_or(is_recent)
    };
    spec.graceful_eviction_tasks.iter().any(tells)
        || [requested, evicted].into_iter().flatten().any(is_recent)
}

/// Returns whether a binding may have to be moved on, as far as it says itself: a target says that
/// it refuses it, or says nothing. One with a share of zero replicas has nothing to move.
pub(super) fn may_move_on(binding: &AnyBinding) -> bool {
    let is_refused = |target: &TargetCluster| {
        let said = binding.status().report(&target.name);
        said.is_none_or(AggregatedStatusItem::is_refused)
    };
    binding.spec.copies().any(is_refused)
        && binding.metadata.deletion_timestamp.is_none()
        && was_moved(binding, None)
}

/// Moves a workload on from a target that has refused it for long; returns when to try again.
pub(super) async fn move_on(
    fleet: &Fleet,
    onward: &OnwardContext,
    key: &BindingKey,
    binding: &Arc<AnyBinding>,
    now: Timestamp,
) -> Option<Duration> {
    if !may_move_on(binding.as_ref()) {
        onward.forget(key);
        return None;
    }
    let spec = &*protected(fleet, binding.as_ref());
    let works = fleet.work_index.of(key);
    let works = carrying_out(&works, &fleet.deleted_works);
    let targets = spec.copies();
    let refused = targets.filter_map(|target| match works.get(target.name.as_str()) {
        Some(work) => Refused::of(binding.as_ref(), &target.name, work),
        None => Refused::without_work(fleet, binding.as_ref(), &target.name, now),
    });
    // The clock of the member may be ahead.
    let refused = refused.filter(|it| was_moved(binding.as_ref(), Some(it.since.min(now))));
    // A cluster that may be left now comes before one that a pause holds.
    let Some(refused) = refused.min_by_key(|it| fleet.pauses.of(&it.cluster, now).is_some()) else {
        onward.forget(key);
        return None;
    };
    let seen = (refused.cluster.clone(), refused.since);
    if let Some(rest) = onward.refusals.rest(key, seen, PATIENCE) {
        onward.nowhere.forget(key);
        return Some(rest);
    }
    let Refused {
        cluster,
        since,
        why,
    } = refused;
    if !matches!(
        fleet.confirmations.confirm(fleet, &[&cluster]).await,
        Ok(true)
    ) {
        return Some(AGAIN);
    }
    // To place many anew of which one may move is dear.
    if let Err(when) = onward.pace.suffices_after_evictions(Instant::now()) {
        return Some(until_paid(when));
    }
    // The refusal may end while the workload is made elsewhere, and two copies would run.
    let purge_mode = match purge_mode(spec) {
        None => PurgeMode::Directly,
        Some(_) => PurgeMode::Gracefully,
    };
    let reason = EvictionReason::Refused { since, why: &why };
    let departure = Departure::new(spec, binding.status(), &cluster, reason, &purge_mode);
    let plan = match plan_in(
        fleet,
        key,
        &departure,
        &onward.snapshot.get(),
        &onward.options,
        now,
    ) {
        Ok(plan) => plan,
        // Whoever paused movement knows that nothing moves.
        Err(Nowhere::Paused(_)) => return Some(AGAIN),
        Err(nowhere) => {
            let wait = onward.nowhere.next(key);
            // The numbers in it change with every report of any cluster.
            if wait.is_worth_reporting {
                let note = format!("It could not be applied in {cluster}: {why}. {nowhere}.");
                tracing::info!(binding = %key, cluster, "{note}");
                fleet.warn(binding, "NowhereToGo", note);
            }
            return Some(wait.time);
        }
    };
    let paid = match onward.pace.pay_after_evictions(Instant::now()) {
        Ok(paid) => paid,
        Err(when) => return Some(until_paid(when)),
    };
    let to = plan.destination();
    match carry_out(fleet, binding, plan, &paid).await {
        Ok(_) => {
            onward.forget(key);
            tracing::info!(binding = %key, cluster, to, why, "moved on");
            let note = format!("left {cluster} for {to}: it could not be applied there: {why}");
            fleet.publish(binding, EventType::Normal, "Evicted", note);
            None
        }
        Err(not_written) => {
            tracing::info!(binding = %key, cluster, ?not_written, "not moved on");
            Some(AGAIN)
        }
    }
}

/// Returns the pause until the budget says that it may suffice.
fn until_paid(when: Option<Instant>) -> Duration {
    let rest = when.map(|when| when.saturating_duration_since(Instant::now()));
    rest.unwrap_or(AGAIN)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::controller::start;
    use crate::fleet::budget::pace::Pace;
    use crate::fleet::testing::{self, Bench, binding, pass, work};

    /// Returns a binding whose copy in `m1` waits for one in `m2`, which says this of it.
    fn refused(applied: bool, tasks: &Value, annotations: &Value) -> Value {
        let mut binding = binding();
        binding["metadata"]["generation"] = json!(1);
        binding["metadata"]["annotations"] = annotations.clone();
        binding["spec"]["clusters"] = json!([{"name": "m2", "replicas": 2}]);
        binding["spec"]["gracefulEvictionTasks"] = tasks.clone();
        let names = json!(["m1", "m2", "m3"]);
        binding["spec"]["placement"]["clusterAffinity"]["clusterNames"] = names;
        let message = (!applied).then_some("already exists");
        let report = json!({"clusterName": "m2", "applied": applied, "appliedMessage": message});
        binding["status"] = json!({
            "schedulerObservedGeneration": 1, "aggregatedStatus": [report],
        });
        binding
    }

    /// Returns the Work in `m2`, refused since now unless it is `applied`.
    fn work_in_m2(applied: bool, health: &str) -> Value {
        let mut work = work("m2", health);
        let condition = &mut work["status"]["conditions"][0];
        condition["status"] = json!(if applied { "True" } else { "False" });
        condition["message"] = json!("already exists");
        condition["lastTransitionTime"] = json!(muster_shared::clock::calendar());
        work
    }

    /// Returns that Work where it is refused and nothing is known of the object.
    fn unseen() -> Value {
        let mut work = work_in_m2(false, "Unknown");
        work["status"]["manifestStatuses"] = json!([]);
        work
    }

    fn ago(minutes: i64) -> jiff::Timestamp {
        muster_shared::clock::calendar() - jiff::SignedDuration::from_mins(minutes)
    }

    /// Returns the annotation of an eviction some minutes ago.
    fn evicted(minutes: i64) -> Value {
        let record = json!({
            "from": "m1", "to": "m2", "mode": "Directly", "cause": "c",
            "at": ago(minutes).to_string(),
        });
        json!({"failover.muster.io/last-eviction": record.to_string()})
    }

    async fn targets_after(seconds: u64, binding: Value, work: Value) -> Vec<Value> {
        targets_in(&mut bench(binding, Some(work)), seconds).await
    }

    /// Returns a control plane with a cluster that has to be left and two others.
    fn bench(binding: Value, work: Option<Value>) -> Bench {
        let mut drained = testing::cluster("m1");
        drained["spec"]["taints"] = json!([{"key": "x", "effect": "NoExecute"}]);
        let objects = [
            ("clusters", drained),
            ("clusters", testing::cluster("m2")),
            ("clusters", testing::cluster("m3")),
            ("resourcebindings", binding),
        ];
        Bench::new(objects.into_iter().chain(work.map(|work| ("works", work))))
    }

    /// Returns what was written of the binding within that many seconds.
    async fn targets_in(bench: &mut Bench, seconds: u64) -> Vec<Value> {
        let pace = Pace::of(&bench.fleet.settings);
        start(&bench.fleet, &pace, &mut bench.tasks);
        bench.follow().await;
        pace.begin(tokio::time::Instant::now());
        pass(seconds).await;
        let writes = bench.api.writes().into_iter();
        writes.map(|(_, _, body)| body["spec"].clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_is_moved_on_from_a_cluster_that_has_refused_it_for_long() {
        let task = json!([{
            "fromCluster": "m1", "reason": "r", "producer": "p", "purgeMode": "Gracefully",
            "gracePeriodSeconds": 40, "creationTimestamp": ago(0),
        }]);
        let evicted = evicted(0);
        for (tasks, annotations) in [(&task, &json!({})), (&json!([]), &evicted)] {
            let binding = refused(false, tasks, annotations);
            let work = unseen();
            let early = targets_after(25, binding.clone(), work.clone()).await;
            assert_eq!(early, [] as [Value; 0], "what refuses it may end by itself");
            let writes = targets_after(120, binding, work).await;
            let [spec] = &writes[..] else {
                panic!("{writes:?}");
            };
            assert_eq!(spec["clusters"], json!([{"name": "m3", "replicas": 2}]));
            let tasks = &spec["gracefulEvictionTasks"];
            assert_eq!(tasks[0]["fromCluster"], "m2", "{tasks}");
            assert_eq!(tasks[0]["reason"], "NotApplied");
            let expected = if annotations == &evicted { 1 } else { 2 };
            assert_eq!(tasks.as_array().unwrap().len(), expected, "{tasks}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_is_moved_on_where_an_override_that_broke_since_lets_no_work_be_made() {
        let task = |minutes: i64| {
            json!([{
                "fromCluster": "m1", "reason": "r", "producer": "p", "purgeMode": "Gracefully",
                "gracePeriodSeconds": 7200, "creationTimestamp": ago(minutes),
            }])
        };
        let none = json!([]);
        for (broken, tasks, annotations, expected) in [
            (Some("m2"), task(0), json!({}), 1),
            // The old copy waits for the new one, however long.
            (Some("m2"), task(30), json!({}), 1),
            (Some("m2"), none.clone(), evicted(0), 1),
            (Some("m2"), none.clone(), evicted(30), 0),
            (Some("m2"), none.clone(), json!({}), 0),
            (Some("m3"), task(0), json!({}), 0),
            (None, task(0), json!({}), 0),
        ] {
            let mut binding = refused(false, &tasks, &annotations);
            binding["status"]["aggregatedStatus"] = json!([]);
            let mut bench = bench(binding, None);
            bench.fleet.override_lookup.answer(move |_, cluster| {
                let why = || "its override cannot be applied".to_owned();
                (Some(cluster) == broken).then(why).map_or(Ok(None), Err)
            });
            let writes = targets_in(&mut bench, 120).await;
            assert_eq!(writes.len(), expected, "{broken:?} {tasks} {annotations}");
            for spec in &writes {
                assert_eq!(spec["clusters"], json!([{"name": "m3", "replicas": 2}]));
                assert_eq!(spec["gracefulEvictionTasks"][0]["fromCluster"], "m2");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_what_was_never_moved_and_what_is_healthy_from_before_stay() {
        let evicted = evicted(0);
        let none = json!([]);
        let mut missing = unseen();
        missing["spec"]["suspendDispatching"] = json!(true);
        missing["status"]["conditions"][0]["reason"] = json!("ObjectsMissing");
        let applied = refused(true, &none, &evicted);
        let refused = |annotations: &Value| refused(false, &none, annotations);
        let mut empty = refused(&evicted);
        let shares = [("m2", 0), ("m3", 2)];
        let shares = shares.map(|(name, replicas)| json!({"name": name, "replicas": replicas}));
        empty["spec"]["clusters"] = json!(shares);
        let (ill, well) = ("Unhealthy", "Healthy");
        for (what, binding, work) in [
            // While dispatching is suspended.
            ("it was deleted there", refused(&evicted), missing),
            ("it is applied", applied, work_in_m2(true, well)),
            ("it has no replicas there", empty, unseen()),
            ("it was there first", refused(&json!({})), unseen()),
            ("moved long ago", refused(&self::evicted(30)), unseen()),
            // A change of it was refused, of a copy that is not healthy as well.
            ("ill", refused(&evicted), work_in_m2(false, ill)),
            ("well", refused(&evicted), work_in_m2(false, well)),
        ] {
            let writes = targets_after(300, binding, work).await;
            assert_eq!(writes, [] as [Value; 0], "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_workload_that_may_not_run_twice_leaves_a_cluster_before_it_is_made_in_the_next() {
        let never = json!({"cluster": {"purgeMode": "Never"}});
        let fenced = json!({"cluster": {"fencing": {"afterSeconds": 60}}});
        for (failover, expected) in [
            (Value::Null, "Gracefully"),
            (never, "Gracefully"),
            (fenced, "Directly"),
            (json!({"cluster": {"purgeMode": "Directly"}}), "Directly"),
        ] {
            let mut binding = refused(false, &json!([]), &evicted(0));
            binding["spec"]["failover"] = failover.clone();
            let writes = targets_after(120, binding, unseen()).await;
            let tasks = &writes[0]["gracefulEvictionTasks"];
            assert_eq!(tasks[0]["fromCluster"], "m2", "{failover}");
            assert_eq!(tasks[0]["purgeMode"], expected, "{failover}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_that_is_kept_for_ever_since_a_move_of_long_ago_makes_no_move_of_an_edit() {
        let kept = |minutes: i64| {
            json!([{
                "fromCluster": "m1", "reason": "r", "producer": "p", "purgeMode": "Never",
                "suppressDeletion": true, "creationTimestamp": ago(minutes),
            }])
        };
        for (minutes, expected) in [(0, 1), (30 * 24 * 60, 0)] {
            let binding = refused(false, &kept(minutes), &json!({}));
            let writes = targets_after(120, binding, unseen()).await;
            assert_eq!(writes.len(), expected, "{minutes}: {writes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_not_left_keeps_no_other_one_that_refuses_the_workload() {
        for (what, moved, since, is_paused) in [
            ("an edit was refused there", 20, 0, false),
            ("movement out of it is paused", 1, 1, true),
        ] {
            let mut binding = refused(false, &json!([]), &evicted(moved));
            binding["spec"]["clusters"] =
                json!([{"name": "m2", "replicas": 2}, {"name": "m3", "replicas": 2}]);
            binding["spec"]["placement"] = json!({
                "clusterAffinity": {"clusterNames": ["m2", "m3", "m4"]},
                "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}],
            });
            let work = |cluster: &str, minutes: i64| {
                let mut work = unseen();
                work["metadata"]["namespace"] =
                    json!(muster_shared::names::execution_namespace(cluster));
                work["status"]["conditions"][0]["lastTransitionTime"] = json!(ago(minutes));
                work
            };
            let mut m2 = testing::cluster("m2");
            if is_paused {
                m2["metadata"]["annotations"] = json!({"failover.muster.io/paused": "x"});
            }
            let mut bench = Bench::new([
                ("clusters", m2),
                ("clusters", testing::cluster("m3")),
                ("clusters", testing::cluster("m4")),
                ("resourcebindings", binding),
                ("works", work("m2", since)),
                ("works", work("m3", moved)),
            ]);
            let writes = targets_in(&mut bench, 120).await;
            let left = writes
                .iter()
                .map(|it| &it["gracefulEvictionTasks"][0]["fromCluster"]);
            assert_eq!(left.collect::<Vec<_>>(), [&json!("m3")], "{what}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_are_refused_are_not_placed_anew_each_time_that_one_may_move() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        const MANY: usize = 50;
        let mut clusters = vec![testing::cluster("m2"), testing::cluster("m3")];
        for it in &mut clusters {
            it["status"]["resourceSummary"]["allocatable"] =
                json!({"cpu": "1000", "memory": "1000Gi", "pods": "1000"});
        }
        let mut objects: Vec<_> = clusters.into_iter().map(|it| ("clusters", it)).collect();
        for number in 0..MANY {
            let (name, work_name) = (format!("w{number}-deployment"), format!("w{number}"));
            let mut binding = refused(false, &json!([]), &evicted(0));
            binding["metadata"]["name"] = json!(name);
            binding["spec"]["resource"]["name"] = json!(work_name);
            let mut work = unseen();
            work["metadata"]["name"] = json!(work_name);
            work["metadata"]["annotations"]["resourcebinding.karmada.io/name"] = json!(name);
            objects.extend([("resourcebindings", binding), ("works", work)]);
        }
        let mut bench = Bench::new(objects);
        let plans = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&plans);
        // Each plan asks whether its order could be carried out.
        bench.fleet.override_lookup.answer(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        });
        let pace = Pace::of(&bench.fleet.settings);
        start(&bench.fleet, &pace, &mut bench.tasks);
        bench.follow().await;
        for name in ["m2", "m3"] {
            pace.put(name, false, tokio::time::Instant::now());
        }
        pace.begin(tokio::time::Instant::now());
        pass(90).await;
        let bindings = bench.fleet.bindings.iter();
        let moved = bindings.filter(|it| it.spec.target("m3").is_some());
        let (moved, plans) = (moved.count(), plans.load(Ordering::Relaxed));
        assert!((20..MANY).contains(&moved), "{moved} moved");
        assert!(plans <= 5 * MANY, "{plans} plans for {moved} moves");
    }

    #[tokio::test(start_paused = true)]
    async fn that_no_other_cluster_takes_it_is_said_once_although_the_words_change() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        let mut bench = bench(refused(false, &json!([]), &evicted(0)), Some(unseen()));
        let searches = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&searches);
        bench.fleet.override_lookup.answer(move |_, _| {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            Err(format!("its override is refused by rule {number}"))
        });
        let writes = targets_in(&mut bench, 20 * 60).await;
        assert_eq!(writes, [] as [Value; 0]);
        let searches = searches.load(Ordering::Relaxed);
        assert!(searches >= 10, "{searches} searches");
        let events = bench.api.reported().await;
        let nowhere = events.iter().filter(|(_, why)| why == "NowhereToGo");
        assert_eq!(nowhere.count(), 1, "{events:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_lasts_by_our_clock_whatever_that_of_the_member_says() {
        for hours in [-2, 0, 2] {
            let binding = refused(false, &json!([]), &evicted(0));
            let mut work = unseen();
            work["status"]["conditions"][0]["lastTransitionTime"] = json!(ago(-60 * hours));
            let early = targets_after(25, binding.clone(), work.clone()).await;
            assert_eq!(early, [] as [Value; 0], "{hours}");
            let writes = targets_after(120, binding, work).await;
            assert_eq!(writes.len(), 1, "{hours}");
        }
    }
}
