use super::*;

#[test]
fn a_lease_that_changed_hands_as_often_as_can_be_counted_is_claimed_all_the_same() {
    let candidate = Candidate {
        namespace: "a".into(),
        name: "b".into(),
        identity: "us".into(),
        timing: Timing::default(),
        annotations: Annotations::default(),
    };
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
        let claimed = claim(&candidate, Some(&found));
        assert_eq!(
            claimed.lease_transitions,
            Some(after),
            "{holder} {before:?}"
        );
    }
}

#[test]
fn a_renewal_that_comes_too_late_is_a_loss() {
    let now = Instant::now();
    let (past, future) = (Some(now), Some(now + Duration::from_secs(1)));
    let cases = [
        (
            "a follower gets the lease",
            None,
            Some(true),
            Standing::Leader,
        ),
        (
            "a follower does not get it",
            None,
            Some(false),
            Standing::Unchanged,
        ),
        ("a follower hears nothing", None, None, Standing::Unchanged),
        ("a leader renews", future, Some(true), Standing::Leader),
        (
            "a leader hears nothing and has time",
            future,
            None,
            Standing::Unchanged,
        ),
        (
            "a leader hears nothing until its time is over",
            past,
            None,
            Standing::Lost,
        ),
        (
            "a leader renews when its time is over",
            past,
            Some(true),
            Standing::Lost,
        ),
        (
            "somebody else took the lease",
            future,
            Some(false),
            Standing::Lost,
        ),
    ];
    for (what, until, ours, expected) in cases {
        assert_eq!(judge(until, ours, now), expected, "{what}");
    }
}
