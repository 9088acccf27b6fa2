//! The same with `kubectl`, where it is installed.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster_e2e::apiserver::Running;
use rcgen::KeyPair;
use tokio::process::Command;

use crate::identity::certificates::{csr, request};
use crate::identity::{CSRS, client_with, client_with_token, send, server, until, who_am_i};
use crate::support::Place;

/// `kubectl` with an administrator's kubeconfig; `None`, said aloud, where there is no kubectl.
struct Kubectl(Place);

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
        let directory = Place::new(name);
        let kubeconfig = serde_json::to_string(&server.admin_kubeconfig().unwrap()).unwrap();
        std::fs::write(directory.join("kubeconfig"), kubeconfig).unwrap();
        Some(Self(directory))
    }

    /// Runs `kubectl`, and returns what it prints and whether it succeeds.
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
        table.contains("Approved") && table.contains("Denied"),
        "{table}"
    );
}
