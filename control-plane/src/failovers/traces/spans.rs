//! Makes the spans of a failover from its record.
//!
//! ```text
//! failover
//! ├── silence     last heartbeat → condition Ready not True
//! ├── taint       … → first taint by which workloads leave
//! ├── workload    one for each workload that the record names
//! │   ├── queue   cause → placed elsewhere: the budget of the evictions
//! │   ├── apply   … → applied in the clusters that received it
//! │   └── start   … → healthy there
//! └── cleanup     all healthy → last old copy removed
//! ```

use jiff::Timestamp;
use muster_shared::api::failover_record::{
    Failover, FailoverStatus, FailoverWorkload, Move, State,
};
use muster_shared::k8s::Time;
use ring::digest::{SHA256, digest};

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Kind of the step, of which there are a few.
    pub name: &'static str,
    /// Identifier, the same whenever the span is made.
    pub id: u64,
    /// Identifier of the step that it is a part of; 0 for the first.
    pub parent: u64,
    /// Beginning.
    pub start: Timestamp,
    /// End, not before the beginning.
    pub end: Timestamp,
    /// What it was about.
    pub attributes: Vec<(&'static str, Value)>,
    /// What went wrong, if something did.
    pub error: Option<String>,
}

/// A failover as a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Identifier, the same whenever the trace is made.
    pub id: u128,
    /// Spans, each after the one that it is a part of.
    pub spans: Vec<Span>,
}

/// Returns the trace of a record that is complete up to a time.
pub fn trace(record: &Failover, complete: Timestamp) -> Trace {
    let uid = record.metadata.uid.as_deref().unwrap_or_default();
    let seed = format!("{uid}/{}", complete.as_second());
    let mut maker = Maker {
        id: u128::from_be_bytes(first(&seed)),
        seed,
        complete,
        spans: Vec::new(),
    };
    maker.failover(record);
    Trace {
        id: maker.id,
        spans: maker.spans,
    }
}

/// The first bytes of a hash. Identifiers of zeros are not valid, and do not occur.
fn first<const N: usize>(text: &str) -> [u8; N] {
    let hash = digest(&SHA256, text.as_bytes());
    let mut bytes = [0; N];
    bytes.copy_from_slice(&hash.as_ref()[..N]);
    bytes
}

struct Maker {
    id: u128,
    seed: String,
    complete: Timestamp,
    spans: Vec<Span>,
}

fn known(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|it| it.0)
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn number(number: u32) -> Value {
    Value::Number(number.into())
}

impl Maker {
    /// Adds a span, and returns its identifier.
    fn add(
        &mut self,
        name: &'static str,
        parent: u64,
        (start, end): (Timestamp, Timestamp),
        attributes: Vec<(&'static str, Value)>,
        error: Option<String>,
    ) -> u64 {
        let number = self.spans.len();
        let id = u64::from_be_bytes(first(&format!("{}/{number}", self.seed)));
        self.spans.push(Span {
            name,
            id,
            parent,
            start,
            end: end.max(start),
            attributes,
            error,
        });
        id
    }

    fn failover(&mut self, record: &Failover) {
        let (spec, default) = (&record.spec, FailoverStatus::default());
        let status = record.status.as_ref().unwrap_or(&default);
        let (times, workloads) = (&status.times, status.workloads);
        let start = known(spec.start_time.as_ref()).unwrap_or(self.complete);
        let cluster = ("k8s.cluster.name", text(&spec.cluster));
        let attributes = vec![
            cluster.clone(),
            (
                "muster.failover.name",
                text(record.metadata.name.clone().unwrap_or_default()),
            ),
            ("muster.failover.cause", text(status.cause.kind.as_str())),
            ("muster.failover.message", text(&status.cause.message)),
            ("muster.failover.subject", text(spec.subject.as_str())),
            (
                "muster.failover.ended",
                text((status.state == State::Ended).to_string()),
            ),
            ("muster.failover.relapses", number(status.relapses)),
            ("muster.workloads.affected", number(workloads.affected)),
            ("muster.workloads.moved", number(workloads.moved)),
            ("muster.workloads.healthy", number(workloads.healthy)),
            ("muster.workloads.stranded", number(workloads.stranded)),
            ("muster.workloads.held", number(workloads.held)),
        ];
        let stranded = (workloads.stranded_now > 0).then(|| {
            format!(
                "{} workloads cannot leave {}",
                workloads.stranded_now, spec.cluster
            )
        });
        let root = self.add("failover", 0, (start, self.complete), attributes, stranded);

        let silent = known(times.silent_since.as_ref());
        let not_ready = known(times.not_ready.as_ref());
        let tainted = known(times.tainted.as_ref());
        if let (Some(silent), Some(not_ready)) = (silent, not_ready) {
            self.add(
                "silence",
                root,
                (silent, not_ready),
                vec![cluster.clone()],
                None,
            );
        }
        if let Some(tainted) = tainted {
            let taints = vec![
                cluster,
                ("muster.taints", text(status.cause.taints.join(", "))),
            ];
            self.add(
                "taint",
                root,
                (not_ready.unwrap_or(start), tainted),
                taints,
                None,
            );
        }
        let began = tainted.unwrap_or(start);
        for moved in &status.moves {
            self.workload(root, began, &spec.cluster, moved);
        }
        let healthy = known(times.healthy.as_ref()).or_else(|| known(times.last_move.as_ref()));
        if let (Some(healthy), Some(cleaned)) = (healthy, known(times.cleaned.as_ref()))
            && healthy < cleaned
        {
            self.add("cleanup", root, (healthy, cleaned), Vec::new(), None);
        }
    }

    fn workload(&mut self, root: u64, began: Timestamp, from: &str, moved: &Move) {
        let FailoverWorkload {
            kind,
            namespace,
            name,
        } = &moved.workload;
        let placed = known(moved.time.as_ref()).unwrap_or(began);
        // A workload that was placed again before the taint left for its own reason.
        let began = began.min(placed);
        let (applied, healthy) = (known(moved.applied.as_ref()), known(moved.healthy.as_ref()));
        let mut attributes = vec![
            ("k8s.resource.kind", text(kind)),
            ("k8s.resource.name", text(name)),
            ("muster.from", text(from)),
            ("muster.to", text(&moved.to)),
        ];
        if let Some(namespace) = namespace {
            attributes.push(("k8s.namespace.name", text(namespace)));
        }
        let error = healthy
            .is_none()
            .then(|| format!("{kind} {name} has not been healthy in {}", moved.to));
        let end = healthy.unwrap_or(self.complete);
        let workload = self.add("workload", root, (began, end), attributes, error);
        self.add("queue", workload, (began, placed), Vec::new(), None);
        if let Some(applied) = applied {
            self.add("apply", workload, (placed, applied), Vec::new(), None);
        }
        if let Some(healthy) = healthy {
            self.add(
                "start",
                workload,
                (applied.unwrap_or(placed), healthy),
                Vec::new(),
                None,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::json;

    use super::*;

    fn record() -> Failover {
        serde_json::from_value(json!({
            "metadata": { "name": "member1-1", "uid": "0c8a" },
            "spec": { "cluster": "member1", "subject": "Cluster", "startTime": "2026-01-01T00:00:00Z" },
            "status": {
                "state": "Active",
                "cause": { "type": "ClusterUnreachable", "taints": ["a:NoExecute"] },
                "times": {
                    "silentSince": "2026-01-01T00:00:00Z", "notReady": "2026-01-01T00:00:40Z",
                    "tainted": "2026-01-01T00:05:40Z", "firstMove": "2026-01-01T00:05:42Z",
                    "lastMove": "2026-01-01T00:05:44Z", "healthy": "2026-01-01T00:06:00Z",
                    "cleaned": "2026-01-01T00:09:00Z",
                },
                "workloads": { "affected": 3, "moved": 2, "healthy": 1, "stranded": 1, "strandedNow": 1 },
                "moves": [
                    {
                        "workload": { "kind": "Deployment", "namespace": "shop", "name": "web" },
                        "to": "member2", "time": "2026-01-01T00:05:42Z",
                        "applied": "2026-01-01T00:05:43Z", "healthy": "2026-01-01T00:06:00Z",
                    },
                    {
                        "workload": { "kind": "ClusterRole", "name": "read" },
                        "to": "member2,member3", "time": "2026-01-01T00:05:44Z",
                    },
                ],
            },
        }))
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T00:{text}Z").parse().unwrap()
    }

    #[test]
    fn the_spans_tell_how_long_each_step_took() {
        let trace = trace(&record(), at("06:00"));
        let name_of = |id: u64| {
            let span = trace.spans.iter().find(|it| it.id == id);
            span.map_or("", |it| it.name)
        };
        let found = trace.spans.iter().map(|it| {
            (
                name_of(it.parent),
                it.name,
                it.start,
                it.end,
                it.error.is_some(),
            )
        });
        let found: Vec<_> = found.collect();
        let expected = [
            ("", "failover", at("00:00"), at("06:00"), true),
            ("failover", "silence", at("00:00"), at("00:40"), false),
            ("failover", "taint", at("00:40"), at("05:40"), false),
            ("failover", "workload", at("05:40"), at("06:00"), false),
            ("workload", "queue", at("05:40"), at("05:42"), false),
            ("workload", "apply", at("05:42"), at("05:43"), false),
            ("workload", "start", at("05:43"), at("06:00"), false),
            ("failover", "workload", at("05:40"), at("06:00"), true),
            ("workload", "queue", at("05:40"), at("05:44"), false),
            ("failover", "cleanup", at("06:00"), at("09:00"), false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn identifiers_are_the_same_for_the_same_record_and_differ_otherwise() {
        let record = record();
        let first = trace(&record, at("06:00"));
        assert_eq!(trace(&record, at("06:00")), first);
        assert_ne!(trace(&record, at("07:00")).id, first.id);
        let ids: HashSet<u64> = first.spans.iter().map(|it| it.id).collect();
        assert_eq!(ids.len(), first.spans.len());
        assert!(!ids.contains(&0));
    }

    #[test]
    fn a_record_that_knows_nothing_is_a_trace_of_one_span() {
        let trace = trace(&Failover::default(), at("06:00"));
        assert_eq!(trace.spans.len(), 1);
        assert_eq!(trace.spans[0].start, trace.spans[0].end);
    }
}
