//! Probes the member once per period, as long as the agent runs.

use std::sync::Arc;
use std::time::Duration;

use muster_shared::clock::calendar;
use muster_shared::k8s::Client;
use tokio::sync::{Notify, watch as channel};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::probe::{Observation, probe};
use super::recent::Recent;
use crate::measures::Step;

/// The latest observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Result of the probe.
    pub observation: Observation,
    /// Durations and failures of the last probes.
    pub recent: Recent,
    /// Time at which the probe ended.
    pub at: Instant,
}

/// Probes at the start and then once a period; every probe is over before the next is due. Each
/// observation is published, the unchanged ones too: the debounce counts their time. `returned` is
/// notified when the member answers again after silence.
pub async fn watch(
    client: Client,
    period: Duration,
    publish: channel::Sender<Option<Health>>,
    returned: Arc<Notify>,
    shutdown: CancellationToken,
) {
    let mut timer = tokio::time::interval(period);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Observation> = None;
    let mut recent = Recent::default();
    let probes = async {
        loop {
            timer.tick().await;
            let started = Instant::now();
            let observation = probe(&client, deadline(period)).await;
            let took = started.elapsed();
            metrics::histogram!("muster_probe_duration_seconds").record(took);
            recent.note((observation == Observation::Ready).then_some(took));
            if !matches!(observation, Observation::Unreachable { .. }) {
                Step::Probe.succeeded(calendar());
            }
            if last.as_ref() != Some(&observation) {
                if matches!(last, Some(Observation::Unreachable { .. })) {
                    returned.notify_one();
                }
                match &observation {
                    Observation::Ready => tracing::info!("the member is healthy"),
                    Observation::Refused { code } => {
                        tracing::warn!(code, "the member refuses the agent's credentials");
                    }
                    Observation::NotReady { code } => {
                        tracing::warn!(code, "the member answers that it is not healthy");
                    }
                    Observation::Unreachable { cause } => {
                        tracing::warn!(cause, "the member does not answer");
                    }
                }
                last = Some(observation.clone());
            }
            publish.send_replace(Some(Health {
                observation,
                recent,
                at: Instant::now(),
            }));
        }
    };
    shutdown.run_until_cancelled(probes).await;
}

/// Returns the deadline of a probe: half the period, and no longer than a healthy API server takes.
fn deadline(period: Duration) -> Duration {
    (period / 2).min(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_over_before_the_next_is_due() {
        for millis in [1, 200, 1_000, 10_000, 60_000] {
            let period = Duration::from_millis(millis);
            assert!(deadline(period) < period, "{period:?}");
        }
    }
}
