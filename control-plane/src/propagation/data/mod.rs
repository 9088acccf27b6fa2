//! Data arrives before the workload: objects of a replication engine follow the place of a
//! workload, and its copies start when their data is there.
//!
//! The binding of a workload has the rules (`spec.dataReplication`). The binding controller asks
//! here twice. For the binding of an object of the engine, [`facts::roles`] says which value the
//! object has in each cluster; for the binding of a workload, [`gates::closed`] says what keeps its
//! copy from being created in a cluster. Both are functions of Works, their statuses and bindings,
//! so that another process decides the same.
//!
//! The order of a move is: the workload is placed anew, its old copy is removed (or certainly
//! stopped), the object there is demoted, the object in the new cluster is promoted, the gates
//! open, the new copy is created.

mod check;
pub mod facts;
pub mod gates;
pub mod mark;
pub mod roles;
pub mod story;
pub mod wakes;

use jiff::Timestamp;
use muster_shared::conditions;
use muster_shared::k8s::Condition;
use muster_shared::names::condition::{DATA_NOT_READY, DATA_PENDING, WAITING_FOR_ROLE};

use self::gates::{Waiting, not_created, since};

/// Reason of the condition while copies wait for their data.
const DATA: &str = "WaitingForData";
/// Reason of the condition once it is False.
const READY: &str = "DataReady";

/// Returns the condition of a binding whose object or copies wait for data, and once they do not
/// any more; `None` where nothing has to be reported. `role` is what a role waits for.
pub fn condition(
    role: Option<&str>,
    waiting: &Waiting,
    before: &[Condition],
    now: Timestamp,
) -> Option<Condition> {
    let reported = |reason, message: &str| {
        Some(conditions::new(
            DATA_PENDING,
            conditions::TRUE,
            reason,
            message,
            now,
        ))
    };
    if let Some(why) = role {
        return reported(WAITING_FOR_ROLE, why);
    }
    // The time of others has ended, and theirs begins with another change of the condition.
    let is_of_others =
        conditions::is_true(before, DATA_PENDING) && since(before, &waiting.closed).is_none();
    if !waiting.closed.is_empty() && !is_of_others {
        let copies = waiting.closed.iter();
        let copies = copies.map(|(cluster, it)| not_created(cluster) + &it.why);
        let message = copies.collect::<Vec<_>>().join("; ");
        return reported(
            if waiting.is_stuck {
                DATA_NOT_READY
            } else {
                DATA
            },
            &message,
        );
    }
    conditions::is_true(before, DATA_PENDING).then(|| {
        let message = "nothing waits for its data any more";
        conditions::new(DATA_PENDING, conditions::FALSE, READY, message, now)
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::fleet::testing::at;
    use crate::propagation::data::gates::{Closed, judge};

    fn closed(timeout: i64, starts: bool) -> Vec<(String, Closed)> {
        let closed = Closed {
            why: "Replication db is not primary in m2 yet".to_owned(),
            timeout: SignedDuration::from_secs(timeout),
            starts,
            after: None,
        };
        vec![("m2".to_owned(), closed)]
    }

    #[test]
    fn a_copy_that_waits_too_long_is_reported_as_stuck_or_started_as_the_policy_says() {
        for (starts, now, expected, due) in [
            (false, 0, Some("WaitingForData"), Some(60)),
            (false, 59, Some("WaitingForData"), Some(60)),
            (false, 60, Some("DataNotReady"), None),
            (true, 59, Some("WaitingForData"), Some(60)),
            (true, 60, None, None),
        ] {
            let waiting = judge(closed(60, starts), at(0), at(now));
            assert_eq!(waiting.due, due.map(at), "{starts} {now}");
            let reported = condition(None, &waiting, &[], at(now));
            assert_eq!(
                reported.as_ref().map(|it| &*it.reason),
                expected,
                "{starts} {now}"
            );
        }
    }

    #[test]
    fn the_time_of_a_gate_begins_when_the_roles_are_settled() {
        let mut waits = closed(60, true);
        for (after, expected) in [(None, 70), (Some(5), 70), (Some(100), 160)] {
            waits[0].1.after = after.map(at);
            let due = judge(waits.clone(), at(10), at(20)).due;
            assert_eq!(due, Some(at(expected)), "{after:?}");
        }
    }

    #[test]
    fn the_wait_is_counted_from_the_condition_so_that_another_process_counts_on() {
        let first_closed = closed(60, false);
        let waiting = judge(first_closed.clone(), at(10), at(10));
        let first = condition(None, &waiting, &[], at(10)).unwrap();
        let list = conditions::merge(&[], [first]).unwrap();
        assert_eq!(since(&list, &first_closed), Some(at(10)));
        let stuck = judge(closed(60, false), at(10), at(70));
        let stuck = condition(None, &stuck, &list, at(70)).unwrap();
        let list = conditions::merge(&list, [stuck]).unwrap();
        assert_eq!(list[0].last_transition_time.0, at(10));
        let over = condition(None, &Waiting::default(), &list, at(80)).unwrap();
        assert_eq!((&*over.status, &*over.reason), ("False", "DataReady"));
        assert_eq!(since(std::slice::from_ref(&over), &first_closed), None);
        assert_eq!(condition(None, &Waiting::default(), &[over], at(90)), None);
    }

    #[test]
    fn the_wait_in_another_cluster_begins_anew() {
        let report = |cluster: &str, before: &[Condition], now: i64| {
            let mut waits = closed(60, true);
            waits[0].0 = cluster.to_owned();
            let begun = since(before, &waits).unwrap_or_else(|| at(now));
            let waiting = judge(waits, begun, at(now));
            let reported = condition(None, &waiting, before, at(now)).unwrap();
            (conditions::merge(before, [reported]).unwrap(), waiting.due)
        };
        let (list, due) = report("m2", &[], 10);
        assert_eq!(due, Some(at(70)));
        let (list, due) = report("m20", &list, 60);
        assert_eq!((&*list[0].status, due), ("False", Some(at(120))));
        let (list, due) = report("m20", &list, 61);
        assert_eq!((&*list[0].status, due), ("True", Some(at(121))));
        assert_eq!(list[0].last_transition_time.0, at(61));
    }

    #[test]
    fn a_role_that_waits_is_reported_on_the_binding_of_its_object() {
        let reported = condition(Some("m1 is to be demoted"), &Waiting::default(), &[], at(0));
        let reported = reported.unwrap();
        let expected = ("WaitingForRole", "m1 is to be demoted");
        assert_eq!((&*reported.reason, &*reported.message), expected);
    }
}
