//! Admission webhooks of the embedded API server, against a webhook over real TLS. The texts are
//! those of kube-apiserver.

mod choosing;
mod namespaces;
mod policy;
mod reviews;
mod webhook;

use kube::Client;
use muster_e2e::apiserver::{ApiServer, Running};
use muster_e2e::harness::raw;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Talk {
    _server: Option<Running>,
    client: Client,
}

impl Talk {
    async fn begin() -> Self {
        muster_shared::tls::install_provider();
        let server = ApiServer::for_test().await;
        let client = server.client().await.unwrap();
        Self {
            _server: Some(server),
            client,
        }
    }

    /// Begins with a server that somebody else keeps.
    fn with(client: &Client) -> Self {
        Self {
            _server: None,
            client: client.clone(),
        }
    }

    /// Sends a request; the answer is the object or `Status`, with the warnings.
    async fn send(&self, method: &str, path: &str, body: &Value) -> (Value, Vec<String>) {
        let answer = raw::send(&self.client, &[], method, path, body).await;
        (answer.body, answer.warnings)
    }

    async fn configure(&self, kind: &str, name: &str, webhooks: Value) {
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations",
            kind.to_lowercase()
        );
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
            "metadata": { "name": name }, "webhooks": webhooks,
        });
        self.send("DELETE", &format!("{path}/{name}"), &json!({}))
            .await;
        let (made, _) = self.send("POST", &path, &configuration).await;
        assert_eq!(made["metadata"]["name"], name, "{made}");
    }

    async fn create(&self, map: &Value) -> (Value, Vec<String>) {
        self.send(
            "POST",
            &format!("{MAPS}?fieldManager=me&fieldValidation=Strict"),
            map,
        )
        .await
    }
}

fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}
