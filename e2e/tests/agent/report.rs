//! What the fleet learns about a member.

use http::StatusCode;
use jiff::Timestamp;
use muster_e2e::apiserver::faults::{Effect, Scope};
use muster_e2e::harness::objects::{create, event, merge, merge_status};
use muster_shared::capacity::default_models;
use muster_shared::k8s::{Api, Node, Pod};
use serde_json::{Value, json};

use crate::agent::bench::{AGENTS, Bench, MEMBER, condition, renewed, until};

fn node(name: &str, ready: bool) -> Node {
    serde_json::from_value(json!({"metadata": {"name": name}, "status": {
        "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}}))
    .unwrap()
}

fn pod(name: &str, node: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"nodeName": node,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]}}))
    .unwrap()
}

async fn create_node(bench: &Bench, name: &str, ready: bool) {
    let api: Api<Node> = Api::all(bench.member_client.clone());
    let node = node(name, ready);
    create(&api, &node).await;
    // A server may keep only the spec of what is created.
    let status = json!({"status": node.status});
    merge_status(&api, name, &status).await;
}

#[tokio::test]
async fn a_member_registers_and_says_what_it_is_and_has() {
    let bench = Bench::start().await;
    create_node(&bench, "n1", true).await;
    create_node(&bench, "n2", false).await;
    let pods: Api<Pod> = Api::namespaced(bench.member_client.clone(), "default");
    create(&pods, pod("placed", &json!("n1"))).await;
    create(&pods, pod("waiting", &Value::Null)).await;
    let _agent = bench.agent();

    let cluster = bench
        .has(
            MEMBER,
            &[
                ("StatusUpToDate", "True", "Collected"),
                ("Ready", "True", "ClusterReady"),
            ],
        )
        .await;
    assert_eq!(
        condition(&cluster, "CompleteAPIEnablements"),
        Some(("True", "Complete"))
    );
    assert_eq!(cluster.spec.sync_mode.as_str(), "Pull");
    assert_eq!(
        cluster.spec.api_endpoint.as_deref(),
        Some(bench.member.url().as_str())
    );
    assert_eq!(cluster.spec.resource_models.len(), 9, "the default grades");
    let namespaces: Api<muster_shared::k8s::Namespace> = Api::all(bench.member_client.clone());
    let system = namespaces.get("kube-system").await.unwrap();
    assert_eq!(cluster.spec.id, system.metadata.uid);

    let status = cluster.status.unwrap();
    assert!(
        status
            .kubernetes_version
            .is_some_and(|version| version.starts_with('v'))
    );
    let serves = |version: &str, kind: &str| {
        status.api_enablements.iter().any(|group| {
            group.group_version == version
                && group.resources.iter().any(|resource| resource.kind == kind)
        })
    };
    assert!(serves("apps/v1", "Deployment") && serves("v1", "Pod"));
    let nodes = status.node_summary.unwrap();
    assert_eq!((nodes.total_num, nodes.ready_num), (2, 1));
    let resources = status.resource_summary.unwrap();
    let amounts = [
        &resources.allocatable,
        &resources.allocated,
        &resources.allocating,
    ]
    .map(|list| {
        (
            list["cpu"].0.clone(),
            list["memory"].0.clone(),
            list["pods"].0.clone(),
        )
    });
    let texts = |cpu: &str, memory: &str, pods: &str| (cpu.into(), memory.into(), pods.into());
    assert_eq!(
        amounts,
        [
            // The node that is not ready takes no pods, and so offers nothing.
            texts("4", "16Gi", "110"),
            texts("500m", "1Gi", "1"),
            texts("500m", "1Gi", "1")
        ]
    );
    let graded: i64 = resources
        .allocatable_modelings
        .iter()
        .map(|grade| grade.count)
        .sum();
    assert_eq!(graded, 1);
}

/// Checks the lease, which is in the namespace of all members' leases, wherever credentials are.
#[tokio::test]
async fn the_lease_is_renewed_and_belongs_to_the_cluster() {
    let bench = Bench::start().await;
    let _agent = bench.agent_in(&[AGENTS], |settings| {
        settings.cluster_namespace = "elsewhere".into();
    });
    let cluster = bench.joined().await;
    let first = bench.beats(None).await;
    let later = bench.beats(renewed(&first)).await;
    let spec = later.spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some(MEMBER));
    assert_eq!(spec.lease_duration_seconds, Some(2));
    assert!(spec.renew_time.unwrap().0 <= Timestamp::now());
    let owners = later.metadata.owner_references.unwrap();
    assert_eq!(owners[0].uid, cluster.metadata.uid.unwrap());
}

#[tokio::test]
async fn a_sick_member_is_not_ready_a_silent_one_not_reachable_and_neither_loses_its_capacity() {
    let bench = Bench::start().await;
    create_node(&bench, "n1", true).await;
    let _agent = bench.agent();
    bench
        .has(
            MEMBER,
            &[
                ("StatusUpToDate", "True", "Collected"),
                ("Ready", "True", "ClusterReady"),
            ],
        )
        .await;
    let unwell = Effect::Answer(StatusCode::INTERNAL_SERVER_ERROR);
    for (scope, effect, reason) in [
        (Scope::path("/readyz"), unwell, "ClusterNotReady"),
        (Scope::default(), Effect::Hang, "ClusterNotReachable"),
    ] {
        bench.member.faults().inject_for(scope, effect);
        let sick = bench.has(MEMBER, &[("Ready", "False", reason)]).await;
        let nodes = sick.status.as_ref().and_then(|status| status.node_summary);
        assert_eq!(nodes.map(|nodes| nodes.total_num), Some(1), "{reason}");
        bench.member.faults().heal();
        bench.joined().await;
    }
}

#[tokio::test]
async fn resource_models_that_cannot_be_used_are_reported_on_the_cluster() {
    let bench = Bench::start().await;
    create_node(&bench, "n1", true).await;
    let _agent = bench.agent();
    bench.joined().await;
    let mut models = json!(default_models());
    models[1]["ranges"].as_array_mut().unwrap().pop();
    let models = json!({"spec": {"resourceModels": models}});
    merge(&bench.clusters(), MEMBER, &models).await;
    let events = Api::namespaced(bench.fleet_client.clone(), "default");
    let about = format!("involvedObject.name={MEMBER},reason=InvalidResourceModels");
    let event = event(&events, &about, "").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let message = event.message.unwrap();
    assert!(
        message.contains("grade 1 has another number of resources"),
        "{message}"
    );
    let what = "no node is counted by grade, and the sums are reported";
    until(&bench.clusters(), MEMBER, what, |cluster| {
        let status = cluster.status.as_ref();
        let summary = status.and_then(|it| it.resource_summary.as_ref());
        summary.is_some_and(|it| {
            it.allocatable_modelings.is_empty() && it.allocatable.contains_key("cpu")
        })
    })
    .await;
}

#[tokio::test]
async fn without_modelling_no_node_and_no_pod_is_read() {
    let bench = Bench::start().await;
    create_node(&bench, "n1", true).await;
    let _agent = bench.agent_in(&[AGENTS], |settings| {
        settings.enable_cluster_resource_modeling = false;
    });
    let cluster = bench
        .has(MEMBER, &[("StatusUpToDate", "True", "Collected")])
        .await;
    let status = cluster.status.unwrap();
    assert_eq!((status.node_summary, status.resource_summary), (None, None));
    assert_eq!(cluster.spec.resource_models, []);
}

#[tokio::test]
async fn deeper_checks_have_conditions_of_their_own_where_they_are_asked_for() {
    let bench = Bench::start().await;
    create_node(&bench, "n1", true).await;
    create_node(&bench, "n2", false).await;
    let _agent = bench.agent_in(&["system:masters"], |settings| {
        settings.cluster_ready_nodes_threshold = 0.6;
        settings.cluster_dns_name = "localhost".into();
    });
    let nodes = "NodesReady";
    let cluster = until(&bench.clusters(), MEMBER, "both are reported", |cluster| {
        condition(cluster, nodes) == Some(("False", "TooFewNodesReady"))
            && condition(cluster, "ServiceDomainNameResolutionReady")
                .is_some_and(|(status, _)| status == "True")
    })
    .await;
    assert_eq!(
        condition(&cluster, "Ready"),
        Some(("True", "ClusterReady")),
        "they say nothing about Ready"
    );
    create_node(&bench, "n3", true).await;
    bench
        .has(MEMBER, &[(nodes, "True", "EnoughNodesReady")])
        .await;
}
