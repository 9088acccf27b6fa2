use std::collections::HashMap;
use std::sync::Arc;

use muster_control_plane::fleet::binding::BindingKey;
use muster_shared::api::any_binding::AnyBinding;
use muster_shared::api::cluster::Cluster;
use serde_json::{Value, json};

use super::*;
use crate::dependencies::Needs;
use crate::dependencies::tests::need;
use crate::fixtures::{self, condition, member, read};
use crate::jobs::Jobs;

fn cluster(number: usize) -> Cluster {
    let changes = json!({"status": {
        "conditions": [condition("Ready", "True", "R", "", "2026-01-01T00:00:00Z")],
        "apiEnablements": [
            {"groupVersion": "v1", "resources": [{"kind": "ConfigMap", "name": "configmaps"}]},
        ],
    }});
    member(&format!("m{number}"), &changes)
}

fn binding(name: &str, placement: &Value) -> Arc<AnyBinding> {
    let resource = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name});
    let changes = json!({"spec": {
        "resource": resource, "clusters": [{"name": "m1"}], "placement": placement,
    }});
    fixtures::binding("shop", &format!("{name}-configmap"), &changes)
}

/// Makes a fleet of so many members.
fn fleet(members: usize, bindings: &[Arc<AnyBinding>]) -> Fleet {
    Fleet {
        clusters: (1..=members).map(cluster).collect(),
        bindings: bindings.to_vec(),
        policies: Vec::new(),
        needs: Ok(HashMap::new()),
        jobs: Jobs::default(),
    }
}

/// Reads a fleet of which some clusters are to be drained.
fn drain(fleet: &Fleet, drained: &[&str]) -> Preview {
    let drained: Vec<String> = drained.iter().map(|it| (*it).to_owned()).collect();
    preview(fleet, &drained, &Settings::default(), Timestamp::UNIX_EPOCH)
}

#[test]
fn a_workload_that_leaves_without_what_it_refers_to_is_warned_of() {
    let affinity = |to: &str| json!({"clusterAffinity": {"clusterNames": ["m1", to]}});
    let bindings = [
        binding("web", &affinity("m2")),
        binding("settings", &affinity("m3")),
        binding("key", &affinity("m2")),
    ];
    let needs = vec![need("settings"), need("key")];
    let needs: Needs = Ok(HashMap::from([(BindingKey::of(&bindings[0]), needs)]));
    let fleet = Fleet {
        needs,
        ..fleet(3, &bindings)
    };
    let preview = drain(&fleet, &["m1"]);
    let text = preview.table(usize::MAX);
    let reported = "  ConfigMap shop/web: ConfigMap settings is not placed in m2\n";
    assert!(text.contains(reported), "{text}");
    let document = json!(preview);
    let missing = json!([{"kind": "ConfigMap", "name": "settings", "clusters": ["m2"]}]);
    assert_eq!(document["parted"][0]["missing"], missing);
}

#[test]
fn each_workload_is_reported_whether_it_leaves_stays_or_has_nowhere_to_go() {
    let affinity = |names: Value| json!({"clusterAffinity": {"clusterNames": names}});
    let tolerates = |seconds: Value| {
        let toleration = json!({"key": "failover.muster.io/drain", "operator": "Exists", "tolerationSeconds": seconds});
        json!({"clusterTolerations": [toleration], "clusterAffinity": {"clusterNames": ["m1", "m2"]}})
    };
    let bindings = [
        binding("moves", &affinity(json!(["m1", "m2"]))),
        binding("pinned", &affinity(json!(["m1"]))),
        binding("tolerant", &tolerates(Value::Null)),
        binding("patient", &tolerates(json!(300))),
    ];
    let preview = drain(&fleet(3, &bindings), &["m1"]);
    let names = |list: &[Line]| {
        list.iter()
            .map(|it| it.workload.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&preview.leave), ["moves"]);
    assert_eq!(preview.leave[0].to.as_deref(), Some("m2"));
    assert_eq!(names(&preview.stranded), ["pinned"]);
    assert_eq!(names(&preview.stay), ["tolerant"]);
    assert_eq!(names(&preview.later), ["patient"]);
    let text = preview.table(usize::MAX);
    for line in [
        "m1: 1 workload can leave\n  ConfigMap shop/moves in m1 -> m2\n",
        "m1: 1 workload is stranded: it has to leave and cannot\n  ConfigMap shop/pinned in m1: no other cluster could take it",
        "  ConfigMap shop/patient in m1: it tolerates the taint until 1970-01-01T00:05:00Z\n",
        "  ConfigMap shop/tolerant in m1: every taint of the cluster is tolerated\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("Warning"), "{text}");
}

#[test]
fn at_a_rate_of_0_nothing_is_said_to_leave() {
    let settings = Settings {
        resource_eviction_rate: 0.0,
        ..Settings::default()
    };
    let fleet = fleet(4, &[binding("moves", &json!({}))]);
    let preview = preview(&fleet, &["m1".to_owned()], &settings, Timestamp::UNIX_EPOCH);
    assert!(preview.is_stranded());
    let text = preview.table(usize::MAX);
    for part in [
        "m1: 1 workload could leave, and stays while the rate is 0\n",
        "Warning: nothing leaves at a rate of 0 (--resource-eviction-rate)\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn clusters_that_are_drained_together_are_no_refuge_for_each_other_and_a_third_of_four_is_warned_of()
 {
    let fleet = fleet(4, &[binding("moves", &json!({}))]);
    let drain = |names: &[&str]| drain(&fleet, names);
    assert_eq!(drain(&["m1", "m2"]).leave[0].to.as_deref(), Some("m3,m4"));
    assert_eq!(drain(&["m1", "m2"]).warning, None);
    let mut most = drain(&["m1", "m2", "m3"]);
    assert!(most.is_stranded());
    let text = most.table(usize::MAX);
    for part in [
        "1 workload could leave, and stays until fewer clusters have failed\n",
        "Warning: 3 of 4 clusters would count as failed",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    most.is_stopped = false;
    most.standstill = Standstill {
        reasons: vec!["all movement is paused by ann".to_owned()],
        unread: Some("it is not known whether movement is paused: no".to_owned()),
        is_whole: true,
    };
    let text = most.table(usize::MAX);
    for part in [
        "1 workload can leave when movement goes on\n",
        "Warning: it is not known whether movement is paused: no\n",
        "Warning: nothing moves now: all movement is paused by ann\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(drain(&["m1", "m2", "m3", "m4"]).is_stranded());
    assert!(
        drain(&["m2"])
            .table(usize::MAX)
            .contains("m2: no workload is there")
    );
}

#[test]
fn a_workload_with_two_copies_that_leave_is_one_workload_and_each_copy_names_its_cluster() {
    let two = |name: &str| {
        let mut binding = AnyBinding::clone(&binding(name, &json!({})));
        binding.spec.clusters.push(read(json!({"name": "m2"})));
        Arc::new(binding)
    };
    let bindings = [two("web"), two("api"), binding("db", &json!({}))];
    let drain = |bindings: &[Arc<AnyBinding>], members: usize| {
        drain(&fleet(members, bindings), &["m1", "m2"]).table(usize::MAX)
    };
    let text = drain(&bindings, 8);
    for line in [
        "m1, m2: 3 workloads, with 5 copies, can leave\n",
        "  ConfigMap shop/web in m1 -> ",
        "  ConfigMap shop/web in m2 -> ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let mut refuges = text.lines().filter_map(|it| it.split_once(" -> "));
    let is_drained = |names: &str| names.split(',').any(|it| ["m1", "m2"].contains(&it));
    assert!(!refuges.any(|it| is_drained(it.1)), "{text}");
    let text = drain(&bindings[..1], 2);
    let line = "m1, m2: 1 workload, with 2 copies, could leave, and stays until fewer clusters have failed\n";
    assert!(text.contains(line), "{text}");
}
