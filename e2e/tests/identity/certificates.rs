//! Certificates: requests, approval, signing, and whom a certificate stands for.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::identity::{CSRS, client_with, grant, send, send_as, server, until, who_am_i};

fn request(name: &str, key: &KeyPair) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
        .distinguished_name
        .push(DnType::OrganizationName, "dev");
    STANDARD.encode(params.serialize_request(key).unwrap().pem().unwrap())
}

fn csr(name: &str, request: &str) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name },
        "spec": {
            "request": request, "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"], "expirationSeconds": 3600, "username": "somebody else",
        },
    })
}

#[tokio::test]
async fn an_approved_request_becomes_a_certificate_that_the_server_knows() {
    let (server, client) = server().await;
    let key = KeyPair::generate().unwrap();
    let request = csr("jane", &request("jane", &key));
    let joe = [
        ("impersonate-user", "joe"),
        ("impersonate-group", "system:masters"),
        ("impersonate-extra-scopes", "a"),
    ];
    let made = send_as(&client, &joe, "POST", CSRS, &request).await;
    assert_eq!(
        (&made["spec"]["username"], &made["spec"]["extra"]),
        (&json!("joe"), &json!({ "scopes": ["a"] }))
    );

    let path = format!("{CSRS}/jane");
    let mut approved = made.clone();
    approved["spec"]["usages"] = json!(["server auth"]);
    approved["status"] = json!({ "certificate": "eHg=", "conditions": [{ "type": "Approved", "status": "True", "reason": "Test" }] });
    let approved = send(&client, "PUT", &format!("{path}/approval"), &approved).await;
    assert_eq!(
        approved["status"]["conditions"][0]["type"], "Approved",
        "{approved}"
    );
    assert!(approved["status"]["conditions"][0]["lastTransitionTime"].is_string());
    // An approval approves, and changes nothing else.
    assert_eq!(approved["spec"]["usages"], json!(["client auth"]));

    let signed = until(&client, &path, |csr| {
        csr["status"]["certificate"].is_string()
    })
    .await;
    let certificate = signed["status"]["certificate"].as_str().unwrap();
    let pem = STANDARD.decode(certificate).unwrap();
    let der = CertificateDer::from_pem_slice(&pem).unwrap();
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
    let validity = parsed.validity();
    let life = validity.not_after.timestamp() - validity.not_before.timestamp();
    assert_eq!(
        life,
        3600 + 300,
        "an hour as asked for, from five minutes ago"
    );

    let jane = client_with(&server, certificate, &STANDARD.encode(key.serialize_pem())).await;
    let info = who_am_i(&jane).await;
    assert_eq!(info["username"], "jane", "{info}");
    assert_eq!(info["groups"], json!(["dev", "system:authenticated"]));

    let mut unapproved = signed.clone();
    unapproved["status"]["conditions"] = json!([]);
    let refused = send(&client, "PUT", &format!("{path}/approval"), &unapproved).await;
    assert_eq!(
        refused["details"]["causes"][0]["message"],
        "Forbidden: updates may not remove a condition of type \"Approved\""
    );
}

#[tokio::test]
async fn approving_and_signing_take_rights_on_the_signer() {
    let (_server, client) = server().await;
    let rules = json!([{ "apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["get", "update"] }]);
    grant(&client, "ann", &rules).await;
    let ann = [("impersonate-user", "ann")];
    let made = send(
        &client,
        "POST",
        CSRS,
        &csr("x", &request("x", &KeyPair::generate().unwrap())),
    )
    .await;
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
