//! Who may approve and sign requests of certificates.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_shared::certificate::request::NewKey;
use muster_shared::certificate::subject;
use serde_json::json;

use crate::identity::{CSRS, grant, send, send_as, server};

#[tokio::test]
async fn approving_and_signing_take_rights_on_the_signer() {
    let (_server, client) = server().await;
    let rules = json!([{ "apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["get", "update"] }]);
    grant(&client, "ann", &rules).await;
    let ann = [("impersonate-user", "ann")];
    let request = NewKey::generate()
        .unwrap()
        .request(&subject::of("dev", "x"));
    let request = json!({
        "metadata": { "name": "x" },
        "spec": {
            "request": STANDARD.encode(request.unwrap()), "usages": ["client auth"],
            "signerName": "kubernetes.io/kube-apiserver-client",
        },
    });
    let made = send(&client, "POST", CSRS, &request).await;
    let mut approved = made.clone();
    approved["status"] = json!({ "conditions": [{ "type": "Approved", "status": "True" }] });
    let refused = send_as(
        &client,
        &ann,
        "PUT",
        &format!("{CSRS}/x/approval"),
        &approved,
    )
    .await;
    let why = "certificatesigningrequests.certificates.k8s.io \"x\" is forbidden: user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\"";
    assert_eq!(refused["message"], why);
    approved["status"] = json!({ "conditions": [{ "type": "Failed", "status": "True" }] });
    let refused = send_as(&client, &ann, "PUT", &format!("{CSRS}/x/status"), &approved).await;
    assert_eq!(refused["message"], why.replace("approve", "sign"));
}
