//! Policies of the API itself: those of others that a control plane has to live with, and those
//! that it brings.

use kube::api::{Api, PostParams};
use muster_control_plane::settings::Settings;
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::objects::typed;
use muster_e2e::harness::raw;
use muster_e2e::harness::test_bed::{TestBed, until};
use muster_shared::k8s::{Lease, Namespace};
use serde_json::json;

/// Lets nobody create a namespace.
const NO_NAMESPACES: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-namespaces}
spec:
  matchConstraints:
    resourceRules:
      - apiGroups: ['']
        apiVersions: [v1]
        operations: [CREATE]
        resources: [namespaces]
  validations:
    - expression: 'false'
      message: ask the platform team
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-namespaces}
spec:
  policyName: no-namespaces
  validationActions: [Deny]
";

/// Checks that a control plane leads there although admission is asked before a server finds that a
/// name is taken: whoever creates what exists learns that it is denied, and not that it exists.
#[tokio::test]
async fn a_control_plane_leads_where_namespaces_exist_and_nobody_may_create_any() {
    let bed = TestBed::fleet("no-namespaces").await.unwrap();
    let namespaces = bed.all::<Namespace>();
    for name in ["karmada-system", "karmada-cluster"] {
        let namespace = typed(json!({ "metadata": { "name": name } }));
        // The API may have come with it.
        let _there_already = namespaces.create(&PostParams::default(), &namespace).await;
    }
    apply(&bed.client, NO_NAMESPACES).await.unwrap();
    let taken = json!({ "metadata": { "name": "karmada-system" } });
    let answer = raw::send(&bed.client, &[], "POST", "/api/v1/namespaces", &taken).await;
    assert_eq!(answer.body["reason"], "Invalid", "{answer:?}");

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

#[tokio::test]
async fn the_namespaces_of_leases_and_of_the_election_are_not_deleted_by_mistake() {
    let bed = TestBed::fleet("kept-namespaces").await.unwrap();
    let other = json!({"metadata": {"name": "other"}});
    raw::send(&bed.client, &[], "POST", "/api/v1/namespaces", &other).await;
    for (name, kept) in [
        ("karmada-cluster", true),
        ("karmada-system", true),
        ("other", false),
    ] {
        let path = format!("/api/v1/namespaces/{name}");
        let answer = raw::send(&bed.client, &[], "DELETE", &path, &json!({})).await;
        assert_eq!(answer.code == 403, kept, "{answer:?}");
        let message = answer.body["message"].as_str().unwrap_or_default();
        let why = "all clusters of the fleet would fall silent";
        assert_eq!(message.contains(why), kept, "{message}");
    }
}
