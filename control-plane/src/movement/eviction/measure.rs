//! Metrics of the eviction queue: the proposal's, Karmada's, and Muster's own.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use muster_shared::telemetry::{Gauges, Series};
use tokio::time::Instant;

use super::backlog::Slot;
use crate::fleet::binding::BindingKey;
use crate::movement::eviction::evictor::{Eviction, Evictor, Outcome, QueueReason};

/// Interval at which the gauges are set.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Figures of the evictions from one cluster.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    processed: u64,
    evicted: u64,
    /// `evicted` when the gauges were set last.
    shown: u64,
}

/// Counts what comes to an end, and sets the gauges.
#[derive(Debug)]
pub struct Meter {
    done: BTreeMap<String, Done>,
    gauges: Gauges,
    shown_at: Instant,
}

impl Meter {
    /// Returns a meter that has counted nothing yet.
    pub fn new(now: Instant) -> Self {
        Self {
            done: BTreeMap::new(),
            gauges: Gauges::default(),
            shown_at: now,
        }
    }

    /// Counts an eviction because of a taint that came to an end. A conflict is none: the eviction
    /// is repeated.
    pub fn count(&mut self, eviction: &Eviction, outcome: &Outcome, now: Timestamp) {
        if eviction.reason == QueueReason::Failure {
            return;
        }
        let success = match outcome {
            Outcome::Evicted { .. } => true,
            Outcome::Nowhere(_)
            | Outcome::Unpreserved(_)
            | Outcome::Failed(_)
            | Outcome::Unclear(_) => false,
            Outcome::Conflict | Outcome::Gone | Outcome::Paused(_) => return,
        };
        let cluster = eviction.cluster.to_string();
        let done = self.done.entry(cluster.clone()).or_default();
        done.processed += 1;
        done.evicted += u64::from(success);
        let queue = queue_name(&BindingKey::of(&eviction.binding));
        let result = if success { "success" } else { "error" };
        metrics::counter!("eviction_processing_total", "name" => queue, "result" => result)
            .increment(1);
        if success {
            let waited = now.duration_since(eviction.since()).as_secs_f64().max(0.0);
            metrics::histogram!("evict_processing_latency_seconds", "cluster_name" => cluster)
                .record(waited);
            metrics::histogram!("eviction_processing_latency_seconds", "name" => queue)
                .record(waited);
        }
    }

    /// Sets the gauges.
    #[expect(clippy::cast_precision_loss)] // gauges are floating point numbers
    pub fn show(&mut self, evictor: &Evictor, now: Instant) {
        let health = evictor.health();
        let mut values: BTreeMap<Series, f64> = BTreeMap::from([
            (("cluster_fault_num", vec![]), health.failed as f64),
            (("cluster_fault_rate", vec![]), health.failed_fraction()),
            (
                ("muster_evict_allowed_rate", vec![]),
                evictor.allowed_rate(),
            ),
        ]);
        for queue in [BINDINGS, CLUSTER_BINDINGS] {
            values.insert(depth_of(queue), 0.0);
        }
        let elapsed = now
            .saturating_duration_since(self.shown_at)
            .as_secs_f64()
            .max(1e-3);
        self.shown_at = now;
        let mut depths = BTreeMap::new();
        for (cluster, depth) in evictor.backlog().depths() {
            depths.insert(cluster.to_string(), depth);
            self.done.entry(cluster.to_string()).or_default();
            for (key, place) in evictor.backlog().items(cluster) {
                let of = |metric, label, kind| {
                    let labels = vec![(label, cluster.to_string()), ("resource_kind", kind)];
                    (metric, labels)
                };
                if let Some(kind) = evictor.resource_kind(key) {
                    let kind = of("evict_kind_total", "cluster_name", kind);
                    *values.entry(kind).or_default() += 1.0;
                }
                let kind = key.scope().binding_kind().to_owned();
                let kind = of("eviction_kind_total", "member_cluster", kind);
                *values.entry(kind).or_default() += 1.0;
                if matches!(place, Slot::Ready(_)) {
                    *values.entry(depth_of(queue_name(key))).or_default() += 1.0;
                }
            }
        }
        // Nothing is remembered of a cluster that has left.
        self.done
            .retain(|cluster, _| evictor.fleet().get(cluster).is_some());
        for (cluster, done) in &mut self.done {
            let depth = depths.get(cluster).copied().unwrap_or_default();
            let mut gauge = |name: &'static str, value: f64| {
                values.insert((name, vec![("cluster_name", cluster.clone())]), value);
            };
            gauge(
                "evict_total",
                (depth.waiting + depth.ready + depth.stranded) as f64,
            );
            gauge("muster_evict_waiting", depth.waiting as f64);
            gauge("muster_evict_stranded", depth.stranded as f64);
            gauge("evict_rate", (done.evicted - done.shown) as f64 / elapsed);
            if done.processed > 0 {
                gauge(
                    "evict_success_rate",
                    done.evicted as f64 / done.processed as f64,
                );
            }
            done.shown = done.evicted;
        }
        self.gauges.show(values);
    }
}

fn depth_of(queue: &'static str) -> Series {
    ("eviction_queue_depth", vec![("name", queue.to_owned())])
}

/// Karmada's names of its two eviction queues.
const BINDINGS: &str = "binding-eviction";
const CLUSTER_BINDINGS: &str = "cluster-binding-eviction";

fn queue_name(key: &BindingKey) -> &'static str {
    if key.namespace.is_some() {
        BINDINGS
    } else {
        CLUSTER_BINDINGS
    }
}

#[cfg(test)]
mod tests;
