//! Metrics of the scheduler, with the names of Karmada's.

use std::time::Duration;

use tokio::time::Instant;

use crate::scheduler::core::need::Need;
use crate::scheduler::core::step_timer::Spent;

const INCOMING: &str = "karmada_scheduler_queue_incoming_bindings_total";
const ATTEMPTS: &str = "karmada_scheduler_schedule_attempts_total";
const WHOLE: &str = "karmada_scheduler_e2e_scheduling_duration_seconds";
const STEPS: &str = "karmada_scheduler_scheduling_algorithm_duration_seconds";
const WAITING: &str = "muster_scheduler_waiting_bindings";
const COMPARED: &str = "muster_scheduler_waiting_comparisons_total";

/// Reason why a binding is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incoming {
    /// The binding is new.
    BindingAdd,
    /// The binding changed.
    BindingUpdate,
    /// The last schedule failed.
    ScheduleAttemptFailure,
    /// A cluster changed that may matter to the binding.
    ClusterChanged,
}

impl Incoming {
    /// Counts one binding.
    pub fn count(self) {
        let event = match self {
            Self::BindingAdd => "BindingAdd",
            Self::BindingUpdate => "BindingUpdate",
            Self::ScheduleAttemptFailure => "ScheduleAttemptFailure",
            Self::ClusterChanged => "ClusterChanged",
        };
        metrics::counter!(INCOMING, "event" => event).increment(1);
    }
}

/// Shows how many bindings wait.
#[allow(clippy::cast_precision_loss)] // a gauge
pub fn waiting(bindings: usize) {
    metrics::gauge!(WAITING).set(bindings as f64);
}

/// Counts what it took to find out which of them changes of clusters help.
pub fn compared(times: usize) {
    metrics::counter!(COMPARED).increment(u64::try_from(times).unwrap_or(u64::MAX));
}

/// One pass, from its start until its result is written or is known not to come.
#[derive(Debug)]
pub struct Attempt {
    started: Instant,
    schedule_type: &'static str,
}

impl Attempt {
    /// Returns a pass that was begun at `started`, for this reason, and took so long for its steps;
    /// `None` when there was no reason to schedule, and nothing is counted.
    pub fn begun(started: Instant, need: Option<Need>, spent: &Spent) -> Option<Self> {
        let schedule_type = match need? {
            Need::ReplicasChanged => "ScaleSchedule",
            _ => "ReconcileSchedule",
        };
        for (step, time) in spent.iter() {
            record(STEPS, &[("schedule_step", step.name())], time);
        }
        Some(Self {
            started,
            schedule_type,
        })
    }

    /// Counts it.
    pub fn end(&self, scheduled: bool) {
        let result = if scheduled { "scheduled" } else { "error" };
        let labels = [("result", result), ("schedule_type", self.schedule_type)];
        metrics::counter!(ATTEMPTS, &labels).increment(1);
        record(WHOLE, &labels, self.started.elapsed());
    }
}

fn record(name: &'static str, labels: &[(&'static str, &'static str)], time: Duration) {
    metrics::histogram!(name, labels).record(time.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::core::step_timer::{Step, StepTimer};

    #[test]
    fn a_pass_is_counted_by_its_end_and_timed_by_its_steps() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            let laps = StepTimer::start();
            laps.lap(Step::Filter);
            laps.lap(Step::Select);
            let begun = |need| Attempt::begun(Instant::now(), need, &laps.spent());
            assert!(begun(None).is_none());
            begun(Some(Need::ReplicasChanged)).unwrap().end(true);
            begun(Some(Need::NotDivided)).unwrap().end(false);
            Incoming::ClusterChanged.count();
            waiting(3);
            compared(7);
        });
        let text = handle.render();
        let mut counts: Vec<&str> = text
            .lines()
            .filter(|line| {
                !line.starts_with('#') && !line.contains("quantile") && !line.contains("_sum")
            })
            .filter(|line| !line.is_empty())
            .collect();
        counts.sort_unstable();
        let expected = [
            r#"karmada_scheduler_e2e_scheduling_duration_seconds_count{result="error",schedule_type="ReconcileSchedule"} 1"#,
            r#"karmada_scheduler_e2e_scheduling_duration_seconds_count{result="scheduled",schedule_type="ScaleSchedule"} 1"#,
            r#"karmada_scheduler_queue_incoming_bindings_total{event="ClusterChanged"} 1"#,
            r#"karmada_scheduler_schedule_attempts_total{result="error",schedule_type="ReconcileSchedule"} 1"#,
            r#"karmada_scheduler_schedule_attempts_total{result="scheduled",schedule_type="ScaleSchedule"} 1"#,
            r#"karmada_scheduler_scheduling_algorithm_duration_seconds_count{schedule_step="Filter"} 2"#,
            r#"karmada_scheduler_scheduling_algorithm_duration_seconds_count{schedule_step="Select"} 2"#,
            "muster_scheduler_waiting_bindings 3",
            "muster_scheduler_waiting_comparisons_total 7",
        ];
        assert_eq!(counts, expected);
    }
}
