//! Metrics of failovers.

use super::ledger::Tally;

const BEGUN: &str = "muster_failovers_total";
const MOVED: &str = "muster_failover_workloads_moved_total";
const STRANDED: &str = "muster_failover_workloads_stranded_total";
const HELD: &str = "muster_failover_workloads_held_total";
const HEALTHY: &str = "muster_failover_healthy_seconds";
const REFUSED: &str = "muster_failovers_unrecorded_total";

/// Adds what was counted.
#[allow(clippy::cast_precision_loss)] // seconds
pub fn count(tally: &Tally) {
    for (cause, begun) in &tally.begun {
        metrics::counter!(BEGUN, "cause" => cause.clone()).increment(*begun);
    }
    for (cause, counted) in &tally.counted {
        metrics::counter!(MOVED, "cause" => cause.clone()).increment(counted.moved);
        metrics::counter!(STRANDED, "cause" => cause.clone()).increment(counted.stranded);
        metrics::counter!(HELD, "cause" => cause.clone()).increment(counted.held);
        for seconds in &counted.healthy {
            metrics::histogram!(HEALTHY, "cause" => cause.clone()).record(*seconds as f64);
        }
    }
    if tally.refused > 0 {
        metrics::counter!(REFUSED).increment(tally.refused);
        tracing::warn!(
            failovers = tally.refused,
            "failovers are not recorded: as many as --failover-history-limit go on"
        );
    }
}
