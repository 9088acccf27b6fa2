//! A member that is registered already, under another name, where the agent may see no Cluster but
//! its own; one whose Cluster is made anew; and one that the control plane manages itself.

use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::{create, delete, event, merge, merge_status};
use muster_e2e::harness::test_bed::Task;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Api, Event, Namespace, ResourceExt};
use muster_shared::settings::BindAddress;
use serde_json::json;

use crate::agent::bench::{AGENTS, Bench, MEMBER, condition, renewed, until};

const OTHER: &str = "m0";
/// The condition of a Cluster whose member is registered under another name.
const REFUSED: (&str, &str, &str) = ("UniqueIdentity", "False", "RegisteredAlready");

/// Starts a control plane at the fleet of a bench.
pub fn control_plane(bench: &Bench) -> Task {
    control_plane_with(bench, Settings::default())
}

/// Starts such a control plane with these settings.
pub fn control_plane_with(bench: &Bench, settings: Settings) -> Task {
    let kubeconfig = bench.fleet.admin_kubeconfig().unwrap();
    let settings = Settings {
        kubeconfig: Some(bench.write("control-plane", &kubeconfig)),
        leader_elect: false,
        metrics_bind_address: BindAddress(None),
        health_probe_bind_address: BindAddress(None),
        ..settings
    };
    Task::start(|shutdown| muster_control_plane::run(settings, None, shutdown))
}

/// Creates a Cluster of the member, and returns it.
async fn register(bench: &Bench, name: &str) -> Cluster {
    let namespaces: Api<Namespace> = Api::all(bench.member_client.clone());
    let id = namespaces.get("kube-system").await.unwrap().uid();
    let cluster = json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull", "id": id}});
    create(&bench.clusters(), cluster).await
}

#[tokio::test]
async fn the_agent_of_a_second_registration_beats_and_applies_nothing_until_the_first_is_gone() {
    let bench = Bench::start().await;
    let _control_plane = control_plane(&bench);
    register(&bench, OTHER).await;
    let agent = bench.agent();
    bench.has(MEMBER, &[REFUSED]).await;
    let first = bench.clusters().get(OTHER).await.unwrap();
    assert_eq!(condition(&first, "UniqueIdentity"), None);
    until(
        &bench.clusters(),
        MEMBER,
        "nothing new comes to it",
        |cluster| {
            let mut taints = cluster.spec.taints.iter();
            taints.any(|taint| taint.key == "clusters.muster.io/duplicate-registration")
        },
    )
    .await;
    bench.joined().await;
    bench.create_work("a", |_| {}).await;
    let beat = renewed(&bench.beats(None).await);
    bench.beats(beat).await;
    let work = bench.works().get("a").await.unwrap();
    assert_eq!(
        crate::agent::bench::applied(&work),
        None,
        "nothing is applied"
    );

    delete(&bench.clusters(), OTHER).await;
    bench
        .has(MEMBER, &[("UniqueIdentity", "True", "OnlyRegistration")])
        .await;
    bench.applied("a", "True").await;
    assert!(!agent.is_finished());
}

#[tokio::test]
async fn a_member_at_work_is_not_driven_out_by_a_cluster_that_claims_its_id() {
    let bench = Bench::start().await;
    let control_plane = control_plane(&bench);
    let agent = bench.agent();
    bench.joined().await;
    register(&bench, OTHER).await;
    bench.has(OTHER, &[REFUSED]).await;
    // A control plane that starts anew sees two and does not know who was first.
    control_plane.stop().await.unwrap();
    let _control_plane = self::control_plane(&bench);
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    let member = bench.clusters().get(MEMBER).await.unwrap();
    assert_eq!(condition(&member, "UniqueIdentity"), None);
    assert!(!agent.is_finished());
}

#[tokio::test]
async fn a_cluster_that_is_deleted_and_made_again_gets_the_id_and_the_place_of_its_agent_again() {
    let bench = Bench::start().await;
    let agent = bench.agent_in(&[AGENTS], |settings| settings.cluster_region = "eu".into());
    let first = bench.joined().await;
    delete(&bench.clusters(), MEMBER).await;
    let bare = json!({"metadata": {"name": MEMBER}, "spec": {"syncMode": "Pull"}});
    let second: Cluster = create(&bench.clusters(), bare).await;
    assert_ne!(first.uid(), second.uid());
    let what = "its agent registers it again";
    let again = until(&bench.clusters(), MEMBER, what, |cluster| {
        cluster.spec.id == first.spec.id
    })
    .await;
    assert_eq!(again.uid(), second.uid());
    assert_eq!(again.spec.region.as_deref(), Some("eu"));
    assert_eq!(again.spec.api_endpoint, first.spec.api_endpoint);
    assert!(!agent.is_finished());
}

#[tokio::test]
async fn an_agent_leaves_a_member_to_the_control_plane_until_its_cluster_says_pull() {
    let bench = Bench::start().await;
    let pushed = json!({
        "metadata": {"name": MEMBER},
        "spec": {"syncMode": "Push", "apiEndpoint": "https://127.0.0.1:1"},
    });
    let before: Cluster = create(&bench.clusters(), pushed).await;
    let agent = bench.agent();
    let events: Api<Event> = Api::namespaced(bench.fleet_client.clone(), "default");
    event(&events, "reason=RegistrationRefused", "syncMode Push").await;
    // An agent that renews the lease stops no workloads of a member that is fenced.
    let beat = renewed(&bench.beats(None).await);
    bench.beats(beat).await;
    let now = bench.clusters().get(MEMBER).await.unwrap();
    assert_eq!(now.resource_version(), before.resource_version());

    let mode = |mode: &str| json!({"spec": {"syncMode": mode}});
    merge(&bench.clusters(), MEMBER, &mode("Pull")).await;
    bench.joined().await;
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;

    merge(&bench.clusters(), MEMBER, &mode("Push")).await;
    let ended = agent.ended().await.unwrap_err();
    assert!(ended.to_string().contains("syncMode Push"), "{ended}");
}

#[tokio::test]
async fn an_agent_that_stepped_back_ends_when_the_control_plane_takes_its_member_over() {
    let (bench, agent) = Bench::with_agent().await;
    bench.create_work("a", |_| {}).await;
    bench.applied("a", "True").await;
    let doubt = json!({
        "type": REFUSED.0, "status": REFUSED.1, "reason": REFUSED.2, "message": "registered as m0",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let doubted = json!({"status": {"conditions": [doubt]}});
    merge_status(&bench.clusters(), MEMBER, doubted).await;
    let events: Api<Event> = Api::namespaced(bench.fleet_client.clone(), "default");
    event(&events, "reason=RegistrationRefused", "registered as m0").await;

    // The tasks that report its Works are still there.
    let pushed = json!({"spec": {"syncMode": "Push"}});
    merge(&bench.clusters(), MEMBER, pushed).await;
    let clear = json!({"status": {"conditions": []}});
    merge_status(&bench.clusters(), MEMBER, clear).await;
    let ended = agent.ended().await.unwrap_err();
    assert!(ended.to_string().contains("syncMode Push"), "{ended}");
}
