//! The worked example of the documentation of resource models: how many replicas each of three
//! clusters is good for, and which of them is preferred.

use muster_control_plane::settings::Settings;
use muster_control_plane::settings::grade_rule::GradeRule;
use muster_e2e::harness::objects::{create, merge_status};
use muster_shared::capacity::default_models;
use serde_json::{Value, json};

use crate::scheduler::bench::{Bench, aggregated, binding, shown, until, verdict};

/// So many nodes of each grade.
type Nodes = [(u64, i64)];

/// The members: their cores, and their nodes by grade. By their sums, each would be good for
/// another number: 5, 9 and 2.
const MEMBERS: [(&str, &Nodes); 3] = [
    ("15", &[(2, 1), (3, 6)]),
    ("27", &[(2, 4), (3, 4)]),
    ("6", &[(6, 1)]),
];

async fn join(bench: &Bench, name: &str, cores: &str, nodes: &Nodes) {
    let counts = nodes
        .iter()
        .map(|(grade, count)| json!({ "grade": grade, "count": count }));
    let cluster = json!({
        "metadata": { "name": name },
        "spec": { "syncMode": "Pull", "resourceModels": default_models() },
    });
    let status = json!({ "status": {
        "apiEnablements": [{
            "groupVersion": "apps/v1",
            "resources": [{ "name": "deployments", "kind": "Deployment" }],
        }],
        "resourceSummary": {
            "allocatable": { "cpu": cores, "memory": "10Ti", "pods": "1k" },
            "allocatableModelings": counts.collect::<Vec<_>>(),
        },
    } });
    let clusters = bench.clusters();
    create(&clusters, cluster).await;
    merge_status(&clusters, name, &status).await;
}

async fn bind(bench: &Bench, name: &str, replicas: u32, memory: &str, placement: &Value) {
    let mut binding = binding(name, replicas, placement);
    let request = json!({ "cpu": "3", "memory": memory });
    binding["spec"]["replicaRequirements"] = json!({ "resourceRequest": request });
    create(&bench.bindings(), binding).await;
}

#[tokio::test]
async fn by_the_upper_ends_of_their_grades_they_are_good_for_what_the_documentation_says() {
    let bench = Bench::with_members(&[]).await;
    for (number, (cores, nodes)) in (1..).zip(MEMBERS) {
        join(&bench, &format!("member{number}"), cores, nodes).await;
    }
    let _scheduler = bench.scheduler_with(Settings {
        node_grades: GradeRule::UpperBounds,
        ..Settings::default()
    });
    let by_room = json!({ "replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": { "dynamicWeight": "AvailableReplicas" },
    } });
    for (name, memory, rooms, preferred) in [
        ("small", "20Gi", [7_u32, 8, 10], "member3"),
        ("large", "60Gi", [6, 4, 4], "member1"),
    ] {
        let all: u32 = rooms.iter().sum();
        let [first, second, third] = rooms;
        let full = format!("{name}-full");
        bind(&bench, &full, all, memory, &by_room).await;
        let shares = format!("member1:{first} member2:{second} member3:{third}");
        bench.placed(&full, &shares).await;
        // One more is one too many.
        let more = format!("{name}-more");
        bind(&bench, &more, all + 1, memory, &by_room).await;
        let refused = until(&bench.bindings(), &more, "there is no room", |binding| {
            verdict(binding).0 == "Unschedulable"
        })
        .await;
        let numbers = format!("Clusters available replicas {all} are not enough");
        assert!(verdict(&refused).1.contains(&numbers), "{refused:?}");
        assert_eq!(shown(&refused), "");

        let one = format!("{name}-one");
        bind(&bench, &one, 1, memory, &aggregated()).await;
        bench.placed(&one, &format!("{preferred}:1")).await;
    }
}
