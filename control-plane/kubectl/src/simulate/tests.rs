use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_control_plane::fleet::binding::BindingKey;
use muster_control_plane::settings::Settings;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use muster_shared::api::taint_policy::ClusterTaintPolicy;
use muster_shared::k8s::Condition;
use muster_shared::peers::{PEERS, REACHES, SEEN_BY_PEERS};
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{self, condition, read};
use crate::forecast::Left;
use crate::jobs::tests::divided;
use crate::table::Workload;

const TOLERATED: &str = r#"[{"key": "example.com/failed", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]"#;

fn cluster(name: &str, cpu: &str, region: &str) -> Cluster {
    let since = "2026-01-01T00:00:00Z";
    let changes = json!({
        "spec": {"syncMode": "Pull", "region": region},
        "status": {
            "conditions": [
                condition("Ready", "True", "ClusterReady", "", since),
                condition("CompleteAPIEnablements", "True", "Full", "", since),
            ],
            "resourceSummary": {"allocatable": {"memory": "64Gi", "pods": "100"}},
        },
    });
    let mut cluster = fixtures::cluster(name, cpu);
    json_patch::merge(&mut cluster, &changes);
    read(cluster)
}

fn policy(effect: &str) -> ClusterTaintPolicy {
    read(json!({
        "metadata": {"name": "failed", "uid": "u", "generation": 1},
        "spec": {
            "matchConditions": [{"conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"]}],
            "taintsToAdd": [{"key": "example.com/failed", "effect": effect, "addOnMatchSeconds": 60}],
        },
    }))
}

/// Returns a Deployment of two replicas of one CPU each, in one cluster.
fn web(name: &str, place: &str, more: &Value) -> Arc<AnyBinding> {
    let tolerations: Value = serde_json::from_str(TOLERATED).unwrap();
    let mut spec = json!({
        "resource": {"name": name},
        "replicas": 2,
        "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        "clusters": [{"name": place, "replicas": 2}],
        "placement": {
            "clusterTolerations": tolerations,
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
            "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
        },
    });
    let fields = spec.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let binding = format!("{name}-deployment");
    fixtures::binding("default", &binding, &json!({"spec": spec}))
}

fn fleet(bindings: Vec<Arc<AnyBinding>>) -> Fleet {
    Fleet {
        clusters: vec![
            cluster("m1", "10", "eu"),
            cluster("m2", "3", "eu"),
            cluster("m3", "0", "us"),
        ],
        bindings,
        policies: vec![policy("NoExecute")],
        needs: Ok(HashMap::new()),
        jobs: Jobs::default(),
    }
}

fn foretell(fleet: &Fleet, lost: &[&str], drained: &[&str], flags: &[&str]) -> Value {
    let (text, reported) = reported(fleet, lost, drained, flags);
    assert!(!text.is_empty());
    reported
}

/// Returns a forecast, for people and for programs.
fn reported(fleet: &Fleet, lost: &[&str], drained: &[&str], flags: &[&str]) -> (String, Value) {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let disaster = Disaster {
        lost: set(lost),
        drained: set(drained),
    };
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let running = Running::of(&flags, None).unwrap();
    let (settings, is_off) = running.with_failover().unwrap();
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let forecast = forecast(fleet, &disaster, &settings, now);
    let report = Report {
        disaster: &disaster,
        forecast: &forecast,
        is_off,
        halted: running.ignores_taints(),
        nobody_leads: None,
        paused: &[],
        pause_unread: None,
        most: usize::MAX,
    };
    (report.to_string(), report.json())
}

#[test]
fn what_fits_moves_in_order_and_what_no_longer_fits_is_stranded() {
    let fleet = fleet(vec![
        web("a", "m1", &json!({})),
        web("b", "m1", &json!({})),
        web("c", "m2", &json!({})),
    ]);
    let reported = foretell(&fleet, &["m1"], &[], &[]);
    // The grace period of 40 s, 60 s of the taint policy, 30 s of toleration.
    assert_eq!(
        reported["moves"].as_array().unwrap().len(),
        1,
        "{reported:#}"
    );
    let moved = &reported["moves"][0];
    assert_eq!(moved["workload"]["name"], "a");
    assert_eq!(moved["to"], json!([{"name": "m2", "replicas": 2}]));
    assert_eq!(moved["afterSeconds"], 130);
    // Room for three replicas: after the first two, the next two find one.
    assert_eq!(
        reported["stranded"].as_array().unwrap().len(),
        1,
        "{reported:#}"
    );
    assert_eq!(reported["stranded"][0]["workload"]["name"], "b");
    assert_eq!(
        reported["room"]["m2"]["cpu"],
        json!({"before": "3", "after": "1"})
    );
    assert_eq!(
        reported["room"]["m2"]["pods"],
        json!({"before": "100", "after": "98"})
    );
    let taints = reported["taints"]["m1"].as_array().unwrap();
    assert!(
        taints.iter().any(|it| it["afterSeconds"] == 100),
        "{taints:?}"
    );
}

#[test]
fn evictions_follow_each_other_at_the_rate() {
    let bindings = ["a", "b", "c"].map(|name| web(name, "m2", &json!({})));
    let fleet = fleet(bindings.to_vec());
    let gate = "--feature-gates=Failover=true";
    let reported = foretell(
        &fleet,
        &["m2"],
        &[],
        &[gate, "--resource-eviction-rate=0.1"],
    );
    let turns: Vec<i64> = reported["moves"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["afterSeconds"].as_i64())
        .collect();
    assert_eq!(turns, [130, 140, 150]);
    let reported = foretell(&fleet, &["m2"], &[], &[gate, "--resource-eviction-rate=0"]);
    let reason = "nothing leaves at a rate of 0 (--resource-eviction-rate)";
    assert_eq!(reported["held"][0]["reason"], reason);
}

#[test]
fn nothing_moves_before_the_taint_that_moves_it_has_come() {
    let none = json!({"placement": {"spreadConstraints": [], "clusterTolerations": []}});
    let later = json!({"placement": {"clusterTolerations": [
        {"key": "example.com/failed", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7},
    ]}});
    // It is silent for 40 s, and then matches for 60 s.
    for (what, more, expected) in [
        ("it tolerates nothing", &none, 100),
        ("it tolerates the taint for a while", &later, 107),
    ] {
        let fleet = fleet(vec![web("a", "m2", more)]);
        let reported = foretell(&fleet, &["m2"], &[], &["--feature-gates=Failover=true"]);
        assert_eq!(
            reported["moves"][0]["afterSeconds"], expected,
            "{what}: {reported}"
        );
        // A drain moves at once, whatever the gate says.
        let reported = foretell(&fleet, &[], &["m2"], &["--feature-gates=Failover=false"]);
        assert_eq!(
            reported["moves"][0]["afterSeconds"], 0,
            "{what}: {reported}"
        );
    }
}

#[test]
fn a_cluster_that_dies_is_seen_by_no_peer_that_is_left() {
    let unseen =
        json!({"conditionType": "SeenByPeers", "operator": "In", "statusValues": ["False"]});
    let since = "2026-01-01T00:00:00Z";
    let peer = |name: &str| json!({"name": name, "address": format!("https://{name}")});
    let watching = |mut cluster: Cluster, peers: [&str; 2], seen: &str| {
        let reported = peers.map(|it| condition(&format!("{REACHES}{it}"), "True", "x", "", since));
        let seen = condition(SEEN_BY_PEERS, seen, "x", "", since);
        let conditions = &mut cluster.status.as_mut().unwrap().conditions;
        conditions.extend(reported.into_iter().chain([seen]).map(read::<Condition>));
        let peers = json!(peers.map(peer)).to_string();
        cluster
            .annotations_mut()
            .extend([(PEERS.to_owned(), peers)]);
        cluster
    };
    let gate = "--feature-gates=Failover=true";
    for (seen, lost, is_tainted) in [
        ("True", &["m2"][..], true),
        // One witness of two is lost, too.
        ("True", &["m2", "m3"], false),
        // The peers do not know whether the cluster lives.
        ("Unknown", &["m2"], false),
    ] {
        let mut fleet = fleet(vec![]);
        let conditions = &mut fleet.policies[0].spec.match_conditions;
        conditions.push(read(unseen.clone()));
        fleet.clusters = vec![
            watching(cluster("m1", "10", "eu"), ["m2", "m3"], "True"),
            watching(cluster("m2", "3", "eu"), ["m1", "m3"], seen),
            watching(cluster("m3", "0", "us"), ["m1", "m2"], "True"),
        ];
        let reported = foretell(&fleet, lost, &[], &[gate]);
        let taints = reported["taints"]["m2"].to_string();
        let found = taints.contains("example.com/failed:NoExecute");
        assert_eq!(found, is_tainted, "{seen} {lost:?}: {taints}");
    }
}

#[test]
fn the_taints_of_the_state_come_from_whom_the_control_plane_leaves_them_to() {
    let mut fleet = fleet(vec![]);
    let mut unreachable = policy("NoSchedule");
    unreachable.spec.taints_to_add[0].key = "cluster.karmada.io/unreachable".to_owned();
    fleet.policies = vec![unreachable];
    let gate = "--feature-gates=Failover=true";
    for (flags, after) in [
        (&[gate][..], 40),
        // Not before the policy has matched for 60 s.
        (&[gate, "--condition-taints=false"], 100),
    ] {
        let reported = foretell(&fleet, &["m1"], &[], flags);
        let expected = json!([{
            "taint": "cluster.karmada.io/unreachable:NoSchedule", "afterSeconds": after,
        }]);
        assert_eq!(reported["taints"]["m1"], expected, "{flags:?}");
    }
}

#[test]
fn what_nothing_moves_stays_and_says_why() {
    let mut fleet = fleet(vec![web("a", "m1", &json!({}))]);
    let off = foretell(&fleet, &["m1"], &[], &["--feature-gates=Failover=false"]);
    assert_eq!(off["stays"][0]["reason"], "feature gate Failover is off");
    fleet.policies = vec![];
    let untainted = foretell(&fleet, &["m1"], &[], &[]);
    assert_eq!(
        untainted["stays"][0]["reason"],
        "the cluster has no taint that evicts"
    );
    assert_eq!(untainted["stranded"], json!([]));
    fleet.policies = vec![policy("PreferNoExecute")];
    let unasked = foretell(&fleet, &["m1"], &[], &[]);
    assert_eq!(unasked["moves"], json!([]));
}

#[test]
fn too_much_of_a_small_fleet_lost_holds_all_of_it() {
    let fleet = fleet(vec![web("a", "m1", &json!({}))]);
    let reported = foretell(&fleet, &["m1", "m2"], &[], &[]);
    assert_eq!(reported["stranded"], json!([]));
    let reason = reported["held"][0]["reason"].as_str().unwrap();
    let expected = "2 of 3 clusters would count as failed";
    assert!(reason.contains(expected), "{reason}");
    assert_eq!(reported["pace"]["evictionsPerSecond"], 0.0);
}

#[test]
fn data_goes_ahead_of_a_move_and_keeps_what_nothing_fences_in_a_lost_cluster() {
    let (workload, object) = (
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}),
        json!({"apiVersion": "r.example.com/v1", "kind": "Replication", "name": "data"}),
    );
    let data = |when: &str| {
        let role = json!({
            "object": object, "follows": workload, "path": "spec.state", "primary": "rw",
            "secondary": "ro", "promoted": {"path": "status.state", "value": "RW"},
            "demoted": {"path": "status.state", "value": "RO"}, "whenUnreachable": when,
        });
        json!({"dataReplication": {"roles": [role]}})
    };
    for (when, ready, lost, drained, moves) in [
        ("Wait", "True", &[][..], &["m1"][..], true),
        // A drain moves no data out of a cluster that is lost already.
        ("Wait", "Unknown", &[], &["m1"], false),
        ("Promote", "Unknown", &[], &["m1"], true),
        ("Wait", "True", &["m1"], &[], false),
        ("Promote", "True", &["m1"], &[], true),
    ] {
        let mut fleet = fleet(vec![web("a", "m1", &data(when))]);
        let status = fleet.clusters[0].status.as_mut().unwrap();
        ready.clone_into(&mut status.conditions[0].status);
        let reported = foretell(&fleet, lost, drained, &[]);
        let (list, text) = if moves {
            ("moves", reported["moves"][0]["data"][0].as_str())
        } else {
            ("stranded", reported["stranded"][0]["reason"].as_str())
        };
        let text = text.unwrap_or_default();
        assert!(
            text.starts_with("Replication data "),
            "{when} {list}: {reported:#}"
        );
        let purge = if moves {
            json!("Directly")
        } else {
            Value::Null
        };
        assert_eq!(reported["moves"][0]["purgeMode"], purge, "{when}");
    }
    let placed: AnyBinding = read(json!({
        "metadata": {"name": "data-replication", "namespace": "default"},
        "spec": {"resource": object, "clusters": [{"name": "m1"}], "placement": {}},
    }));
    let bindings = vec![web("a", "m1", &data("Wait")), Arc::new(placed)];
    let reported = foretell(&fleet(bindings), &[], &["m1"], &[]);
    let reason = reported["stranded"][0]["reason"]
        .as_str()
        .unwrap_or_default();
    let expected = "did not have Replication data, which is data of the workload";
    assert!(reason.contains(expected), "{reported:#}");
}

#[test]
fn a_fenced_copy_that_nothing_would_remove_does_not_leave() {
    let fencing = json!({"cluster": {"fencing": {"afterSeconds": 60}}});
    for (preserves, fencing, is_stranded) in [
        (true, &fencing, true),
        (false, &fencing, false),
        (true, &Value::Null, false),
    ] {
        let more = json!({"preserveResourcesOnDeletion": preserves, "failover": fencing});
        let fleet = fleet(vec![web("a", "m1", &more)]);
        for (lost, drained) in [(&["m1"][..], &[][..]), (&[], &["m1"])] {
            let reported = foretell(&fleet, lost, drained, &[]);
            let reason = reported["stranded"][0]["reason"]
                .as_str()
                .unwrap_or_default();
            let expected = "preserveResourcesOnDeletion would keep";
            assert_eq!(reason.starts_with(expected), is_stranded, "{reported:#}");
        }
    }
}

#[test]
fn a_workload_that_is_stranded_in_two_clusters_is_one_with_two_copies() {
    let left = |name: &str, cluster: &str| Left {
        workload: Workload {
            namespace: None,
            kind: "Deployment".to_owned(),
            name: name.to_owned(),
        },
        priority: 0,
        cluster: cluster.to_owned(),
        reason: "full".to_owned(),
        is_known: true,
    };
    let fleet = fleet(vec![]);
    let settings = Settings::default();
    let (disaster, now) = (Disaster::default(), Timestamp::UNIX_EPOCH);
    let mut forecast = forecast(&fleet, &disaster, &settings, now);
    for (stranded, expected) in [
        (vec![left("a", "m1"), left("b", "m1")], "cannot: 2\n"),
        (
            vec![left("a", "m1"), left("a", "m2"), left("b", "m1")],
            "cannot: 2, with 3 copies\n",
        ),
    ] {
        forecast.stranded = stranded;
        let report = Report {
            disaster: &disaster,
            forecast: &forecast,
            is_off: false,
            halted: None,
            nobody_leads: None,
            paused: &[],
            pause_unread: None,
            most: usize::MAX,
        };
        let text = report.to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_forecast_says_that_no_taint_moves_anything_where_their_controller_is_off() {
    let fleet = fleet(vec![web("a", "m1", &json!({}))]);
    for (flags, expected) in [
        (&[][..], false),
        (&["--controllers=*,-taintmanager"], true),
        (&["--enable-taint-manager=false"], true),
    ] {
        let (text, json) = reported(&fleet, &["m1"], &[], flags);
        let is_said = text.contains("For now the control plane runs without the controller");
        assert_eq!(is_said, expected, "{text}");
        assert_eq!(json["halted"].is_string(), expected, "{json:#}");
    }
}

#[test]
fn a_forecast_says_which_pauses_hold_it_up() {
    let data = json!({"since": "2026-01-01T00:00:00Z", "reason": "an upgrade"});
    let pause: ConfigMap = read(json!({"data": data}));
    let clusters = [cluster("m1", "1", "eu"), cluster("m2", "1", "eu")];
    let disaster = Disaster {
        lost: BTreeSet::from(["m2".to_owned()]),
        drained: BTreeSet::new(),
    };
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    let reported = pauses(Some(&pause), &clusters, &disaster, now);
    assert_eq!(reported.len(), 1);
    assert!(reported[0].contains("an upgrade"), "{reported:?}");
    assert_eq!(pauses(None, &clusters, &disaster, now), [""; 0]);
    for (paused, expected) in [(0, 0), (1, 1)] {
        let mut clusters = clusters.clone();
        let annotation = muster_shared::names::annotation::PAUSED;
        let annotations = clusters[paused].annotations_mut();
        annotations.insert(annotation.to_owned(), r#"{"reason": "work"}"#.to_owned());
        let reported = pauses(None, &clusters, &disaster, now);
        assert_eq!(reported.len(), expected, "{reported:?}");
    }
    let fleet = fleet(vec![web("a", "m2", &json!({}))]);
    let settings = Settings::default();
    let forecast = forecast(&fleet, &disaster, &settings, now);
    let unread = view::pause_unread(&Err("no answer".to_owned()));
    let report = Report {
        disaster: &disaster,
        forecast: &forecast,
        is_off: true,
        halted: Some("nothing judges taints"),
        nobody_leads: Some("nobody leads (the last was cp-0)"),
        paused: &reported,
        pause_unread: unread.as_deref(),
        most: usize::MAX,
    };
    let text = report.to_string();
    for part in [
        // Drains are judged as well.
        "Failover is OFF in the running control plane. With it on:\n",
        "For now nothing judges taints. With it:\n",
        "For now nobody leads (the last was cp-0). With a leader:\n",
        "For now all movement is paused",
        "Without a pause (it is not known whether movement is paused: no answer):\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let document = report.json();
    assert_eq!(document["paused"].as_array().unwrap().len(), 1);
    assert_eq!(document["nobodyLeads"], "nobody leads (the last was cp-0)");
    // The page says the same as the text.
    for it in [&document["premises"], &document["facts"]] {
        for it in it.as_array().unwrap() {
            assert!(text.contains(it.as_str().unwrap()), "{it} is not in {text}");
        }
    }
}

#[test]
fn clusters_that_do_not_exist_are_named() {
    let fleet = fleet(vec![]);
    let what = |lost: &[&str], regions: &[&str], drain: &[&str]| What {
        lost: lost.iter().map(|it| (*it).to_owned()).collect(),
        lost_region: regions.iter().map(|it| (*it).to_owned()).collect(),
        drain: drain.iter().map(|it| (*it).to_owned()).collect(),
        lost_selector: None,
        drain_selector: None,
    };
    for (what, expected) in [
        (what(&["m9"], &[], &[]), "there is no cluster \"m9\""),
        (
            what(&[], &["asia"], &[]),
            "no cluster has spec.region \"asia\"",
        ),
        (what(&["m1"], &[], &["m1"]), "cannot be lost and drained"),
    ] {
        let error = disaster(&fleet, &what).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let region = disaster(&fleet, &what(&[], &["eu"], &[])).unwrap();
    assert_eq!(region.lost.len(), 2);
}

#[tokio::test]
async fn a_selector_stands_for_the_clusters_that_the_api_finds_by_it() {
    let client = fixtures::api(|request| {
        let query = request.uri().query().unwrap_or_default();
        let items = if query.contains("eu") {
            json!([{"metadata": {"name": "m1"}}])
        } else {
            json!([])
        };
        (200, json!({"metadata": {}, "items": items}))
    });
    let of = async |words: &str| {
        let words = format!("kubectl-muster simulate {words}");
        let line = crate::line::parse(words.split(' ')).unwrap();
        let crate::Question::Simulate(options) = line.question else {
            panic!("not what was asked");
        };
        selected(&client, &options.what).await
    };
    for (words, lost, drained) in [
        ("-l region=eu", &["m1"][..], &[][..]),
        ("--lost cluster/m2 --selector region=eu", &["m2", "m1"], &[]),
        (
            "--drain-selector region=eu --lost m2,m3",
            &["m2", "m3"],
            &["m1"],
        ),
    ] {
        let found = of(words).await.unwrap();
        assert_eq!(found.lost, lost, "{words}");
        assert_eq!(found.drain, drained, "{words}");
    }
    let reported = of("-l region=asia").await.unwrap_err().to_string();
    assert!(reported.contains("no Cluster has labels"), "{reported}");
}

#[test]
fn what_is_more_important_moves_first_and_gets_the_room() {
    let vital = json!({"schedulePriority": {"priority": 9}});
    let later = json!({"schedulePriority": {"priority": 9}, "placement": {
        "clusterTolerations": [{
            "key": "example.com/failed", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 900,
        }],
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
    }});
    // Room for two replicas of four: whether the other one is due at once, or much later.
    for (what, more, after) in [("at once", vital, 130), ("later", later, 1_000)] {
        let fleet = fleet(vec![web("a", "m1", &json!({})), web("z", "m1", &more)]);
        let reported = foretell(&fleet, &["m1"], &[], &[]);
        assert_eq!(
            reported["moves"].as_array().unwrap().len(),
            1,
            "{what}: {reported:#}"
        );
        assert_eq!(reported["moves"][0]["workload"]["name"], "z", "{what}");
        assert_eq!(reported["moves"][0]["afterSeconds"], after, "{what}");
        assert_eq!(reported["stranded"][0]["workload"]["name"], "a", "{what}");
        let why = reported["stranded"][0]["reason"].as_str().unwrap();
        let kept = "room is kept for workloads of a higher priority";
        assert_eq!(why.contains(kept), what == "later", "{why}");
    }
}

#[test]
fn a_part_of_a_job_moves_at_once_only_to_a_cluster_without_a_part() {
    let takes_jobs = |n: usize| -> Cluster {
        let mut cluster = json!(cluster(&format!("m{n}"), "10", "eu"));
        cluster["status"]["apiEnablements"] = json!([{
            "groupVersion": "batch/v1", "resources": [{"kind": "Job", "name": "jobs"}],
        }]);
        read(cluster)
    };
    for (members, is_read, moves, why) in [
        (3, true, true, ""),
        (2, true, false, "each cluster that fits has it already"),
        (3, false, false, "Works cannot be read"),
    ] {
        let (job, read) = divided();
        let key = BindingKey::of(&job);
        let mut fleet = fleet(vec![Arc::new(job)]);
        fleet.clusters = (1..=members).map(takes_jobs).collect();
        if is_read {
            fleet.jobs = Jobs(HashMap::from([(key, read)]));
        }
        let reported = foretell(&fleet, &[], &["m1"], &[]);
        let moved = reported["moves"].to_string();
        assert_eq!(
            moved.contains("m3"),
            moves,
            "{members} {is_read}: {reported:#}"
        );
        let stranded = reported["stranded"].to_string();
        assert!(stranded.contains(why), "{members} {is_read}: {reported:#}");
    }
}

#[test]
fn priorities_are_shown_where_there_are_some() {
    for (priority, is_shown) in [(0, false), (7, true)] {
        let more = json!({"schedulePriority": {"priority": priority}});
        // There is room for one of them.
        let fleet = fleet(vec![web("a", "m1", &json!({})), web("b", "m1", &more)]);
        let (text, reported) = reported(&fleet, &["m1"], &[], &[]);
        assert_eq!(
            text.matches("PRIORITY").count(),
            if is_shown { 2 } else { 0 }
        );
        let (moved, stranded) = (&reported["moves"][0], &reported["stranded"][0]);
        assert_eq!(moved["priority"], priority, "{reported:#}");
        assert_eq!(stranded["priority"], 0, "{reported:#}");
    }
}
