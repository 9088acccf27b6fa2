//! Says of bindings how they are scheduled.

use jiff::Timestamp;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client;
use muster_shared::clock::whole_second;
use muster_shared::k8s::{Api, ResourceExt};
use muster_shared::queue::Next;
use serde_json::json;

use super::completed::UNREAD;
use super::movement::suspended;
use super::{Error, Scheduler};
use crate::fleet::Fleet;
use crate::fleet::api_error::ApiError;
use crate::fleet::binding::BindingKey;
use crate::fleet::write::merge_status;
use crate::scheduler::core::cycle::is_reschedule_requested;
use crate::scheduler::core::outcome::Subject;
use crate::scheduler::core::report::Report;

/// So often a report is tried again when others write the status at the same time.
const REPORT_ATTEMPTS: usize = 5;

impl Scheduler {
    /// Says of a binding how it was placed, that nothing is to be changed of its placement, or what
    /// its move waits for.
    pub(super) async fn confirm(&self, fleet: &Fleet, key: BindingKey) -> Result<Next, Error> {
        let client = fleet.status_writer.when_idle().await;
        let binding = match self.current(fleet, &key) {
            Ok(binding) => binding,
            Err(next) => {
                if next == Next::Done {
                    self.unreported.lock().remove(&key);
                }
                return Ok(next);
            }
        };
        let unreported = self.unreported.lock().remove(&key);
        // A newer decision is reported by itself.
        if let Some(report) = unreported
            && report.observed_generation == binding.metadata.generation
        {
            let now = whole_second(fleet.clock.now());
            let api = key.api(&client);
            let written = self.report(&api, &key, &binding, &report, now).await;
            if let Err(error) = written {
                self.unreported.lock().entry(key).or_insert(report);
                return Err(error);
            }
            // The reason for which the binding waits by now is said next.
            let waits = self.movement.is_waiting(&key);
            return Ok(if waits { Next::Again } else { Next::Done });
        }
        let now = whole_second(fleet.clock.now());
        let subject = Subject::of(binding.as_ref());
        let Some(has_completed) = self.completion(fleet, &key, binding.as_ref()) else {
            return Ok(Next::After(UNREAD));
        };
        let snapshot = self.snapshot.get();
        let (outcome, _) = self.outcome(fleet, binding.as_ref(), has_completed, &snapshot, now);
        let mut report = outcome.report;
        if outcome
            .placed
            .is_some_and(|placed| !placed.is_known(&subject))
        {
            let Some(waits) = self.movement.reported(&key) else {
                // Something changed meanwhile. It is placed first, and reported with that.
                self.queue.add(key);
                return Ok(Next::Done);
            };
            report = waits;
        }
        let api = key.api(&client);
        self.report(&api, &key, &binding, &report, now).await?;
        Ok(Next::Done)
    }

    /// Reports of a binding of this scheduler whose scheduling was suspended that its move does not
    /// wait any more for what it waited for.
    pub(super) async fn report_suspended(
        &self,
        fleet: &Fleet,
        key: &BindingKey,
    ) -> Result<(), Error> {
        let Some(binding) = fleet.bindings.get(key) else {
            return Ok(());
        };
        let scheduler = binding.spec.scheduler_name.as_deref();
        let report = suspended(&binding.spec, binding.status());
        let report = report.filter(|_| fleet.settings.schedules(scheduler));
        let now = whole_second(fleet.clock.now());
        // The cache may show this report later than it was written.
        let Some(report) = report.filter(|it| it.patch(binding.status(), now).is_some()) else {
            return Ok(());
        };
        let client = fleet.status_writer.when_idle().await;
        self.report(&key.api(&client), key, &binding, &report, now)
            .await
    }

    /// Reports of a binding how it was placed: in the queue, after decisions and the orders that
    /// follow from them, where no decision and nobody who waits for one goes by what it says.
    pub(super) async fn report_placed(
        &self,
        api: &Api<AnyBinding>,
        key: &BindingKey,
        written: &AnyBinding,
        report: Report,
        now: Timestamp,
    ) -> Result<(), Error> {
        let is_last = report.observed_generation == written.metadata.generation;
        let is_answer = is_reschedule_requested(&written.spec, written.status());
        if !is_last || is_answer || report.changes_more_than_times(written.status(), now) {
            return self.report(api, key, written, &report, now).await;
        }
        self.unreported.lock().insert(key.clone(), report);
        self.reports.add(key.clone());
        Ok(())
    }

    /// Writes the report into the status, upon what others write there meanwhile. Of a binding that
    /// asks for something else by now it says no more than the group of clusters that it was placed
    /// by: the rest is decided, and reported, next.
    pub(super) async fn report(
        &self,
        api: &Api<AnyBinding>,
        key: &BindingKey,
        binding: &AnyBinding,
        report: &Report,
        now: Timestamp,
    ) -> Result<(), Error> {
        let fault = |source| ApiError::of("report on", key)(source);
        let mut fresh: Option<AnyBinding> = None;
        let decided = &binding.spec;
        let group = Report {
            affinity_name: report.affinity_name.clone(),
            ..Report::default()
        };
        for _ in 0..REPORT_ATTEMPTS {
            let binding = fresh.as_ref().unwrap_or(binding);
            let is_same = &binding.spec == decided;
            if !is_same && binding.spec.clusters != decided.clusters {
                return Ok(());
            }
            let report = if is_same { report } else { &group };
            let Some(mut patch) = report.patch(binding.status(), now) else {
                return Ok(());
            };
            patch["metadata"] = json!({ "resourceVersion": binding.resource_version() });
            match merge_status(api, &key.name, &patch).await {
                Ok(written) => {
                    self.expectations.written(
                        key.clone(),
                        &binding.metadata,
                        &written.metadata,
                        (),
                    );
                    return Ok(());
                }
                Err(error) if client::is_gone(&error) => return Ok(()),
                Err(error) if client::is_conflict(&error) => {
                    // The cache is behind until it shows what is written here: whoever decided on
                    // its state would take the report before this one for the last.
                    self.expectations.conflicted(key.clone(), &binding.metadata);
                    fresh = client::get_opt(api, &key.name).await.map_err(fault)?;
                    if fresh.is_none() {
                        return Ok(());
                    }
                }
                Err(source) => return Err(fault(source).into()),
            }
        }
        Err(Error::Contended { key: key.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use serde_json::Value;

    use super::*;
    use crate::fleet::budget::pace::Pace;
    use crate::fleet::testing::{Bench, binding, cluster, deleting, pass};
    use crate::scheduler::core::report::Verdict;

    /// Returns a binding of generation 3 whose schedule of generation 1 was reported.
    fn reported(scheduled: &str) -> Value {
        let mut object = binding();
        object["metadata"]["generation"] = json!(3);
        object["status"] = json!({
            "schedulerObservedGeneration": 1,
            "lastScheduledTime": "2026-01-01T00:00:00Z",
            "conditions": [{
                "type": "Scheduled", "status": scheduled, "reason": "Success",
                "message": Verdict::success().message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        object
    }

    /// Returns the report of a schedule that succeeded.
    fn success(generation: i64, now: Timestamp) -> Report {
        Report {
            scheduled: Some(Verdict::success()),
            observed_generation: Some(generation),
            scheduled_at: Some(now),
            ..Report::default()
        }
    }

    /// Returns a fleet with these objects, its scheduler, and the binding, whose placement was
    /// written and is not reported yet.
    async fn unreported<'a>(
        objects: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> (Bench, Scheduler, Arc<AnyBinding>) {
        let mut bench = Bench::new(objects);
        let fleet = Arc::clone(&bench.fleet);
        let scheduler = Scheduler::new(&fleet, Pace::of(&fleet.settings));
        bench.follow_for(5).await;
        let written = bench.binding("web-deployment").unwrap();
        let key = BindingKey::of(written.as_ref());
        let now = fleet.clock.now();
        let api = key.api(&fleet.client);
        let placed = scheduler.report_placed(&api, &key, &written, success(3, now), now);
        placed.await.unwrap();
        (bench, scheduler, written)
    }

    /// Returns a fleet with `m1` and a binding, its scheduler, and the binding.
    async fn followed(binding: Value) -> (Bench, Scheduler, Arc<AnyBinding>) {
        let objects = [("clusters", cluster("m1")), ("resourcebindings", binding)];
        let bench = Bench::followed(objects).await;
        let scheduler = Scheduler::new(&bench.fleet, Pace::of(&bench.fleet.settings));
        let cached = bench.binding("web-deployment").unwrap();
        (bench, scheduler, cached)
    }

    /// Returns the status of the binding once all is reported of the one placement that waits.
    async fn confirmed(bench: &Bench, scheduler: &Scheduler, key: &BindingKey) -> Value {
        assert_eq!(scheduler.reports.len(), 1);
        while scheduler.confirm(&bench.fleet, key.clone()).await.unwrap() != Next::Done {
            pass(10).await;
        }
        let status = bench.api.binding("web-deployment")["status"].clone();
        assert_eq!(status["schedulerObservedGeneration"], 3);
        status
    }

    #[tokio::test(start_paused = true)]
    async fn a_cache_that_lacks_what_a_report_was_written_upon_is_behind() {
        let (bench, scheduler, cached) = followed(binding()).await;
        let (fleet, key) = (&bench.fleet, BindingKey::of(cached.as_ref()));
        let mut labelled = binding();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        bench.api.put("resourcebindings", labelled);
        let report = Report {
            scheduled: Some(Verdict::success()),
            ..Report::default()
        };
        let pause = || scheduler.expectations.pause(&key, &cached.metadata);
        assert_eq!(pause(), None);
        let api = key.api(&fleet.client);
        let written = scheduler.report(&api, &key, &cached, &report, fleet.clock.now());
        written.await.unwrap();
        let stored = bench.api.binding("web-deployment");
        let condition = &stored["status"]["conditions"][0];
        assert_eq!(condition["status"], "True");
        assert!(pause().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_move_that_waits_says_so_no_more_once_its_scheduling_is_suspended() {
        for (reason, expected) in [
            ("WaitingForRate", "SchedulingSuspended"),
            ("TargetObstructed", "SchedulingSuspended"),
            ("SchedulingSuspended", "SchedulingSuspended"),
            ("Success", "Success"),
        ] {
            let mut held = reported("True");
            held["status"]["conditions"][0]["reason"] = json!(reason);
            held["spec"]["suspension"] = json!({"scheduling": true});
            let (bench, scheduler, cached) = followed(held).await;
            let key = BindingKey::of(cached.as_ref());
            scheduler.handle(&bench.fleet, key).await.unwrap();
            let stored = bench.api.binding("web-deployment");
            let said = &stored["status"]["conditions"][0]["reason"];
            assert_eq!(said, expected, "{reason}");
            let status = serde_json::from_value(stored["status"].clone()).unwrap();
            let waits = crate::scheduler::controller::waits_to_move(&status);
            assert_eq!(waits, reason != "Success", "{reason}: it is paid for later");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_done_only_where_the_api_says_that_the_binding_is_gone() {
        let (bench, scheduler, cached) = followed(binding()).await;
        let (fleet, key) = (&bench.fleet, BindingKey::of(cached.as_ref()));
        let api = key.api(&fleet.client);
        let report = Report {
            scheduled: Some(Verdict::success()),
            ..Report::default()
        };
        for (code, named, read, is_done) in [
            (404, "web-deployment", "", true),
            // The kind is not served now.
            (404, "", "", false),
            (409, "web-deployment", "web-deployment", true),
            (409, "web-deployment", "", false),
        ] {
            bench.api.answer_truly();
            let paths = ["/web-deployment/status", "/web-deployment"];
            bench.api.refuse(Method::PATCH, paths[0], code, named);
            bench.api.refuse(Method::GET, paths[1], 404, read);
            let written = scheduler.report(&api, &key, &cached, &report, fleet.clock.now());
            assert_eq!(written.await.is_ok(), is_done, "{code} {named} {read}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn that_a_workload_was_placed_anew_is_said_after_the_orders_that_follow_from_it() {
        let requested = json!("2026-01-02T00:00:00Z");
        for (what, condition, generation, requested, is_said_at_once) in [
            ("moved", "True", 3, None, false),
            ("moved, as somebody asked", "True", 3, Some(requested), true),
            ("waited before", "False", 3, None, true),
            ("is not settled yet", "True", 2, None, true),
        ] {
            let mut object = reported(condition);
            if let Some(time) = requested {
                object["spec"]["rescheduleTriggeredAt"] = time;
            }
            let (bench, scheduler, written) = followed(object).await;
            let (fleet, key) = (&bench.fleet, BindingKey::of(written.as_ref()));
            let now = fleet.clock.now();
            let report = success(generation, now);
            let api = key.api(&fleet.client);
            let stored = || bench.api.binding("web-deployment");
            let time = || stored()["status"]["lastScheduledTime"].clone();
            let before = time();
            let report = scheduler.report_placed(&api, &key, &written, report, now);
            report.await.unwrap();
            assert_eq!(time() != before, is_said_at_once, "{what}");
            if !is_said_at_once {
                assert_eq!(scheduler.reports.len(), 1);
                scheduler.confirm(fleet, key).await.unwrap();
                assert_ne!(time(), before, "{what}: nothing is lost");
                assert!(scheduler.unreported.lock().is_empty());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_move_waits_for_is_said_although_the_placement_before_it_is_not_reported_yet() {
        use crate::scheduler::controller::movement::Held;

        // Its cluster leaves the fleet a moment after it was placed there.
        let leaving = deleting(cluster("m1"));
        let objects = [
            ("clusters", leaving),
            ("clusters", cluster("m2")),
            ("resourcebindings", reported("True")),
        ];
        let (bench, scheduler, written) = unreported(objects).await;
        let (fleet, key) = (&bench.fleet, BindingKey::of(written.as_ref()));
        let now = fleet.clock.now();
        let snapshot = scheduler.snapshot.get();
        let (outcome, _) = scheduler.outcome(fleet, &written, false, &snapshot, now);
        scheduler.hold(fleet, (&key, &written), &outcome, &Held::InLine, now);
        let status = confirmed(&bench, &scheduler, &key).await;
        assert_ne!(status["conditions"][0]["reason"], "Success");
    }

    #[tokio::test(start_paused = true)]
    async fn that_no_clusters_are_found_any_more_is_said_although_a_placement_is_not_reported_yet()
    {
        // The policy wants two clusters, and one of them is gone a moment after the placement.
        let mut object = reported("True");
        object["spec"]["placement"]["spreadConstraints"] =
            json!([{"spreadByField": "cluster", "minGroups": 2, "maxGroups": 2}]);
        let objects = [("clusters", cluster("m1")), ("resourcebindings", object)];
        let (bench, scheduler, written) = unreported(objects).await;
        let (fleet, key) = (&bench.fleet, BindingKey::of(written.as_ref()));
        scheduler.handle(fleet, key.clone()).await.unwrap();
        let status = confirmed(&bench, &scheduler, &key).await;
        assert_eq!(status["conditions"][0]["status"], "False", "{status}");
    }
}
