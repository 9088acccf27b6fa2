//! A member that is registered already, under another name, where the agent may see no Cluster but its own.

use kube::api::PostParams;
use muster_control_plane::settings::Settings;
use muster_e2e::harness::ground::Task;
use muster_shared::api::cluster::Cluster;
use muster_shared::k8s::{Api, Namespace, ResourceExt};
use muster_shared::settings::BindAddress;
use serde_json::json;

use crate::bench::{Bench, MEMBER, condition, delete, until};

const OTHER: &str = "m0";

fn control_plane(bench: &Bench) -> Task {
    let kubeconfig = bench.fleet.admin_kubeconfig().unwrap();
    let settings = Settings {
        kubeconfig: Some(bench.write("control-plane", &kubeconfig)),
        leader_elect: false,
        metrics_bind_address: BindAddress(None),
        health_probe_bind_address: BindAddress(None),
        ..Settings::default()
    };
    Task::start(|shutdown| muster_control_plane::run(settings, None, shutdown))
}

/// A Cluster that stands for the member.
async fn register(bench: &Bench, name: &str) -> Cluster {
    let namespaces: Api<Namespace> = Api::all(bench.member_client.clone());
    let id = namespaces.get("kube-system").await.unwrap().uid();
    let cluster = json!({"metadata": {"name": name}, "spec": {"syncMode": "Pull", "id": id}});
    let cluster = serde_json::from_value(cluster).unwrap();
    bench
        .clusters()
        .create(&PostParams::default(), &cluster)
        .await
        .unwrap()
}

#[tokio::test]
async fn the_agent_of_a_second_registration_ends_and_may_come_back_when_the_first_is_gone() {
    let bench = Bench::start().await;
    let _control_plane = control_plane(&bench);
    register(&bench, OTHER).await;
    let error = bench.agent().ended().await.unwrap_err().to_string();
    assert!(error.contains("under the name \"m0\""), "{error}");
    let twin = bench.clusters().get(MEMBER).await.unwrap();
    let said = condition(&twin, "UniqueIdentity");
    assert_eq!(said, Some(("False", "RegisteredAlready")));
    let first = bench.clusters().get(OTHER).await.unwrap();
    assert_eq!(condition(&first, "UniqueIdentity"), None);
    let error = bench.agent().ended().await.unwrap_err().to_string();
    assert!(error.contains("refused to join"), "at once: {error}");

    delete(&bench.clusters(), OTHER).await;
    until(&bench.clusters(), MEMBER, "it is the only one", |cluster| {
        condition(cluster, "UniqueIdentity") == Some(("True", "OnlyRegistration"))
    })
    .await;
    let _agent = bench.agent();
    bench.joined().await;
}

#[tokio::test]
async fn a_member_at_work_is_not_driven_out_by_a_cluster_that_claims_its_id() {
    let bench = Bench::start().await;
    let control_plane = control_plane(&bench);
    let agent = bench.agent();
    bench.joined().await;
    register(&bench, OTHER).await;
    let refused = |cluster: &Cluster| {
        condition(cluster, "UniqueIdentity") == Some(("False", "RegisteredAlready"))
    };
    until(&bench.clusters(), OTHER, "it is refused", refused).await;
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
async fn a_fleet_is_no_member_of_itself() {
    let bench = Bench::start().await;
    let agent = bench.agent_in(&["system:masters"], |settings| {
        settings.kubeconfig = settings.karmada_kubeconfig.clone();
    });
    let error = agent.ended().await.unwrap_err().to_string();
    assert!(error.contains("the same cluster"), "{error}");
    assert!(bench.clusters().get_opt(MEMBER).await.unwrap().is_none());
}
