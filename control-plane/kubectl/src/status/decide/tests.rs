use std::sync::Arc;

use muster_shared::api::any_binding::AnyBinding;
use muster_shared::client::Life;
use muster_shared::names::annotation::PAUSED;
use muster_shared::self_report::AgentReport;
use serde_json::{Value, json};

use super::super::print;
use super::*;
use crate::fixtures::{self, condition, lease, member, read, tasks};
use crate::old_copies::tests::work;

mod headline;
mod large;
mod orders;
mod sentence;

const NOW: &str = "2026-01-01T00:10:00Z";
/// Time since which conditions of bindings hold.
const SINCE: &str = "2026-01-01T00:06:00Z";

/// Returns the leases of which the one of m1 was renewed at a time.
fn renewed(time: &str) -> BTreeMap<String, Lease> {
    BTreeMap::from([("m1".to_owned(), lease("m1", time))])
}

/// Returns the record of a pause of the fleet, with its end if it has one.
fn pause(until: Option<&str>) -> ConfigMap {
    let mut record = json!({ "data": { "by": "ann", "since": NOW } });
    json_patch::merge(&mut record, &json!({ "data": { "until": until } }));
    read(record)
}

fn cluster(name: &str, ready: &str, taints: &[&str]) -> Cluster {
    let taints: Vec<Value> = taints
        .iter()
        .map(|key| json!({ "key": key, "effect": "PreferNoExecute" }))
        .collect();
    let reason = if ready == "True" {
        "ClusterReady"
    } else {
        "ClusterStatusUnknown"
    };
    let ready = condition("Ready", ready, reason, "", "2026-01-01T00:05:00Z");
    let changes = json!({ "spec": { "taints": taints }, "status": { "conditions": [ready] } });
    member(name, &changes)
}

/// Returns a binding with conditions, each given as type, status and reason, and a cluster that it
/// leaves.
fn binding(
    name: &str,
    conditions: &[(&str, &str, &str)],
    leaving: Option<&str>,
) -> Arc<AnyBinding> {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason)| condition(kind, status, reason, "m1 has a taint", SINCE))
        .collect();
    let clusters = json!([{ "name": "m2", "replicas": 1 }]);
    let changes = json!({
        "spec": { "clusters": clusters, "gracefulEvictionTasks": tasks(leaving) },
        "status": { "conditions": conditions },
    });
    fixtures::binding("default", name, &changes)
}

fn snapshot(clusters: Vec<Cluster>, bindings: Vec<Arc<AnyBinding>>) -> Snapshot {
    Snapshot {
        now: NOW.parse().unwrap(),
        server: "https://fleet:6443".to_owned(),
        leader: Ok(Some(lease("cp-0", "2026-01-01T00:09:58Z"))),
        leases: Ok(renewed("2026-01-01T00:04:20Z")),
        clusters: Ok(clusters),
        bindings: Ok(bindings),
        works: Ok(Vec::new()),
        failover: Some(true),
        source: Source::Leader,
        unknown: Vec::new(),
        pause: Ok(None),
        tokens: Ok(Vec::new()),
        settings: Settings::default(),
        suspensions: Vec::new(),
        taint_policies: None,
    }
}

/// Returns a snapshot of the fleet while failover is off.
fn off(snapshot: Snapshot) -> Snapshot {
    Snapshot {
        failover: Some(false),
        ..snapshot
    }
}

/// Returns what is read of a fleet in which nothing judges taints.
fn unjudged(snapshot: Snapshot) -> Snapshot {
    Snapshot {
        settings: Settings {
            enable_taint_manager: false,
            ..Settings::default()
        },
        ..snapshot
    }
}

fn well() -> Vec<Cluster> {
    vec![cluster("m1", "True", &[]), cluster("m2", "True", &[])]
}

#[test]
fn an_old_copy_in_a_silent_cluster_is_reported_until_its_agent_has_confirmed_that_it_is_gone() {
    let clusters = vec![cluster("m1", "Unknown", &[]), cluster("m2", "True", &[])];
    let whole = snapshot(clusters, vec![binding("web", &[], None)]);
    let none = vec![work("web", "m2")];
    let left = vec![work("web", "m1"), none[0].clone()];
    let reported = "Two copies: 1 old copy not confirmed gone in m1 (silent): Deployment default/web. The cluster removes it itself when it is back. Only if two copies at once do harm until then, stop it with direct access to the cluster, and nothing else there, which may be the only copy: kubectl --kubeconfig '<kubeconfig of m1>' scale deployment/web -n default --replicas=0\n";
    for (works, is_reported) in [
        (Ok(left), true),
        (Ok(none), false),
        (Err("no".to_owned()), false),
    ] {
        let is_unread = works.is_err();
        let report = decide(&Snapshot {
            works,
            ..whole.clone()
        });
        let text = print::table(&report, NOW.parse().unwrap());
        assert_eq!(text.contains(reported), is_reported, "{text}");
        assert_eq!(text.contains("COULD NOT READ: no"), is_unread, "{text}");
    }
}

#[test]
fn a_workload_that_waits_for_its_fence_is_reported_when_its_old_copy_is_stopped() {
    let binding = binding(
        "web",
        &[("EvictionPending", "True", WAITING_FOR_FENCE)],
        None,
    );
    let until = |seconds| format!("its copy may run until {seconds} s after the last renewal");
    let unsaid = "its agent has not said whether it fences".to_owned();
    for (message, expected) in [(until(400), Some(60)), (until(80), Some(0)), (unsaid, None)] {
        let mut binding = (*binding).clone();
        let status = binding.status.as_mut().unwrap();
        status.conditions[0].message = format!("m1 has a taint: {message}");
        let bindings = vec![Arc::new(binding)];
        // The last renewal was 340 s ago. A cluster that reports again renews its lease.
        let silent = vec![cluster("m1", "Unknown", &[]), cluster("m2", "True", &[])];
        for (clusters, expected) in [(silent, expected), (well(), None)] {
            let waiting = &decide(&snapshot(clusters, bindings.clone())).waiting[0];
            let reported = (waiting.at_most_seconds, waiting.stops_seconds);
            assert_eq!(reported, (expected, expected), "{message}");
        }
    }
}

#[test]
fn a_reason_is_cut_on_a_terminal_and_nowhere_else() {
    let mut report = decide(&snapshot(well(), vec![binding("web", &[LACKS], None)]));
    report.without_dependencies[0].message = format!("{}.", "long ".repeat(30));
    let now = NOW.parse().unwrap();
    assert!(print::table(&report, now).contains("long .\n"));
    let screen = print::screen(&report, now, 90);
    let last = screen.lines().last().unwrap();
    assert!(last.chars().count() == 90 && last.ends_with('…'), "{last}");
}

const LACKS: (&str, &str, &str) = (references::CONDITION, "True", references::NOT_PLACED);

#[test]
fn a_cluster_that_falls_silent_while_nobody_acts_is_not_reported_to_be_ready() {
    let reported = |leader: Result<Option<Lease>, String>| {
        let snapshot = Snapshot {
            leader,
            ..snapshot(well(), vec![])
        };
        let report = decide(&snapshot);
        let not_well = report.not_well.iter();
        let not_well: Vec<String> = not_well
            .map(|it| format!("{} {} {}", it.name, it.ready, it.reason))
            .collect();
        let text = print::table(&report, snapshot.now);
        let line = text.lines().find(|it| it.starts_with("Leader:"));
        (not_well, line.unwrap().to_owned(), report.code())
    };
    // The lease of m1 has not been renewed for five minutes; m2 has none.
    let silent = vec!["m1 Unknown SilentAndNotJudged".to_owned()];
    let dead = Ok(Some(lease("cp-0", "2026-01-01T00:03:00Z")));
    let unread = Err("leases: forbidden".to_owned());
    let last = |holder: &str, second: &str| {
        Ok(Some(lease(holder, &format!("2026-01-01T00:09:{second}Z"))))
    };
    for (what, leader, expected, words, code) in [
        ("it acts", last("cp-0", "58"), vec![], "cp-0", 0),
        ("it still acts", last("cp-0", "45"), vec![], "cp-0", 0),
        (
            "it is late",
            last("cp-0", "44"),
            silent.clone(),
            "NONE acts",
            1,
        ),
        ("it died", dead, silent.clone(), "NONE acts", 1),
        ("it left", last("", "58"), silent.clone(), "NONE", 1),
        ("there was none", Ok(None), silent, "NONE", 1),
        ("it cannot be read", unread, vec![], "could not be read", 1),
    ] {
        let reported = reported(leader);
        assert_eq!((reported.0, reported.2), (expected, code), "{what}");
        assert!(reported.1.contains(words), "{what}: {}", reported.1);
    }
}

#[test]
fn a_cluster_that_is_ready_and_takes_nothing_needs_attention() {
    for (kind, status, expected) in [
        ("WorksUpToDate", "False", Some("WorksUpToDate=False")),
        ("WorksUpToDate", "True", None),
        ("UniqueIdentity", "False", Some("UniqueIdentity=False")),
        ("Monitored", "False", Some("Monitored=False")),
        ("Monitored", "Unknown", None),
        ("CompleteAPIEnablements", "False", None),
        ("NodesReady", "False", Some("NodesReady=False")),
        ("NodesReady", "Unknown", None),
        (
            "ObjectsWithoutWork",
            "True",
            Some("ObjectsWithoutWork=True"),
        ),
        ("ObjectsWithoutWork", "False", None),
    ] {
        let mut odd = cluster("m1", "True", &[]);
        let condition = condition(kind, status, "R", "", "2026-01-01T00:07:00Z");
        odd.status
            .as_mut()
            .unwrap()
            .conditions
            .push(read(condition));
        let report = decide(&snapshot(vec![odd], vec![]));
        let reported = report.not_well.first();
        assert_eq!(
            reported.map(|it| it.reason.as_str()),
            expected,
            "{kind}={status}"
        );
        assert_eq!(report.code(), u8::from(expected.is_some()));
        if let Some(reported) = reported {
            assert_eq!(reported.ready, "True");
            assert_eq!(reported.since, "2026-01-01T00:07:00Z".parse().ok());
        }
    }
}

#[test]
fn what_becomes_of_a_workload_that_waits_is_reported_with_its_time() {
    let grace = "m1 has x: it stays until 2026-01-01T00:10:26Z";
    let fence = "m1 has x: its copy may run until 400 s after the last renewal";
    for (other, reason, message, expected) in [
        (
            "True",
            WAITING_FOR_RATE,
            "m1 has x",
            "in 2 s (00:10:02Z): its turn has come, at the latest",
        ),
        (
            "True",
            WAITING_FOR_TOLERATION,
            grace,
            "in 26 s (00:10:26Z): may leave",
        ),
        (
            "True",
            WAITING_FOR_FENCE,
            fence,
            "in 60 s (00:11:00Z): starts elsewhere",
        ),
        (
            "Unknown",
            WAITING_FOR_FENCE,
            fence,
            "in 60 s (00:11:00Z): its copy stops at the latest, and it stays down",
        ),
        (
            "Unknown",
            WAITING_FOR_RATE,
            "m1 has x",
            "   -      waits for its turn, at the pace of the fleet: m1 has x",
        ),
    ] {
        let clusters = vec![cluster("m1", "Unknown", &[]), cluster("m2", other, &[])];
        let report = decide(&snapshot(clusters, vec![binding_saying(reason, message)]));
        let text = print::table(&report, NOW.parse().unwrap());
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    // Each of several has the time of the last, and says so.
    let two = vec![binding_saying(WAITING_FOR_RATE, "m1 has x"); 2];
    let report = decide(&snapshot(well(), two));
    let words = "has left at the latest, as one of 2 whose order is not known here";
    let next = report.waiting.iter().filter_map(|it| it.next.as_ref());
    assert!(next.clone().count() == 2 && next.clone().all(|it| it.words == words));
}

#[test]
fn a_workload_that_has_to_leave_two_clusters_is_reported_with_both() {
    let rule = "has taint x:NoExecute, which is tolerated for a limited time only: it stays";
    for (message, expected) in [
        (
            &*format!("m3 {rule} for now; m2 {rule} for now"),
            &["m3", "m2"][..],
        ),
        (
            "has to leave m1 and stays: no room; m1 has x:NoExecute",
            &["m1"],
        ),
        ("m1 has x: it stays; its policy has a rule", &["m1"]),
    ] {
        assert_eq!(clusters_of(message), expected, "{message}");
    }
}

#[test]
fn a_cluster_says_when_the_first_that_tolerates_it_may_leave() {
    let says = |cluster: &str, until: &str| {
        let message = format!("{cluster} has x:NoExecute: it stays until {until}; and more");
        binding_saying("WaitingForToleration", &message)
    };
    let bindings = vec![
        says("m1", "2026-01-01T00:14:00Z"),
        says("m1", "2026-01-01T00:12:00Z"),
        says("m2", "2026-01-01T00:11:00Z"),
        says("m3", "some day"),
        binding_saying("WaitingForRate", "m3 has taint x:NoExecute"),
    ];
    let names = ["m1", "m2", "m3"];
    let mut clusters = names.map(|name| cluster(name, "Unknown", &[])).to_vec();
    clusters.extend(["m4", "m5", "m6"].map(|name| cluster(name, "True", &[])));
    let first = |snapshot: Snapshot| {
        let report = decide(&snapshot);
        let first = report.not_well.iter();
        first.map(|it| it.first_leaves_seconds).collect::<Vec<_>>()
    };
    let awake = || snapshot(clusters.clone(), bindings.clone());
    assert_eq!(first(awake()), [Some(120), Some(60), None]);
    let waiting = decide(&awake()).waiting.into_iter();
    let ends: Vec<Option<u64>> = waiting.map(|it| it.at_most_seconds).collect();
    assert!(
        ends.is_sorted_by_key(|it| it.unwrap_or(u64::MAX)),
        "{ends:?}"
    );
    // Nothing leaves while too many have failed, or while movement is paused, of the fleet or of
    // one cluster.
    let stopped = Snapshot {
        clusters: Ok(clusters[..3].to_vec()),
        ..awake()
    };
    assert_eq!(first(stopped), [None, None, None]);
    let asleep = Snapshot {
        pause: Ok(Some(pause(None))),
        ..awake()
    };
    assert_eq!(first(asleep), [None, None, None]);
    let mut one = awake();
    let annotations = one.clusters.as_mut().unwrap()[0].annotations_mut();
    annotations.insert(PAUSED.to_owned(), "of an upgrade".to_owned());
    assert_eq!(first(one), [None, Some(60), None]);
}

fn binding_saying(reason: &str, message: &str) -> Arc<AnyBinding> {
    sentence::placed("web", "m2", "Healthy", Some((reason, message)))
}

#[test]
fn credentials_that_end_and_were_not_renewed_are_reported() {
    let lease = |begin: &str, end: &str| -> Lease {
        let renewed = "2026-01-01T00:09:58.000000Z";
        let report = AgentReport {
            version: "1".to_owned(),
            credentials: Some(Life {
                begin: Some(begin.parse().unwrap()),
                end: end.parse().unwrap(),
            }),
        };
        let annotations = json!({
            "failover.muster.io/fences": renewed, "failover.muster.io/agent": report.write(),
        });
        read(json!({
            "metadata": {"annotations": annotations}, "spec": {"renewTime": renewed},
        }))
    };
    for (what, begin, end, reported) in [
        ("ended", "2025-01-01T00", "2025-12-31T00", true),
        ("ends", "2025-01-01T00", "2026-01-02T00", true),
        ("is far", "2025-01-01T00", "2027-01-01T00", false),
        ("is short", "2026-01-01T00", "2026-01-01T01", false),
    ] {
        let [begin, end] = [begin, end].map(|hour| format!("{hour}:00:00Z"));
        let lease = lease(&begin, &end);
        let report = decide(&Snapshot {
            leases: Ok(BTreeMap::from([("m1".to_owned(), lease)])),
            ..snapshot(well(), vec![])
        });
        assert_eq!(report.expires.len(), usize::from(reported), "{what}");
        assert_eq!(report.code(), u8::from(reported), "{what}");
    }
}

#[test]
fn a_table_is_cut_on_a_screen_and_nowhere_else() {
    let waits = [("EvictionPending", "True", "StoppedByThreshold")];
    let many = (0..12).map(|n| binding(&format!("w{n}"), &waits, None));
    let report = decide(&snapshot(well(), many.collect()));
    let now: Timestamp = NOW.parse().unwrap();
    let shown = |text: String| text.matches("Deployment default/w").count();
    let screen = print::screen(&report, now, 80);
    assert!(
        screen.ends_with("and 2 more: -o wide has all\n"),
        "{screen}"
    );
    // The line of service names three of them, and their kind once.
    assert_eq!(shown(screen), 1 + 10);
    assert_eq!(shown(print::table(&report, now)), 1 + 12);
    let clock = print::clock(now, std::time::Duration::from_secs(2));
    assert!(clock.ends_with("Z, again every 2s\n"), "{clock}");
}

#[test]
fn a_total_loss_fits_on_one_screen() {
    let clusters = vec![
        cluster("m1", "Unknown", &["cluster.karmada.io/unreachable"]),
        cluster("m2", "Unknown", &[]),
    ];
    let bindings = vec![
        binding(
            "web",
            &[
                ("FullyApplied", "Unknown", "ClustersNotHeard"),
                ("EvictionPending", "True", "StoppedByThreshold"),
            ],
            None,
        ),
        binding(
            "db",
            &[("EvictionPending", "True", "NowhereToGo")],
            Some("m1"),
        ),
    ];
    let report = decide(&snapshot(clusters, bindings));
    let text = print::screen(&report, NOW.parse().unwrap(), 120);
    assert_eq!(
        text,
        "\
ALARM: 2 of 2 clusters silent at once for 5 min 40 s (last heard 00:04:20Z): most likely the network of the fleet API, not the clusters; workloads most likely still run; movement is stopped
Service:    2 workloads are not seen (Deployment default/web, db): they most likely still run
Next:       nothing moves until fewer clusters have failed: 2 of 2 have, and at most 1 may
To do:      every cluster is silent, which points at what they share: repair the network of the fleet API (address, which is https://fleet:6443 here, DNS, certificate, load balancer); leave the clusters as they are, and look into one only if it stays silent when others are back; to see what is wrong: kubectl muster check
Two copies: none
Leader:     cp-0, whose lease was renewed 2 s ago
Failover:   on, but STOPPED: too many clusters have failed
Pace:       0 workloads a second (stopped): 2 of 2 clusters have failed, at most 1 may
Clusters:   2, 2 not well
Workloads:  2, 1 moving, 1 waiting (until fewer clusters have failed), 1 stranded (they have to leave and cannot), 1 in silent clusters

CLUSTER NOT WELL   READY     REASON                 SINCE   LAST HEARD   TAINTS
m1                 Unknown   ClusterStatusUnknown   5m0s    5m40s        cluster.karmada.io/unreachable:PreferNoExecute
m2                 Unknown   ClusterStatusUnknown   5m0s    -

MOVING                  FROM   NOW PLACED ON   SINCE
Deployment default/db   m1     m2              60s

STRANDED                FOR           SINCE   NEXT   WHY
Deployment default/db   NowhereToGo   4m0s    -      has nowhere to go: m1 has a taint

WAITING                  FOR                  SINCE   NEXT   WHY
Deployment default/web   StoppedByThreshold   4m0s    -      waits because too many clusters have failed: m1 has a taint
"
    );
}

#[test]
fn what_cannot_be_read_for_one_reason_is_reported_in_one_line() {
    let gone = "ServiceError: client error (Connect): deadline has elapsed";
    let unread = [
        format!("list clusters: {gone}"),
        "list works: forbidden".to_owned(),
        format!("get lease: {gone}"),
    ];
    assert_eq!(
        together(unread.to_vec()),
        [
            format!("list clusters, get lease: {gone}"),
            "list works: forbidden".to_owned(),
        ]
    );
}
