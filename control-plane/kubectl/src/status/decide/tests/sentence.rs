//! The sentence that the report begins with.

use super::*;
use crate::output::UNREAD;
use crate::status::summary::Severity;

/// Returns a binding that is unhealthy in its only cluster and has application failover.
fn failing(name: &str) -> Arc<AnyBinding> {
    let mut binding = AnyBinding::clone(&placed(name, "m1", "Unhealthy", None));
    let failover = json!({ "application": { "decisionConditions": { "tolerationSeconds": 300 } } });
    binding.spec.failover = Some(read(failover));
    Arc::new(binding)
}

/// Returns a binding with copies in `m1`, where its application fails, and in `m2`, where it is
/// well.
fn failing_for(name: &str, reason: &str) -> Arc<AnyBinding> {
    let message = "the application has been unhealthy in m1 since 2026-01-01T00:09:00Z: it stays until 2026-01-01T00:14:00Z";
    let pending = condition("ApplicationFailoverPending", "True", reason, message, SINCE);
    let report = |cluster: &str, health: &str| json!({ "clusterName": cluster, "applied": true, "health": health });
    let changes = json!({
        "spec": { "clusters": [{ "name": "m1", "replicas": 1 }, { "name": "m2", "replicas": 1 }] },
        "status": {
            "conditions": [pending],
            "aggregatedStatus": [report("m1", "Unhealthy"), report("m2", "Healthy")],
        },
    });
    fixtures::binding("default", name, &changes)
}

#[test]
fn a_failing_application_is_reported_with_the_time_at_which_it_may_leave() {
    let report = decide(&snapshot(
        five(&[]),
        vec![failing_for("web", "WaitingForToleration")],
    ));
    let now = NOW.parse().unwrap();
    let expected =
        "in 4 min (00:14:00Z): Deployment default/web may leave the cluster in which it fails";
    assert_eq!(report.summary.next, expected);
    let text = print::table(&report, now);
    assert!(text.contains("\nFAILING APPLICATION"), "{text}");
    assert!(text.contains("in 4 min (00:14:00Z): may leave"), "{text}");
    assert!(
        text.contains("Workloads:  1, 1 whose application fails\n"),
        "{text}"
    );
}

#[test]
fn a_failing_application_that_may_stay_for_now_is_no_stuck_one() {
    for (reason, expected) in [("WaitingForToleration", 0), ("NowhereToGo", 1)] {
        let report = decide(&snapshot(five(&[]), vec![failing_for("web", reason)]));
        let counts = ["applications", "stuck"].map(|it| report.counts[it]);
        assert_eq!(counts, [1, expected], "{reason}");
    }
}

#[test]
fn what_to_do_is_reported_of_what_no_cluster_is_to_blame_for() {
    let why = "find out what keeps the failing application from leaving, and why it fails";
    let explain = "kubectl muster explain deployment/web -n default";
    for (binding, expected) in [
        (
            failing_for("web", "NowhereToGo"),
            format!("{why}: {explain}"),
        ),
        (
            failing_for("web", "WaitingForRate"),
            "nothing now; look again when that is over".to_owned(),
        ),
        (
            failing_for("web", "WaitingForToleration"),
            "nothing".to_owned(),
        ),
        (
            moved_from("web", "Unhealthy"),
            format!("if that lasts, find out why no copy is healthy: {explain}"),
        ),
        (moved_from("web", "Healthy"), "nothing".to_owned()),
    ] {
        let report = decide(&snapshot(five(&[]), vec![binding]));
        assert_eq!(report.summary.advice.to_string(), expected);
    }
}

#[test]
fn a_cluster_that_is_back_says_when_it_loses_its_taint() {
    let mut back = cluster("m1", "True", &[]);
    back.spec.taints = read(json!([{ "key": "failed", "effect": "NoExecute" }]));
    let record = json!({
        "taints": [{ "key": "failed", "effect": "NoExecute", "heldBy": ["failed"] }],
        "windows": { "failed": {
            "generation": 1, "matched": false, "since": "2026-01-01T00:09:00Z",
            "transition": "2026-01-01T00:05:00Z",
        } },
    });
    let record = ("taints.muster.io/record".to_owned(), record.to_string());
    back.annotations_mut().extend([record]);
    let mut removing = policy();
    removing.spec.taints_to_add[0].remove_on_mismatch_seconds = Some(300);
    let goes = "in 4 min (00:14:00Z): the last taint of m1 goes, if it stays ready";
    for (policies, expected) in [(vec![removing], goes), (vec![], "nothing")] {
        let report = decide(&Snapshot {
            taint_policies: Some(policies),
            ..snapshot(vec![back.clone()], Vec::new())
        });
        assert_eq!(report.summary.next, expected);
    }
}

/// Returns a binding whose policy stops it in `m1` if that is cut off.
fn fenced(name: &str) -> Arc<AnyBinding> {
    let mut binding = AnyBinding::clone(&placed(name, "m1", "Healthy", None));
    let failover = json!({ "cluster": { "fencing": { "afterSeconds": 60 } } });
    binding.spec.failover = Some(read(failover));
    Arc::new(binding)
}

/// Returns a binding that is leaving `m1`, healthy or not in `m2`.
fn moved_from(name: &str, health: &str) -> Arc<AnyBinding> {
    let mut binding = AnyBinding::clone(&placed(name, "m2", health, None));
    let task = json!([{ "fromCluster": "m1", "reason": "ApplicationFailure", "producer": "p" }]);
    binding.spec.graceful_eviction_tasks = read(task);
    Arc::new(binding)
}

/// Returns a binding whose old copy in `m1` stays until somebody releases it.
pub(super) fn kept(name: &str) -> Arc<AnyBinding> {
    let mut binding = AnyBinding::clone(&moved_from(name, "Healthy"));
    binding.spec.graceful_eviction_tasks[0].suppress_deletion = Some(true);
    Arc::new(binding)
}

#[test]
fn a_workload_that_starts_after_its_move_is_counted() {
    for (binding, expected) in [
        (starting("web", "m1"), 1),
        (moved_from("web", "Unhealthy"), 1),
        (moved_from("web", "Healthy"), 0),
        (placed("web", "m1", "Unhealthy", None), 0),
    ] {
        let report = decide(&snapshot(five(&[]), vec![binding]));
        assert_eq!(report.service.starting.count, expected);
        let text = print::table(&report, NOW.parse().unwrap());
        assert_eq!(text.contains(", 1 starting\n"), expected > 0, "{text}");
    }
}

#[test]
fn workloads_in_several_clusters_are_said_to_count_in_each() {
    let both = failing_for("web", "WaitingForToleration");
    let expected = "2 workloads have 3 copies: tiles and arrows count each copy, one a cluster.";
    for (bindings, expected) in [
        (vec![both, starting("db", "m1")], Some(expected)),
        (vec![starting("db", "m1")], None),
    ] {
        let report = decide(&snapshot(five(&[]), bindings));
        assert_eq!(report.spread.as_deref(), expected);
    }
}

/// Returns a binding that is placed in a cluster, healthy there or not, and waits for a reason.
pub(super) fn placed(
    name: &str,
    on: &str,
    health: &str,
    pending: Option<(&str, &str)>,
) -> Arc<AnyBinding> {
    let conditions: Vec<Value> = pending
        .into_iter()
        .map(|(reason, message)| condition("EvictionPending", "True", reason, message, SINCE))
        .collect();
    let changes = json!({
        "spec": { "clusters": [{ "name": on, "replicas": 1 }] },
        "status": {
            "conditions": conditions,
            "aggregatedStatus": [{ "clusterName": on, "applied": true, "health": health }],
        },
    });
    fixtures::binding("default", name, &changes)
}

/// Returns a workload that was applied in a cluster and of which no health is reported yet.
pub(super) fn starting(name: &str, cluster: &str) -> Arc<AnyBinding> {
    let mut binding = placed(name, cluster, "Healthy", None).as_ref().clone();
    let status = binding.status.as_mut().unwrap();
    status.aggregated_status[0].health = None;
    Arc::new(binding)
}

/// Returns clusters m1 to m5, of which the first ones are in a state.
pub(super) fn five(ready: &[&str]) -> Vec<Cluster> {
    let names = ["m1", "m2", "m3", "m4", "m5"].iter().enumerate();
    let each = names.map(|(at, name)| cluster(name, ready.get(at).unwrap_or(&"True"), &[]));
    each.collect()
}

pub(super) fn healthy(count: usize, on: &str) -> Vec<Arc<AnyBinding>> {
    let each = (0..count).map(|at| placed(&format!("web{at}"), on, "Healthy", None));
    each.collect()
}

pub(super) fn pending(name: &str, reason: &str, message: &str) -> Arc<AnyBinding> {
    placed(name, "m1", "Unknown", Some((reason, message)))
}

/// Returns a policy that taints a cluster 320 seconds after it is not ready any more.
pub(super) fn policy() -> ClusterTaintPolicy {
    read(json!({
        "metadata": { "name": "failed", "generation": 1 },
        "spec": {
            "matchConditions": [{ "conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"] }],
            "taintsToAdd": [{ "key": "failed", "effect": "NoExecute", "addOnMatchSeconds": 320 }],
        },
    }))
}

/// Returns the five clusters, the first of which the control plane has seen fail 300 seconds ago.
pub(super) fn watched() -> Vec<Cluster> {
    let mut clusters = five(&["Unknown"]);
    let seen = json!({ "windows": { "failed": {
        "generation": 1, "matched": true, "since": "2026-01-01T00:05:00Z",
        "transition": "2026-01-01T00:05:00Z",
    } } });
    let record = ("taints.muster.io/record".to_owned(), seen.to_string());
    clusters[0].annotations_mut().extend([record]);
    clusters
}

pub(super) const NOWHERE: &str = "has to leave m1 and stays: no room; m1 has x:NoExecute";
pub(super) const TOLERATED: &str = "m1 has x:NoExecute: it stays until 2026-01-01T00:10:26Z";

#[test]
fn a_workload_that_asks_for_no_replicas_is_not_without_service() {
    // A workload whose replicas are divided has no cluster where it has no replicas.
    let scheduled = condition("Scheduled", "True", "Success", "", SINCE);
    let asleep = json!({
        "spec": { "replicas": 0, "replicaRequirements": {} },
        "status": { "conditions": [scheduled] },
    });
    let asleep = fixtures::binding("default", "web", &asleep);
    let well = decide(&snapshot(five(&[]), healthy(1, "m1")));
    let report = decide(&snapshot(five(&[]), vec![asleep]));
    assert_eq!(report.service.without.count, 0, "nothing of it is to run");
    assert_eq!(report.code(), well.code());
}

#[test]
fn a_job_that_has_completed_in_a_silent_cluster_is_not_without_service() {
    let unknown = condition("FullyApplied", "Unknown", "ClustersNotHeard", "", SINCE);
    let job = |complete: &str| {
        let report = json!({
            "clusterName": "m1", "health": "Unknown",
            "status": { "conditions": [{ "type": "Complete", "status": complete }] },
        });
        let changes = json!({
            "spec": {
                "resource": { "apiVersion": "batch/v1", "kind": "Job" },
                "replicas": 1, "clusters": [{ "name": "m1", "replicas": 1 }],
            },
            "status": { "aggregatedStatus": [report], "conditions": [unknown] },
        });
        fixtures::binding("default", "sum", &changes)
    };
    for (complete, expected) in [("True", 0), ("False", 1)] {
        let report = decide(&snapshot(five(&["Unknown"]), vec![job(complete)]));
        let counted = [
            report.service.perhaps.count,
            report.not_well[0].workloads.staying,
            report.unknown,
        ];
        assert_eq!(counted, [expected; 3], "{complete}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn the_state_of_the_fleet_is_reported_in_one_sentence() {
    let left: Vec<ObjectMeta> = (0..12).map(|at| work(&format!("web{at}"), "m1")).collect();
    let lost = || {
        let stranded = ["a", "b"].map(|name| pending(name, "NowhereToGo", NOWHERE));
        let mut all = healthy(12, "m2");
        all.extend(stranded);
        Snapshot {
            works: Ok(left.clone()),
            ..snapshot(five(&["Unknown"]), all)
        }
    };
    let with = |ready: &[&str], bindings| snapshot(five(ready), bindings);
    let waits = |reason: &str, message: &str| vec![pending("a", reason, message)];
    let dead = lease("cp-0", "2026-01-01T00:06:00Z");
    let led = |leader| Snapshot {
        leader,
        ..with(&[], Vec::new())
    };
    let with_drained = headline::ordered("failover.muster.io/drain", "NoExecute");
    for (snapshot, expected) in vec![
        (
            with(&[], healthy(14, "m1")),
            "WELL: 5 of 5 clusters ready, 14 workloads placed",
        ),
        (
            Snapshot {
                leases: Err("list leases: forbidden".to_owned()),
                ..with(&[], healthy(1, "m1"))
            },
            "WELL: 5 of 5 clusters ready, 1 workload placed",
        ),
        (
            off(with(&[], healthy(1, "m1"))),
            "WELL: 5 of 5 clusters ready, 1 workload placed; failover is OFF, so that no failure moves anything",
        ),
        (
            unjudged(with(&[], healthy(1, "m1"))),
            "WELL: 5 of 5 clusters ready, 1 workload placed; the controller taintmanager is off, so that no taint moves anything",
        ),
        (
            unjudged(snapshot(with_drained.clone(), healthy(1, "m1"))),
            "NOTICE: m1 drained for 2 min (since 00:08:00Z), and nothing leaves it: the controller taintmanager is off",
        ),
        (
            with(&[], vec![placed("web", "m1", "Unhealthy", None)]),
            "WELL: 5 of 5 clusters ready, 1 workload placed",
        ),
        (
            with(&[], vec![failing("web")]),
            "ATTENTION: 1 workload with application failover and no healthy copy",
        ),
        (
            with(&[], vec![moved_from("web", "Unhealthy")]),
            "ALARM: 1 workload without service",
        ),
        (
            with(&[], vec![moved_from("web", "Healthy")]),
            "WELL: 5 of 5 clusters ready, 1 workload placed, 1 of them moving",
        ),
        (
            with(&[], vec![kept("web")]),
            "WELL: 5 of 5 clusters ready, 1 workload placed; 1 old copy stays until somebody releases it",
        ),
        (
            snapshot(Vec::new(), Vec::new()),
            "WELL: no cluster has joined yet",
        ),
        (
            lost(),
            "ALARM: m1 silent for 5 min 40 s (last heard 00:04:20Z): 12 of 14 workloads run elsewhere, 2 have nowhere to go",
        ),
        (
            Snapshot {
                works: Ok(left.clone()),
                ..with(&["Unknown"], healthy(12, "m2"))
            },
            "ATTENTION: m1 silent for 5 min 40 s (last heard 00:04:20Z): 12 workloads run elsewhere",
        ),
        (
            Snapshot {
                works: Ok(vec![work("a", "m1"), work("b", "m1")]),
                ..with(
                    &["Unknown"],
                    vec![starting("a", "m2"), placed("b", "m2", "Healthy", None)],
                )
            },
            "ALARM: m1 silent for 5 min 40 s (last heard 00:04:20Z): 1 of 2 workloads runs elsewhere, 1 starts elsewhere",
        ),
        (
            with(&["Unknown"], waits("WaitingForToleration", TOLERATED)),
            "ALARM: m1 silent for 5 min 40 s (last heard 00:04:20Z): 1 workload waits for the end of the grace time (toleration)",
        ),
        (
            off(with(&["Unknown"], healthy(2, "m1"))),
            "ALARM: m1 silent for 5 min 40 s (last heard 00:04:20Z): 2 workloads stay there",
        ),
        (
            with(&["Unknown", "Unknown"], Vec::new()),
            "ATTENTION: 2 of 5 clusters (m1, m2) silent at once for 5 min 40 s (last heard 00:04:20Z)",
        ),
        (
            // Lost in both, one after the other.
            Snapshot {
                works: Ok(vec![work("web0", "m1"), work("web0", "m2")]),
                ..with(&["Unknown", "Unknown"], healthy(1, "m3"))
            },
            "ATTENTION: 2 of 5 clusters (m1, m2) silent at once for 5 min 40 s (last heard 00:04:20Z): 1 workload runs elsewhere",
        ),
        (
            Snapshot {
                works: Ok(vec![work("web0", "m1")]),
                ..with(
                    &["Unknown", "Unknown"],
                    vec![placed(
                        "web0",
                        "m2",
                        "Unknown",
                        Some((
                            "WaitingForToleration",
                            "m2 has x:NoExecute: it stays until 2026-01-01T00:10:26Z",
                        )),
                    )],
                )
            },
            "ALARM: 2 of 5 clusters (m1, m2) silent at once for 5 min 40 s (last heard 00:04:20Z): 1 workload waits for the end of the grace time (toleration)",
        ),
        (
            with(
                &["Unknown", "Unknown", "Unknown"],
                waits("StoppedByThreshold", "m1 has x:NoExecute: it stays"),
            ),
            "ALARM: 3 of 5 clusters (m1, m2, m3) silent at once for 5 min 40 s (last heard 00:04:20Z): 1 workload waits because too many clusters have failed",
        ),
        (
            with(&["Unknown"; 5], healthy(14, "m1")),
            "ALARM: 5 of 5 clusters silent at once for 5 min 40 s (last heard 00:04:20Z): most likely the network of the fleet API, not the clusters; workloads most likely still run; movement is stopped",
        ),
        (
            with(&["Unknown"; 5], vec![fenced("web")]),
            "ALARM: 5 of 5 clusters silent at once for 5 min 40 s (last heard 00:04:20Z): most likely the network of the fleet API, not the clusters; workloads most likely still run, except those with fencing; movement is stopped",
        ),
        (
            with(&["False"], healthy(1, "m1")),
            "ALARM: m1 not ready for 5 min (since 00:05:00Z): 1 workload stays there",
        ),
        (
            with(&["False", "Unknown"], Vec::new()),
            "ATTENTION: m2 silent for 5 min (since 00:05:00Z); m1 not ready for 5 min (since 00:05:00Z)",
        ),
        (
            snapshot(
                vec![cluster("m1", "True", &["gpu"]), cluster("m2", "True", &[])],
                healthy(1, "m1"),
            ),
            "ATTENTION: m1 ready, but tainted (gpu:PreferNoExecute): 1 workload stays there",
        ),
        (
            with(
                &[],
                waits("NowhereToGo", "has to leave m1 and stays: no room"),
            ),
            "ALARM: 1 workload has nowhere to go",
        ),
        (
            with(
                &[],
                waits(
                    "EvictWorkloadFromClusterFailed",
                    "has to leave m1 and stays until the next attempt: refused",
                ),
            ),
            "ATTENTION: 1 workload cannot leave, because the last attempt failed",
        ),
        (
            with(&[], waits("NotFenced", "m1 has x:NoExecute")),
            "ALARM: 1 workload cannot leave, because nothing stops the old copy",
        ),
        (
            snapshot(
                with_drained.clone(),
                waits(
                    "WaitingForRate",
                    "m1 has failover.muster.io/drain:NoExecute: it leaves",
                ),
            ),
            "NOTICE: m1 drained for 2 min (since 00:08:00Z), 1 workload waits for its turn, at the pace of the fleet",
        ),
        (
            snapshot(with_drained, vec![moved_from("web", "Healthy")]),
            "NOTICE: m1 drained for 2 min (since 00:08:00Z), 1 workload leaving",
        ),
        (
            with(
                &[],
                vec![binding(
                    "web",
                    &[("Scheduled", "False", "NoClusterFit")],
                    None,
                )],
            ),
            "ALARM: 1 workload without a place",
        ),
        (
            with(
                &[],
                vec![binding(
                    "web",
                    &[("DataPending", "True", "WaitingForData")],
                    None,
                )],
            ),
            "ATTENTION: 1 workload waits for its data",
        ),
        (
            with(
                &[],
                vec![
                    binding("web", &[("DataPending", "True", "DataNotReady")], None),
                    binding(
                        "db",
                        &[("RemovalPending", "True", "WaitingForRemoval")],
                        None,
                    ),
                ],
            ),
            "ALARM: 1 workload has waited too long for its data, 1 waits for the removal of an old copy",
        ),
        (
            with(
                &[],
                vec![
                    failing_for("a", "WaitingForToleration"),
                    failing_for("b", "NowhereToGo"),
                    failing_for("c", "ClusterReturned"),
                ],
            ),
            "ATTENTION: 1 failing application has nowhere to go",
        ),
        (
            with(
                &[],
                vec![
                    failing_for("a", "EvictWorkloadFromClusterFailed"),
                    failing_for("b", "GracefulEvictionDisabled"),
                    failing_for("c", "MovedLately"),
                    failing_for("d", "UpdateNotApplied"),
                ],
            ),
            "ATTENTION: 1 failing application cannot leave, because the last attempt failed, 1 cannot leave, because the feature gate GracefulEviction is off, 1 waits until another move is allowed, 1 cannot leave, because the last update was not applied there",
        ),
        (
            // The workload says so that the data follows.
            with(
                &[],
                vec![binding(
                    "data",
                    &[("DataPending", "True", "WaitingForRole")],
                    None,
                )],
            ),
            "WELL: 5 of 5 clusters ready, 1 workload placed",
        ),
        (
            with(&[], vec![binding("web", &[LACKS], None)]),
            "ATTENTION: 1 workload with missing dependencies",
        ),
        (
            with(
                &[],
                vec![binding(
                    "web",
                    &[("HostnamePublished", "False", "Conflict")],
                    None,
                )],
            ),
            "ATTENTION: 1 workload with a host name that is not published",
        ),
        (
            with(
                &[],
                vec![binding(
                    "web",
                    &[("HostnamePublished", "False", "NothingServes")],
                    None,
                )],
            ),
            "WELL: 5 of 5 clusters ready, 1 workload placed",
        ),
        (
            with(
                &[],
                vec![binding(
                    "web",
                    &[("FullyApplied", "Unknown", "ClustersNotHeard")],
                    None,
                )],
            ),
            "ATTENTION: 1 workload with a state that is not known",
        ),
        (
            Snapshot {
                pause: Ok(Some(pause(Some("2026-01-03T00:00:00Z")))),
                ..with(&[], Vec::new())
            },
            "ATTENTION: all movement is paused by ann since 00:10:00Z until 2026-01-03 00:00:00Z",
        ),
        (
            Snapshot {
                pause: Ok(Some(pause(Some("2026-01-01T00:09:00Z")))),
                ..with(&[], Vec::new())
            },
            "WELL: 5 of 5 clusters ready, 0 workloads placed",
        ),
        (
            led(Ok(Some(dead))),
            "ALARM: no control plane leads for 4 min (since 00:06:00Z): nothing moves, and silent clusters are not noticed; m1 silent for 5 min 40 s (last heard 00:04:20Z)",
        ),
        (
            Snapshot {
                leader: Ok(None),
                leases: Ok(BTreeMap::new()),
                ..with(&[], Vec::new())
            },
            "ATTENTION: no control plane leads: nothing moves, unless one acts without an election (--leader-elect=false)",
        ),
        (
            led(Err("get lease: forbidden".to_owned())),
            "ATTENTION: it is not known whether a control plane leads",
        ),
        (
            Snapshot {
                bindings: Err("list bindings: forbidden".to_owned()),
                ..with(&[], Vec::new())
            },
            "NOT KNOWN: cannot list bindings: forbidden",
        ),
        (
            Snapshot {
                leader: Err("get lease: it does not answer".to_owned()),
                leases: Err("list leases: it does not answer".to_owned()),
                clusters: Err("list clusters: it does not answer".to_owned()),
                bindings: Err("list bindings: it does not answer".to_owned()),
                ..with(&[], Vec::new())
            },
            "NOT KNOWN: the fleet API (https://fleet:6443) cannot be read: it does not answer",
        ),
        (
            Snapshot {
                clusters: Err("list clusters: no (403 Forbidden)".to_owned()),
                bindings: Err("list bindings: no (403 Forbidden)".to_owned()),
                ..with(&[], Vec::new())
            },
            "NOT KNOWN: you may not read this: list clusters, list bindings",
        ),
        (
            {
                let refused = || "x: ServiceError: client error (Connect): refused".to_owned();
                Snapshot {
                    leader: Err(refused()),
                    clusters: Err(refused()),
                    bindings: Err(refused()),
                    ..with(&[], Vec::new())
                }
            },
            "NOT KNOWN: the fleet API (https://fleet:6443) does not answer: refused",
        ),
        (
            Snapshot {
                pause: Err("get configmap: forbidden".to_owned()),
                ..with(&[], Vec::new())
            },
            "ATTENTION: it could not be read whether movement is paused",
        ),
    ] {
        let report = decide(&snapshot);
        assert_eq!(report.summary.line(), expected);
        let code = match report.summary.severity {
            Severity::Unknown => UNREAD,
            severity => u8::from(severity != Severity::Well),
        };
        assert_eq!(report.code(), code, "{expected}");
    }
}

#[test]
fn a_cluster_whose_clock_is_slow_is_not_reported_to_have_been_silent_for_longer() {
    // The control plane saw all of them fall silent five minutes ago. The clock of m1 is three
    // hours slow.
    let reported = [&["Unknown"][..], &["Unknown"; 5]].map(|ready| {
        let slow = Snapshot {
            leases: Ok(renewed("2025-12-31T21:04:20Z")),
            ..snapshot(five(ready), Vec::new())
        };
        decide(&slow).summary.line()
    });
    assert!(
        reported[0].contains("m1 silent for 5 min (since 00:05:00Z)"),
        "{reported:?}"
    );
    assert!(reported[1].contains("at once"), "{reported:?}");
    assert!(
        reported[1].contains("most likely the network"),
        "{reported:?}"
    );
}

#[test]
fn what_peers_see_of_a_cluster_that_is_not_ready_is_reported() {
    let reported = |ready: &str, seen: &str, leader: &str| {
        let mut clusters = five(&[ready]);
        let seen = condition("SeenByPeers", seen, "x", "as m2 says", SINCE);
        let status = clusters[0].status.as_mut().unwrap();
        status.conditions.push(read(seen));
        let report = decide(&Snapshot {
            leader: Ok(Some(lease("cp-0", leader))),
            ..snapshot(clusters, Vec::new())
        });
        let why = report.not_well[0].why.clone().unwrap_or_default();
        (report.summary.sentence, why)
    };
    let silent = "m1 silent for 5 min 40 s (last heard 00:04:20Z)";
    let not_ready = "m1 not ready for 5 min (since 00:05:00Z)";
    let (alive, lost) = (", but a peer reaches it", ", and no peer reaches it");
    for (ready, seen, words, more, why) in [
        (
            "Unknown",
            "True",
            silent,
            alive,
            "SeenByPeers=True: as m2 says",
        ),
        (
            "Unknown",
            "False",
            silent,
            lost,
            "SeenByPeers=False: as m2 says",
        ),
        ("Unknown", "Unknown", silent, "", ""),
        (
            "False",
            "True",
            not_ready,
            alive,
            "SeenByPeers=True: as m2 says",
        ),
    ] {
        let expected = (format!("{words}{more}"), why.to_owned());
        assert_eq!(reported(ready, seen, "2026-01-01T00:09:58Z"), expected);
    }
    // No control plane leads, so that the reports of peers are not judged.
    let (sentence, why) = reported("Unknown", "True", "2026-01-01T00:06:00Z");
    assert!(sentence.ends_with(silent), "{sentence}");
    assert_eq!(why, "");
}

#[test]
fn a_check_that_fails_is_reported_of_a_cluster_whether_it_is_tainted_or_not() {
    let of = |taints: &[&str], checks: &[(&str, &str)]| {
        let mut checked = cluster("m1", "True", taints);
        let conditions = &mut checked.status.as_mut().unwrap().conditions;
        for (kind, status) in checks {
            let said = condition(kind, status, "x", "no \u{1b}route", SINCE);
            conditions.push(read(said));
        }
        let report = decide(&snapshot(vec![checked], Vec::new()));
        let found = report.not_well.first();
        let why = found.and_then(|it| it.why.clone()).unwrap_or_default();
        (report.summary.line(), why)
    };
    let tainted = "ATTENTION: m1 ready, but tainted (no-way-out:PreferNoExecute)";
    let well = "WELL: 1 of 1 clusters ready, 0 workloads placed";
    let fails = "ATTENTION: m1 ready, but EgressReady=False for 4 min (since 00:06:00Z)";
    let (egress, nodes) = ("EgressReady", "NodesReady");
    let taint = &["no-way-out"][..];
    for (taints, checks, line, why) in [
        (
            taint,
            &[(egress, "False")][..],
            tainted,
            "EgressReady=False: no  route",
        ),
        (taint, &[(egress, "True")], tainted, ""),
        (taint, &[(egress, "Unknown")], tainted, ""),
        (&[], &[(egress, "True")], well, ""),
        (&[], &[(egress, "Unknown")], well, ""),
        (&[], &[(egress, "False")], fails, "no \u{1b}route"),
        (
            &[],
            &[(egress, "False"), (nodes, "False")],
            "ATTENTION: m1 ready, but NodesReady=False for 4 min (since 00:06:00Z)",
            "no \u{1b}route; EgressReady=False: no  route",
        ),
    ] {
        assert_eq!(of(taints, checks), (line.to_owned(), why.to_owned()));
    }
}

#[test]
fn what_runs_in_a_cluster_that_is_only_tainted_runs_elsewhere() {
    let mut clusters = five(&["Unknown"]);
    clusters[1].spec.taints = read(json!([{ "key": "gpu", "effect": "NoSchedule" }]));
    let line = decide(&Snapshot {
        works: Ok(vec![work("web0", "m1")]),
        ..snapshot(clusters, healthy(1, "m2"))
    })
    .summary
    .line();
    let expected = "ATTENTION: m1 silent for 5 min 40 s (last heard 00:04:20Z): 1 workload runs elsewhere; m2 ready, but tainted (gpu:NoSchedule): 1 workload stays there";
    assert_eq!(line, expected);
}
