//! What the embedded API refuses as a real one does, so that the rights in the charts have to
//! suffice: to grant what one does not have, and to approve and sign without a right to the signer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_e2e::apiserver::ApiServer;
use muster_e2e::harness::apply::apply;
use muster_e2e::harness::raw;
use muster_shared::certificate::request::NewKey;
use muster_shared::certificate::subject;
use serde_json::{Value, json};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The rights of somebody who writes roles and requests.
const ANN: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ann}
rules:
  - {apiGroups: [rbac.authorization.k8s.io], resources: ['*'], verbs: [create]}
  - {apiGroups: [apps], resources: [deployments], verbs: [get, list]}
  - {apiGroups: [certificates.k8s.io], resources: ['*'], verbs: [create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ann}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ann}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ann}]
";

#[tokio::test]
async fn nobody_grants_or_approves_beyond_their_own_rights() {
    muster_shared::tls::install_provider();
    let server = ApiServer::for_test().await;
    let client = server.client().await.unwrap();
    apply(&client, ANN).await.unwrap();
    let ann = [("impersonate-user", "ann")];
    let role = |name: &str, verb: &str| {
        let rule = json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": [verb]});
        json!({"metadata": {"name": name}, "rules": [rule]})
    };
    let binding = |name: &str, role: &str| {
        let group = "rbac.authorization.k8s.io";
        json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "apiGroup": group, "name": "bob"}],
        })
    };
    let key = NewKey::generate().unwrap();
    let request = key.request(&subject::of("dev", "x")).unwrap();
    let request = json!({
        "metadata": {"name": "x"},
        "spec": {
            "request": STANDARD.encode(request), "usages": ["client auth"],
            "signerName": "kubernetes.io/kube-apiserver-client",
        },
    });
    let made = raw::send(&client, &ann, "POST", CSRS, &request).await;
    assert_eq!(made.code, 201, "{made:?}");
    let with = |condition: &str| -> Value {
        let mut request = made.body.clone();
        request["status"] = json!({"conditions": [{"type": condition, "status": "True"}]});
        request
    };
    let (roles, bindings) = (
        format!("{RBAC}/clusterroles"),
        format!("{RBAC}/clusterrolebindings"),
    );
    let (approval, status) = (format!("{CSRS}/x/approval"), format!("{CSRS}/x/status"));
    for (method, path, body, code) in [
        ("POST", &roles, role("less", "get"), 201),
        ("POST", &roles, role("more", "delete"), 403),
        ("POST", &bindings, binding("less", "less"), 201),
        ("POST", &bindings, binding("more", "cluster-admin"), 403),
        ("PUT", &approval, with("Approved"), 403),
        ("PUT", &status, with("Failed"), 403),
    ] {
        let answer = raw::send(&client, &ann, method, path, &body).await;
        assert_eq!(answer.code, code, "{path}: {answer:?}");
    }
}
