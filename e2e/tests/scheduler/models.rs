//! The worked examples of the documentation of resource models: how many replicas each of three
//! clusters is good for, and which of them is preferred.

use muster_control_plane::settings::Settings;
use muster_control_plane::settings::grade_rule::GradeRule;
use muster_e2e::harness::objects::{create, merge_status};
use muster_shared::capacity::default_models;
use serde_json::{Value, json};

use crate::scheduler::bench::{Bench, aggregated, binding, shown, until, verdict};

/// Starts a fleet with three members that report this.
async fn fleet(summaries: [Value; 3]) -> Bench {
    let bench = Bench::with_members(&[]).await;
    for (number, summary) in (1..).zip(summaries) {
        let name = format!("member{number}");
        let cluster = json!({
            "metadata": { "name": name },
            "spec": { "syncMode": "Pull", "resourceModels": default_models() },
        });
        let clusters = bench.clusters();
        create(&clusters, cluster).await;
        let status = json!({ "status": {
            "apiEnablements": [{
                "groupVersion": "apps/v1",
                "resources": [{ "name": "deployments", "kind": "Deployment" }],
            }],
            "resourceSummary": summary,
        } });
        merge_status(&clusters, &name, &status).await;
    }
    bench
}

/// Returns the members of the first example, with their sums.
fn summed() -> [Value; 3] {
    [("950m", "11"), ("2", "11"), ("2", "110")].map(|(cpu, pods)| {
        json!({
            "allocatable": {
                "cpu": "4", "ephemeral-storage": "206291924Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
                "memory": "16265856Ki", "pods": "110",
            },
            "allocated": { "cpu": cpu, "memory": "290Mi", "pods": pods },
        })
    })
}

/// Returns the members of the second example, with their nodes by grade. By their sums, each would
/// be good for another number: 5, 9 and 2.
fn graded() -> [Value; 3] {
    let nodes: [&[(u64, i64)]; 3] = [&[(2, 1), (3, 6)], &[(2, 4), (3, 4)], &[(6, 1)]];
    let cores = ["15", "27", "6"];
    [0, 1, 2].map(|member| {
        let counts = nodes[member]
            .iter()
            .map(|(grade, count)| json!({ "grade": grade, "count": count }));
        json!({
            "allocatable": { "cpu": cores[member], "memory": "10Ti", "pods": "1k" },
            "allocatableModelings": counts.collect::<Vec<_>>(),
        })
    })
}

async fn bind(bench: &Bench, name: &str, replicas: u32, request: &Value, placement: &Value) {
    let mut binding = binding(name, replicas, placement);
    binding["spec"]["replicaRequirements"] = json!({ "resourceRequest": request });
    create(&bench.bindings(), binding).await;
}

/// Sees that the clusters are good for so many replicas and no more, and which one is preferred.
async fn judged(bench: &Bench, name: &str, request: Value, rooms: [u32; 3], preferred: &str) {
    let by_room = json!({ "replicaScheduling": {
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": { "dynamicWeight": "AvailableReplicas" },
    } });
    let all: u32 = rooms.iter().sum();
    let shares = (1..)
        .zip(rooms)
        .filter(|(_, room)| *room > 0)
        .map(|(number, room)| format!("member{number}:{room}"));
    let shares = shares.collect::<Vec<_>>().join(" ");
    let full = format!("{name}-full");
    bind(bench, &full, all, &request, &by_room).await;
    bench.placed(&full, &shares).await;
    // One more is one too many.
    let more = format!("{name}-more");
    bind(bench, &more, all + 1, &request, &by_room).await;
    let refused = until(&bench.bindings(), &more, "there is no room", |binding| {
        verdict(binding).0 == "Unschedulable"
    })
    .await;
    let numbers = format!("Clusters available replicas {all} are not enough");
    assert!(verdict(&refused).1.contains(&numbers), "{refused:?}");
    assert_eq!(shown(&refused), "");

    let one = format!("{name}-one");
    bind(bench, &one, 1, &request, &aggregated()).await;
    bench.placed(&one, &format!("{preferred}:1")).await;
}

#[tokio::test]
async fn by_their_sums_the_three_members_are_good_for_six_four_and_no_replicas() {
    let bench = fleet(summed()).await;
    let _scheduler = bench.scheduler();
    let request = json!({ "cpu": "500m" });
    judged(&bench, "half-a-core", request, [6, 4, 0], "member1").await;
}

#[tokio::test]
async fn by_the_upper_ends_of_their_grades_they_are_good_for_what_the_documentation_says() {
    let bench = fleet(graded()).await;
    let _scheduler = bench.scheduler_with(Settings {
        node_grades: GradeRule::UpperBounds,
        ..Settings::default()
    });
    let request = json!({ "cpu": "3", "memory": "20Gi" });
    judged(&bench, "small", request, [7, 8, 10], "member3").await;
    let request = json!({ "cpu": "3", "memory": "60Gi" });
    judged(&bench, "large", request, [6, 4, 4], "member1").await;
}

#[tokio::test]
async fn by_default_a_node_counts_for_what_its_grade_has_at_least() {
    let bench = fleet(graded()).await;
    let _scheduler = bench.scheduler();
    let request = json!({ "cpu": "3", "memory": "20Gi" });
    judged(&bench, "small", request, [6, 4, 10], "member3").await;
    let request = json!({ "cpu": "3", "memory": "60Gi" });
    judged(&bench, "large", request, [0, 0, 4], "member3").await;
}

#[tokio::test]
async fn with_the_gate_off_grades_are_not_looked_at() {
    let bench = fleet(graded()).await;
    let _scheduler = bench.scheduler_with(Settings {
        feature_gates: "CustomizedClusterResourceModeling=false".parse().unwrap(),
        ..Settings::default()
    });
    let request = json!({ "cpu": "3", "memory": "60Gi" });
    judged(&bench, "large", request, [5, 9, 2], "member2").await;
}
