use super::*;
use crate::clusters::cluster::monitor::tests::{GRACES, ready};

#[test]
fn of_a_large_fleet_exactly_the_silent_clusters_are_due() {
    let start = Instant::now();
    let mut tracker = LivenessTracker::new(GRACES, start);
    let names: Vec<String> = (0..3_500).map(|i| format!("member{i}")).collect();
    for name in &names {
        tracker.cluster(name, Some(&ready("True")), Duration::from_mins(150), start);
    }
    let mut silent = Vec::new();
    for tick in 1..=12_u64 {
        let now = start + Duration::from_secs(10 * tick);
        for (i, name) in names.iter().enumerate() {
            if i % 7 != 0 || tick <= 3 {
                tracker.lease(name, Timestamp::from_second(tick.cast_signed()).ok(), now);
            }
        }
        for name in tracker.due(now).silent {
            tracker.wrote(&name, Silence::Stopped.condition(Timestamp::UNIX_EPOCH));
            silent.push((tick, name));
        }
    }
    assert_eq!(silent.len(), 500);
    assert!(
        silent.iter().all(|(tick, _)| *tick == 8),
        "heard at 30 s, silent right after 70 s, seen at 80 s"
    );
    assert!(tracker.next_timer() > Some(start + Duration::from_mins(2)));
}

#[test]
fn a_cluster_older_than_our_watch_gets_its_start_up_grace_from_us() {
    let start = Instant::now();
    let mut tracker = LivenessTracker::new(GRACES, start);
    for (name, age, seen, until) in [("old", 10_000, 1, 60), ("new", 5, 100, 155)] {
        let [age, seen, until] = [age, seen, until].map(Duration::from_secs);
        tracker.cluster(name, None, age, start + seen);
        let judged = tracker.judge(name, start);
        assert_eq!(judged, Some(Verdict::Until(start + until)), "{name}");
    }
}

#[test]
fn a_cluster_that_reports_and_then_falls_silent_is_due_after_the_monitor_grace() {
    let start = Instant::now();
    let second = |s: u64| start + Duration::from_secs(s);
    let renewal = |s: i64| Timestamp::from_second(s).ok();
    let mut tracker = LivenessTracker::new(GRACES, start);
    let is_new = tracker.cluster("m", None, Duration::ZERO, start);
    assert!(is_new, "its lease is to be reported again");
    let next = tracker.next_timer();
    assert_eq!(next, Some(second(59)), "nothing was heard yet");
    tracker.lease("m", renewal(2), second(2));
    assert!(!tracker.cluster("m", Some(&ready("True")), Duration::ZERO, second(3)));
    // The start-up grace ends with the first report.
    assert_eq!(tracker.next_timer(), Some(second(42)));
    assert!(tracker.due(second(43)).silent.is_empty());
    assert_eq!(tracker.due(second(44)).silent, ["m"]);
}

#[test]
fn the_api_is_asked_about_a_silence_shortly_before_it_is_too_long() {
    let start = Instant::now();
    let millis = |ms: u64| start + Duration::from_millis(ms);
    let mut tracker = LivenessTracker::new(GRACES, start);
    tracker.cluster("dead", Some(&ready("True")), Duration::ZERO, start);
    tracker.cluster("missed", Some(&ready("True")), Duration::ZERO, start);
    let asked = tracker.due(millis(39_001));
    assert_eq!(asked.confirm, ["dead", "missed"]);
    assert!(asked.silent.is_empty());
    assert_eq!(tracker.next_timer(), Some(millis(40_000)));

    tracker.confirmed("dead", millis(39_001));
    tracker.lease("missed", Timestamp::from_second(9).ok(), millis(39_050));
    tracker.confirmed("missed", millis(39_001));
    let over = tracker.due(millis(40_001));
    assert_eq!(over.silent, ["dead"]);
    assert!(over.confirm.is_empty());
    assert!(tracker.is_confirmed("dead", millis(40_001)));
    let is_confirmed = tracker.is_confirmed("dead", millis(41_002));
    assert!(!is_confirmed, "an old answer says nothing");
    let next = tracker.next_timer();
    assert_eq!(next, Some(millis(78_050)), "the renewal counts");
}

#[test]
fn a_cluster_made_again_under_the_same_name_gets_a_start_up_grace_of_its_own() {
    let start = Instant::now();
    let later = start + Duration::from_mins(10);
    for (uid, silent) in [("1", true), ("2", false)] {
        let mut tracker = LivenessTracker::new(GRACES, start);
        tracker.identify("m", Some("1"));
        tracker.cluster("m", None, Duration::ZERO, start);
        tracker.identify("m", Some(uid));
        tracker.cluster("m", None, Duration::ZERO, later);
        assert_eq!(tracker.silence("m", later).is_some(), silent, "uid {uid}");
    }
}

#[test]
fn a_deadline_that_a_renewal_has_put_off_to_the_moment_of_asking_is_asked_about_then() {
    let start = Instant::now();
    let millis = |ms: u64| start + Duration::from_millis(ms);
    let mut tracker = LivenessTracker::new(GRACES, start);
    tracker.cluster("m", Some(&ready("True")), Duration::ZERO, start);
    tracker.lease("m", Timestamp::from_second(9).ok(), millis(1));
    assert_eq!(tracker.due(millis(39_001)), Due::default());
    assert_eq!(tracker.next_timer(), Some(millis(39_001)));
    assert_eq!(tracker.due(millis(39_002)).confirm, ["m"]);
}
