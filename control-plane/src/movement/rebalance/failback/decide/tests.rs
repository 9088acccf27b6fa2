use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::binding::TargetCluster;

use super::*;

/// Seconds after an arbitrary beginning, at noon in UTC.
fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_014_400 + second).unwrap()
}

/// Returns a cluster that became ready at 0 and is recorded as healthy since 100.
fn cluster(change: impl FnOnce(&mut Value)) -> Cluster {
    let mut cluster = json!({
        "metadata": {"name": "home", "annotations": {HEALTHY_SINCE: at(100).to_string()}},
        "spec": {"syncMode": "Pull"},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
            "lastTransitionTime": at(0).to_string(),
        }]},
    });
    change(&mut cluster);
    serde_json::from_value(cluster).unwrap()
}

fn taint(key: &str, effect: &str) -> impl FnOnce(&mut Value) {
    let taint = json!([{"key": key, "effect": effect}]);
    move |cluster| cluster["spec"]["taints"] = taint
}

fn spec(on: &str, asked: Option<Timestamp>) -> ResourceBindingSpec {
    serde_json::from_value(json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "clusters": [{"name": on, "replicas": 2}],
        "rescheduleTriggeredAt": asked.map(|it| it.to_string()),
    }))
    .unwrap()
}

fn rule(window: &str) -> Rule {
    let times: crate::settings::failback_times::FailbackTimes = window.parse().unwrap();
    Rule {
        after: SignedDuration::from_secs(600),
        window: times.0,
    }
}

/// Returns what a workload left at this time, which is read and in the fleet.
fn home(left: i64, cluster: &Cluster) -> Home<'_> {
    Home {
        name: "home",
        left: at(left),
        cluster: Some(cluster),
        is_gone: false,
    }
}

/// Returns the verdict about a workload that left at 50 and runs elsewhere.
fn verdict(cluster: &Cluster, window: &str, now: Timestamp) -> Verdict {
    let home = home(50, cluster);
    is_due(&spec("away", None), &rule(window), &home, now)
}

#[test]
fn a_workload_returns_when_its_cluster_has_been_healthy_for_long_enough() {
    let well = cluster(|_| {});
    let waits = |since: Timestamp| {
        let after = SignedDuration::from_secs(600);
        let due = since.checked_add(after).unwrap();
        let why = format!("the cluster is healthy since {since}, and has to be so for 600 s");
        Verdict::NotBefore(Some(due), why)
    };
    assert_eq!(verdict(&well, "", at(699)), waits(at(100)));
    assert_eq!(verdict(&well, "", at(700)), Verdict::Due { since: at(100) });
    let back = |since: i64| {
        cluster(|it| {
            it["status"]["conditions"][0]["lastTransitionTime"] = json!(at(since).to_string());
        })
    };
    let flapped = verdict(&back(500), "", at(700));
    assert_eq!(flapped, waits(at(500)), "it was away");
    let ahead = verdict(&back(90_000), "", at(700));
    let due = Verdict::Due { since: at(100) };
    assert_eq!(ahead, due, "its clock is a day ahead");
    let found = is_due(&spec("away", None), &rule(""), &home(300, &well), at(700));
    assert_eq!(found, waits(at(300)), "it left a cluster that was ready");
    let found = is_due(
        &spec("away", None),
        &rule(""),
        &home(90_000, &well),
        at(700),
    );
    assert_eq!(found, due, "our clock was a day ahead when it left");
}

#[test]
fn a_workload_that_has_been_away_for_a_month_longer_than_was_asked_stays_where_it_is() {
    const DAY: i64 = 24 * 60 * 60;
    let well = cluster(|_| {});
    let home = home(100, &well);
    let returns = Verdict::Due { since: at(100) };
    for (after, away, expected) in [
        (600, 30 * DAY, &returns),
        (600, 30 * DAY + 601, &Verdict::Over),
        (40 * DAY, 70 * DAY, &returns),
        (40 * DAY, 70 * DAY + 1, &Verdict::Over),
    ] {
        let rule = Rule {
            after: SignedDuration::from_secs(after),
            window: None,
        };
        let found = is_due(&spec("away", None), &rule, &home, at(100 + away));
        assert_eq!(found, *expected, "{after} {away}");
    }
}

#[test]
fn a_workload_returns_inside_its_window_only() {
    let well = cluster(|_| {});
    let closed = |time: &str| {
        Verdict::NotBefore(
            Some(time.parse().unwrap()),
            "the window is closed".to_owned(),
        )
    };
    // 1800014400 is 2027-01-15T12:00:00Z, a Friday.
    for (window, expected) in [
        ("11:00-13:00", Verdict::Due { since: at(100) }),
        ("22:00-04:00", closed("2027-01-15T22:00:00Z")),
        ("Saturday 11:00-13:00", closed("2027-01-16T11:00:00Z")),
    ] {
        assert_eq!(verdict(&well, window, at(700)), expected, "{window}");
    }
}

#[test]
fn nothing_returns_to_a_cluster_that_is_not_healthy() {
    let ready = |status: &'static str| {
        move |it: &mut Value| it["status"]["conditions"][0]["status"] = json!(status)
    };
    for (what, cluster, expected) in [
        ("silent", cluster(ready("Unknown")), "Ready is Unknown"),
        ("not ready", cluster(ready("False")), "Ready is False"),
        (
            "new",
            cluster(|it| it["status"] = json!({})),
            "not reported yet",
        ),
        (
            "tainted",
            cluster(taint("example.com/failed", "NoExecute")),
            "example.com/failed",
        ),
        (
            "avoided",
            cluster(taint("example.com/slow", "PreferNoExecute")),
            "example.com/slow",
        ),
        ("cordoned", cluster(taint(CORDON, "NoSchedule")), CORDON),
        (
            "drained",
            cluster(taint("failover.muster.io/drain", "NoExecute")),
            "failover.muster.io/drain",
        ),
        (
            "removed",
            cluster(|it| it["metadata"]["deletionTimestamp"] = json!(at(0).to_string())),
            "being removed",
        ),
    ] {
        match verdict(&cluster, "", at(100_000)) {
            Verdict::NotBefore(None, why) => {
                let is_reported = why.starts_with("the cluster is not healthy: ");
                assert!(is_reported && why.contains(expected), "{what}: {why}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    let special = cluster(taint("example.com/gpu", "NoSchedule"));
    assert_eq!(
        unhealthy(&special),
        None,
        "the scheduler asks for tolerations"
    );
    let unrecorded = cluster(|it| it["metadata"]["annotations"] = json!({}));
    assert_eq!(
        verdict(&unrecorded, "", at(100_000)),
        Verdict::NotBefore(None, "the cluster is healthy for a moment only".to_owned())
    );
}

#[test]
fn a_workload_that_was_placed_anew_at_home_has_returned() {
    let well = cluster(|_| {});
    let due = Verdict::Due { since: at(100) };
    for (what, on, asked, is_gone, expected) in [
        ("by request", "home", Some(60), false, &Verdict::Over),
        ("asked before it left", "home", Some(40), false, &due),
        ("a part came home", "home", None, false, &due),
        ("elsewhere by request", "away", Some(60), false, &due),
        ("home has left", "away", None, true, &Verdict::Over),
    ] {
        let home = Home {
            cluster: (!is_gone).then_some(&well),
            is_gone,
            ..home(50, &well)
        };
        let found = is_due(&spec(on, asked.map(at)), &rule(""), &home, at(700));
        assert_eq!(found, *expected, "{what}");
    }
    let unread = Home {
        cluster: None,
        ..home(50, &well)
    };
    let found = is_due(&spec("away", None), &rule(""), &unread, at(700));
    assert!(matches!(found, Verdict::NotBefore(None, _)), "{found:?}");
}

#[test]
fn nothing_returns_unless_the_policy_or_the_fleet_asks_for_it() {
    let of = |failback: Value, flags: &[&str]| {
        let mut spec = spec("away", None);
        let failover = json!({"cluster": {"failback": failback}});
        spec.failover = serde_json::from_value(failover).unwrap();
        let flags: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
        let rule = Rule::of(&spec, &Settings::of_flags(&flags).unwrap())?;
        let window = rule.window.map(|it| format!(" from {}", it.start));
        Some(format!(
            "{}{}",
            rule.after.as_secs(),
            window.unwrap_or_default()
        ))
    };
    let fleet = [
        "--failback=WhenHealthy",
        "--failback-after=1h",
        "--failback-window=22:00-04:00",
    ];
    let window = json!({"start": "01:00", "end": "02:00"});
    for (what, failback, flags, expected) in [
        ("default", Value::Null, &[][..], None),
        ("fleet", Value::Null, &fleet, Some("3600 from 22:00")),
        ("policy", json!({"mode": "WhenHealthy"}), &[], Some("600")),
        (
            "policy against fleet",
            json!({"mode": "Never"}),
            &fleet,
            None,
        ),
        (
            "a word of tomorrow",
            json!({"mode": "Sometimes"}),
            &fleet,
            None,
        ),
        (
            "own time and window",
            json!({"mode": "WhenHealthy", "afterSeconds": 30, "window": window}),
            &fleet,
            Some("30 from 01:00"),
        ),
    ] {
        assert_eq!(of(failback, flags).as_deref(), expected, "{what}");
    }
}

#[test]
fn the_health_of_a_cluster_is_recorded_while_workloads_may_return_to_it() {
    let now = at(800);
    let new = || Some(json!(now.to_string()));
    let without = |it: &mut Value| it["metadata"]["annotations"] = json!({});
    let wrong = |text: String| {
        move |it: &mut Value| it["metadata"]["annotations"] = json!({HEALTHY_SINCE: text})
    };
    let silent = |it: &mut Value| it["status"]["conditions"][0]["status"] = json!("Unknown");
    for (what, cluster, is_home, expected) in [
        ("recorded", cluster(|_| {}), true, None),
        ("not yet", cluster(without), true, new()),
        ("not asked for", cluster(without), false, None),
        ("not any more", cluster(|_| {}), false, None),
        ("failed", cluster(silent), true, Some(Value::Null)),
        (
            "failed, not asked for",
            cluster(silent),
            false,
            Some(Value::Null),
        ),
        (
            "of tomorrow",
            cluster(wrong(at(900).to_string())),
            true,
            new(),
        ),
        ("unreadable", cluster(wrong("x".to_owned())), true, new()),
    ] {
        assert_eq!(record(&cluster, is_home, now), expected, "{what}");
    }
}

#[test]
fn homes_are_read_from_the_annotations_of_a_binding() {
    let binding: AnyBinding = serde_json::from_value(json!({
        "metadata": {"name": "web", "annotations": {
            "failover.muster.io/homes": json!({"m1": at(7).to_string()}).to_string(),
        }},
    }))
    .unwrap();
    assert_eq!(homes(&binding), BTreeMap::from([("m1".to_owned(), at(7))]));
}

fn targets(list: &[(&str, i32)]) -> Vec<TargetCluster> {
    let target = |(name, replicas): &(&str, i32)| json!({"name": name, "replicas": replicas});
    serde_json::from_value(list.iter().map(target).collect()).unwrap()
}

/// Returns the course of a workload that is due in `homes`, by where it is and where it would be.
fn taken<'a>(
    before: &[(&str, i32)],
    after: Option<&[(&str, i32)]>,
    homes: &'a BTreeMap<String, Timestamp>,
    waits: &[&str],
) -> Course<'a> {
    let spec = ResourceBindingSpec {
        clusters: targets(before),
        replicas: before.iter().map(|it| it.1).sum(),
        ..spec("away", None)
    };
    let after = after.map(|it| Decision {
        clusters: targets(it),
        affinity_name: None,
    });
    let waits: Vec<String> = waits.iter().map(|it| (*it).to_owned()).collect();
    course(&spec, after.as_ref(), homes, &waits)
}

#[test]
fn a_placement_brings_a_workload_home_if_it_has_more_there_than_before() {
    let due = BTreeMap::from(["m1", "m2", "m3", "m4"].map(|it| (it.to_owned(), at(100))));
    let before = [("m1", 1), ("m2", 2), ("m3", 2), ("away", 1)];
    for (after, expected) in [
        (&[][..], &[][..]),
        (&[("m1", 1), ("m2", 2), ("away", 1)], &[]),
        (&[("m1", 2), ("m2", 1), ("away", 9)], &["m1"]),
        (&[("m4", 0)], &[]),
        (&[("m4", 5), ("m3", 3), ("m2", 2)], &["m3", "m4"]),
    ] {
        let expected = match expected {
            [] => Course::Stays,
            names => Course::Returns(names.to_vec()),
        };
        let found = taken(&before, Some(after), &due, &[]);
        assert_eq!(found, expected, "{after:?}");
    }
}

#[test]
fn a_return_brings_nothing_to_a_home_that_still_waits_and_ends_once_nothing_would_change() {
    let away = &[("away", 4)][..];
    let (to_a, to_both) = (&[("a", 4)][..], &[("a", 2), ("b", 2)][..]);
    let partly = &[("a", 2), ("c", 2)][..];
    let returns = || Course::Returns(vec!["a"]);
    let is_home = || Course::IsHome(vec!["a".to_owned()]);
    let due = BTreeMap::from([("a".to_owned(), at(100))]);
    for (what, before, after, waits, expected) in [
        ("home", away, Some(to_a), &["b"][..], returns()),
        ("home and elsewhere", away, Some(partly), &["b"], returns()),
        ("to both", away, Some(to_both), &[], returns()),
        // A cluster that has just come back gets nothing by the way.
        ("one waits", away, Some(to_both), &["b"], Course::Stays),
        ("less there", &[("b", 4)], Some(to_both), &["b"], returns()),
        ("elsewhere", away, Some(&[("c", 4)]), &[], Course::Stays),
        // Otherwise it would be placed in thought every minute, for ever.
        ("at home already", to_a, None, &["b"], is_home()),
        ("away for good", away, None, &[], Course::Stays),
        // A share of zero is no home, but for what is not counted.
        (
            "nothing",
            away,
            Some(&[("a", 0), ("away", 4)]),
            &[],
            Course::Stays,
        ),
        (
            "no share",
            &[("a", 0), ("away", 4)],
            None,
            &[],
            Course::Stays,
        ),
        (
            "no count",
            &[("away", 0)],
            Some(&[("a", 0)]),
            &[],
            returns(),
        ),
    ] {
        let found = taken(before, after, &due, waits);
        assert_eq!(found, expected, "{what}");
    }
}
