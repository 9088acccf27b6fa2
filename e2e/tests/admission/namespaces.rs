//! The control plane where admission, of whatever maker, lets nobody create namespaces.

use kube::api::{Api, PostParams};
use muster_control_plane::settings::Settings;
use muster_e2e::harness::objects::typed;
use muster_e2e::harness::test_bed::{TestBed, until};
use muster_shared::k8s::{Lease, Namespace};
use serde_json::json;

use super::Talk;

/// Checks that a control plane leads there although admission is asked before a server finds that a
/// name is taken: whoever creates what exists is told that it is denied, and not that it exists.
#[tokio::test]
async fn a_control_plane_leads_where_namespaces_exist_and_nobody_may_create_any() {
    let bed = TestBed::fleet("no-namespaces").await.unwrap();
    let namespaces = bed.all::<Namespace>();
    for name in ["karmada-system", "karmada-cluster"] {
        let namespace = typed(json!({ "metadata": { "name": name } }));
        // The API may have come with it.
        let _there_already = namespaces.create(&PostParams::default(), &namespace).await;
    }
    let talk = Talk::with(&bed.client);
    let denied = json!({
        "matchConstraints": { "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["namespaces"] }] },
        "validations": [{ "expression": "false", "message": "ask the platform team" }],
    });
    talk.policy("no-namespaces", denied).await;
    talk.bind("no-namespaces", "no-namespaces", json!(["Deny"]))
        .await;
    let taken = json!({ "metadata": { "name": "karmada-system" } });
    let answer = talk.send("POST", "/api/v1/namespaces", &taken).await;
    assert_eq!(answer["reason"], "Invalid", "{answer}");

    let settings = Settings::default();
    let name = settings.leader_elect_resource_name.clone();
    let _control_plane = bed.elected_control_plane(settings).unwrap();
    let leases: Api<Lease> = bed.within("karmada-system");
    until(&leases, &name, "it leads", |lease| {
        let spec = lease.spec.as_ref();
        spec.is_some_and(|spec| spec.holder_identity.is_some())
    })
    .await;
}
