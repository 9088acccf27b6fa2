use serde_json::json;

use super::*;
use crate::application_failover::decide::Since;

#[test]
fn the_earlier_of_two_looks_counts() {
    let seconds = Duration::from_secs;
    for (wait, other, expected) in [
        (None, Next::Done, Next::Done),
        (Some(seconds(2)), Next::Done, Next::After(seconds(2))),
        (None, Next::After(seconds(1)), Next::After(seconds(1))),
        (
            Some(seconds(2)),
            Next::After(seconds(1)),
            Next::After(seconds(1)),
        ),
        (
            Some(seconds(2)),
            Next::After(seconds(3)),
            Next::After(seconds(2)),
        ),
        (Some(seconds(2)), Next::Again, Next::Again),
    ] {
        assert_eq!(sooner(wait, other), expected, "{wait:?} {other:?}");
    }
}

#[test]
fn what_is_not_tolerated_at_all_is_to_leave_without_waiting_for_an_event() {
    let spec = serde_json::from_value(json!({"clusters": [{"name": "m1"}]})).unwrap();
    let reports =
        serde_json::from_value::<Vec<_>>(json!([{"clusterName": "m1", "health": "Unhealthy"}]))
            .unwrap();
    let now = Timestamp::from_second(1_000).unwrap();
    let first = decide(Duration::ZERO, &spec, &reports, &Since::new(), now);
    let wait = after(first.next.unwrap(), now);
    assert!(wait <= Duration::from_millis(5), "{wait:?}");
    let then = now + wait;
    let second = decide(Duration::ZERO, &spec, &reports, &first.since, then);
    assert_eq!(second.leave, ["m1"]);
}
