//! Sends each failover as a trace to an OpenTelemetry collector, once its workloads are healthy
//! elsewhere or it has ended.
//!
//! A trace is made from the `Failover` object alone ([`spans`]): nothing is measured for it, and a
//! control plane that starts in between sends the same trace with the same identifiers.
//!
//! The variables of the OpenTelemetry specification say where to: `OTEL_EXPORTER_OTLP_ENDPOINT` or
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` (OTLP over HTTP), `OTEL_EXPORTER_OTLP_HEADERS`,
//! `OTEL_EXPORTER_OTLP_TIMEOUT`. Without an endpoint nothing is sent.

mod due;
mod export;
mod spans;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use muster_shared::api::failover_record::Failover;
use muster_shared::queue::{Next, Queue};
use muster_shared::tasks::Tasks;
use muster_shared::watch::{Change, Informer};

use self::due::Due;
use self::export::Exporter;
use crate::fleet::Fleet;

const NAME: &str = "failover traces";
const SENT: &str = "muster_failover_traces_total";

/// Traces of this process.
struct Traces {
    fleet: Arc<Fleet>,
    records: Informer<Failover>,
    exporter: Exporter,
    /// Completion of each record, by its UID, that was sent last.
    sent: Mutex<HashMap<String, Timestamp>>,
    queue: Queue<String>,
}

/// Starts sending if the environment names a collector.
pub fn start(fleet: &Arc<Fleet>, records: &Informer<Failover>, tasks: &mut Tasks) {
    let exporter = match Exporter::of_the_environment() {
        Ok(Some(exporter)) => exporter,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(error, "no traces of failovers are sent");
            return;
        }
    };
    tracing::info!(
        endpoint = exporter.endpoint(),
        "sending failovers as traces"
    );
    metrics::describe_counter!(
        SENT,
        "Traces of failovers that the collector took (result=sent) or did not (result=failed)"
    );
    let traces = Arc::new(Traces {
        fleet: Arc::clone(fleet),
        records: records.clone(),
        exporter,
        sent: Mutex::new(HashMap::new()),
        queue: Queue::new(NAME),
    });
    records.on_change({
        let traces = Arc::downgrade(&traces);
        move |change| {
            let Some(traces) = traces.upgrade() else {
                return;
            };
            match change {
                Change::Applied { new, .. } => traces.queue.add(new.name_any()),
                Change::Deleted { old } => traces.forget(old),
            }
        }
    });
    fleet.work(tasks, NAME, traces.queue.clone(), 1, {
        let traces = Arc::clone(&traces);
        move |_, name: String| {
            let traces = Arc::clone(&traces);
            async move { traces.reconcile(&name).await }
        }
    });
}

impl Traces {
    fn forget(&self, record: &Failover) {
        if let Some(uid) = &record.metadata.uid {
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.remove(uid);
        }
    }

    /// Sends one record if it is time.
    async fn reconcile(&self, name: &str) -> Result<Next, String> {
        let Some(record) = self.records.get(None, name) else {
            return Ok(Next::Done);
        };
        let now = self.fleet.clock.now();
        let uid = record.uid().unwrap_or_default();
        let last = {
            let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.get(&uid).copied()
        };
        let complete = match due::due(&record, last, now) {
            Due::Now(complete) => complete,
            Due::At(time) => return Ok(Next::After(until(now, time))),
            Due::Never => return Ok(Next::Done),
        };
        let trace = spans::trace(&record, complete);
        let result = self.exporter.send(trace).await;
        let outcome = if result.is_ok() { "sent" } else { "failed" };
        metrics::counter!(SENT, "result" => outcome).increment(1);
        // One that fails is tried again by the queue, later and later.
        result.map_err(|error| format!("send the trace of Failover {name}: {error}"))?;
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.insert(uid, complete);
        Ok(Next::Done)
    }
}

fn until(now: Timestamp, time: Timestamp) -> Duration {
    let rest = time.duration_since(now).max(SignedDuration::ZERO);
    Duration::try_from(rest).unwrap_or_default()
}
