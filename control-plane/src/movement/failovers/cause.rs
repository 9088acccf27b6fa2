//! Finds the trouble of a cluster: why workloads have to leave it, and since when.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::ResourceExt;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::failover_record::{Cause, CauseType, Times};
use muster_shared::clock::whole_second;
use muster_shared::conditions;
use muster_shared::k8s::{Taint, Time};
use muster_shared::names::condition::READY;
use muster_shared::names::taint as keys;
use muster_shared::taints::{describe, is_drain};
use muster_shared::text;

use crate::clusters::taint::record::Record;
use crate::fleet::attribution::{Attribution, order};
use crate::movement::eviction::fleet_view::evicts;

/// Entries of a list in a cause at most (the schema's rule).
pub const LONGEST_LIST: usize = 16;
/// A message may not be longer, in bytes (the schema's rule counts characters).
const LONGEST_MESSAGE: usize = 1_024;
/// `reason` of Ready of a cluster that has never reported: it has not failed, it has not begun.
const NEVER_REPORTED: &str = "ClusterStatusNeverUpdated";

/// Reason why workloads have to leave a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// The cause.
    pub cause: Cause,
    /// Time at which the trouble began.
    pub since: Timestamp,
    /// Times of its steps.
    pub times: Times,
    /// Whether it is worth a record although no workload has to leave. Clusters with special
    /// hardware have such taints for ever.
    pub is_failure: bool,
}

/// Returns the trouble of a cluster. `renewed` is the last renewal of its lease.
pub fn trouble(cluster: &Cluster, renewed: Option<Timestamp>, now: Timestamp) -> Option<Trouble> {
    let ready = cluster
        .condition(READY)
        .filter(|it| it.status != conditions::TRUE && it.reason != NEVER_REPORTED);
    let taints: Vec<&Taint> = cluster.spec.taints.iter().filter(|it| evicts(it)).collect();
    let added =
        |taint: &Taint| whole_second(taint.time_added.as_ref().map_or(now, |it| it.0).min(now));
    let tainted = taints.iter().map(|taint| added(taint)).min();
    let policies = policies(cluster, &taints);
    let drain = taints.iter().find(|it| is_drain(it));
    let mut times = Times {
        tainted: tainted.map(Time),
        ..Times::default()
    };
    let (kind, message, since) = if let Some(ready) = ready {
        let changed = whole_second(ready.last_transition_time.0.min(now));
        times.not_ready = Some(Time(changed));
        let (kind, since) = if ready.status == conditions::FALSE {
            (CauseType::ClusterNotReady, changed)
        } else {
            // A lease that was renewed later is that of a cluster that is coming back.
            let renewed = renewed
                .map(whole_second)
                .filter(|renewed| *renewed <= changed);
            times.silent_since = renewed.map(Time);
            (CauseType::ClusterUnreachable, renewed.unwrap_or(changed))
        };
        let message = match times.silent_since {
            Some(_) => format!("silent: its agent last renewed its lease at {since:.0}"),
            None => format!("{}: {}", ready.reason, ready.message),
        };
        (kind, message, since)
    } else if let Some(drain) = drain {
        let order = Attribution::of_command(cluster).filter(|it| it.order == order::DRAIN);
        let order = order.unwrap_or_default();
        let mut message = format!("{} drains the cluster", order.author());
        if !order.reason.is_empty() {
            message = format!("{message}: {}", order.reason);
        }
        (CauseType::Drain, message, added(drain))
    } else {
        let first = taints.iter().min_by_key(|taint| added(taint))?;
        let kind = match policies {
            Some(_) => CauseType::TaintPolicy,
            None => CauseType::Taint,
        };
        let mut message = format!("taint {}", describe(first));
        if let Some(order) = Attribution::of_taint(&cluster.metadata, first) {
            message = format!("{message} {order}");
        }
        (kind, message, added(first))
    };
    let of_condition = |taint: &&Taint| [keys::NOT_READY, keys::UNREACHABLE].contains(&&*taint.key);
    let is_failure =
        ready.is_some() || drain.is_some() || policies.is_some() || taints.iter().any(of_condition);
    let command = || format!("kubectl muster drain {}", cluster.name_any());
    Some(Trouble {
        cause: Cause {
            kind,
            message: text::cut(&message, LONGEST_MESSAGE, "…"),
            taints: taints
                .iter()
                .map(|it| describe(it))
                .take(LONGEST_LIST)
                .collect(),
            policies: policies.into_iter().flatten().take(LONGEST_LIST).collect(),
            command: drain.map(|_| command()),
        },
        since,
        times,
        is_failure,
    })
}

/// Returns the policies that added some of these taints; `None` if no policy did. A policy in the
/// form that Karmada ships does not leave its name.
fn policies(cluster: &Cluster, taints: &[&Taint]) -> Option<BTreeSet<String>> {
    let record = Record::on(cluster)?;
    let mut owned = record
        .taints
        .iter()
        .filter(|owned| {
            let mut taints = taints.iter();
            owned.withdrawn.is_none()
                && taints.any(|it| it.key == owned.key && it.effect == owned.effect)
        })
        .peekable();
    owned.peek()?;
    Some(owned.flat_map(|it| it.held_by.clone()).collect())
}

#[cfg(test)]
mod tests {
    use muster_shared::names::annotation::ORDERED_BY;
    use serde_json::{Value, json};

    use super::*;
    use crate::clusters::taint::record::ANNOTATION;
    use CauseType as C;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn cluster(ready: Option<(&str, &str, i64)>, taints: &Value, record: &Value) -> Cluster {
        let ready = ready.map(|(status, reason, second)| {
            json!([{
                "type": "Ready", "status": status, "reason": reason, "message": "m",
                "lastTransitionTime": at(second).to_string(),
            }])
        });
        serde_json::from_value(json!({
            "metadata": {
                "name": "m1", "annotations": { ANNOTATION: record.to_string() },
            },
            "spec": { "syncMode": "Pull", "taints": taints },
            "status": { "conditions": ready.unwrap_or_else(|| json!([])) },
        }))
        .unwrap()
    }

    fn taint(key: &str, effect: &str, second: i64) -> Value {
        json!({ "key": key, "effect": effect, "timeAdded": at(second).to_string() })
    }

    #[test]
    fn the_cause_is_the_state_of_the_cluster_before_the_taints_that_follow_from_it() {
        let failed = taint("failed", "PreferNoExecute", 50);
        let drain = taint(keys::DRAIN, "NoExecute", 30);
        let no_schedule = taint("cordon", "NoSchedule", 1);
        let unreachable = taint(keys::UNREACHABLE, "NoExecute", 60);
        let owned = json!({ "taints": [
            { "key": "failed", "effect": "PreferNoExecute", "heldBy": ["dead"] },
        ] });
        let withdrawn = json!({ "taints": [
            { "key": "failed", "effect": "PreferNoExecute", "heldBy": ["dead"], "withdrawn": at(1).to_string() },
        ] });
        let none = json!({});
        let unknown = Some(("Unknown", "ClusterStatusUnknown", 40));
        let never = Some(("Unknown", NEVER_REPORTED, 40));
        let ready = Some(("True", "ClusterReady", 0));
        let not_ready = Some(("False", "ClusterNotReachable", 45));
        let nothing = &json!([]);
        let [fails, drains, drained] = [json!([failed]), json!([drain]), json!([drain, failed])];
        let (fails, drains, drained) = (&fails, &drains, &drained);
        let (kept_out, cut_off) = (&json!([no_schedule]), &json!([unreachable]));
        let lost = |since| Some((C::ClusterUnreachable, since, true));
        let cause = |kind, since, is_failure| Some((kind, since, is_failure));
        let ill = cause(C::ClusterNotReady, 45, true);
        let policy = cause(C::TaintPolicy, 50, true);
        let by_hand = cause(C::Taint, 50, false);
        let of_condition = cause(C::Taint, 60, true);
        let drained_since = cause(C::Drain, 30, true);
        for (ready, taints, record, renewed, expected) in [
            (ready, nothing, &none, None, None),
            (ready, kept_out, &none, None, None),
            (None, nothing, &none, None, None),
            (never, nothing, &none, Some(1), None),
            (unknown, nothing, &none, Some(10), lost(10)),
            (unknown, nothing, &none, None, lost(40)),
            // The cluster is coming back: its lease is younger than its condition.
            (unknown, nothing, &none, Some(41), lost(40)),
            (not_ready, nothing, &none, Some(10), ill),
            (unknown, fails, &owned, Some(10), lost(10)),
            (ready, fails, &owned, None, policy),
            (ready, fails, &withdrawn, None, by_hand.clone()),
            (ready, fails, &none, None, by_hand),
            (ready, cut_off, &none, None, of_condition),
            (ready, drained, &owned, None, drained_since),
            // A person's order is older than the silence, and a record says so by its taints.
            (unknown, drains, &none, Some(10), lost(10)),
        ] {
            let found = trouble(&cluster(ready, taints, record), renewed.map(at), at(100));
            let found = found.map(|it| (it.cause.kind, it.since, it.is_failure));
            let expected = expected.map(|(kind, since, failure)| (kind, at(since), failure));
            assert_eq!(found, expected, "{ready:?} {taints} {renewed:?}");
        }
        let both = cluster(unknown, &json!([failed, drain]), &owned);
        let both = trouble(&both, Some(at(10)), at(100)).unwrap();
        assert_eq!(both.cause.policies, ["dead"]);
        assert_eq!(both.cause.taints.len(), 2);
        assert_eq!(both.cause.command.unwrap(), "kubectl muster drain m1");
        assert_eq!(both.times.silent_since, Some(Time(at(10))));
        assert_eq!(both.times.not_ready, Some(Time(at(40))));
        assert_eq!(both.times.tainted, Some(Time(at(30))));
    }

    #[test]
    fn a_taint_that_a_person_ordered_is_reported_with_who_put_it_on_and_why() {
        let order = json!([{
            "order": "taint", "change": "tainted rack:NoExecute", "by": "alice", "reason": "new disks",
        }]);
        for (key, expected) in [
            ("rack", "taint rack:NoExecute by alice: new disks"),
            ("other", "taint other:NoExecute"),
        ] {
            let taints = json!([taint(key, "NoExecute", 10)]);
            let mut cluster = cluster(None, &taints, &json!({}));
            let order = (ORDERED_BY.to_owned(), order.to_string());
            cluster.annotations_mut().extend([order]);
            let found = trouble(&cluster, None, at(100)).unwrap();
            assert_eq!(found.cause.message, expected);
        }
    }

    #[test]
    fn times_have_whole_seconds_and_lie_not_in_the_future() {
        let mut ahead = cluster(None, &json!([taint("k", "NoExecute", 500)]), &json!({}));
        let found = trouble(&ahead, None, at(100)).unwrap();
        assert_eq!(found.since, at(100));
        ahead.spec.taints[0].time_added = None;
        let now = at(100) + jiff::SignedDuration::from_millis(300);
        assert_eq!(trouble(&ahead, None, now).unwrap().since, at(100));
    }
}
