use std::cell::Cell;

use super::*;
use crate::fleet::testing::at;
use muster_shared::api::policy::PurgeMode;
use muster_shared::k8s::RawExtension;
use serde_json::{Value, json};

fn task(grace: Option<i32>) -> GracefulEvictionTask {
    GracefulEvictionTask {
        from_cluster: "old".into(),
        purge_mode: Some(PurgeMode::Gracefully),
        grace_period_seconds: grace,
        creation_timestamp: Some(Time(at(0))),
        ..GracefulEvictionTask::default()
    }
}

fn target(name: &str, replicas: i32) -> TargetCluster {
    TargetCluster {
        name: name.into(),
        replicas,
        ..TargetCluster::default()
    }
}

fn report(name: &str, health: ResourceHealth, status: Option<Value>) -> AggregatedStatusItem {
    AggregatedStatusItem {
        cluster_name: name.into(),
        health: Some(health),
        status: status.map(RawExtension),
        ..AggregatedStatusItem::default()
    }
}

/// Returns facts of a binding that is in order: the clusters are sound and have applied its Works.
pub(super) fn facts<'a>(
    clusters: &'a [TargetCluster],
    reports: &'a [AggregatedStatusItem],
) -> Facts<'a> {
    Facts {
        clusters,
        reports,
        work: &|_| WorkState::Applied,
        awaits: &|_| false,
        scheduled: true,
        cluster: &|_| PlaceState::Sound,
        plugins: EvictPlugins::default(),
        least: &|_, share| share,
        has_rule: false,
        counts_replicas: false,
        restores: true,
        is_over: &|_| false,
        asks_for_none: false,
    }
}

/// Returns what becomes of a task.
fn end(task: GracefulEvictionTask, facts: &Facts<'_>, now: i64) -> Option<Done> {
    let done = assess(&[task], facts, at(now)).done;
    done.first().map(|(_, done)| *done)
}

/// Where it is placed, what is reported, the state of clusters, what becomes of the task.
type Row<'a> = (
    &'a [TargetCluster],
    &'a [AggregatedStatusItem],
    &'a dyn Fn(&str) -> PlaceState,
    Option<Done>,
);

#[test]
fn the_old_copy_stays_until_a_replacement_is_placed_and_healthy() {
    use ResourceHealth::{Healthy, Unhealthy, Unknown};
    let new = [target("new", 0)];
    let sound: &dyn Fn(&str) -> PlaceState = &|name| {
        if name == "old" {
            PlaceState::Silent
        } else {
            PlaceState::Sound
        }
    };
    let everyone_silent: &dyn Fn(&str) -> PlaceState = &|_| PlaceState::Silent;
    let healthy = [report("new", Healthy, None)];
    let cases: [Row<'_>; 6] = [
        (&new, &healthy, sound, Some(Done::Replaced)),
        (&new, &[report("new", Unhealthy, None)], sound, None),
        (&new, &[report("new", Unknown, None)], sound, None),
        (&new, &[], sound, None),
        (&new, &healthy, everyone_silent, None),
        (&[], &healthy, sound, None),
    ];
    for (n, (clusters, reports, state, expected)) in cases.into_iter().enumerate() {
        let facts = Facts {
            cluster: state,
            ..facts(clusters, reports)
        };
        assert_eq!(end(task(None), &facts, 100_000), expected, "case {n}");
    }
}

#[test]
fn a_grace_period_ends_the_task_only_if_there_is_a_replacement_on_a_cluster_that_lives() {
    let old_is_silent = |new: PlaceState| {
        move |name: &str| {
            if name == "old" {
                PlaceState::Silent
            } else {
                new
            }
        }
    };
    let one = [target("new", 1)];
    for (clusters, new, now, expected) in [
        (&one[..], PlaceState::Sound, 60, None),
        (&one, PlaceState::Sound, 61, Some(Done::Expired)),
        (&one, PlaceState::Silent, 61, None),
        (&one, PlaceState::Left, 61, None),
        (&one, PlaceState::Gone, 61, None),
        (&[], PlaceState::Sound, 61, None),
    ] {
        let facts = Facts {
            cluster: &old_is_silent(new),
            ..facts(clusters, &[])
        };
        let done = end(task(Some(60)), &facts, now);
        assert_eq!(done, expected, "{clusters:?} {new:?} at {now}");
    }
}

#[test]
fn one_copy_that_lives_ends_the_grace_period_all_must_be_healthy_and_a_share_of_zero_is_no_copy() {
    let state: &dyn Fn(&str) -> PlaceState = &|name| match name {
        "silent" => PlaceState::Silent,
        "left" => PlaceState::Left,
        _ => PlaceState::Sound,
    };
    let reports = ["new", "left", "empty", "silent"];
    let reports = reports.map(|name| report(name, ResourceHealth::Healthy, None));
    let (expired, replaced) = (Some(Done::Expired), Some(Done::Replaced));
    for (shares, grace, expected) in [
        (&[("new", 0), ("silent", 0)][..], Some(1), expired),
        (&[("new", 0), ("silent", 0)], None, None),
        (&[("new", 0), ("left", 0)], None, replaced),
        (&[("left", 0)], None, None),
        (&[("left", 0), ("silent", 0)], Some(1), None),
        // Where one has replicas, the others have none.
        (&[("new", 2), ("silent", 0)], None, replaced),
        (&[("new", 2), ("silent", 2)], None, None),
        (&[("silent", 2), ("empty", 0)], None, None),
        (&[("silent", 2), ("empty", 0)], Some(1), None),
        (&[("silent", 2), ("new", 2)], Some(1), expired),
    ] {
        let clusters = shares.iter().map(|(name, share)| target(name, *share));
        let clusters: Vec<TargetCluster> = clusters.collect();
        let facts = Facts {
            cluster: state,
            ..facts(&clusters, &reports)
        };
        let done = end(task(grace), &facts, 100);
        assert_eq!(done, expected, "{shares:?} {grace:?}");
        let waits = missing(&task(None), &facts, at(100));
        let names_empty = waits.iter().any(|it| it.contains("empty"));
        assert!(!names_empty, "{shares:?}: {waits:?}");
    }
}

#[test]
fn a_task_that_a_clock_dated_far_ahead_counts_from_the_moment_in_which_that_is_seen() {
    let new = [target("new", 0)];
    let facts = facts(&new, &[]);
    // The clock of another process may be ahead by some seconds.
    for (dated, expected) in [(-5, -5), (30, 30), (60, 60), (61, 0), (86_400, 0)] {
        let task = GracefulEvictionTask {
            creation_timestamp: Some(Time(at(dated))),
            ..task(Some(30))
        };
        let Assessment {
            kept, done, again, ..
        } = assess(&[task], &facts, at(0));
        let created = kept[0].creation_timestamp.as_ref().map(|it| it.0);
        assert_eq!(created, Some(at(expected)), "{dated}");
        assert_eq!(
            (done, again),
            (Vec::new(), Some(at(expected + 30))),
            "{dated}"
        );
    }
}

#[test]
fn any_plugin_in_force_ends_a_task_and_none_that_is_switched_off() {
    let back = [target("old", 1)];
    let moved = [target("new", 1)];
    let reports = ["old", "new"].map(|name| report(name, ResourceHealth::Healthy, None));
    for (plugins, clusters, expected) in [
        ("*", &back, Some(Done::BackInPlace)),
        ("*", &moved, Some(Done::Replaced)),
        ("BackInResult", &back, Some(Done::BackInPlace)),
        ("BackInResult", &moved, None),
        ("ResourceHealth", &back, Some(Done::BackInPlace)),
        ("ResourceHealth", &moved, Some(Done::Replaced)),
    ] {
        for healthy in [true, false] {
            let facts = Facts {
                plugins: EvictPlugins::parse(&plugins.parse().unwrap()).unwrap(),
                ..facts(clusters, if healthy { &reports } else { &[] })
            };
            let needs_health = plugins == "ResourceHealth" || clusters == &moved;
            let expected = expected.filter(|_| healthy || !needs_health);
            let done = end(task(None), &facts, 10);
            assert_eq!(done, expected, "{plugins} {clusters:?} {healthy}");
        }
    }
}

#[test]
fn what_ends_a_task_removes_no_copy_in_a_cluster_that_has_the_workload_again() {
    let (back, moved) = ([target("old", 1)], [target("new", 1)]);
    let plugins = "ResourceHealth".parse().unwrap();
    for (clusters, suppressed, is_over, expected) in [
        (&back, Some(false), false, Some(Done::BackInPlace)),
        (&back, None, true, Some(Done::BackInPlace)),
        (&back, None, false, None),
        (&moved, Some(false), false, Some(Done::Released)),
        (&moved, None, true, Some(Done::Over)),
    ] {
        let facts = Facts {
            plugins: EvictPlugins::parse(&plugins).unwrap(),
            is_over: &|_| is_over,
            ..facts(clusters, &[])
        };
        let task = GracefulEvictionTask {
            suppress_deletion: suppressed,
            ..task(None)
        };
        let done = end(task, &facts, 10);
        assert_eq!(done, expected, "{clusters:?} {suppressed:?} {is_over}");
    }
}

#[test]
fn suppression_keeps_the_copy_until_it_is_lifted_whatever_else_is_true() {
    let reports = [report("new", ResourceHealth::Healthy, None)];
    for (suppressed, clusters, expected) in [
        (Some(true), &[target("new", 1)][..], None),
        (Some(false), &[target("new", 1)], Some(Done::Released)),
        (None, &[target("new", 1)], Some(Done::Replaced)),
        // The scheduler took the cluster back: there is nothing to keep any more.
        (Some(true), &[target("old", 1)], Some(Done::BackInPlace)),
    ] {
        let facts = facts(clusters, &reports);
        let task = GracefulEvictionTask {
            suppress_deletion: suppressed,
            ..task(None)
        };
        let done = end(task, &facts, 10_000);
        assert_eq!(done, expected, "{suppressed:?}");
    }
}

#[test]
fn a_survivor_must_have_scaled_up_or_run_what_its_member_asks_for_before_its_health_counts() {
    let counts = |replicas: i64, ready: i64| json!({"replicas": replicas, "readyReplicas": ready});
    let available = json!({"replicas": 3, "availableReplicas": 3});
    for (members_scale, share, status, is_replaced) in [
        (true, 10, counts(4, 4), true),
        (true, 10, counts(4, 3), false),
        (true, 10, counts(12, 12), true),
        (true, 10, counts(12, 10), true),
        // One has to be ready at least.
        (true, 10, json!({"replicas": 0}), false),
        (false, 10, counts(4, 4), false),
        (false, 3, counts(2, 2), false),
        (false, 3, counts(3, 2), false),
        (false, 3, json!({"replicas": 3}), false),
        (false, 3, counts(3, 3), true),
        (false, 3, available, true),
        (false, 3, json!({"numberReady": 1}), true),
    ] {
        let targets = [target("new", share)];
        let reports = [report("new", ResourceHealth::Healthy, Some(status.clone()))];
        let facts = Facts {
            least: &|_, share| if members_scale { share.min(1) } else { share },
            ..facts(&targets, &reports)
        };
        let done = end(task(None), &facts, 10);
        let expected = is_replaced.then_some(Done::Replaced);
        assert_eq!(done, expected, "{status} {members_scale} {share}");
    }
}

#[test]
fn a_cluster_that_is_chosen_again_or_recovers_without_replacement_keeps_its_copy() {
    let sound: &dyn Fn(&str) -> PlaceState = &|_| PlaceState::Sound;
    let left: &dyn Fn(&str) -> PlaceState = &|_| PlaceState::Left;
    let gone: &dyn Fn(&str) -> PlaceState = &|_| PlaceState::Gone;
    let both = [target("old", 1), target("new", 1)];
    let [well, ill] = [ResourceHealth::Healthy, ResourceHealth::Unhealthy]
        .map(|health| [report("old", health, None)]);
    let taint = "TaintUntolerated";
    for (clusters, state, reason, reports, expected) in [
        (&both[..], left, taint, &ill, Some(Done::BackInPlace)),
        (&[], sound, taint, &ill, Some(Done::Recovered)),
        (&[], left, taint, &well, None),
        (&[], gone, taint, &well, Some(Done::ClusterGone)),
        // The cluster was sound when the application failed there: another scheduler has still to
        // choose.
        (&[], sound, "ApplicationFailure", &ill, None),
        (
            &[],
            sound,
            "ApplicationFailure",
            &well,
            Some(Done::Recovered),
        ),
        (&[], left, "ApplicationFailure", &well, None),
        (&[], sound, "NotApplied", &ill, None),
        (&[], sound, "NotApplied", &well, Some(Done::Recovered)),
    ] {
        let facts = Facts {
            cluster: state,
            ..facts(clusters, reports)
        };
        let task = GracefulEvictionTask {
            reason: reason.to_owned(),
            ..task(None)
        };
        let done = end(task, &facts, 10);
        assert_eq!(done, expected, "{reason} {reports:?}");
        assert!(done.is_none_or(|done| !done.removes_the_copy()));
    }
}

#[test]
fn a_failing_application_is_put_back_where_another_scheduler_has_chosen_no_cluster_in_time() {
    let ill = [report("old", ResourceHealth::Unhealthy, None)];
    let new = [target("new", 1)];
    for (what, grace, restores, clusters, limit) in [
        ("its policy sets a time", Some(60), true, &[][..], Some(60)),
        ("its policy sets none", None, true, &[], Some(600)),
        ("it is placed by our scheduler", None, false, &[], None),
        ("another cluster was chosen", None, true, &new, None),
    ] {
        let facts = Facts {
            restores,
            has_rule: true,
            ..facts(clusters, &ill)
        };
        for reason in ["ApplicationFailure", "NotApplied"] {
            let task = GracefulEvictionTask {
                reason: reason.to_owned(),
                ..task(grace)
            };
            let waits = assess(std::slice::from_ref(&task), &facts, at(10));
            assert!(waits.done.is_empty(), "{what} {reason}");
            assert_eq!(waits.again, limit.map(at), "{what} {reason}");
            let late = limit.unwrap_or(100_000) + 1;
            let expected = limit.map(|_| Done::Recovered);
            assert_eq!(end(task, &facts, late), expected, "{what} {reason}");
        }
    }
}

#[test]
fn the_state_for_the_new_copy_outlasts_the_cluster_that_it_comes_from() {
    let gone: &dyn Fn(&str) -> PlaceState = &|name| {
        if name == "old" {
            PlaceState::Gone
        } else {
            PlaceState::Sound
        }
    };
    let new = [target("new", 1)];
    let healthy = [report("new", ResourceHealth::Healthy, None)];
    let with_state = |mode| GracefulEvictionTask {
        purge_mode: Some(mode),
        preserved_label_state: BTreeMap::from([("job".to_owned(), "7f".to_owned())]),
        ..task(None)
    };
    let (given, not_given) = (
        with_state(PurgeMode::Directly),
        with_state(PurgeMode::Gracefully),
    );
    let over = Some(Done::ClusterGone);
    for (task, clusters, reports, expected) in [
        (&given, &new[..], &healthy[..], Some(Done::Replaced)),
        (&given, &new, &[], None),
        (&given, &[], &[], over),
        (&not_given, &new, &[], over),
        (&task(None), &new, &[], over),
    ] {
        let facts = Facts {
            cluster: gone,
            ..facts(clusters, reports)
        };
        let assessment = assess(std::slice::from_ref(task), &facts, at(100_000));
        let done = assessment.done.first().map(|(_, done)| *done);
        assert_eq!(done, expected, "{task:?} {clusters:?} {reports:?}");
    }
}

#[test]
fn what_is_put_back_is_a_target_in_the_write_that_ends_its_task() {
    let tasks = [GracefulEvictionTask {
        replicas: Some(3),
        ..task(None)
    }];
    let check = |restores| {
        let facts = Facts {
            restores,
            ..facts(&[], &[])
        };
        assess(&tasks, &facts, at(10))
    };
    let restored = check(true);
    assert_eq!(restored.restored, [target("old", 3)]);
    assert!(restored.kept.is_empty());
    let left_to_the_scheduler = check(false);
    assert_eq!(left_to_the_scheduler.restored, []);
    assert_eq!(
        left_to_the_scheduler.kept, tasks,
        "the task keeps the only copy until the scheduler has placed the workload"
    );
}

#[test]
fn nothing_replaces_what_nobody_wants_any_more() {
    let new = [target("new", 0)];
    let kept = GracefulEvictionTask {
        suppress_deletion: Some(true),
        ..task(None)
    };
    let none = &[][..];
    for (what, asks_for_none, (scheduled, restores), clusters, task, expected) in [
        ("scaled down", true, (true, true), none, task(None), true),
        ("not yet", true, (false, true), none, task(None), false),
        // While no cluster fits, our scheduler observes no generation.
        ("withdrawn", true, (false, false), none, task(None), true),
        (
            "it wants some",
            false,
            (true, false),
            none,
            task(None),
            false,
        ),
        ("it has one", true, (true, false), &new, task(None), false),
        ("a person keeps it", true, (true, false), none, kept, false),
    ] {
        let facts = Facts {
            scheduled,
            restores,
            asks_for_none,
            ..facts(clusters, &[])
        };
        let done = assess(&[task], &facts, at(10)).done;
        let is_unwanted = matches!(done.as_slice(), [(_, Done::Unwanted)]);
        assert_eq!(is_unwanted, expected, "{what}");
    }
    assert!(Done::Unwanted.removes_the_copy());
}

#[test]
fn a_copy_runs_where_its_cluster_is_ready_and_has_applied_it_and_says_that_it_is_healthy() {
    use PlaceState::{Gone, Left, Silent, Sound};
    use ResourceHealth::{Healthy, Unhealthy, Unknown};
    use WorkState::{Absent, Applied, Refused, Sent};
    for state in [Sound, Left, Silent, Gone] {
        for work in [Absent, Sent, Refused, Applied] {
            let facts = Facts {
                cluster: &|_| state,
                work: &|_| work,
                ..facts(&[], &[])
            };
            let is_made = work == Applied && [Sound, Left].contains(&state);
            for (health, is_healthy) in [(Healthy, true), (Unhealthy, false), (Unknown, false)] {
                let report = report("new", health, None);
                let runs = facts.runs("new", Some(&report), 1);
                assert_eq!(runs, is_made && is_healthy, "{state:?} {work:?} {report:?}");
            }
            assert!(!facts.runs("new", None, 1), "{state:?} {work:?}");
        }
    }
}

#[test]
fn time_ends_no_task_before_something_was_applied_in_a_chosen_cluster_that_lives() {
    use WorkState::{Absent, Applied, Refused, Sent};
    let two = [target("dead", 1), target("new", 1)];
    let one = [target("new", 1)];
    let more = [target("there", 1), target("new", 1)];
    let expired = Some(Done::Expired);
    let back = Some(Done::BackInPlace);
    for (what, works, clusters, expected) in [
        ("it was applied", &[("new", Applied)][..], &one[..], expired),
        ("nothing was sent", &[], &one, None),
        ("it was only sent", &[("new", Sent)], &one, None),
        ("it was refused", &[("new", Refused)], &one, None),
        ("in place", &[], &[target("old", 1)], back),
        // One of them lives.
        (
            "both",
            &[("new", Applied), ("dead", Applied)],
            &two,
            expired,
        ),
        ("in one that is silent", &[("dead", Applied)], &two, None),
        // A silent one is not waited for.
        ("in the other", &[("new", Applied)], &two, expired),
        // One that had a copy before is no replacement as long as there is another to come.
        ("in the other, not yet", &[("there", Applied)], &more, None),
        (
            "refused in the other",
            &[("there", Applied), ("new", Refused)],
            &more,
            expired,
        ),
        (
            "in both",
            &[("there", Applied), ("new", Applied)],
            &more,
            expired,
        ),
    ] {
        let order = |cluster: &str| {
            let mut works = works.iter();
            let work = works.find(|(name, _)| *name == cluster);
            work.map_or(Absent, |(_, order)| *order)
        };
        let facts = Facts {
            work: &order,
            awaits: &|cluster| matches!(order(cluster), Absent | Sent),
            cluster: &|cluster| match cluster {
                "dead" => PlaceState::Silent,
                _ => PlaceState::Sound,
            },
            plugins: EvictPlugins::parse(&"ResourceHealth".parse().unwrap()).unwrap(),
            ..facts(clusters, &[])
        };
        let got = end(task(Some(60)), &facts, 61);
        assert_eq!(got, expected, "{what}");
    }
}

#[test]
fn what_is_still_to_be_given_is_asked_of_each_target_once_for_all_tasks() {
    let asked = Cell::new(0);
    let clusters = [target("new", 1), target("more", 1)];
    let facts = Facts {
        awaits: &|_| {
            asked.set(asked.get() + 1);
            false
        },
        ..facts(&clusters, &[])
    };
    let tasks = ["old", "older", "oldest"].map(|name| GracefulEvictionTask {
        from_cluster: name.into(),
        ..task(Some(60))
    });
    assert_eq!(assess(&tasks, &facts, at(60)).done.len(), 0);
    assert_eq!(asked.get(), 0, "no task asks for it");
    assert_eq!(assess(&tasks, &facts, at(61)).done.len(), 3);
    assert_eq!(asked.get(), 2);
}

/// Returns what becomes of the task of `old` some seconds after its creation, when every new copy
/// is said to be healthy.
fn replaces(
    old: Option<&Value>,
    new: &[(&str, Option<Value>)],
    has_rule: bool,
    now: i64,
) -> Assessment {
    let mut reports = vec![report("old", ResourceHealth::Unknown, old.cloned())];
    let healthy = |(name, status): &(&str, Option<Value>)| {
        report(name, ResourceHealth::Healthy, status.clone())
    };
    reports.extend(new.iter().map(healthy));
    let clusters: Vec<TargetCluster> = new.iter().map(|(name, _)| target(name, 0)).collect();
    let facts = Facts {
        has_rule,
        ..facts(&clusters, &reports)
    };
    assess(&[task(None)], &facts, at(now))
}

#[test]
fn a_healthy_copy_of_a_kind_without_a_rule_reports_its_health_where_the_old_one_did() {
    let said = |name: &str, status: &str| json!({"conditions": [{"type": name, "status": status}]});
    let [none, empty, null] = [None, Some(json!({})), Some(Value::Null)];
    let [ready, unready] = ["True", "False"].map(|it| Some(said("Ready", it)));
    let [failed, suspended] = ["Failed", "Suspended"].map(|it| Some(said(it, "True")));
    let running = Some(json!({"active": 1, "startTime": "2026-01-01T00:00:00Z"}));
    let phase = Some(json!({"phase": "Running"}));
    let observed = Some(json!({"observedGeneration": 1}));
    let scheduled = Some(json!({"lastScheduleTime": "2026-01-01T00:00:00Z"}));
    // Status of the old copy, that of the new one, and whether the new one replaces the old
    // one soon after the task was created, and late.
    for (old, new, soon, late) in [
        (&none, &none, true, true),
        (&empty, &none, true, true),
        (&null, &none, true, true),
        (&none, &ready, true, true),
        (&ready, &none, false, true),
        (&ready, &empty, false, true),
        (&ready, &phase, false, true),
        (&ready, &ready, true, true),
        (&ready, &observed, true, true),
        // Karmada's agent calls each of these healthy.
        (&ready, &unready, false, false),
        (&none, &unready, false, false),
        (&running, &failed, false, false),
        (&running, &none, false, true),
        (&running, &running, true, true),
        // A Job that waits for a quota does not run.
        (&running, &suspended, false, false),
        (&suspended, &suspended, true, true),
        // What is written only when something happens says nothing of health.
        (&scheduled, &none, true, true),
    ] {
        let replaces = |has_rule, now| {
            let new = [("new", new.clone())];
            replaces(old.as_ref(), &new, has_rule, now).done.len() == 1
        };
        assert_eq!(replaces(false, 299), soon, "{old:?} -> {new:?}");
        assert_eq!(replaces(false, 300), late, "{old:?} -> {new:?}");
        // A rule has seen all of that.
        assert!(replaces(true, 1), "{old:?} -> {new:?}");
    }
    let waits = replaces(ready.as_ref(), &[("new", None)], false, 1);
    assert_eq!(waits.again, Some(at(300)));
}

#[test]
fn a_daemon_set_that_no_node_is_to_run_replaces_none_that_ran() {
    let daemons = |desired: i64| Some(json!({"desiredNumberScheduled": desired}));
    for (old, new, expected) in [
        (daemons(3), vec![daemons(0)], false),
        (daemons(3), vec![daemons(1)], true),
        (daemons(3), vec![daemons(2), daemons(0)], true),
        (daemons(0), vec![daemons(0)], true),
        (None, vec![daemons(0)], true),
    ] {
        let names = ["a", "b"];
        let new: Vec<_> = names.into_iter().zip(new).collect();
        let outcome = replaces(old.as_ref(), &new, true, 100_000);
        assert_eq!(outcome.done.len() == 1, expected, "{old:?} -> {new:?}");
    }
}

#[test]
fn an_event_says_why_a_task_is_done_and_whether_the_old_copy_goes_with_it() {
    for (done, why, removes) in [
        (Done::Replaced, "replacement is healthy", true),
        (Done::Expired, "grace period is over", true),
        (Done::Released, "suppressDeletion", true),
        (Done::BackInPlace, "placed there again", false),
        (Done::Recovered, "copy recovered", false),
        (Done::ClusterGone, "left the fleet", false),
    ] {
        assert!(done.describe().contains(why), "{}", done.describe());
        assert_eq!(done.removes_the_copy(), removes, "{why}");
    }
}

#[test]
fn no_old_copy_is_removed_while_movement_is_paused_and_what_removes_none_goes_on() {
    let from = |cluster: &str| GracefulEvictionTask {
        from_cluster: cluster.into(),
        ..task(None)
    };
    let tasks = ["a", "b", "c", "d", "e"].map(from);
    let done = [
        ("a", Done::Replaced),
        ("b", Done::Expired),
        ("c", Done::BackInPlace),
        // The workload is scaled to zero, and its other copies go as well.
        ("e", Done::Unwanted),
    ];
    let assessment = Assessment {
        kept: vec![from("d")],
        done: done
            .map(|(cluster, done)| (cluster.to_owned(), done))
            .to_vec(),
        ..Assessment::default()
    };
    for (paused, kept) in [("", "d"), ("a", "a d"), ("abcde", "a b d")] {
        let held = assessment
            .clone()
            .while_paused(&tasks, |cluster| paused.contains(cluster));
        let names: Vec<&str> = held
            .kept
            .iter()
            .map(|it| it.from_cluster.as_str())
            .collect();
        assert_eq!(names.join(" "), kept);
        assert_eq!(held.done.len() + held.kept.len(), tasks.len());
        assert!(held.done.iter().any(|(cluster, _)| cluster == "c"));
    }
}

#[test]
fn a_pause_keeps_the_old_copy_and_not_the_state_that_its_healthy_successor_was_given() {
    let moved = GracefulEvictionTask {
        purge_mode: Some(PurgeMode::Directly),
        preserved_label_state: BTreeMap::from([("job".to_owned(), "7f".to_owned())]),
        clusters_before_failover: vec!["old".into()],
        ..task(None)
    };
    let targets = [target("new", 0)];
    let reports = [report("new", ResourceHealth::Healthy, None)];
    let tasks = [moved];
    let held = assess(&tasks, &facts(&targets, &reports), at(1)).while_paused(&tasks, |_| true);
    let [kept] = &held.kept[..] else {
        panic!("{held:?}");
    };
    // When the successor fails, too, `eviction::plan` would hand on the state of days ago.
    let state = &kept.preserved_label_state;
    assert!(state.is_empty(), "it was healthy with it: {state:?}");
}

#[test]
fn a_copy_without_replicas_replaces_none_that_has_some() {
    let of = |version: &str, kind: &str| {
        let resource = json!({"apiVersion": version, "kind": kind, "name": "web"});
        json!({"resource": resource, "replicas": 2})
    };
    let deployment = of("apps/v1", "Deployment");
    let rollout = of("argoproj.io/v1alpha1", "Rollout");
    let job = of("batch/v1", "Job");
    let unsaid = Value::Null;
    let counted = |replicas: i32| json!({"replicas": replicas, "readyReplicas": replicas});
    let (one, two, active) = (counted(1), counted(2), json!({"active": 2}));
    // Kubernetes leaves out numbers that are 0.
    let zero = json!({"observedGeneration": 2});
    // An autoscaler of the member has set another number.
    let mut scaled = one.clone();
    scaled["replicasLeftToAutoscaler"] = json!("hpa");
    let unscaled = json!({"replicas": 0, "replicasLeftToAutoscaler": "hpa"});
    for (spec, old, new, is_replaced) in [
        (&deployment, &unsaid, &zero, false),
        (&deployment, &unsaid, &two, true),
        (&rollout, &two, &zero, false),
        (&rollout, &two, &two, true),
        (&deployment, &unsaid, &scaled, true),
        (&deployment, &unsaid, &unscaled, false),
        // It has set none where the workload was, either: that one runs nothing that could be lost.
        (&deployment, &unscaled, &unscaled, true),
        (&deployment, &unsaid, &one, false),
        // A kind that never says how many there are is healthy as it says.
        (&job, &active, &active, true),
    ] {
        let spec: ResourceBindingSpec = serde_json::from_value(spec.clone()).unwrap();
        let reports = [
            report("old", ResourceHealth::Unknown, Some(old.clone())),
            report("new", ResourceHealth::Healthy, Some(new.clone())),
        ];
        let targets = [target("new", 2)];
        let facts = Facts {
            has_rule: true,
            counts_replicas: counts_replicas(&spec, &reports),
            ..facts(&targets, &reports)
        };
        let done = end(task(None), &facts, 1);
        let expected = is_replaced.then_some(Done::Replaced);
        assert_eq!(done, expected, "{} {new}", spec.resource.kind);
    }
}

/// Returns what becomes of the task a second after its creation, by what is said of both copies.
fn soon(
    old: (ResourceHealth, Option<Value>),
    new: (ResourceHealth, Option<Value>),
    work: WorkState,
    has_rule: bool,
) -> Option<Done> {
    let reports = [("old", old), ("new", new)];
    let reports = reports.map(|(name, (health, said))| report(name, health, said));
    let targets = [target("new", 0)];
    let facts = Facts {
        has_rule,
        work: &|_| work,
        ..facts(&targets, &reports)
    };
    end(task(None), &facts, 1)
}

#[test]
fn an_address_that_no_cluster_gives_is_not_waited_for() {
    use ResourceHealth::{Healthy, Unhealthy};
    use WorkState::{Applied, Refused, Sent};
    let unsaid = None;
    let none = Some(json!({"loadBalancer": {}}));
    let some = Some(json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}));
    for (old, health, new, work, is_replaced) in [
        // Neither controller publishes addresses.
        (&none, Unhealthy, &none, Applied, true),
        (&none, Unhealthy, &none, Refused, false),
        (&none, Unhealthy, &unsaid, Sent, false),
        // The old one has an address, which has to be replaced.
        (&some, Unhealthy, &none, Applied, false),
        (&some, Healthy, &some, Applied, true),
        // Nothing is known of the old one.
        (&unsaid, Unhealthy, &none, Applied, false),
    ] {
        let done = soon((Unhealthy, old.clone()), (health, new.clone()), work, true);
        let expected = is_replaced.then_some(Done::Replaced);
        assert_eq!(done, expected, "{old:?} {new:?}");
    }
}

#[test]
fn a_disruption_budget_that_no_pods_can_meet_holds_no_old_copy() {
    use ResourceHealth::{Healthy, Unhealthy};
    let budget = |(least, healthy, all): (i64, i64, i64)| {
        Some(json!({
            "disruptionsAllowed": 0, "desiredHealthy": least, "currentHealthy": healthy,
            "expectedPods": all,
        }))
    };
    for (health, pods, expected) in [
        (Unhealthy, (3, 2, 2), Some(Done::Replaced)),
        // Some of its pods have failed, and the budget protects the others.
        (Unhealthy, (3, 2, 4), None),
        (Healthy, (2, 2, 2), None),
    ] {
        let (old, new) = ((health, budget(pods)), (Unhealthy, budget((pods.0, 0, 0))));
        let done = soon(old, new, WorkState::Applied, true);
        assert_eq!(done, expected, "{pods:?}");
    }
}

#[test]
fn a_healthy_copy_that_needs_no_address_is_not_replaced_by_one_that_does_not_work() {
    use ResourceHealth::{Healthy, Unhealthy};
    // As of a kind of the users' own with a rule of their own, such as Contour's HTTPProxy: its
    // status has the addresses of a load balancer, which may be none.
    let said = |word: &str| Some(json!({"currentStatus": word, "loadBalancer": {}}));
    for (health, word, expected) in [
        (Unhealthy, "invalid", None),
        (Healthy, "valid", Some(Done::Replaced)),
    ] {
        let (old, new) = ((Healthy, said("valid")), (health, said(word)));
        let done = soon(old, new, WorkState::Applied, false);
        assert_eq!(done, expected, "{word}");
    }
}
