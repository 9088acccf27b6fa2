use muster_shared::api::any_binding::AnyBinding;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{self, cluster, condition, read, snapshot};
use crate::old_copies::tests::work;

/// Time since which conditions hold.
const SINCE: &str = "2024-01-01T00:00:00Z";

/// Returns a workload in the middle of a failover, and clusters in every possible state.
fn scene() -> (AnyBinding, Snapshot) {
    let scheduled = "Binding has been scheduled successfully.";
    let changes = json!({
        "spec": {
            "resource": { "name": "web" },
            "replicas": 6,
            "replicaRequirements": { "resourceRequest": { "cpu": "1" } },
            "clusters": [{ "name": "m1", "replicas": 2 }, { "name": "m5", "replicas": 1 }],
            "gracefulEvictionTasks": [{
                "fromCluster": "m4", "reason": "TaintUntolerated", "producer": "TaintManager", "replicas": 3,
                "creationTimestamp": "2024-01-01T00:02:00Z",
            }],
            "suspension": { "scheduling": true },
            "placement": {
                "clusterAffinity": { "exclude": ["m3"] },
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated",
                },
            },
        },
        "status": { "conditions": [condition("Scheduled", "True", "Success", scheduled, SINCE)] },
    });
    let binding = fixtures::binding("shop", "web-deployment", &changes);
    let mut clusters = ["m1", "m2", "m3", "m4", "m5", "m6"].map(|name| cluster(name, "10"));
    clusters[3]["spec"]["taints"] = json!([{ "key": "x", "effect": "NoExecute" }]);
    clusters[3]["status"]["apiEnablements"] = json!([]);
    clusters[4]["spec"]["taints"] = json!([{ "key": "x", "effect": "NoSchedule" }]);
    clusters[5]["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    (Arc::unwrap_or_clone(binding), snapshot(&clusters))
}

fn answer() -> Answer {
    let (binding, snapshot) = scene();
    Answer::about(&binding, &snapshot, &core::Options::default())
}

#[test]
fn a_pause_that_could_not_be_read_is_not_known_and_it_is_reported_that_nobody_leads() {
    let unread = Some("it is not known whether movement is paused: no answer".to_owned());
    let nobody = Some("nobody leads (the last was cp-0)".to_owned());
    let answer = Answer {
        pause_unread: unread.clone(),
        nobody_leads: nobody.clone(),
        ..answer()
    };
    let text = answer.to_string();
    for line in [
        "\nPause: it is not known whether movement is paused: no answer\n",
        "\nLeader: nobody leads (the last was cp-0): nothing of what follows is done before a control plane does\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(json!(answer)["pauseUnread"], json!(unread));
    assert_eq!(json!(answer)["nobodyLeads"], json!(nobody));
}

#[test]
fn that_it_stays_in_spite_of_a_taint_is_not_shown_once_no_cluster_of_it_has_one() {
    let message = "stays on m1, which has taint x:PreferNoExecute: its policy does not ask for it";
    let stays = condition(
        "EvictionPending",
        "False",
        "FailoverNotRequested",
        message,
        SINCE,
    );
    for (effect, is_shown) in [("PreferNoExecute", true), ("NoSchedule", false)] {
        let (mut binding, _) = scene();
        let status = binding.status.as_mut().unwrap();
        status.conditions.push(read(stays.clone()));
        let mut clusters = ["m1", "m5"].map(|name| cluster(name, "10"));
        clusters[0]["spec"]["taints"] = json!([{ "key": "x", "effect": effect }]);
        let snapshot = snapshot(&clusters);
        let text = Answer::about(&binding, &snapshot, &core::Options::default()).to_string();
        for words in ["which has taint x", "set spec.failover.cluster"] {
            assert_eq!(text.contains(words), is_shown, "{effect}: {text}");
        }
    }
}

#[test]
fn what_follows_a_workload_is_reported_to_be_where_that_is() {
    let (mut binding, snapshot) = scene();
    let spec = &mut binding.spec;
    (spec.placement, spec.clusters) = (None, Vec::new());
    let by =
        json!([{ "namespace": "shop", "name": "web-deployment", "clusters": [{ "name": "m1" }] }]);
    spec.required_by = read(by);
    let text = Answer::about(&binding, &snapshot, &core::Options::default()).to_string();
    assert!(text.contains("\nPlaced on: m1 ("), "{text}");
    assert!(
        text.ends_with("\nIt is placed where the workloads that refer to it are.\n"),
        "{text}"
    );
}

#[test]
fn what_an_old_copy_waits_for_is_reported_beside_it_and_of_a_job_that_no_grace_period_ends_that() {
    let now = "2024-01-01T00:03:00Z".parse().unwrap();
    let undone = format!("\n  its copy there waits: {UNDONE}\n");
    let waits = [
        "Leaving: m4 (TaintUntolerated",
        "\n  its copy there waits: m1 has not reported its copy yet\n",
        "\n  its copy there waits: m5 has not reported its copy yet\n",
    ];
    for (version, kind, parts) in [
        ("apps/v1", "Deployment", &waits[..]),
        ("batch/v1", "Job", &[&*undone]),
    ] {
        let (mut binding, snapshot) = scene();
        binding.spec.resource.api_version = version.into();
        binding.spec.resource.kind = kind.into();
        let answer = answer().waiting(&binding, &snapshot, &Settings::default(), now);
        let text = answer.to_string();
        for part in parts {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(text.contains(UNDONE), kind == "Job", "{text}");
    }
}

#[test]
fn an_old_copy_waits_for_the_pause_of_the_fleet_or_of_its_cluster_and_for_no_other() {
    let (binding, snapshot) = scene();
    let now = "2024-01-01T00:03:00Z".parse().unwrap();
    for (cluster, expected) in [(None, true), (Some("m4"), true), (Some("m1"), false)] {
        let pause = Pause {
            cluster: cluster.map(str::to_owned),
            ..Pause::default()
        };
        let waits = format!("its copy there waits: {pause}");
        let answer = Answer {
            pauses: vec![pause],
            ..answer()
        };
        let answer = answer.waiting(&binding, &snapshot, &Settings::default(), now);
        let text = answer.to_string();
        assert_eq!(text.contains(&waits), expected, "{text}");
    }
}

#[test]
fn the_priority_of_a_workload_is_shown_if_it_has_one() {
    for (priority, expected) in [(None, None), (Some(0), None), (Some(-5), Some(-5))] {
        let (mut binding, snapshot) = scene();
        let given = priority.map(|it| json!({ "priority": it }));
        binding.spec.schedule_priority = given.map(read);
        let answer = Answer::about(&binding, &snapshot, &core::Options::default());
        assert_eq!(json!(answer)["priority"], json!(expected), "{priority:?}");
        let line = "\nPriority: -5\nPlaced on: m1 (2), m5 (1)\n";
        let text = answer.to_string();
        assert_eq!(text.contains(line), expected.is_some(), "{text}");
    }
}

#[test]
fn people_get_a_table_of_all_clusters() {
    let expected = "\
ResourceBinding shop/web-deployment: Deployment web, 6 replicas
Placed on: m1 (2), m5 (1)
Leaving: m4 (TaintUntolerated, 3 replicas, since 2024-01-01T00:02:00Z)
Scheduled=True since 2024-01-01T00:00:00Z: Success Binding has been scheduled successfully.
Not scheduled here: spec.suspension.scheduling is true
To be scheduled: it is not known which placement was applied last

CLUSTER  FITS  SCORE  CAPACITY  HOLDS  GIVEN  WHY
m1       yes   100    10        2      5
m2       yes   0      10        -      -      not needed
m3       no    -      -         -      -      ClusterAffinity: cluster(s) did not match the placement cluster affinity constraint
m4       no    -      -         -      -      APIEnablement: cluster(s) did not have the API resource; \
TaintToleration: cluster(s) had untolerated taint {x:NoExecute}; ClusterEviction: cluster(s) is in the process of eviction
m5       yes   100    0         1      1      keeps what it holds, admits no more: cluster(s) had untolerated taint {x:NoSchedule}
m6       no    -      -         -      -      is being deleted
";
    assert_eq!(answer().print(Format::Table).unwrap(), expected);
}

#[test]
fn programs_get_the_same_as_json_and_yaml() {
    let json: Value = serde_json::from_str(&answer().print(Format::Json).unwrap()).unwrap();
    assert_eq!(json["kind"], "ResourceBinding");
    assert_eq!(json["clusters"][0], json!({ "name": "m1", "replicas": 2 }));
    let clusters = &json["attempts"][0]["clusters"];
    assert_eq!(
        clusters[0],
        json!({
            "name": "m1", "fate": "fits", "score": 100, "tier": 0, "capacity": 10, "holds": 2,
            "closed": false, "selected": true, "given": 5,
        })
    );
    assert_eq!(
        clusters[2],
        json!({ "name": "m3", "fate": "refused", "by": [{
            "filter": "ClusterAffinity",
            "reason": "cluster(s) did not match the placement cluster affinity constraint",
        }] })
    );
    assert_eq!(clusters[5], json!({ "name": "m6", "fate": "deleting" }));
    let yaml: Value = serde_saphyr::from_str(&answer().print(Format::Yaml).unwrap()).unwrap();
    assert_eq!(yaml, json);
}

#[test]
fn what_a_new_schedule_would_not_change_is_said_to_be_settled() {
    let clusters = [cluster("m1", "10"), cluster("m2", "10")];
    let snapshot = snapshot(&clusters);
    for (targets, expected) in [
        (
            json!([{ "name": "m2", "replicas": 2 }, { "name": "m1", "replicas": 2 }]),
            "It is where it should be: a new schedule would change nothing.",
        ),
        (
            json!([{ "name": "m1", "replicas": 2 }]),
            "To be scheduled: it is not divided, so each change may concern it",
        ),
    ] {
        let changes = json!({
            "metadata": { "annotations": { "policy.karmada.io/applied-placement": "{}" } },
            "spec": { "replicas": 2, "clusters": targets, "placement": {} },
        });
        let binding = fixtures::binding("shop", "web", &changes);
        let answer = Answer::about(&binding, &snapshot, &core::Options::default());
        assert!(answer.to_string().contains(expected), "{answer}");
    }
}

#[test]
fn what_is_on_clusters_that_are_dying_is_not_where_it_should_be() {
    let mut clusters = ["m1", "m2"].map(|name| cluster(name, "10"));
    clusters[0]["status"]["conditions"][0]["status"] = json!("Unknown");
    clusters[1]["spec"]["taints"] = json!([{ "key": "down", "effect": "NoExecute" }]);
    let snapshot = snapshot(&clusters);
    let leaves = "has to leave m2";
    let pending = condition("EvictionPending", "True", "NowhereToGo", leaves, SINCE);
    for (conditions, expected) in [
        (
            json!([]),
            "So far nothing moves it off the clusters that are not available; kubectl muster status says what comes next there.",
        ),
        (json!([pending]), "It has to leave a cluster"),
    ] {
        let changes = json!({
            "metadata": { "annotations": { "policy.karmada.io/applied-placement": "{}" } },
            "spec": {
                "replicas": 2, "placement": {},
                "clusters": [{ "name": "m1", "replicas": 2 }, { "name": "m2", "replicas": 2 }],
            },
            "status": { "conditions": conditions },
        });
        let binding = fixtures::binding("shop", "web", &changes);
        let text = Answer::about(&binding, &snapshot, &core::Options::default()).to_string();
        for line in [
            "Not available: m1 has Ready=Unknown",
            "Not available: m2 has taint down:NoExecute, which is not tolerated",
            expected,
        ] {
            assert!(text.contains(line), "{line:?} in:\n{text}");
        }
        assert!(!text.contains("where it should be"), "{text}");
    }
}

#[test]
fn an_old_copy_in_a_cluster_that_is_silent_may_still_run() {
    let (mut binding, _) = scene();
    binding.metadata.namespace = Some("default".to_owned());
    let mut silent = cluster("m7", "10");
    silent["status"]["conditions"][0]["status"] = json!("Unknown");
    let clusters = [silent, cluster("m8", "10")];
    // It is placed on m1, and leaves m4 at its leisure.
    let works = ["m1", "m4", "m7", "m8", "m9"].map(|it| work("web-deployment", it));
    let old_copies = old_copies(&works, &binding, &snapshot(&clusters));
    let answer = Answer {
        old_copies,
        ..answer()
    };
    let text = answer.to_string();
    let reported: Vec<&str> = text
        .lines()
        .filter(|it| it.starts_with("Old copy: "))
        .collect();
    assert_eq!(
        reported,
        [
            "Old copy: not confirmed gone in m7 (silent), where it may still run",
            "Old copy: not confirmed gone in m8 (being removed), where it may still run",
            "Old copy: not confirmed gone in m9 (not in the fleet), where it may still run",
        ]
    );
}
