//! Orders of people, what is not known, and what nobody judges.

use muster_shared::names::annotation::ORDERED_BY;

use super::*;

/// Returns a cluster that is drained, with a rate of its own.
fn drained(name: &str, rate: &str) -> Cluster {
    let mut cluster = cluster(name, "True", &[]);
    cluster.spec.taints = read(json!([
        {"key": "failover.muster.io/drain", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:09:30Z"},
        {"key": "failover.muster.io/drain", "effect": "NoExecute", "timeAdded": "2026-01-01T00:09:30Z"},
    ]));
    if !rate.is_empty() {
        let rate = ("failover.muster.io/drain-rate".to_owned(), rate.to_owned());
        cluster.annotations_mut().extend([rate]);
    }
    cluster
}

#[test]
fn what_people_ordered_and_nothing_else_can_be_left_out_of_the_exit_code() {
    let drain = "m1 has taint failover.muster.io/drain:NoExecute";
    let other = "m2 has taint example.com/failed:NoExecute";
    for (bindings, without) in [
        (vec![], 0),
        (vec![binding_saying("WaitingForRate", drain)], 0),
        (vec![binding_saying("Paused", other)], 0),
        (vec![binding_saying("WaitingForRate", other)], 1),
        (vec![binding_saying("StoppedByThreshold", drain)], 1),
        (vec![binding_saying("NowhereToGo", drain)], 1),
    ] {
        let clusters = vec![drained("m1", ""), cluster("m2", "True", &[])];
        let report = decide(&snapshot(clusters, bindings));
        let codes = (report.code(), report.code_without(true));
        assert_eq!(codes, (1, without), "{:?}", report.waiting);
    }
    let lost = decide(&snapshot(vec![cluster("m1", "Unknown", &[])], vec![]));
    assert_eq!(lost.code_without(true), 1);
}

#[test]
fn the_estimate_of_a_drain_knows_its_own_rate_and_the_rate_is_reported() {
    let waits = |cluster: &str, count: usize| {
        let message = format!("{cluster} has taint failover.muster.io/drain:NoExecute");
        (0..count).map(move |_| binding_saying("WaitingForRate", &message))
    };
    let fast = "nothing leaves: failover.muster.io/drain-rate is \"fast\"";
    for (what, own, others, expected, reported) in [
        ("its own rate", "0.5", 0, Some(58), "0.5 a second "),
        ("others may go first", "0.5", 5, Some(59), "0.5 a second "),
        ("that of the fleet", "", 0, Some(6), "-          -"),
        ("the fleet's is slower", "50", 0, Some(6), "50 a second "),
        ("no rate", "fast", 0, None, fast),
    ] {
        let clusters = [drained("m1", own), cluster("m2", "True", &[])];
        let bindings: Vec<_> = waits("m1", 29).chain(waits("m2", others)).collect();
        let mut snapshot = snapshot(clusters.to_vec(), bindings);
        snapshot.settings.resource_eviction_rate = 5.0;
        let report = decide(&snapshot);
        let mut waiting = report.waiting.iter();
        let here = waiting.find(|it| it.clusters == ["m1"]);
        assert_eq!(here.unwrap().at_most_seconds, expected, "{what}");
        let text = print::table(&report, snapshot.now);
        let reported = format!("30s     {reported}");
        assert!(text.contains(&reported), "{what}: {text}");
    }
}

#[test]
fn what_a_person_ordered_is_reported_as_an_order_and_not_as_a_fault() {
    let mut cordoned = cluster("m2", "True", &[]);
    cordoned.spec.taints = read(json!([
        {"key": "failover.muster.io/cordon", "effect": "NoSchedule"},
    ]));
    let mut drained = drained("m1", "");
    let order = json!([{"order": "drain", "by": "alice", "reason": "an upgrade"}]).to_string();
    let annotations = [(ORDERED_BY.to_owned(), order)];
    drained.metadata.annotations = Some(annotations.into());
    let clusters = vec![drained, cordoned, cluster("m3", "True", &[])];
    let off = off(snapshot(clusters, vec![]));
    let report = decide(&off);
    assert_eq!((report.code(), report.not_well.len()), (1, 0));
    let text = print::table(&report, off.now);
    for part in [
        "Failover:   OFF: no taint moves anything, but orders do: m1 is drained\n",
        ": 1 of 3 clusters counts as failed, because drained, at most 1 may\n",
        "Clusters:   3, 0 not well, 1 drained, 1 cordoned\n",
        "m1                 Drained    30s     -          alice   an upgrade\n",
        "m2                 Cordoned   -       -          -       -\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_taint_that_a_person_ordered_is_reported_with_who_put_it_on_and_why() {
    let mut tainted = cluster("m1", "True", &["rack"]);
    let order = json!([{
        "order": "taint", "change": "tainted rack:PreferNoExecute", "by": "alice",
        "at": "2026-01-01T00:09:00Z", "reason": "new disks",
    }]);
    let order = (ORDERED_BY.to_owned(), order.to_string());
    tainted.annotations_mut().extend([order]);
    let clusters = vec![tainted, cluster("m2", "True", &["gpu"])];
    let report = decide(&snapshot(clusters, vec![]));
    let reported: Vec<_> = report.not_well.iter().map(|it| it.why.as_deref()).collect();
    let by_alice = "tainted rack:PreferNoExecute by alice at 2026-01-01T00:09:00Z: new disks";
    assert_eq!(reported, [Some(by_alice), None]);
    let text = print::table(&report, NOW.parse().unwrap());
    assert!(text.contains(by_alice), "{text}");
}

#[test]
fn workloads_that_a_policy_suspends_where_they_are_are_reported() {
    let on = |cluster: &str| json!({ "dispatchingOnClusters": { "clusterNames": [cluster] } });
    let reported = "Suspended:  1 workload (Deployment default/web), whose policy suspends its copies; by whose order, and why: kubectl muster explain deployment/web -n default\n";
    for (suspension, is_reported) in [
        (json!(null), false),
        (json!({ "dispatching": true }), true),
        (on("m2"), true),
        // The workload has no copy in the suspended cluster.
        (on("m1"), false),
    ] {
        let mut web = binding("web", &[], None).as_ref().clone();
        web.spec.suspension = read(suspension);
        let report = decide(&snapshot(well(), vec![Arc::new(web)]));
        let text = print::table(&report, NOW.parse().unwrap());
        assert_eq!(text.contains(reported), is_reported, "{text}");
    }
}

#[test]
fn host_names_that_lead_to_no_healthy_copy_are_reported() {
    let leads = "does not lead to healthy copies";
    for (status, reason, reported) in [
        ("True", "Published", None),
        ("False", "LastKnown", Some(leads)),
        ("False", "Conflict", Some("is not published")),
    ] {
        let web = binding("web", &[("HostnamePublished", status, reason)], None);
        let report = decide(&snapshot(well(), vec![web]));
        let text = print::table(&report, NOW.parse().unwrap());
        let line = reported.map(|it| {
            format!("Host names: 1 (Deployment default/web) {it}; why: kubectl muster explain deployment/web -n default\n")
        });
        assert_eq!(text.contains("Host names: "), line.is_some(), "{text}");
        let is_listed = text.contains("\nWITHOUT HOST NAME ");
        assert_eq!(is_listed, reason == "Conflict", "{text}");
        assert!(line.is_none_or(|it| text.contains(&it)), "{text}");
    }
}

#[test]
fn of_many_host_names_that_are_not_published_the_first_few_are_named() {
    // An API that does not serve the kind of host names publishes none.
    let conditions = [("HostnamePublished", "False", "NotServed")];
    let many = (0..12).map(|number| binding(&format!("w{number:02}"), &conditions, None));
    let report = decide(&snapshot(well(), many.collect()));
    let text = print::table(&report, NOW.parse().unwrap());
    let named = "w00, w01, w02, w03, w04, w05, w06, w07, w08, w09 and 2 more";
    let line = format!("Host names: 12 (Deployment default/{named}) are not published; ");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn who_suspended_the_copies_of_workloads_is_reported() {
    let mut web = binding("web", &[], None).as_ref().clone();
    web.spec.suspension = read(json!({ "dispatching": true }));
    let report = decide(&Snapshot {
        suspensions: ["a: suspended by alice: an audit", "and 2 more policies"]
            .map(str::to_owned)
            .to_vec(),
        ..snapshot(well(), vec![Arc::new(web)])
    });
    let text = print::table(&report, NOW.parse().unwrap());
    let reported =
        "whose policy suspends its copies: a: suspended by alice: an audit; and 2 more policies\n";
    assert!(text.contains(reported), "{text}");
}

#[test]
fn what_could_not_be_read_is_not_reported_as_zero() {
    let blind = Snapshot {
        clusters: Err("list clusters: 404".to_owned()),
        bindings: Err("list resourcebindings: 404".to_owned()),
        ..snapshot(vec![], vec![])
    };
    let report = decide(&blind);
    let text = print::table(&report, blind.now);
    for part in [
        "Pace:       not known\n",
        "Clusters:   not known\n",
        "Workloads:  not known\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert_eq!((report.code(), report.clusters), (2, None));
}

#[test]
fn while_nobody_leads_no_time_is_promised() {
    let message = "m1 has taint x:NoExecute";
    let bindings = vec![binding_saying("WaitingForRate", message)];
    let dead = Snapshot {
        leader: Ok(Some(lease("cp-0", "2026-01-01T00:03:00Z"))),
        leases: Ok(BTreeMap::new()),
        ..snapshot(well(), bindings)
    };
    let report = decide(&dead);
    assert_eq!(report.waiting[0].at_most_seconds, None);
}

#[test]
fn workloads_whose_state_is_unknown_and_that_nothing_moves_are_listed_with_why() {
    let unknown = ("FullyApplied", "Unknown", "ClustersNotHeard");
    let off = ("EvictionPending", "False", "FailoverOff");
    let evicted = ("EvictionPending", "False", "Evicted");
    let waits = ("EvictionPending", "True", "WaitingForRate");
    for (what, more, leaving, expected) in [
        ("the gate is off", &[off][..], None, &["FailoverOff"][..]),
        ("nothing says more", &[], None, &["ClustersNotHeard"]),
        ("it left another", &[evicted], None, &["ClustersNotHeard"]),
        ("it waits", &[waits], None, &[]),
        ("it moves", &[], Some("m1"), &[]),
    ] {
        let conditions = [&[unknown][..], more].concat();
        let binding = binding("web", &conditions, leaving);
        let report = decide(&snapshot(well(), vec![binding]));
        let listed = report.unheard.iter().map(|it| it.reason.as_str());
        assert_eq!(listed.collect::<Vec<_>>(), expected, "{what}");
        assert_eq!(report.unknown, 1, "{what}");
    }
    // Nobody leads who would say that the cluster is silent.
    let silent = Snapshot {
        leader: Ok(None),
        leases: Ok(BTreeMap::from([(
            "m2".to_owned(),
            lease("m2", "2026-01-01T00:04:20Z"),
        )])),
        ..snapshot(well(), vec![binding("web", &[], None)])
    };
    let report = decide(&silent);
    assert_eq!(report.unknown, 1);
    let text = print::table(&report, silent.now);
    let reported = "Deployment default/web   SilentAndNotJudged   -       -      no control plane leads that could judge whether m2 is silent";
    assert!(text.contains(reported), "{text}");
}

#[test]
fn workloads_that_lack_what_they_refer_to_are_counted_and_listed() {
    for (status, is_reported) in [("True", true), ("False", false)] {
        let lacks = (references::CONDITION, status, references::NOT_PLACED);
        let report = decide(&snapshot(well(), vec![binding("web", &[lacks], None)]));
        assert_eq!(report.code(), u8::from(is_reported), "{status}");
        let text = print::table(&report, NOW.parse().unwrap());
        for part in [
            "Workloads:  1, 1 without what they refer to\n",
            "WITHOUT DEPENDENCIES",
        ] {
            assert_eq!(text.contains(part), is_reported, "{part}: {text}");
        }
    }
}

#[test]
fn drains_of_too_many_clusters_are_reported_to_hold_each_other_up() {
    let message = "m1 has taint failover.muster.io/drain:NoExecute: it stays";
    let waits = sentence::pending("web", STOPPED, message);
    let clusters = vec![drained("m1", ""), drained("m2", "")];
    let report = decide(&snapshot(clusters, vec![waits]));
    assert_eq!(
        report.summary.line(),
        "ATTENTION: m1 drained for 30 s (since 00:09:30Z), 1 workload waits because too many clusters have failed; m2 drained for 30 s (since 00:09:30Z), no workload is left there"
    );
    assert_eq!(
        report.summary.advice.to_string(),
        "end the drain of at least 1 cluster, since nothing leaves while 2 of 2 count as failed, drained ones included, and at most 1 may: kubectl muster undrain m2"
    );
}

#[test]
fn what_is_to_be_placed_anew_and_waits_is_reported() {
    let pause = ("Scheduled", "True", "Paused");
    let leaves = ("EvictionPending", "True", "Paused");
    let reported = "To move:    1 workload (Deployment default/web) is to be placed anew, and stays where it is for now; why: kubectl muster explain deployment/web -n default\n";
    let next = "1 workload is placed anew when nothing holds that back; when is not known";
    for (conditions, expected) in [
        (vec![pause], true),
        (vec![("Scheduled", "True", "Success")], false),
        (vec![("Scheduled", "False", "Paused")], false),
        // It is reported as one that has to leave.
        (vec![pause, leaves], false),
    ] {
        let report = decide(&snapshot(well(), vec![binding("web", &conditions, None)]));
        let text = print::table(&report, NOW.parse().unwrap());
        assert_eq!(text.contains(reported), expected, "{conditions:?}: {text}");
        assert_eq!(report.summary.next == next, expected, "{conditions:?}");
        assert_eq!(usize::from(expected), report.held_moves.count);
    }
    let paused = Snapshot {
        pause: Ok(Some(super::pause(None))),
        ..snapshot(
            vec![cluster("m1", "Unknown", &[]), cluster("m2", "True", &[])],
            vec![binding("web", &[pause], None)],
        )
    };
    let advice = decide(&paused).summary.advice.to_string();
    let effect = "to resume it now, by which 1 workload is placed anew where nothing else holds that back: kubectl muster resume";
    assert!(advice.ends_with(effect), "{advice}");
}

#[test]
fn it_is_reported_where_failovers_are_not_recorded() {
    for (flag, expected) in [
        ("--controllers=*", false),
        ("--controllers=*,-failoverHistory", true),
    ] {
        let settings = Settings::of_flags(&[flag.to_owned()]).unwrap();
        let snapshot = Snapshot {
            settings,
            ..snapshot(well(), vec![])
        };
        let report = decide(&snapshot);
        let text = print::table(&report, snapshot.now);
        let line = "\nHistory:    the control plane runs without the controller failoverHistory";
        assert_eq!(text.contains(line), expected, "{flag}: {text}");
        assert_eq!(report.code(), 0, "nothing has to be done");
    }
}

#[test]
fn a_drain_that_cannot_go_on_needs_attention_although_people_ordered_it() {
    let rate = "nothing leaves m1: failover.muster.io/drain-rate is \"fast\": write evictions per second, more than 0 and at most 10000, such as 0.2";
    let message = "m1 has taint failover.muster.io/drain:NoExecute: it leaves";
    let waits = sentence::pending("web", "WaitingForRate", message);
    let mut half = drained("m1", "");
    half.spec.taints.truncate(1);
    let with = |m1: Cluster, web: &Arc<AnyBinding>| {
        let clusters = vec![m1, cluster("m2", "True", &[])];
        snapshot(clusters, vec![Arc::clone(web)])
    };
    let there = &sentence::healthy(1, "m1")[0];
    let off = "no taint moves anything, because the controller taintmanager is off";
    for (what, snapshot, (is_alone, code), line, next, advice) in [
        (
            "its own rate cannot be read",
            with(drained("m1", "fast"), &waits),
            (true, 1),
            format!("ATTENTION: m1 drained for 30 s (since 00:09:30Z), and {}", rate.replace("m1", "it")),
            rate,
            "give the drain of m1 another rate, such as that of the fleet: kubectl muster drain m1 --rate fleet",
        ),
        (
            "and nothing has to leave any more",
            with(drained("m1", "fast"), &sentence::healthy(1, "m2")[0]),
            (true, 1),
            "NOTICE: m1 drained for 30 s (since 00:09:30Z), no workload is left there".to_owned(),
            "nothing goes to m1 before undrain",
            "m1 is empty, and the work there may begin; when it is done: kubectl muster undrain m1",
        ),
        (
            "the command ended between the steps of a drain of several: nobody drains it",
            with(half, there),
            (false, 1),
            "ATTENTION: m1 kept free by a drain that was not completed for 30 s (since 00:09:30Z)"
                .to_owned(),
            "nothing moves or waits",
            "complete the drain of m1, or end it (kubectl muster undrain m1); to complete it: kubectl muster drain m1",
        ),
        (
            "nothing judges taints",
            unjudged(with(drained("m1", ""), there)),
            (true, 0),
            "NOTICE: m1 drained for 30 s (since 00:09:30Z), and nothing leaves it: the controller taintmanager is off"
                .to_owned(),
            off,
            "have the control plane run the controller taintmanager (--controllers, --enable-taint-manager), without which nothing leaves m1, or end the drain: kubectl muster undrain m1",
        ),
    ] {
        let report = decide(&snapshot);
        assert_eq!(report.code_without(true), code, "{what}");
        let [_, found_next, found_advice, _] = report.summary.lines();
        assert_eq!(report.summary.line(), line, "{what}");
        assert_eq!(found_next.1, next, "{what}");
        assert_eq!(found_advice.1, advice, "{what}");
        let text = print::table(&report, snapshot.now);
        let counted = if is_alone { "drained" } else { "with a drain that was not completed" };
        let counted = format!("Clusters:   2, 0 not well, 1 {counted}\n");
        assert!(text.contains(&counted), "{what}: {text}");
    }
}
