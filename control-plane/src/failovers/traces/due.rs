//! Decides when the trace of a failover is sent.

use jiff::{SignedDuration, Timestamp};
use muster_shared::api::failover_record::{Failover, FailoverStatus};

/// Time for which all workloads that moved have to be healthy: more of them may move, at the pace
/// of the evictions.
const STEADY: SignedDuration = SignedDuration::from_mins(1);
/// Age of a completion beyond which a starting control plane does not send it: the one before did.
const OLD: SignedDuration = SignedDuration::from_mins(15);

/// What is to be done for a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Due {
    /// Its trace is to be sent, which is complete up to this time.
    Now(Timestamp),
    /// It is to be looked at again then.
    At(Timestamp),
    /// Nothing, until it changes.
    Never,
}

/// Returns whether the trace of a record is to be sent. `sent` is the completion up to which this
/// process sent it already.
pub fn due(record: &Failover, sent: Option<Timestamp>, now: Timestamp) -> Due {
    let Some(complete) = record.status.as_ref().and_then(completion) else {
        return Due::Never;
    };
    if sent.is_some_and(|sent| complete <= sent) {
        return Due::Never;
    }
    let steady = complete.saturating_add(STEADY).unwrap_or(Timestamp::MAX);
    if now < steady {
        return Due::At(steady);
    }
    if sent.is_none() && now.duration_since(steady) > OLD {
        return Due::Never;
    }
    Due::Now(complete)
}

/// Time up to which a failover is complete: its end, or the time since which all workloads that
/// moved have been healthy.
fn completion(status: &FailoverStatus) -> Option<Timestamp> {
    let times = &status.times;
    Some(times.ended.as_ref().or(times.healthy.as_ref())?.0)
}

#[cfg(test)]
mod tests {
    use muster_shared::k8s::Time;

    use super::*;

    #[test]
    fn a_trace_is_sent_once_for_each_completion_and_when_it_is_steady() {
        let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
        for (healthy, ended, sent, now, expected) in [
            (None, None, None, 1000, Due::Never),
            (Some(100), None, None, 100, Due::At(at(160))),
            (Some(100), None, None, 159, Due::At(at(160))),
            (Some(100), None, None, 160, Due::Now(at(100))),
            (Some(100), None, Some(100), 500, Due::Never),
            // More workloads moved and are healthy.
            (Some(300), None, Some(100), 500, Due::Now(at(300))),
            // The cluster came back later.
            (Some(100), Some(700), Some(100), 710, Due::At(at(760))),
            (Some(100), Some(700), Some(100), 5000, Due::Now(at(700))),
            (Some(100), Some(700), Some(700), 9000, Due::Never),
            // Nothing moved.
            (None, Some(700), None, 800, Due::Now(at(700))),
            // The control plane started: the one before may not have come to it.
            (Some(100), None, None, 160 + 900, Due::Now(at(100))),
            (Some(100), None, None, 160 + 901, Due::Never),
        ] {
            let mut record = Failover::default();
            let status = record.status.get_or_insert_default();
            let time = |seconds: Option<i64>| seconds.map(at).map(Time);
            (status.times.healthy, status.times.ended) = (time(healthy), time(ended));
            let found = due(&record, sent.map(at), at(now));
            assert_eq!(found, expected, "{healthy:?} {ended:?} {sent:?} {now}");
        }
    }
}
