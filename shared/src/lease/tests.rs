use super::*;
use crate::testing;

fn candidate() -> Candidate {
    Candidate {
        namespace: "a".into(),
        name: "b".into(),
        identity: "us".into(),
        timing: Timing::default(),
        annotations: Annotations::default(),
    }
}

#[test]
fn a_lease_that_changed_its_holder_as_often_as_can_be_counted_is_claimed_all_the_same() {
    for (holder, before, after) in [
        ("them", Some(i32::MAX), i32::MAX),
        ("them", Some(3), 4),
        ("them", Some(-1), 0),
        ("them", None, 1),
        ("us", Some(i32::MAX), i32::MAX),
        ("us", Some(3), 3),
    ] {
        let found = LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_transitions: before,
            ..LeaseSpec::default()
        };
        let times = claim(&candidate(), Some(&found)).lease_transitions;
        assert_eq!(times, Some(after), "{holder} {before:?}");
    }
}

#[test]
fn a_renewal_that_comes_too_late_is_a_loss() {
    let now = Moment {
        tick: Instant::now(),
        uptime: Some(Duration::from_secs(9)),
    };
    let (past, future) = (Some(now), Some(now.later(Duration::from_secs(1))));
    let suspended = future.map(|it| Moment {
        uptime: now.uptime,
        ..it
    });
    let unknown = future.map(|it| Moment { uptime: None, ..it });
    let (yes, no) = (Some(true), Some(false));
    let cases = [
        (
            "a follower gets the lease",
            None,
            yes,
            AttemptResult::Leader,
        ),
        ("a follower does not", None, no, AttemptResult::Unchanged),
        (
            "a follower hears nothing",
            None,
            None,
            AttemptResult::Unchanged,
        ),
        ("a leader renews", future, yes, AttemptResult::Leader),
        (
            "a leader hears nothing",
            future,
            None,
            AttemptResult::Unchanged,
        ),
        ("and its time is over", past, None, AttemptResult::Lost),
        ("it renews when it is over", past, yes, AttemptResult::Lost),
        (
            "after it was suspended",
            suspended,
            yes,
            AttemptResult::Lost,
        ),
        ("without an uptime", unknown, yes, AttemptResult::Leader),
        ("somebody else took it", future, no, AttemptResult::Lost),
    ];
    for (what, until, ours, expected) in cases {
        assert_eq!(judge(until, ours, now), expected, "{what}");
    }
}

#[test]
fn a_leader_whose_machine_was_suspended_for_too_long_may_not_act() {
    let leadership = Leadership::elected();
    let end = Moment::now().later(Duration::from_mins(1));
    for (uptime, expected) in [
        (end.uptime, true),
        (None, true),
        (Some(Duration::ZERO), false),
    ] {
        let until = Moment { uptime, ..end };
        leadership.until.send_replace(Some(until));
        assert_eq!(leadership.is_current(), expected, "{uptime:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_knows_before_which_read_the_leader_made_its_annotations() {
    let shown = std::sync::Arc::new(parking_lot::Mutex::new(json!({})));
    let answer = std::sync::Arc::clone(&shown);
    let client = testing::api(move |_| (200, answer.lock().to_string()));
    let api: Api<Lease> = Api::namespaced(client, "a");
    let (mut observed, begun) = (Observed::default(), Instant::now());
    // Version, second of the renewal, and the second since which the annotations are known to be.
    for (second, version, renewed, since) in [
        (0, 1, 0, None),
        (2, 1, 0, None),
        (4, 2, 3, None),
        (6, 3, 5, Some(2)),
        (8, 4, 5, Some(2)),
        (10, 5, 9, Some(4)),
    ] {
        let renewed = format!("2026-01-01T00:00:{renewed:02}.000000Z");
        *shown.lock() = json!({
            "metadata": { "name": "b", "resourceVersion": version.to_string(), "annotations": { "v": version.to_string() } },
            "spec": { "holderIdentity": "leader", "leaseDurationSeconds": 15, "renewTime": renewed },
        });
        let now = begun + Duration::from_secs(second);
        let claim = attempt(&api, &candidate(), &mut observed, now)
            .await
            .unwrap();
        assert!(matches!(claim, Claim::Held(holder) if holder == "leader"));
        let last_renewal = observed.last_renewal.as_ref();
        let found = last_renewal.map(|it| (it.since - begun).as_secs());
        assert_eq!(found, since, "at {second}");
        if second == 10 {
            assert_eq!(last_renewal.unwrap().annotations["v"], "5");
        }
    }
}
