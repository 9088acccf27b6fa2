//! The control plane where admission, of whatever maker, lets nobody create namespaces.

use kube::api::{Api, PostParams};
use muster_control_plane::settings::Settings;
use muster_e2e::harness::kubeconfig;
use muster_e2e::harness::test_bed::{self, Scratch, Task, until};
use muster_shared::k8s::{Lease, Namespace};
use muster_shared::settings::BindAddress;
use serde_json::json;

use super::Talk;

/// Checks that a control plane leads there although admission is asked before a server finds that a
/// name is taken: whoever creates what exists is told that it is denied, and not that it exists.
#[tokio::test]
async fn a_control_plane_leads_where_namespaces_exist_and_nobody_may_create_any() {
    muster_shared::tls::install_provider();
    let server = test_bed::fleet_api().await.unwrap();
    let client = server.client().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for name in ["karmada-system", "karmada-cluster"] {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        // The API may have come with it.
        let _there_already = namespaces.create(&PostParams::default(), &namespace).await;
    }
    let talk = Talk { server, client };
    let denied = json!({
        "matchConstraints": { "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["namespaces"] }] },
        "validations": [{ "expression": "false", "message": "ask the platform team" }],
    });
    talk.policy("no-namespaces", denied).await;
    talk.bind("no-namespaces", "no-namespaces", json!(["Deny"]))
        .await;
    let taken = json!({ "metadata": { "name": "karmada-system" } });
    let answer = talk.send("POST", "/api/v1/namespaces", &taken).await.0;
    assert_eq!(answer["reason"], "Invalid", "{answer}");

    let scratch = Scratch::new("no-namespaces").unwrap();
    let path = scratch.path().join("control-plane.kubeconfig");
    let administrator = talk.server.admin_kubeconfig().unwrap();
    kubeconfig::write(&administrator, &path).unwrap();
    let settings = Settings {
        kubeconfig: Some(path),
        metrics_bind_address: BindAddress(None),
        health_probe_bind_address: BindAddress(None),
        ..Settings::default()
    };
    let name = settings.leader_elect_resource_name.clone();
    let _control_plane =
        Task::start(|shutdown| muster_control_plane::run(settings, None, shutdown));
    let leases: Api<Lease> = Api::namespaced(talk.client.clone(), "karmada-system");
    until(&leases, &name, "it leads", |lease| {
        let spec = lease.spec.as_ref();
        spec.is_some_and(|spec| spec.holder_identity.is_some())
    })
    .await;
}
