//! Who is who on the embedded API server, and who may do what: signers, tokens, impersonation,
//! RBAC.

mod certificates;
mod rights;
mod tokens;

use kube::Client;
use muster_e2e::apiserver::{ApiServer, Running};
use muster_e2e::harness::raw;
use serde_json::{Value, json};

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
    raw::send(client, who, method, path, body).await.body
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Value {
    send_as(client, &[], method, path, body).await
}

async fn client_of(kubeconfig: kube::config::Kubeconfig) -> Client {
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

/// Returns a client with a bearer token.
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
