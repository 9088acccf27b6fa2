//! Admission webhooks of the embedded API server, against a webhook over real TLS. The texts are
//! those of kube-apiserver.

mod choosing;
mod namespaces;
mod policy;
mod reviews;
mod webhook;

use http::Request;
use kube::Client;
use muster_e2e::apiserver::{ApiServer, Running};
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
        Self::start(server).await
    }

    /// Begins with a server that was started already.
    async fn start(server: Running) -> Self {
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
        let kind = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body.to_string().into_bytes().into())
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|w| w.to_str().unwrap().to_owned()).collect();
        let body = http_body_util::BodyExt::collect(response.into_body())
            .await
            .unwrap()
            .to_bytes();
        (serde_json::from_slice(&body).unwrap(), warnings)
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
