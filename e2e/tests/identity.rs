//! Who is who on the embedded API server, and who may do what: certificates, tokens, impersonation,
//! RBAC.

// The lints know test functions, not the functions that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use kube::Client;
use muster_e2e::apiserver::{ApiServer, Running};
use muster_e2e::harness::test_bed::eventually;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::process::Command;

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn server() -> (Running, Client) {
    muster_shared::tls::install_provider();
    let server = ApiServer::for_test().await;
    let client = server.client().await.unwrap();
    (server, client)
}

/// Sends a request, perhaps as somebody else; the answer is the object or `Status`.
async fn send_as(
    client: &Client,
    who: &[(&str, &str)],
    method: &str,
    path: &str,
    body: &Value,
) -> Value {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json");
    for (header, value) in who {
        request = request.header(*header, *value);
    }
    let request = request.body(body.to_string().into_bytes().into()).unwrap();
    let response = client.send(request).await.unwrap();
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await
        .unwrap()
        .to_bytes();
    serde_json::from_slice(&body).unwrap()
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    send_as(client, &[], method, path, body).await
}

/// Reads an object until it is as wanted.
async fn until(client: &Client, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(path, async || {
        let answer = send(client, "GET", path, &Value::Null).await;
        wanted(&answer)
            .then_some(answer.clone())
            .ok_or_else(|| format!("not as wanted: {answer}"))
    })
    .await
}

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

/// A client with a certificate.
async fn client_with(server: &Running, certificate: &str, key: &str) -> Client {
    let mut kubeconfig = server.admin_kubeconfig().unwrap();
    let auth = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    auth.client_certificate_data = Some(certificate.to_owned());
    auth.client_key_data = Some(key.to_owned().into());
    client_of(kubeconfig).await
}

async fn client_of(kubeconfig: kube::config::Kubeconfig) -> Client {
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// A client with a bearer token.
async fn client_with_token(server: &Running, token: &str) -> Client {
    let mut kubeconfig = server.admin_kubeconfig().unwrap();
    kubeconfig.auth_infos[0].auth_info = Some(kube::config::AuthInfo {
        token: Some(token.to_owned().into()),
        ..kube::config::AuthInfo::default()
    });
    client_of(kubeconfig).await
}

async fn who_am_i(client: &Client) -> Value {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    send(client, "POST", path, &review).await["status"]["userInfo"].clone()
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
async fn every_organization_of_a_certificate_is_a_group() {
    let (server, _) = server().await;
    let jane = server
        .client_as("jane", &["dev", "ops", "qa"])
        .await
        .unwrap();
    let info = who_am_i(&jane).await;
    assert_eq!(
        info["groups"],
        json!(["dev", "ops", "qa", "system:authenticated"])
    );
    let print = info["extra"]["authentication.kubernetes.io/credential-id"][0]
        .as_str()
        .unwrap();
    assert!(print.starts_with("X509SHA256="), "{print}");
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

/// Grants rules to a user, cluster-wide, under the user's name.
async fn grant(client: &Client, user: &str, rules: &Value) {
    let role = json!({ "metadata": { "name": user }, "rules": rules });
    let made = send(client, "POST", &format!("{RBAC}/clusterroles"), &role).await;
    assert_eq!(made["kind"], "ClusterRole", "{made}");
    let made = send(
        client,
        "POST",
        &format!("{RBAC}/clusterrolebindings"),
        &binding(user, user, user),
    )
    .await;
    assert_eq!(made["kind"], "ClusterRoleBinding", "{made}");
}

fn binding(name: &str, role: &str, user: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "User", "apiGroup": group, "name": user }],
    })
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let (_server, client) = server().await;
    let held = json!([
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create", "update", "patch"] },
        { "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"] },
    ]);
    grant(&client, "ann", &held).await;
    let ann = [("impersonate-user", "ann")];
    let (roles, bindings) = (
        format!("{RBAC}/clusterroles"),
        format!("{RBAC}/clusterrolebindings"),
    );
    let role = |name: &str, rules: &Value| json!({ "metadata": { "name": name }, "rules": rules });

    let more = json!([
        { "apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "list"] },
        { "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "delete"] },
        { "nonResourceURLs": ["/x"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"] },
    ]);
    let refused = send_as(&client, &ann, "POST", &roles, &role("more", &more)).await;
    assert_eq!(
        refused["message"],
        "clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"configmaps\"], ResourceNames:[\"a\"], Verbs:[\"get\"]}\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}\n\
         {APIGroups:[\"apps\"], Resources:[\"deployments\"], Verbs:[\"delete\"]}\n\
         {NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
    );
    let less = json!([{ "apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"] }]);
    let made = send_as(&client, &ann, "POST", &roles, &role("less", &less)).await;
    assert_eq!(made["kind"], "ClusterRole", "{made}");
    let made = send_as(
        &client,
        &ann,
        "POST",
        &bindings,
        &binding("b", "less", "bob"),
    )
    .await;
    assert_eq!(made["kind"], "ClusterRoleBinding", "{made}");
    let refused = send_as(
        &client,
        &ann,
        "POST",
        &bindings,
        &binding("c", "cluster-admin", "bob"),
    )
    .await;
    assert!(refused["message"].as_str().unwrap().ends_with("{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"), "{refused}");
    let refused = send_as(
        &client,
        &ann,
        "POST",
        &bindings,
        &binding("c", "nosuch", "bob"),
    )
    .await;
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (
            &json!(404),
            &json!("clusterrolebindings.rbac.authorization.k8s.io \"nosuch\" not found")
        )
    );

    // `escalate` and `bind` lift it.
    let lifted = json!([
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["escalate"] },
        { "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["cluster-admin"], "verbs": ["bind"] },
    ]);
    send(&client, "POST", &roles, &role("lifted", &lifted)).await;
    send(
        &client,
        "POST",
        &bindings,
        &binding("lifted", "lifted", "ann"),
    )
    .await;
    let made = send_as(&client, &ann, "POST", &roles, &role("more", &more)).await;
    assert_eq!(made["kind"], "ClusterRole", "{made}");
    let made = send_as(
        &client,
        &ann,
        "POST",
        &bindings,
        &binding("c", "cluster-admin", "bob"),
    )
    .await;
    assert_eq!(made["kind"], "ClusterRoleBinding", "{made}");
}

#[tokio::test]
async fn rights_follow_the_roles_as_they_are_written() {
    let (_server, client) = server().await;
    let bob = [("impersonate-user", "bob")];
    let list =
        async || send_as(&client, &bob, "GET", "/api/v1/nodes", &Value::Null).await["kind"].clone();
    assert_eq!(list().await, "Status");
    grant(
        &client,
        "bob",
        &json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["list"] }]),
    )
    .await;
    assert_eq!(list().await, "NodeList");
    send(
        &client,
        "PUT",
        &format!("{RBAC}/clusterroles/bob"),
        &json!({ "metadata": { "name": "bob" }, "rules": [] }),
    )
    .await;
    assert_eq!(list().await, "Status");
    send(&client, "PUT", &format!("{RBAC}/clusterroles/bob"), &json!({ "metadata": { "name": "bob" }, "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] })).await;
    assert_eq!(list().await, "NodeList");
    send(
        &client,
        "DELETE",
        &format!("{RBAC}/clusterrolebindings/bob"),
        &json!({}),
    )
    .await;
    assert_eq!(list().await, "Status");
}

#[tokio::test]
async fn being_somebody_else_takes_the_right_to_it() {
    let (server, client) = server().await;
    let rules = json!([
        { "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"], "verbs": ["impersonate"] },
        { "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"], "resourceNames": ["a"], "verbs": ["impersonate"] },
    ]);
    grant(&client, "ann", &rules).await;
    let ann = server.client_as("ann", &[]).await.unwrap();
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let mut bob = vec![
        ("impersonate-user", "bob"),
        ("impersonate-extra-scopes", "a"),
    ];
    let review = send_as(&ann, &bob, "POST", path, &json!({})).await;
    assert_eq!(
        review["status"]["userInfo"],
        json!({ "username": "bob", "groups": ["system:authenticated"], "extra": { "scopes": ["a"] } })
    );
    for (header, value, why) in [
        (
            "impersonate-extra-scopes",
            "b",
            "userextras.authentication.k8s.io \"b\" is forbidden: User \"ann\" cannot impersonate resource \"userextras/scopes\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (
            "impersonate-uid",
            "u",
            "uids.authentication.k8s.io \"u\" is forbidden: User \"ann\" cannot impersonate resource \"uids\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (
            "impersonate-group",
            "system:masters",
            "groups \"system:masters\" is forbidden: User \"ann\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope",
        ),
    ] {
        bob.push((header, value));
        let refused = send_as(&ann, &bob, "POST", path, &json!({})).await;
        assert_eq!(refused["message"], why);
        bob.pop();
    }
}

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// Makes the account `bot`, and the secret `anchor` for its tokens to be bound to.
async fn make_bot(client: &Client) {
    let secrets = "/api/v1/namespaces/default/secrets";
    for (path, name) in [(ACCOUNTS, "bot"), (secrets, "anchor")] {
        send(
            client,
            "POST",
            path,
            &json!({ "metadata": { "name": name } }),
        )
        .await;
    }
}

/// The answer to a request for a token of `bot`.
async fn token_of_bot(client: &Client, spec: Value) -> Value {
    let path = format!("{ACCOUNTS}/bot/token");
    send(client, "POST", &path, &json!({ "spec": spec })).await
}

#[tokio::test]
async fn a_token_is_bound_only_to_what_is_there() {
    let (_server, client) = server().await;
    make_bot(&client).await;
    for (reference, message) in [
        (
            json!({ "kind": "ConfigMap", "apiVersion": "v1", "name": "x" }),
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            json!({ "kind": "Secret", "apiVersion": "v1", "name": "x" }),
            "secrets \"x\" not found",
        ),
        (
            json!({ "kind": "Secret", "apiVersion": "v1", "name": "anchor", "uid": "zz" }),
            "Operation cannot be fulfilled on Secret \"anchor\": the UID in the bound object reference (zz) does not match the UID in record. The object might have been deleted and then recreated",
        ),
    ] {
        assert_eq!(
            token_of_bot(&client, json!({ "boundObjectRef": reference })).await["message"],
            message
        );
    }
}

#[tokio::test]
async fn tokens_stand_for_accounts_as_long_as_what_they_are_bound_to() {
    let (server, client) = server().await;
    make_bot(&client).await;
    let plain = token_of_bot(&client, json!({})).await["status"]["token"].clone();
    let bot = client_with_token(&server, plain.as_str().unwrap()).await;
    let info = who_am_i(&bot).await;
    assert_eq!(
        info["username"], "system:serviceaccount:default:bot",
        "{info}"
    );
    assert_eq!(
        info["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );

    let bound = token_of_bot(
        &client,
        json!({ "boundObjectRef": { "kind": "Secret", "apiVersion": "v1", "name": "anchor" } }),
    )
    .await["status"]["token"]
        .clone();
    let review = |token: &Value, audiences: Value| {
        let client = client.clone();
        let spec = json!({ "token": token, "audiences": audiences });
        async move {
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            send(&client, "POST", path, &json!({ "spec": spec })).await["status"].clone()
        }
    };
    assert_eq!(review(&bound, json!([])).await["authenticated"], true);
    let foreign =
        token_of_bot(&client, json!({ "audiences": ["vault"] })).await["status"]["token"].clone();
    assert_eq!(
        review(&foreign, json!(["vault", "other"])).await["audiences"],
        json!(["vault"])
    );
    assert!(
        review(&foreign, json!([])).await["error"]
            .as_str()
            .unwrap()
            .contains("is invalid for the target audiences")
    );
    send(
        &client,
        "DELETE",
        "/api/v1/namespaces/default/secrets/anchor",
        &json!({}),
    )
    .await;
    assert_eq!(
        review(&bound, json!([])).await["error"],
        "invalid bearer token"
    );
    assert_eq!(review(&plain, json!([])).await["authenticated"], true);
    send(&client, "DELETE", &format!("{ACCOUNTS}/bot"), &json!({})).await;
    assert_eq!(
        review(&plain, json!([])).await["error"],
        "invalid bearer token"
    );
}

#[tokio::test]
async fn secrets_of_the_old_kind_are_filled_with_a_token() {
    let (server, client) = server().await;
    let secret = json!({
        "metadata": { "name": "old", "annotations": { "kubernetes.io/service-account.name": "default" } },
        "type": "kubernetes.io/service-account-token",
    });
    let path = "/api/v1/namespaces/default/secrets";
    until(
        &client,
        "/api/v1/namespaces/default/serviceaccounts/default",
        |a| a["metadata"]["uid"].is_string(),
    )
    .await;
    send(&client, "POST", path, &secret).await;
    let filled = until(&client, &format!("{path}/old"), |s| {
        s["data"]["token"].is_string()
    })
    .await;
    let token = STANDARD
        .decode(filled["data"]["token"].as_str().unwrap())
        .unwrap();
    let token = String::from_utf8(token).unwrap();
    let bot = client_with_token(&server, &token).await;
    assert_eq!(
        who_am_i(&bot).await["username"],
        "system:serviceaccount:default:default"
    );
    send(&client, "DELETE", &format!("{path}/old"), &json!({})).await;
    assert_eq!(who_am_i(&bot).await, Value::Null);
}

/// `kubectl` with an administrator's kubeconfig; `None`, said aloud, where there is no kubectl.
struct Kubectl(PathBuf);

impl Kubectl {
    async fn new(server: &Running, name: &str) -> Option<Self> {
        let found = Command::new("kubectl")
            .args(["version", "--client"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await;
        if !found.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: no kubectl on this machine");
            return None;
        }
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let kubeconfig = serde_json::to_string(&server.admin_kubeconfig().unwrap()).unwrap();
        std::fs::write(directory.join("kubeconfig"), kubeconfig).unwrap();
        Some(Self(directory))
    }

    /// What it prints, and whether it succeeds.
    async fn run(&self, arguments: &[&str]) -> (String, bool) {
        let run = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.0.join("kubeconfig"))
            .arg("--cache-dir")
            .arg(self.0.join("cache"))
            .args(arguments)
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_mins(1), run)
            .await
            .expect("kubectl answers")
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            String::from_utf8_lossy(&text).trim().to_owned(),
            output.status.success(),
        )
    }
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn kubectl_asks_makes_tokens_and_approves() {
    let (server, client) = server().await;
    let Some(kubectl) = Kubectl::new(&server, "kubectl-identity").await else {
        return;
    };
    assert_eq!(
        kubectl.run(&["auth", "can-i", "delete", "pods"]).await,
        ("yes".to_owned(), true)
    );
    assert_eq!(
        kubectl
            .run(&["auth", "can-i", "delete", "pods", "--as", "jane"])
            .await,
        ("no".to_owned(), false)
    );
    let (rules, well) = kubectl
        .run(&["auth", "can-i", "--list", "--as", "jane"])
        .await;
    assert!(
        well && rules.contains("selfsubjectreviews.authentication.k8s.io"),
        "{rules}"
    );
    let (info, well) = kubectl.run(&["auth", "whoami", "-o", "json"]).await;
    assert!(well && info.contains("\"kubernetes-admin\""), "{info}");

    until(
        &client,
        "/api/v1/namespaces/default/serviceaccounts/default",
        |a| a["metadata"]["uid"].is_string(),
    )
    .await;
    let (token, well) = kubectl
        .run(&[
            "create",
            "token",
            "default",
            "--duration",
            "20m",
            "--audience",
            "https://kubernetes.default.svc.cluster.local",
        ])
        .await;
    assert!(well, "{token}");
    let bot = client_with_token(&server, &token).await;
    assert_eq!(
        who_am_i(&bot).await["username"],
        "system:serviceaccount:default:default"
    );

    let key = KeyPair::generate().unwrap();
    send(&client, "POST", CSRS, &csr("jane", &request("jane", &key))).await;
    send(&client, "POST", CSRS, &csr("joe", &request("joe", &key))).await;
    let (said, well) = kubectl.run(&["certificate", "approve", "jane"]).await;
    assert_eq!(
        (said.as_str(), well),
        (
            "certificatesigningrequest.certificates.k8s.io/jane approved",
            true
        )
    );
    let (said, well) = kubectl.run(&["certificate", "deny", "joe"]).await;
    assert_eq!(
        (said.as_str(), well),
        (
            "certificatesigningrequest.certificates.k8s.io/joe denied",
            true
        )
    );
    let signed = until(&client, &format!("{CSRS}/jane"), |csr| {
        csr["status"]["certificate"].is_string()
    })
    .await;
    let jane = client_with(
        &server,
        signed["status"]["certificate"].as_str().unwrap(),
        &STANDARD.encode(key.serialize_pem()),
    )
    .await;
    assert_eq!(who_am_i(&jane).await["username"], "jane");
    let (table, _) = kubectl.run(&["get", "csr"]).await;
    assert!(
        table.contains("Approved,Issued") && table.contains("Denied"),
        "{table}"
    );
}
