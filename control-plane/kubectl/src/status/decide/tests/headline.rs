//! What follows the sentence, in a fixed order: who is without service, what happens next, what to
//! do.

use super::sentence::{
    NOWHERE, TOLERATED, five, healthy, kept, pending, placed, policy, starting, watched,
};
use super::*;

/// Returns the five clusters, of which m1 has a taint of a command.
pub(super) fn ordered(key: &str, effect: &str) -> Vec<Cluster> {
    let mut all = five(&[]);
    all[0].spec.taints = read(json!([{
        "key": key, "effect": effect, "timeAdded": "2026-01-01T00:08:00Z",
    }]));
    all
}

/// Returns a workload that left m1 at 00:04, and whether its policy asks for failback.
fn moved(name: &str, returns: bool) -> Arc<AnyBinding> {
    let mut binding = placed(name, "m2", "Healthy", None).as_ref().clone();
    let time = "2026-01-01T00:04:00Z";
    let record =
        json!({ "from": "m1", "to": "m2", "mode": "Gracefully", "cause": "x", "at": time });
    let annotations = if returns {
        let failback =
            json!({ "cluster": { "failback": { "mode": "WhenHealthy", "afterSeconds": 600 } } });
        binding.spec.failover = read(failback);
        (
            "failover.muster.io/homes",
            json!({ "m1": time }).to_string(),
        )
    } else {
        ("failover.muster.io/last-eviction", record.to_string())
    };
    let annotations = BTreeMap::from([(annotations.0.to_owned(), annotations.1)]);
    binding.metadata.annotations = Some(annotations);
    Arc::new(binding)
}

/// Returns a Job in place of a workload, which has completed where that is.
fn completed(workload: &AnyBinding) -> Arc<AnyBinding> {
    let mut job = workload.clone();
    job.spec.resource = read(json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "sum" }));
    let complete = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    let report = json!({ "clusterName": "m2", "applied": true, "status": complete });
    let status = job.status.as_mut().unwrap();
    status.aggregated_status = read(json!([report]));
    Arc::new(job)
}

/// Returns clusters of which m1 is healthy since 00:05.
fn back() -> Vec<Cluster> {
    let mut all = five(&[]);
    let since = (
        "failover.muster.io/healthy-since".to_owned(),
        "2026-01-01T00:05:00Z".to_owned(),
    );
    all[0].annotations_mut().extend([since]);
    all
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn who_is_without_service_what_happens_next_and_what_to_do_are_reported_in_this_order() {
    let with = |ready: &[&str], bindings| snapshot(five(ready), bindings);
    let fence = "m1 has x:NoExecute: it leaves when its copy there is stopped: its copy may run until 400 s after the last renewal of the cluster's lease";
    let fenced = |reason: &str| {
        let mut binding = pending("ledger", reason, fence).as_ref().clone();
        let reported = condition("Fenced", "True", "ConfirmedByAgents", "", SINCE);
        let status = binding.status.as_mut().unwrap();
        status.conditions.push(read(reported));
        vec![Arc::new(binding)]
    };
    let paused = |snapshot: Snapshot| Snapshot {
        pause: Ok(Some(pause(None))),
        ..snapshot
    };
    let config = json!({ "spec": {
        "resource": { "apiVersion": "v1", "kind": "ConfigMap" }, "clusters": [{ "name": "m1" }],
    } });
    let config = fixtures::binding("default", "settings", &config);
    let stopped = |reason: &str| with(&["Unknown"; 3], fenced(reason));
    let raise = "only if they are dead, since workloads that still run there would run twice, set eviction.unhealthyClusterThreshold of the chart (muster-control-plane --unhealthy-cluster-threshold) from 0.55 to 0.60 or more: 3 of 5 have failed. To see what would move then, which changes nothing: kubectl muster simulate --lost m1,m2,m3 -- --feature-gates=Failover=true --unhealthy-cluster-threshold=0.60";
    let common = "others are heard, so that the fleet API can be reached, and these clusters or their own network are at fault: look for the common cause and bring back at least 1 of them, by which workloads may move again";
    let keep = "m1 within 60 s, or Deployment default/ledger stops there";
    let nothing = (
        "no workload is without service",
        "nothing moves or waits",
        "nothing",
    );
    let down = "find out with direct access (kubeconfig, the provider's console) whether m1 runs or is dead";
    let describe = "what is known here: kubectl describe cluster m1";
    for (what, snapshot, service, next, advice) in vec![
        ("well", with(&[], healthy(3, "m1")), nothing.0, nothing.1, nothing.2.to_owned()),
        (
            "nobody has joined, and nothing has a place",
            snapshot(Vec::new(), vec![binding("web", &[("Scheduled", "False", "NoClusterFit")], None)]),
            "1 workload is without service (Deployment default/web)",
            nothing.1,
            "let a first cluster join: kubectl muster token create --cluster-name member1 --print-helm-command".to_owned(),
        ),
        (
            "a ConfigMap has no service to lose",
            with(&["Unknown"], vec![config]),
            nothing.0,
            "nothing until m1 is ready again",
            format!("{down}; {describe}"),
        ),
        (
            "moved, with old copies",
            Snapshot { works: Ok(vec![work("web0", "m1")]), ..with(&["Unknown"], healthy(1, "m2")) },
            nothing.0,
            "the old copies in m1 go when it is ready again; when is not known",
            format!("{down}; {describe}"),
        ),
        (
            "the first may leave in a moment",
            with(&["Unknown"], vec![pending("a", "WaitingForToleration", TOLERATED)]),
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/a): its cluster is silent",
            "in 26 s (00:10:26Z): the first workload may leave m1",
            format!("let it go on, and {down}; {describe}"),
        ),
        (
            "the taint comes first",
            Snapshot { clusters: Ok(watched()), taint_policies: Some(vec![policy()]), ..with(&[], healthy(1, "m1")) },
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/web0): its cluster is silent",
            "in 20 s (00:10:20Z): m1 gets a taint by which workloads leave",
            format!("{down}; {describe}"),
        ),
        (
            "the taint comes, and nothing judges it",
            unjudged(Snapshot { clusters: Ok(watched()), taint_policies: Some(vec![policy()]), ..with(&[], healthy(1, "m1")) }),
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/web0): its cluster is silent",
            "no taint moves anything, because the controller taintmanager is off",
            "bring the cluster back; workloads move by themselves only if the control plane runs with the controller taintmanager (--controllers, --enable-taint-manager): kubectl describe cluster m1".to_owned(),
        ),
        (
            "taints of its effect move nothing",
            Snapshot {
                settings: Settings { enable_no_execute_taint_eviction: false, ..Settings::default() },
                clusters: Ok(watched()), taint_policies: Some(vec![policy()]), ..with(&[], healthy(1, "m1"))
            },
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/web0): its cluster is silent",
            "nothing until m1 is ready again",
            format!("{down}; {describe}"),
        ),
        (
            "fenced",
            with(&["Unknown"], fenced("WaitingForFence")),
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/ledger): its cluster is silent; its copy there stops in 60 s (00:11:00Z) at the latest",
            "in 60 s (00:11:00Z): Deployment default/ledger is started elsewhere and not before: only then its copy in m1 has surely stopped",
            format!("let it go on, and {down}; {describe}"),
        ),
        (
            "fenced, and surely stopped",
            Snapshot { leases: Ok(renewed("2026-01-01T00:03:00Z")), ..with(&["Unknown"], fenced("WaitingForFence")) },
            "1 workload is without service (Deployment default/ledger)",
            "any moment now: Deployment default/ledger is started elsewhere and not before: only then its copy in m1 has surely stopped",
            format!("let it go on, and {down}; {describe}"),
        ),
        (
            "fenced and stopped, and nothing moves",
            stopped("StoppedByThreshold"),
            "1 workload is without service (Deployment default/ledger)",
            "nothing moves until fewer clusters have failed: 3 of 5 have, and at most 2 may",
            format!("1. {common}; 2. {raise}"),
        ),
        (
            "a fence of a fleet that is stopped leads nowhere",
            stopped("WaitingForFence"),
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/ledger): its cluster (m1) is silent; its copy there stops in 60 s (00:11:00Z) at the latest",
            "in 60 s (00:11:00Z): Deployment default/ledger stops itself in m1 at the latest, and stays down; nothing moves until fewer clusters have failed: 3 of 5 have, and at most 2 may",
            format!("1. {common} ({keep}); 2. {raise}"),
        ),
        (
            "one of several that wait stops itself",
            with(&["Unknown"; 3], [fenced("WaitingForFence"), vec![pending("a", "StoppedByThreshold", "m1 has x")]].concat()),
            "the copy of Deployment default/ledger stops in 60 s (00:11:00Z) at the latest; perhaps 2 workloads are without service, at worst since 00:04:20Z (Deployment default/ledger, a): their cluster (m1) is silent",
            "in 60 s (00:11:00Z): Deployment default/ledger stops itself in m1 at the latest, and stays down; nothing moves until fewer clusters have failed: 3 of 5 have, and at most 2 may",
            format!("1. {common} ({keep}); 2. {raise}"),
        ),
        (
            "paused",
            paused(with(&["Unknown"], fenced("WaitingForFence"))),
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/ledger): its cluster is silent; its copy there stops in 60 s (00:11:00Z) at the latest",
            "in 60 s (00:11:00Z): Deployment default/ledger stops itself in m1 at the latest, and stays down; nothing moves until somebody resumes movement (the pause has no end of its own)",
            format!("1. bring back {keep}; 2. ask who paused movement whether it may go on; to resume it now, by which Deployment default/ledger is started elsewhere once its copy has stopped: kubectl muster resume"),
        ),
        (
            "paused, and one has stopped already while others wait",
            paused(Snapshot { leases: Ok(renewed("2026-01-01T00:03:00Z")), ..with(&["Unknown"], [fenced("WaitingForFence"), vec![pending("a", "Paused", "m1 has x"), pending("b", "Paused", "m1 has x")]].concat()) }),
            "1 workload is without service (Deployment default/ledger); perhaps 2 others are without service, at worst since 00:03:00Z (Deployment default/a, b): their cluster is silent",
            "nothing moves until somebody resumes movement (the pause has no end of its own)",
            "ask who paused movement whether it may go on; to resume it now, by which 2 workloads that wait leave their clusters, at the pace of the fleet, and Deployment default/ledger is started elsewhere: kubectl muster resume".to_owned(),
        ),
        (
            "paused and stopped",
            paused(stopped("StoppedByThreshold")),
            "1 workload is without service (Deployment default/ledger)",
            "nothing moves until somebody resumes movement (the pause has no end of its own), and until fewer clusters have failed: 3 of 5 have, and at most 2 may",
            "ask who paused movement whether it may go on; to resume it now, by which nothing moves before fewer clusters have failed: kubectl muster resume".to_owned(),
        ),
        (
            "all silent",
            with(&["Unknown"; 5], healthy(4, "m1")),
            "4 workloads are not seen (Deployment default/web0, web1, web2, web3): they most likely still run",
            "nothing moves until fewer clusters have failed: 5 of 5 have, and at most 2 may",
            "every cluster is silent, which points at what they share: repair the network of the fleet API (address, which is https://fleet:6443 here, DNS, certificate, load balancer); leave the clusters as they are, and look into one only if it stays silent when others are back; to see what is wrong: kubectl muster check".to_owned(),
        ),
        (
            "all silent, and one stops itself",
            with(&["Unknown"; 5], [fenced("WaitingForFence"), healthy(1, "m2")].concat()),
            "the copy of Deployment default/ledger stops in 60 s (00:11:00Z) at the latest; 2 workloads are not seen (Deployment default/ledger, web0): they most likely still run",
            "in 60 s (00:11:00Z): Deployment default/ledger stops itself in m1 at the latest, and stays down; nothing moves until fewer clusters have failed: 5 of 5 have, and at most 2 may",
            format!("every cluster is silent, which points at what they share: repair the network of the fleet API (address, which is https://fleet:6443 here, DNS, certificate, load balancer), for {keep}; leave the clusters as they are, and look into one only if it stays silent when others are back; to see what is wrong: kubectl muster check"),
        ),
        (
            "nowhere to go",
            with(&["Unknown"], vec![pending("a", "NowhereToGo", NOWHERE)]),
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/a): its cluster is silent",
            "1 workload cannot leave m1 until the cause that keeps it there is fixed",
            "find out what keeps workloads from leaving, such as room or affinity, and fix it: kubectl muster explain deployment/a -n default".to_owned(),
        ),
        (
            "two have nowhere to go",
            with(&["Unknown"], ["a", "b"].map(|it| pending(it, "NowhereToGo", NOWHERE)).to_vec()),
            "perhaps 2 workloads are without service, at worst since 00:04:20Z (Deployment default/a, b): their cluster is silent",
            "2 workloads cannot leave m1 until the cause that keeps them there is fixed",
            "find out what keeps workloads from leaving, such as room or affinity, and fix it: kubectl muster explain deployment/a -n default".to_owned(),
        ),
        (
            "its eviction is refused",
            snapshot(
                ordered("failover.muster.io/drain", "NoExecute"),
                vec![pending("a", "EvictWorkloadFromClusterFailed", "has to leave m1 and stays until the next attempt: refused")],
            ),
            nothing.0,
            "Deployment default/a cannot leave, because the last attempt failed",
            "find out why the eviction cannot be written, which is tried again: kubectl muster explain deployment/a -n default".to_owned(),
        ),
        (
            "starts elsewhere, and the old copy is gone",
            Snapshot { works: Ok(Vec::new()), ..with(&[], vec![binding("web", &[("Scheduled", "False", "NoClusterFit"), ("EvictionPending", "True", "NowhereToGo")], None)]) },
            "1 workload is without service (Deployment default/web)",
            nothing.1,
            "find out what keeps workloads from leaving, such as room or affinity, and fix it: kubectl muster explain deployment/web -n default".to_owned(),
        ),
        (
            "it was applied a moment ago",
            with(&[], vec![starting("web", "m1")]),
            nothing.0,
            nothing.1,
            nothing.2.to_owned(),
        ),
        (
            "unhealthy by itself",
            with(&[], vec![placed("web", "m1", "Unhealthy", None)]),
            "no workload is without service because of a cluster; 1 workload is not healthy in clusters that are ready (Deployment default/web)",
            nothing.1,
            nothing.2.to_owned(),
        ),
        (
            "failover is off",
            off(with(&["Unknown"], healthy(1, "m1"))),
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/web0): its cluster is silent",
            "nothing moves, because failover is off",
            "bring the cluster back; workloads move by themselves only if the control plane runs with --feature-gates=Failover=true: kubectl describe cluster m1".to_owned(),
        ),
        (
            "failover is off, and two are lost",
            off(with(&["Unknown"; 2], healthy(1, "m1"))),
            "perhaps 1 workload is without service, at worst since 00:04:20Z (Deployment default/web0): its cluster (m1) is silent",
            "nothing moves, because failover is off",
            "bring the clusters back; workloads move by themselves only if the control plane runs with --feature-gates=Failover=true: kubectl describe cluster m1".to_owned(),
        ),
        (
            "drained",
            snapshot(ordered("failover.muster.io/drain", "NoExecute"), healthy(1, "m2")),
            nothing.0,
            "nothing goes to m1 before undrain",
            "m1 is empty, and the work there may begin; when it is done: kubectl muster undrain m1".to_owned(),
        ),
        (
            "drained, and what left returns",
            snapshot(ordered("failover.muster.io/drain", "NoExecute"), vec![moved("a", true)]),
            nothing.0,
            "nothing goes to m1 before undrain; after undrain, when m1 has been healthy for at least 600 s, 1 workload returns",
            "m1 is empty, and the work there may begin; when it is done: kubectl muster undrain m1".to_owned(),
        ),
        (
            "cordoned",
            snapshot(ordered("failover.muster.io/cordon", "NoSchedule"), healthy(1, "m2")),
            nothing.0,
            nothing.1,
            "nothing; when the work there is done: kubectl muster uncordon m1".to_owned(),
        ),
        (
            "an old copy stays until somebody releases it",
            with(&[], vec![kept("a")]),
            nothing.0,
            "the old copy of Deployment default/a in m1 stays until suppressDeletion of its eviction task is set to false",
            "nothing; when the old copy in m1 is not needed any more, set suppressDeletion of its task (spec.gracefulEvictionTasks of the binding) to false; what is known of it: kubectl muster explain deployment/a -n default".to_owned(),
        ),
        (
            "back, and workloads return",
            snapshot(back(), vec![moved("a", true), moved("b", true)]),
            nothing.0,
            "in 5 min (00:15:00Z): 2 workloads return to m1, at the earliest",
            nothing.2.to_owned(),
        ),
        (
            "back, and nothing returns",
            snapshot(back(), vec![moved("a", false)]),
            nothing.0,
            "1 workload left m1 and stays where it is: no policy asks for failback",
            "nothing; when there is time, to bring back what left: kubectl muster rebalance --cluster m1".to_owned(),
        ),
        (
            "back, and nothing returns while failover is off",
            off(snapshot(back(), vec![moved("a", true), moved("b", true)])),
            nothing.0,
            "2 workloads that left m1 stay where they are: the feature gate Failover is off",
            "nothing; when there is time, to bring back what left: kubectl muster rebalance --cluster m1".to_owned(),
        ),
        (
            "the cluster that was left is gone, and nothing can be brought back to it",
            off(snapshot(back().split_off(1), vec![moved("a", false), moved("b", true)])),
            nothing.0,
            nothing.1,
            nothing.2.to_owned(),
        ),
        (
            "what left has completed",
            off(snapshot(back(), vec![completed(&moved("a", false)), completed(&moved("b", true))])),
            nothing.0,
            nothing.1,
            nothing.2.to_owned(),
        ),
        (
            "nobody leads",
            Snapshot { leader: Ok(Some(lease("cp-0", "2026-01-01T00:06:00Z"))), leases: Ok(BTreeMap::new()), ..with(&[], vec![pending("a", "WaitingForRate", "m1 has x")]) },
            nothing.0,
            "nothing moves until a control plane leads",
            "find out on the host cluster why no control plane runs: kubectl -n muster-system get pods".to_owned(),
        ),
        (
            "refused",
            Snapshot { clusters: Err("list clusters: no (403 Forbidden)".to_owned()), ..with(&[], Vec::new()) },
            "not known",
            "not known",
            "ask for the ClusterRole muster:view, or use other credentials; who you are to the fleet API: kubectl auth whoami".to_owned(),
        ),
        (
            "blind",
            Snapshot { clusters: Err("list clusters: refused".to_owned()), ..with(&[], Vec::new()) },
            "not known: a workload does not need the fleet API to run, unless its policy stops it where its cluster is cut off (fencing), and nothing here can show whether it runs",
            "not known; while the control plane cannot reach the fleet API either, nothing moves",
            "find out why the fleet API does not answer here (its server, the network, your credentials): kubectl muster check".to_owned(),
        ),
    ] {
        let summary = decide(&snapshot).summary;
        let command = summary.advice.command.as_deref();
        if let Some(words) = command.and_then(|it| it.strip_prefix("kubectl muster ")) {
            let line = ["kubectl-muster"].into_iter().chain(words.split(' '));
            crate::line::parse(line.map(str::to_owned)).unwrap();
        }
        let [reported_service, reported_next, reported_advice, _] = summary.lines();
        let found = [reported_service.1, reported_next.1, reported_advice.1];
        assert_eq!(found, [service.to_owned(), next.to_owned(), advice], "{what}");
    }
}

#[test]
fn the_forecast_that_is_advised_is_by_the_settings_that_hold() {
    let flags = [
        "--resource-eviction-rate=5",
        "--unhealthy-cluster-threshold=0.5",
    ];
    let settings = Settings::of_flags(&flags.map(str::to_owned)).unwrap();
    let stopped = Snapshot {
        settings,
        ..snapshot(five(&["Unknown"; 3]), healthy(1, "m1"))
    };
    let advice = decide(&stopped).summary.advice.to_string();
    let expected = "simulate --lost m1,m2,m3 -- --feature-gates=Failover=true --resource-eviction-rate=5 --unhealthy-cluster-threshold=0.60";
    assert!(advice.ends_with(expected), "{advice}");
}

#[test]
fn a_pause_of_one_cluster_is_to_be_ended_where_it_keeps_something_and_nowhere_else() {
    for (paused, expected) in [
        (
            0,
            "ask who paused movement whether it may go on; to resume it now, by which 1 workload that waits leaves its cluster, at the pace of the fleet: kubectl muster resume m1",
        ),
        (
            3,
            "let it go on, and find out with direct access (kubeconfig, the provider's console) whether m1 runs or is dead; what is known here: kubectl describe cluster m1",
        ),
    ] {
        let mut clusters = five(&["Unknown"]);
        let pause = (PAUSED.to_owned(), "disks".to_owned());
        clusters[paused].annotations_mut().extend([pause]);
        let waits = vec![pending("a", "WaitingForToleration", TOLERATED)];
        let summary = decide(&snapshot(clusters, waits)).summary;
        assert_eq!(summary.advice.to_string(), expected);
    }
}

#[test]
fn a_copy_that_has_stopped_is_not_to_be_stopped_where_another_one_may_run() {
    let fence = "m1 has x:NoExecute: its copy may run until 400 s after the last renewal";
    let mut binding = pending("ledger", WAITING_FOR_FENCE, fence).as_ref().clone();
    let second = read(json!({ "name": "m2", "replicas": 1 }));
    binding.spec.clusters.push(second);
    let report = decide(&Snapshot {
        leases: Ok(renewed("2026-01-01T00:03:00Z")),
        ..snapshot(five(&["Unknown"; 2]), vec![Arc::new(binding)])
    });
    let expected = "perhaps 1 workload is without service, at worst since 00:05:00Z (Deployment default/ledger): its cluster (m2) is silent";
    assert_eq!(report.summary.service, expected);
}

#[test]
fn clusters_that_say_that_they_are_not_ready_are_not_silent() {
    let placed = || [healthy(1, "m1"), healthy(1, "m2")].concat();
    for (ready, state, is_network) in [
        (["Unknown"; 5], "not seen", true),
        (
            ["False"; 5],
            ": their clusters (m1, m2) are not ready",
            false,
        ),
        (
            ["False", "Unknown", "False", "False", "False"],
            ": their clusters (m1, m2) are silent or not ready",
            false,
        ),
        (
            ["Unknown", "Unknown", "False", "False", "False"],
            ": their clusters (m1, m2) are silent",
            false,
        ),
    ] {
        let summary = decide(&snapshot(five(&ready), placed())).summary;
        assert!(summary.service.contains(state), "{}", summary.service);
        let advice = summary.advice.words;
        assert_eq!(
            advice.contains("network of the fleet API"),
            is_network,
            "{advice}"
        );
    }
}

#[test]
fn a_fleet_whose_workloads_are_not_back_does_not_seem_as_if_nothing_had_happened() {
    let line = decide(&snapshot(back(), vec![moved("a", true), moved("b", false)]))
        .summary
        .line();
    let expected = "WELL: 5 of 5 clusters ready, 2 workloads placed; 2 workloads that left m1 are not back there";
    assert_eq!(line, expected);
}

#[test]
fn many_lost_clusters_are_reported_by_the_region_that_most_of_them_are_in() {
    let clusters = (0..20).map(|at| {
        let is_north = at < 8;
        let mut it = cluster(
            &format!("c{at:02}"),
            if at < 5 || at == 9 { "Unknown" } else { "True" },
            &[],
        );
        it.spec.region = Some(if is_north { "eu-north" } else { "us" }.to_owned());
        it
    });
    let line = decide(&snapshot(clusters.collect(), Vec::new()))
        .summary
        .line();
    assert_eq!(
        line,
        "ATTENTION: 6 of 20 clusters silent at once for 5 min (since 00:05:00Z), 5 of them in eu-north (of 8 there)"
    );
}

#[test]
fn clusters_that_fall_silent_one_after_the_other_are_not_reported_to_have_done_so_at_once() {
    let first = "the first for 5 min 40 s (last heard 00:04:20Z)";
    for (count, second, expected) in [
        (
            2,
            "00:05:30",
            format!("ATTENTION: 2 of 5 clusters (m1, m2) silent, {first}, the last for 4 min 30 s (since 00:05:30Z)"),
        ),
        (
            2,
            "00:09:00",
            format!("ATTENTION: 2 of 5 clusters (m1, m2) silent, {first}, the last for 60 s (since 00:09:00Z)"),
        ),
        (
            5,
            "00:01:00",
            "ALARM: 5 of 5 clusters silent, the first for 9 min (since 00:01:00Z), the last for 5 min (since 00:05:00Z): most likely the network of the fleet API, not the 4 clusters that fell silent last; their workloads most likely still run; movement is stopped".to_owned(),
        ),
    ] {
        let mut clusters = five(&["Unknown"; 5][..count]);
        let condition = &mut clusters[1].status.as_mut().unwrap().conditions[0];
        let time = json!(format!("2026-01-01T{second}Z"));
        condition.last_transition_time = read(time);
        let line = decide(&snapshot(clusters, Vec::new())).summary.line();
        assert_eq!(line, expected);
    }
}

#[test]
fn workloads_of_a_cluster_that_was_lost_before_the_network_are_not_reported_to_run() {
    for (place, expected) in [
        ("m1", "it most likely still runs"),
        ("m2", "perhaps 1 workload is without service"),
    ] {
        let mut clusters = five(&["Unknown"; 5]);
        let condition = &mut clusters[1].status.as_mut().unwrap().conditions[0];
        condition.last_transition_time = read(json!("2026-01-01T00:01:00Z"));
        let service = decide(&snapshot(clusters, healthy(1, place)))
            .summary
            .service;
        assert!(service.contains(expected), "{place}: {service}");
    }
}

#[test]
fn a_share_of_zero_in_a_lost_cluster_is_no_copy_there() {
    let mut web = healthy(1, "m2")[0].as_ref().clone();
    web.spec.replicas = 2;
    web.spec.clusters[0].replicas = 2;
    for (replicas, stays) in [(0, false), (1, true)] {
        let mut web = web.clone();
        let share = json!({ "name": "m1", "replicas": replicas });
        web.spec.clusters.push(read(share));
        let summary = decide(&snapshot(five(&["Unknown"]), vec![Arc::new(web)])).summary;
        assert_eq!(summary.sentence.contains("stays there"), stays);
        assert_eq!(summary.service.contains("fewer copies"), stays);
    }
}

#[test]
fn what_happened_and_what_to_do_blame_the_network_by_one_rule() {
    for (second, is_network) in [
        ("00:05:30", true),
        ("00:08:00", false),
        // One was lost before, and the others all at once.
        ("00:01:00", true),
    ] {
        let mut clusters = five(&["Unknown"; 5]);
        let condition = &mut clusters[1].status.as_mut().unwrap().conditions[0];
        let time = json!(format!("2026-01-01T{second}Z"));
        condition.last_transition_time = read(time);
        let summary = decide(&snapshot(clusters, Vec::new())).summary;
        for words in [summary.sentence, summary.advice.words] {
            let blames = words.contains("network of the fleet API");
            assert_eq!(blames, is_network, "{second}: {words}");
        }
    }
}

#[test]
fn what_is_reported_to_be_on_is_not_stopped_or_paused() {
    let well = "0.5 workloads a second (primary rate): 0 of 5 clusters have failed, at most 2 may";
    let paused = format!("0 a second (paused); without the pause {well}");
    let halted = format!("nothing moves, because nobody leads; with a leader {well}");
    let both = format!("0 a second (paused); without the pause {halted}");
    let unelected = format!(
        "nothing moves, unless a control plane acts without an election (--leader-elect=false); then {well}"
    );
    let unmoved = "on, but no ClusterTaintPolicy adds a taint that evicts: a failed cluster keeps its workloads";
    let unheeded =
        "on, but the controller taintmanager is off: no taint moves anything, nor does a drain";
    let stopped = "0 workloads a second (stopped): 3 of 5 clusters have failed, at most 2 may";
    let many = "0.5 workloads a second (primary rate): 0 of 11 clusters have failed";
    let any = format!("{many}; no number of failed clusters stops movement");
    let some = format!("{many}, at most 6 may");
    let too_many = "on, but STOPPED: too many clusters have failed";
    let unpublished =
        "not known: no leader publishes it; by flags that you give: kubectl muster status -- FLAGS";
    let as_it_is: fn(&mut Snapshot) = |_| ();
    let two_paused = |it: &mut Snapshot| {
        for cluster in &mut it.clusters.as_mut().unwrap()[3..] {
            let pause = (PAUSED.to_owned(), "disks".to_owned());
            cluster.annotations_mut().extend([pause]);
        }
    };
    let dead = |it: &mut Snapshot| {
        it.leader = Ok(Some(lease("cp-0", "2026-01-01T00:06:00Z")));
    };
    let dead_and_paused = |it: &mut Snapshot| {
        it.leader = Ok(Some(lease("cp-0", "2026-01-01T00:06:00Z")));
        it.pause = Ok(Some(pause(None)));
    };
    let softer = |it: &mut Snapshot| {
        let mut policy = policy();
        policy.spec.taints_to_add[0].effect = "NoSchedule".to_owned();
        it.taint_policies = Some(vec![policy]);
    };
    let is_paused = |it: &mut Snapshot| it.pause = Ok(Some(pause(None)));
    let no_second_rate = |it: &mut Snapshot| {
        it.settings.secondary_resource_eviction_rate = 0.0;
    };
    let unread = |it: &mut Snapshot| {
        it.leader = Err("get lease: forbidden".to_owned());
        it.failover = None;
    };
    for (count, silent, change, failover, pace) in [
        (5, 0, as_it_is, "on", well),
        (
            5,
            0,
            |it| it.settings.enable_no_execute_taint_eviction = false,
            "on, but taints of effect NoExecute move nothing (--enable-no-execute-taint-eviction=false), a drain excepted",
            well,
        ),
        (5, 0, is_paused, "on, but PAUSED", &paused),
        (
            5,
            0,
            |it| it.settings.enable_taint_manager = false,
            unheeded,
            well,
        ),
        (5, 0, dead, "on, as the last leader had it", &halted),
        (5, 0, dead_and_paused, "on, but PAUSED", &both),
        (5, 0, |it| it.leader = Ok(None), "on", &unelected),
        (
            5,
            0,
            |it| it.taint_policies = Some(vec![policy()]),
            "on",
            well,
        ),
        (5, 0, |it| it.taint_policies = Some(vec![]), unmoved, well),
        (5, 0, softer, unmoved, well),
        (5, 0, two_paused, "on, but PAUSED out of m4, m5", well),
        (5, 3, two_paused, too_many, stopped),
        (5, 3, as_it_is, too_many, stopped),
        (11, 0, as_it_is, "on", &any),
        (11, 0, no_second_rate, "on", &some),
        (5, 0, unread, "not known", well),
        (5, 0, |it| it.failover = None, unpublished, well),
    ] {
        let ready = |at| if at <= silent { "Unknown" } else { "True" };
        let clusters = (1..=count).map(|at| cluster(&format!("m{at}"), ready(at), &[]));
        let mut snapshot = snapshot(clusters.collect(), Vec::new());
        change(&mut snapshot);
        let facts = decide(&snapshot).facts.into_iter();
        let facts = facts.filter(|it| ["Failover", "Pace"].contains(&it.name));
        let found: Vec<String> = facts.map(|it| it.text).collect();
        assert_eq!(found, [failover, pace]);
    }
}

#[test]
fn the_time_of_day_of_what_comes_is_the_same_at_each_refresh() {
    let fence = "m1 has x: its copy may run until 400 s after the last renewal";
    for now in ["00:10:00.2", "00:10:00.9", "00:10:01.4"] {
        for (reason, message, expected) in [
            (WAITING_FOR_FENCE, fence, "(00:11:01Z)"),
            (WAITING_FOR_TOLERATION, TOLERATED, "(00:10:26Z)"),
        ] {
            let next = decide(&Snapshot {
                now: format!("2026-01-01T{now}Z").parse().unwrap(),
                leases: Ok(renewed("2026-01-01T00:04:20.600000Z")),
                ..snapshot(five(&["Unknown"]), vec![pending("a", reason, message)])
            })
            .summary
            .next;
            assert!(next.contains(expected), "{now}: {next}");
        }
    }
}

#[test]
fn a_workload_that_waits_for_a_time_is_reported_with_what_holds_it_then() {
    let fenced = "m1 has x: its copy may run until 400 s after the last renewal";
    let tolerated = "m1 has x: it stays until 2026-01-01T00:11:00Z";
    let reported = |ready: &[&str], is_paused: bool, reason: &str| {
        let message = if reason == WAITING_FOR_FENCE {
            fenced
        } else {
            tolerated
        };
        let waits = vec![pending("ledger", reason, message)];
        let report = decide(&Snapshot {
            pause: Ok(is_paused.then(|| pause(None))),
            ..snapshot(five(ready), waits)
        });
        let row = &report.waiting[0];
        let line = report.summary.line();
        let (_, line) = line.split_once("1 workload ").unwrap();
        let (line, _) = line.split_once(';').unwrap_or((line, ""));
        let why = row.why.clone().unwrap();
        (why, row.at_most_seconds, row.stops_seconds, line.to_owned())
    };
    let fence = "waits until the old copy has surely stopped";
    let grace = "waits for the end of the grace time (toleration)";
    let pause = "waits for the end of a pause";
    let fewer = "waits because too many clusters have failed";
    let pause_fence = format!("{pause}, and until the old copy has surely stopped");
    let fewer_fence = format!("{fewer}, and until the old copy has surely stopped");
    let pause_grace = format!("{pause}, and for the end of the grace time (toleration)");
    for (lost, is_paused, reason, at_most, stops, why, line) in [
        (
            1,
            false,
            WAITING_FOR_FENCE,
            Some(60),
            Some(60),
            fence,
            fence,
        ),
        (
            1,
            true,
            WAITING_FOR_FENCE,
            None,
            Some(60),
            &pause_fence,
            pause,
        ),
        (
            3,
            false,
            WAITING_FOR_FENCE,
            None,
            Some(60),
            &fewer_fence,
            fewer,
        ),
        (
            1,
            false,
            WAITING_FOR_TOLERATION,
            Some(60),
            None,
            grace,
            grace,
        ),
        (
            1,
            true,
            WAITING_FOR_TOLERATION,
            None,
            None,
            &pause_grace,
            grace,
        ),
    ] {
        let found = reported(&["Unknown"; 3][..lost], is_paused, reason);
        let expected = (why.to_owned(), at_most, stops, line.to_owned());
        assert_eq!(found, expected, "{lost} {is_paused} {reason}");
    }
}

#[test]
fn what_many_lost_clusters_have_in_common_is_advised_with_a_list_of_them_alone() {
    let lost = |count: usize| {
        let clusters = (0..40).map(|at| {
            let ready = if at < count { "Unknown" } else { "True" };
            let mut it = cluster(&format!("c{at:02}"), ready, &[]);
            it.spec.region = Some(if at < 8 { "eu-north" } else { "us" }.to_owned());
            it
        });
        decide(&snapshot(clusters.collect(), Vec::new()))
            .summary
            .lines()[2]
            .1
            .clone()
    };
    let own = "find out with direct access (kubeconfig, the provider's console) whether";
    for (count, expected) in [
        (
            2,
            format!(
                "{own} the 2 clusters run or are dead; what is known here: kubectl muster get clusters c00 c01"
            ),
        ),
        (
            12,
            format!(
                "look first for what the 8 in eu-north have in common, then {own} the 12 clusters run or are dead; to list those that are not ready: kubectl muster get clusters | grep -v ' True[ ,]'"
            ),
        ),
    ] {
        assert_eq!(lost(count), expected);
    }
}
